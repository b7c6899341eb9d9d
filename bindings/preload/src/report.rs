//! `outboard run --explain`: the outcome of the process's sockets, reported when it ends or becomes
//! another program.
//!
//! A signal handler may end the process, so nothing here allocates or waits: the report is composed
//! in a static page and written at once. There is no report at an end by a signal's default action,
//! or by glibc itself (the first process of daemon(3)).

use std::ffi::{CString, c_int};
use std::fmt::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock};

use client::sockets::Sockets;
use client::{CensusLine, Subject};

use crate::kernel::call;
use crate::real;

/// Requested form of reports: `text` or `json`, and after a colon the file to write to instead of
/// standard error.
const VARIABLE: &str = "OUTBOARD_EXPLAIN";
/// Room for a whole report: at most 63 lines.
const PAGE_BYTES: usize = 24 << 10;
/// The report's descriptor gets a number from here on if the limit permits.
const NUMBER_FROM: c_int = 900;

/// Descriptor numbers checked for sockets with which the program was started.
pub const PASSED_NUMBERS: RawFd = 256;

/// The event to report.
#[derive(Clone, Copy)]
pub enum Event {
    /// The process ends.
    Exit,
    /// The process becomes another program.
    Exec,
}

impl Event {
    fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Exec => "exec",
        }
    }
}

/// Form and destination of reports.
#[derive(Clone, Copy)]
pub struct Reporter {
    json: bool,
    /// Destination.
    pub fd: RawFd,
}

static REPORTER: OnceLock<Reporter> = OnceLock::new();
static PAGE: Mutex<Page> = Mutex::new(Page { bytes: [0; PAGE_BYTES], len: 0 });
/// The process that has reported its end.
static ENDED: AtomicI32 = AtomicI32::new(0);

/// Prepares reports, if they are requested. The descriptor is opened now: later the program may
/// have other privileges, another root directory or another standard error.
pub fn prepare() -> Option<Reporter> {
    let wish = std::env::var_os(VARIABLE)?.into_vec();
    let (format, path) = match wish.iter().position(|byte| *byte == b':') {
        Some(colon) => (&wish[..colon], Some(CString::new(&wish[colon + 1..]).ok()?)),
        None => (&wish[..], None),
    };
    let json = match format {
        b"text" => false,
        b"json" => true,
        _ => return None,
    };
    let first = match &path {
        Some(path) => {
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
            // SAFETY: a terminated path.
            unsafe { real::open(path.as_ptr(), flags, 0o666) }
        }
        None => libc::STDERR_FILENO,
    };
    // SAFETY: descriptors of this process's own.
    let lifted = unsafe {
        let above = |number: c_int| real::fcntl(first, libc::F_DUPFD_CLOEXEC, number as usize);
        let high = above(NUMBER_FROM);
        let lifted = if high >= 0 { high } else { above(3) };
        if path.is_some() && first >= 0 {
            real::close(first);
        }
        lifted
    };
    if lifted < 0 {
        crate::kernel::log_line("outboard: cannot open the report of --explain");
        return None;
    }
    let reporter = Reporter { json, fd: lifted };
    let _ = REPORTER.set(reporter);
    Some(reporter)
}

/// Whether there will be a report.
pub fn is_asked_for() -> bool {
    REPORTER.get().is_some()
}

/// Reports, once for a process's end.
pub fn report(event: Event) {
    let (Some(reporter), Some(sockets)) = (REPORTER.get(), crate::sockets()) else { return };
    // SAFETY: asks for a number only.
    let process = unsafe { libc::getpid() };
    if sockets.census().next().is_none() {
        return;
    }
    if matches!(event, Event::Exit) && ENDED.swap(process, Ordering::Relaxed) == process {
        return;
    }
    let Ok(mut page) = PAGE.try_lock() else { return };
    page.len = 0;
    if reporter.json {
        page.json(sockets, process, event);
    } else {
        page.text(sockets, process, event);
    }
    write_out(reporter.fd, page.bytes.get(..page.len).unwrap_or_default());
}

/// Writes all of it. A reader that is gone must not change how the program ends: no SIGPIPE.
fn write_out(fd: RawFd, bytes: &[u8]) {
    let held = crate::kernel::without_signals();
    let mut rest = bytes;
    let mut broken = false;
    while !rest.is_empty() {
        let arguments = [fd as usize, rest.as_ptr().expose_provenance(), rest.len(), 0, 0, 0];
        // SAFETY: readable bytes.
        let written = unsafe { call(libc::SYS_write, arguments) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
            _ => {
                broken = crate::boundary::errno() == libc::EPIPE;
                break;
            }
        }
    }
    if broken {
        // SAFETY: all zero is a valid set, which is filled before it is used; no other memory is passed.
        unsafe {
            let mut pipe: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut pipe);
            libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const at_once);
        }
    }
    crate::kernel::restore_signals(&held);
}

/// A report being composed.
struct Page {
    bytes: [u8; PAGE_BYTES],
    len: usize,
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl Page {
    /// Adds a piece as a whole or not at all; keeps room for `spare` bytes.
    fn add(&mut self, spare: usize, piece: impl FnOnce(&mut Self) -> fmt::Result) -> bool {
        let before = self.len;
        let fits = piece(self).is_ok() && self.len + spare <= PAGE_BYTES;
        if !fits {
            self.len = before;
        }
        fits
    }

    fn text(&mut self, sockets: &Sockets, process: c_int, event: Event) {
        const SPARE: usize = 64;
        let program = sockets.program();
        self.add(SPARE, |page| {
            writeln!(page, "outboard: {program} (pid {process}), at {}:", event.word())
        });
        for line in sockets.census() {
            if !self.add(SPARE, |page| writeln!(page, "outboard:   {line}")) {
                self.add(0, |page| writeln!(page, "outboard:   further lines left out"));
                return;
            }
        }
    }

    fn json(&mut self, sockets: &Sockets, process: c_int, event: Event) {
        const SPARE: usize = 64;
        self.add(SPARE, |page| {
            page.write_str("{\"program\":")?;
            page.string(sockets.program())?;
            write!(page, ",\"pid\":{process},\"event\":\"{}\",\"sockets\":[", event.word())
        });
        let mut separator = "";
        let mut complete = true;
        for line in sockets.census() {
            complete &= self.add(SPARE, |page| {
                page.write_str(separator)?;
                page.json_line(&line)
            });
            separator = ",";
        }
        self.add(0, |page| writeln!(page, "],\"complete\":{complete}}}"));
    }

    fn json_line(&mut self, line: &CensusLine) -> fmt::Result {
        let CensusLine { subject: Subject { kind, address, reason }, count } = *line;
        write!(self, "{{\"kind\":\"{}\",\"count\":{count},\"address\":", kind.word())?;
        match address {
            Some(address) => write!(self, "\"{address}\"")?,
            None => self.write_str("null")?,
        }
        match reason {
            None => self.write_str(",\"owner\":\"outboard\",\"reason\":null}"),
            Some(reason) => write!(
                self,
                ",\"owner\":\"kernel\",\"reason\":\"{}\",\"explanation\":\"{reason}\"}}",
                reason.word()
            ),
        }
    }

    fn string(&mut self, text: &str) -> fmt::Result {
        self.write_char('"')?;
        for c in text.chars() {
            match c {
                '"' | '\\' => write!(self, "\\{c}")?,
                c if c.is_control() => write!(self, "\\u{:04x}", u32::from(c))?,
                c => self.write_char(c)?,
            }
        }
        self.write_char('"')
    }
}
