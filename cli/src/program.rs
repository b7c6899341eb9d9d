//! What can be told of a program before it starts: whether the loader will load the library into it,
//! and whether its sockets pass the C library at all.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most program headers that are looked at, and most bytes of one note segment.
const HEADERS_MAX: u16 = 64;
const NOTES_MAX: u64 = 64 << 10;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// Why a program's sockets will not be accelerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// It has no dynamic loader.
    Static,
    /// It is made for another class or architecture.
    OtherMachine,
    /// Its loader is musl's.
    Musl,
    /// Its Go runtime makes system calls itself.
    Go,
    /// It runs as another user or group.
    Setuid,
    /// It has file capabilities.
    Capabilities,
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => {
                "is statically linked and loads no library; use a dynamically linked build"
            }
            Self::OtherMachine => "is built for another architecture than the library",
            Self::Musl => "is linked with musl, but the library needs glibc; use a build for glibc",
            Self::Go => {
                "is a Go program, whose runtime makes system calls itself; there is no workaround"
            }
            Self::Setuid => {
                "is set-user-ID or set-group-ID, for which the loader ignores LD_PRELOAD; start it \
                 as the user that it runs as"
            }
            Self::Capabilities => {
                "has file capabilities, for which the loader ignores LD_PRELOAD; start it as root, \
                 or give the capabilities to its service instead of its file (getcap, setcap -r)"
            }
        })
    }
}

/// Who starts the program, as far as it matters for the loader's secure mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starter {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// PR_SET_NO_NEW_PRIVS: set-user-ID bits and file capabilities have no effect.
    pub no_new_privs: bool,
}

impl Starter {
    /// This process.
    pub fn own() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            no_new_privs: status.lines().any(|line| line == "NoNewPrivs:\t1"),
        }
    }
}

/// Why the program at `path`, started by `starter`, bypasses the library; with the file that is
/// meant, which is a script's interpreter. `None` when nothing is known against it.
pub fn bypass(path: &Path, starter: Starter) -> Option<(PathBuf, Bypass)> {
    let file = File::open(path).ok()?;
    if let Some(interpreter) = interpreter_of_script(&file) {
        // Scripts have neither owner's rights nor capabilities. An interpreter that is a script
        // itself is looked at no further.
        let file = File::open(&interpreter).ok()?;
        let found = of_executable(&interpreter, &file, starter)?;
        return Some((interpreter, found));
    }
    let found = of_executable(path, &file, starter)?;
    Some((path.to_path_buf(), found))
}

fn of_executable(path: &Path, file: &File, starter: Starter) -> Option<Bypass> {
    let header = read(file, 0, 64)?;
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    // 64 bits, little-endian, and of this machine as this very executable is.
    let own = File::open("/proc/self/exe").ok().and_then(|own| read(&own, 0, 64));
    let machine = |header: &[u8]| Some((*header.get(4)?, *header.get(5)?, number(header, 18)?));
    if own.is_some_and(|own| machine(&own) != machine(&header)) {
        return Some(Bypass::OtherMachine);
    }
    let segments = Segments::of(file, &header)?;
    match segments.interpreter {
        None => return Some(Bypass::Static),
        Some(interpreter) if interpreter.windows(7).any(|part| part == b"ld-musl") => {
            return Some(Bypass::Musl);
        }
        Some(_) => {}
    }
    if segments.is_go {
        return Some(Bypass::Go);
    }
    if starter.no_new_privs {
        return None;
    }
    let status = file.metadata().ok()?;
    let changes_user = status.mode() & 0o4000 != 0 && status.uid() != starter.uid;
    let changes_group = status.mode() & 0o2010 == 0o2010 && status.gid() != starter.gid;
    if changes_user || changes_group {
        return Some(Bypass::Setuid);
    }
    // Root has them anyway, and gains none.
    let mut room = [0_u8; 64];
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut room[..]).is_ok();
    (has_capabilities && starter.uid != 0).then_some(Bypass::Capabilities)
}

/// The program that runs a script: what its first line names, and behind env(1) what env is told.
fn interpreter_of_script(file: &File) -> Option<PathBuf> {
    let mut start = Vec::new();
    file.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let path = |word: &[u8]| PathBuf::from(OsString::from_vec(word.to_vec()));
    let interpreter = path(words.next()?);
    if interpreter.file_name().is_some_and(|name| name == "env") {
        let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
        return lab::find(&path(named).to_string_lossy());
    }
    Some(interpreter)
}

/// What the program headers tell.
struct Segments {
    interpreter: Option<Vec<u8>>,
    is_go: bool,
}

impl Segments {
    fn of(file: &File, header: &[u8]) -> Option<Self> {
        let table = long(header, 32)?;
        let (size, count) = (u64::from(number(header, 54)?), number(header, 56)?.min(HEADERS_MAX));
        let mut segments = Self { interpreter: None, is_go: false };
        for index in 0..u64::from(count) {
            let entry = read(file, table.checked_add(index * size)?, 56)?;
            let kind = u32::from_le_bytes(entry.get(..4)?.try_into().ok()?);
            let (offset, bytes) = (long(&entry, 8)?, long(&entry, 32)?);
            match kind {
                PT_INTERP => segments.interpreter = read(file, offset, bytes.min(4096)),
                PT_NOTE => {
                    let notes = read(file, offset, bytes.min(NOTES_MAX))?;
                    // The owner's name of `.note.go.buildid`, which is 4-aligned.
                    let mut words = notes.chunks_exact(4);
                    segments.is_go |= words.any(|word| word == b"Go\0\0");
                }
                _ => {}
            }
        }
        Some(segments)
    }
}

fn read(file: &File, at: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut read = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut read, at).ok()?;
    Some(read)
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    const USER: Starter = Starter { uid: 4711, gid: 4711, no_new_privs: false };

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("outboard-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).expect("a file");
            path
        }

        /// A program of `main` alone.
        fn compiled(&self, name: &str, flags: &[&str]) -> PathBuf {
            let source = self.file("main.c", b"int main(void) { return 0; }");
            let path = self.0.join(name);
            let made = Command::new("cc").args(flags).arg("-o").arg(&path).arg(source).status();
            assert!(made.expect("cc").success());
            path
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn why(path: &Path, starter: Starter) -> Option<Bypass> {
        bypass(path, starter).map(|(_, why)| why)
    }

    #[test]
    fn a_static_program_is_told_from_a_dynamic_one() {
        let directory = Directory::new("static");
        let dynamic = directory.compiled("dynamic", &[]);
        assert_eq!(why(&dynamic, USER), None);
        assert_eq!(why(&directory.compiled("static", &["-static"]), USER), Some(Bypass::Static));
        let bytes = std::fs::read(&dynamic).expect("readable");
        assert_eq!(why(&directory.file("short", &bytes[..70]), USER), None, "no program at all");
        let mut other = bytes;
        other[18] ^= 0xff;
        assert_eq!(why(&directory.file("other", &other), USER), Some(Bypass::OtherMachine));
    }

    #[test]
    fn a_program_with_more_rights_than_its_starter_is_told_of() {
        let directory = Directory::new("rights");
        let program = directory.compiled("program", &[]);
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("its mode");
        let owner = std::fs::metadata(&program).expect("its status").uid();
        assert_eq!(why(&program, USER), Some(Bypass::Setuid));
        assert_eq!(why(&program, Starter { uid: owner, ..USER }), None, "no other user");
        assert_eq!(why(&program, Starter { no_new_privs: true, ..USER }), None);
    }

    #[test]
    fn a_go_program_and_one_of_musl_are_known_by_their_segments() {
        let directory = Directory::new("segments");
        let program = directory.compiled("program", &[]);
        let bytes = std::fs::read(program).expect("readable");
        let replaced = |from: &[u8], to: &[u8]| {
            let at = bytes.windows(from.len()).position(|part| part == from).expect("it is there");
            let mut changed = bytes.clone();
            changed[at..at + to.len()].copy_from_slice(to);
            changed
        };
        let go = directory.file("go", &replaced(b"GNU\0", b"Go\0\0"));
        assert_eq!(why(&go, USER), Some(Bypass::Go));
        let musl = directory.file("musl", &replaced(b"/lib64/ld-linux", b"/lib/ld-musl-x8"));
        assert_eq!(why(&musl, USER), Some(Bypass::Musl));
    }

    #[test]
    fn of_a_script_its_interpreter_counts() {
        let directory = Directory::new("script");
        let interpreter = directory.compiled("interpreter", &["-static"]);
        let line = format!("#! {} -x\n", interpreter.display());
        let script = directory.file("script", line.as_bytes());
        assert_eq!(bypass(&script, USER), Some((interpreter, Bypass::Static)));
        assert_eq!(why(&directory.file("shell", b"#!/bin/sh\n"), USER), None);
        assert_eq!(why(&directory.file("env", b"#!/usr/bin/env -S A=1 sh\n"), USER), None);
        assert_eq!(why(&directory.file("empty", b""), USER), None);
    }
}
