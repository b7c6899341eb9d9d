//! SO_LINGER with a time: closing a connection's last number waits until the peer has acknowledged
//! everything.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use super::poll::WaitEnds;
use super::socket::Socket;
use super::{Era, Sockets};
use crate::How;

impl Sockets {
    /// Before a number is released. As in the kernel, the wait does not depend on O_NONBLOCK, and a
    /// signal ends it; the connection then continues by itself. `closes`: the number is closed
    /// before the wait, as by the kernel, and free for reuse. Returns whether it was.
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
        // Unread data, or data that arrives when no one can read it, turns the end into a reset.
        let is_over = || endpoint.is_end_acknowledged() || endpoint.readable_bytes() > 0;
        // No waiter is informed of anything from here on.
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
