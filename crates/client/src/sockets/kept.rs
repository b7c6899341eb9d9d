//! Options that the engine has no part in: a kernel socket keeps them for the connection, so that what is
//! refused, rounded and told is the kernel's word. A socket that was connected has its own kernel socket,
//! which stays unconnected; one that was accepted gets one when it first needs it.

use std::os::fd::RawFd;

use super::socket::{Socket, held};
use super::{Errno, Sockets};

impl Sockets {
    /// The kernel socket that keeps the connection's options.
    fn keeper(&self, socket: &Socket) -> Result<RawFd, Errno> {
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
        // What its listener had.
        for (level, name, value) in held(socket.options.lock()).iter() {
            let _ = self.kernel.set_option(fd, *level, *name, *value);
        }
        *keeper = Some(fd);
        Ok(fd)
    }

    /// setsockopt(2) of a connection's option that the engine has no part in; the value that it has
    /// now, as far as it is an int.
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

    /// getsockopt(2) of such an option; the answer's length.
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
