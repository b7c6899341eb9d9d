//! SO_LINGER with a time: closing a connection's last number waits until the peer has everything.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use super::poll::WaitEnds;
use super::socket::Socket;
use super::{Era, Sockets};
use crate::How;

impl Sockets {
    /// Before a number is let go of. As in the kernel it does not matter whether the socket blocks, and
    /// a signal ends the wait; the connection then goes on by itself. `closes`: the number is closed
    /// before it waits, as by the kernel, and free for others. Whether it was.
    pub(super) fn linger(
        &'static self,
        era: &Era,
        fd: RawFd,
        socket: &Arc<Socket>,
        closes: bool,
    ) -> bool {
        let Some(connection) = socket.connection() else { return false };
        let seconds = socket.remembered(libc::SOL_SOCKET, libc::SO_LINGER).unwrap_or(-1);
        let Some(seconds) = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0) else {
            return false;
        };
        if socket.numbers() != [fd] {
            return false;
        }
        let endpoint = &connection.endpoint;
        // What nobody has read, or comes while nobody can read it, makes a reset of the end.
        let is_over = || endpoint.is_end_acknowledged() || endpoint.readable_bytes() > 0;
        // Nobody is told any more of what happens from here on.
        self.drop_interests(socket, true);
        self.unfollow_owner(socket);
        if is_over() || !endpoint.is_connected() || endpoint.shutdown(How::Both).is_err() {
            return false;
        }
        if closes {
            self.kernel.close(fd);
        }
        // However it ends, what comes next is the close.
        let ends = WaitEnds::within(Some(Duration::from_secs(seconds)));
        let _ = self.block_until(era, socket, &is_over, ends);
        closes
    }
}
