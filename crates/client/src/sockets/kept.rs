//! Options that the engine does not implement: a kernel socket keeps them for the connection, so
//! that errors, rounding and returned values are the kernel's. A socket that was connected has its
//! own kernel socket, which stays unconnected; an accepted one gets one when it first needs it.

use std::os::fd::RawFd;
use std::time::Duration;

use super::option_kinds::is_moot;
use super::options::{algorithm, linger_told, put, timeval_of};
use super::signals::Told;
use super::socket::{AT_ONCE, Socket, held, timeout};
use super::{Errno, Sockets};

/// A program's settings of a stream socket.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// It is an IPv6 socket.
    pub v6: bool,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// The program reads no more (SHUT_RD).
    pub is_deaf: bool,
    /// Whom signals tell of the socket.
    pub told: Told,
    options: Vec<(i32, i32, i32)>,
    receive_timeout: Option<Duration>,
    send_timeout: Option<Duration>,
}

impl Settings {
    /// Those of a socket.
    pub fn of(socket: &Socket) -> Self {
        Self::with(socket, held(socket.options.lock()).clone())
    }

    /// Those of a parent's socket, in a forked child. The options are lost if a thread that does
    /// not exist here holds their lock.
    pub fn of_parents(socket: &Socket) -> Self {
        Self::with(
            socket,
            socket.options.try_lock().map(|options| options.clone()).unwrap_or_default(),
        )
    }

    /// The same without options that affect the binding of other sockets.
    pub fn of_connection(mut self) -> Self {
        self.options.retain(|&(level, name, _)| !is_moot(level, name));
        self
    }

    fn with(socket: &Socket, options: Vec<(i32, i32, i32)>) -> Self {
        Self {
            v6: socket.v6,
            nonblocking: socket.is_nonblocking(),
            is_deaf: socket.shut.is_read(),
            told: socket.owner.told(),
            options,
            receive_timeout: timeout(&socket.receive_timeout_ns),
            send_timeout: timeout(&socket.send_timeout_ns),
        }
    }
}

impl Sockets {
    /// The kernel socket that keeps the connection's options.
    pub(super) fn keeper(&self, socket: &Socket) -> Result<RawFd, Errno> {
        if !socket.was_accepted() {
            return socket.number().ok_or(Errno::BADF);
        }
        let era = self.era().ok_or(Errno::BADF)?;
        let mut keeper = held(socket.keeper.lock());
        if let Some(fd) = *keeper {
            return Ok(fd);
        }
        let fd = self.lift(self.kernel.inert(socket.v6)?);
        self.hide(era, fd);
        // The options of its listener.
        self.restore_options(socket, fd);
        *keeper = Some(fd);
        Ok(fd)
    }

    /// Applies a socket's settings to a kernel socket of its own.
    pub(super) fn restore_options(&self, socket: &Socket, fd: RawFd) {
        self.restore(&Settings::of(socket), fd);
    }

    /// Applies settings to another kernel socket. Options that it refuses apply to connections
    /// only.
    pub(super) fn restore(&self, settings: &Settings, fd: RawFd) {
        let set = |level, name, bytes: &[u8]| {
            let _ = self.kernel.set_raw_option(fd, level, name, bytes);
        };
        for &(level, name, value) in &settings.options {
            match (level, name) {
                (libc::SOL_SOCKET, libc::SO_LINGER) => {
                    let [on, seconds] = linger_told(Some(value));
                    // The seconds are accepted only while it is on, and stay.
                    set(level, name, [1, seconds].map(i32::to_ne_bytes).as_flattened());
                    set(level, name, [on, seconds].map(i32::to_ne_bytes).as_flattened());
                }
                (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => {
                    self.restore_buffer(fd, name, value);
                }
                (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                    set(level, name, algorithm(u64::from(value.unsigned_abs())).unwrap_or(b""));
                }
                _ => set(level, name, &value.to_ne_bytes()),
            }
        }
        let times = [
            (libc::SO_RCVTIMEO, settings.receive_timeout),
            (libc::SO_SNDTIMEO, settings.send_timeout),
        ];
        for (name, time) in times {
            let time = time.unwrap_or_default();
            let mut value = timeval_of(time);
            if time == AT_ONCE {
                put(&mut value, &(-1_i64).to_ne_bytes());
            }
            set(libc::SOL_SOCKET, name, &value);
        }
    }

    /// setsockopt(2) of an option that the engine does not implement; returns its new value, if it
    /// is an int.
    pub(super) fn keep_option(
        &self,
        socket: &Socket,
        level: i32,
        name: i32,
        bytes: &[u8],
    ) -> Result<Option<i32>, Errno> {
        let keeper = self.keeper(socket)?;
        self.kernel.set_raw_option(keeper, level, name, bytes)?;
        Ok(self.kernel.option(keeper, level, name).ok())
    }

    /// Checks whether the kernel would accept a filter or a hop limit, which is then removed.
    pub(super) fn try_keeping_out(
        &self,
        socket: &Socket,
        level: i32,
        name: i32,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        self.keep_option(socket, level, name, bytes)?;
        let undo = if level == libc::SOL_SOCKET { libc::SO_DETACH_FILTER } else { name };
        self.keep_option(socket, level, undo, &0_i32.to_ne_bytes()).map(drop)
    }

    /// getsockopt(2) of such an option; returns the length.
    pub(super) fn kept_option(
        &self,
        socket: &Socket,
        level: i32,
        name: i32,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let keeper = self.keeper(socket)?;
        self.kernel.raw_option(keeper, level, name, out)
    }
}
