//! The listening socket to which clients attach.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Why the control socket could not be opened.
#[derive(Debug)]
pub struct ControlError {
    /// The socket's path.
    pub path: PathBuf,
    /// The reason, and what to do.
    pub reason: String,
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "control socket {}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for ControlError {}

/// The listening socket; removed from the file system when dropped.
pub struct ControlSocket {
    pub(super) fd: OwnedFd,
    path: PathBuf,
    mode: u32,
    group: Option<u32>,
    /// Device and inode of the file created at the path.
    file: Option<(u64, u64)>,
    /// Reports changes of the path's directory; `None` if it cannot be watched.
    watch: Option<OwnedFd>,
}

/// Device and inode of the file at `path`.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::lstat(path).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Watches for removals from the directory of `path`, and for the removal of the directory itself.
fn watch(path: &Path) -> Result<OwnedFd, Errno> {
    let events = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF;
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    inotify::add_watch(&watch, directory, events)?;
    Ok(watch)
}

impl ControlSocket {
    /// Binds `path` with permission bits `mode`, for members of `group` if given. Replaces a stale
    /// socket of an engine that has ended, but not one at which an engine answers.
    ///
    /// # Errors
    /// When another engine answers there, or the path cannot be used.
    pub fn open(path: &Path, mode: u32, group: Option<u32>) -> Result<Self, ControlError> {
        let fail = |reason: String| ControlError { path: path.to_path_buf(), reason };
        let address = SocketAddrUnix::new(path).map_err(|error| {
            fail(format!("the path is not usable ({error}); choose a shorter one"))
        })?;
        let open = || {
            socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                None,
            )
            .map_err(|error| fail(format!("socket: {error}")))
        };
        let fd = open()?;
        let bound = match bind(&fd, &address) {
            Err(Errno::ADDRINUSE) => {
                match connect(open()?, &address) {
                    Ok(()) | Err(Errno::AGAIN) => {
                        return Err(fail(
                            "another engine listens there; stop it or choose another --socket"
                                .into(),
                        ));
                    }
                    Err(Errno::CONNREFUSED) => {}
                    Err(error) => {
                        return Err(fail(format!(
                            "the path is in use ({error}); remove the file or choose another \
                             --socket"
                        )));
                    }
                }
                rustix::fs::unlink(path)
                    .map_err(|error| fail(format!("cannot replace it: {error}")))?;
                bind(&fd, &address)
            }
            other => other,
        };
        bound.map_err(|error| {
            fail(format!("cannot create it: {error}; the directory must exist and be writable"))
        })?;
        if let Some(group) = group {
            rustix::fs::chown(path, None, Some(Gid::from_raw(group))).map_err(|error| {
                fail(format!(
                    "cannot give it to group {group}: {error}; start the engine as root or as a \
                     member of the group"
                ))
            })?;
        }
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))
            .map_err(|error| fail(format!("cannot set its permissions: {error}")))?;
        listen(&fd, 128).map_err(|error| fail(format!("listen: {error}")))?;
        let watched = watch(path);
        if let Err(error) = &watched {
            tracing::warn!("cannot watch the directory of {}: {error}", path.display());
        }
        let (path, file) = (path.to_path_buf(), file_at(path));
        Ok(Self { fd, path, mode, group, file, watch: watched.ok() })
    }

    /// Readable when a file was removed from the socket's directory.
    pub(super) fn watch(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Checks that the socket is still at its path, and creates another one if not: programs find
    /// an engine by its path only. `Some`: the new socket.
    pub(super) fn restored(&mut self) -> Option<Result<Self, ControlError>> {
        let mut bytes = [0; 4096];
        // The contents do not matter; they only must be consumed.
        while self.watch.as_ref().is_some_and(|fd| rustix::io::read(fd, &mut bytes).is_ok()) {}
        let there = file_at(&self.path);
        if there == self.file {
            return None;
        }
        if there.is_some() {
            self.watch = None;
            let reason =
                "another file is there now; programs can no longer find this engine".into();
            return Some(Err(ControlError { path: self.path.clone(), reason }));
        }
        if let Some(directory) = self.path.parent() {
            // If it fails, so does the next step, which reports the reason.
            let _ = std::fs::create_dir_all(directory);
        }
        let again = Self::open(&self.path, self.mode, self.group);
        if again.is_err() {
            self.watch = None;
        }
        Some(again)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Another engine's socket at the same path stays.
        if file_at(&self.path) == self.file {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}
