//! An interface that shows programs on the kernel the frames that a port receives and sends. Frames
//! sent into it are dropped.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::KernelFds;
use super::deliver::deliver;
use crate::interface::{Port, RxBurst, RxFrame};
use crate::open::OpenError;
use crate::tap::TapPort;

/// The interface; used by a thread other than the worker.
#[derive(Debug)]
pub struct Mirror {
    tap: TapPort,
    burst: RxBurst,
}

/// Result of a mirror thread's wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorWait {
    /// There are frames to write, or the end has come.
    pub is_rung: bool,
    /// Number of frames sent by programs, which were dropped.
    pub dropped: u64,
}

impl Mirror {
    /// The interface behind a device.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn new(fds: KernelFds) -> Result<Self, OpenError> {
        let KernelFds { device, facts } = fds;
        Ok(Self { tap: TapPort::of_kernel(device, &facts)?, burst: RxBurst::new() })
    }

    /// Writes a frame. `false`: it was lost, because the interface is full, down or gone.
    pub fn show(&mut self, frame: &RxFrame<'_>) -> bool {
        deliver(&mut self.tap, frame, false).is_ok()
    }

    /// Waits until `bell` rings; frames sent by programs meanwhile are dropped.
    ///
    /// # Errors
    /// The error of poll(2).
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
