//! An interface on which the kernel's programs see what a port receives and sends. What they send on it
//! is dropped.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::KernelFds;
use super::deliver::deliver;
use crate::interface::{Port, RxBurst, RxFrame};
use crate::open::OpenError;
use crate::tap::TapPort;

/// The interface; used by a thread beside the worker.
#[derive(Debug)]
pub struct Mirror {
    tap: TapPort,
    burst: RxBurst,
}

/// What a mirror's thread has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorWait {
    /// Frames are there to be shown, or the end has come.
    pub is_rung: bool,
    /// Programs have sent so many frames, which are dropped.
    pub dropped: u64,
}

impl Mirror {
    /// The interface behind a device.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn new(fds: KernelFds) -> Result<Self, OpenError> {
        let KernelFds { device, facts } = fds;
        Ok(Self { tap: TapPort::of_kernel(device, &facts)?, burst: RxBurst::new() })
    }

    /// Shows a frame. `false`: it was lost, as the interface is full, down or gone.
    pub fn show(&mut self, frame: &RxFrame<'_>) -> bool {
        deliver(&mut self.tap, frame, false).is_ok()
    }

    /// Waits until `bell` rings; what programs send meanwhile is dropped.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn wait(&mut self, bell: BorrowedFd<'_>) -> Result<MirrorWait, Errno> {
        let mut fds = vec![PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        let device = self.tap.wait_fd();
        fds.extend(device.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let (is_rung, sends) = (is_ready(0), is_ready(1));
        drop(fds);
        let mut dropped = 0;
        if sends {
            self.tap.receive(&mut self.burst);
            dropped = self.burst.handles.len() as u64;
            self.tap.release(&mut self.burst);
        }
        Ok(MirrorWait { is_rung, dropped })
    }
}
