//! The listening socket at which clients attach.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

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
    /// Why, and what to do.
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
}

impl ControlSocket {
    /// Binds `path` with permission bits `mode`, for members of `group` where one is given. A
    /// socket left behind by an engine that is gone
    /// is replaced; one that still answers is not.
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
                            "another engine answers there; stop it or choose another --socket"
                                .into(),
                        ));
                    }
                    Err(Errno::CONNREFUSED) => {}
                    Err(error) => {
                        return Err(fail(format!(
                            "something else lies there ({error}); remove it or choose another --socket"
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
        Ok(Self { fd, path: path.to_path_buf() })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = rustix::fs::unlink(&self.path);
    }
}
