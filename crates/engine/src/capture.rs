//! Captures of frames for observers.

use std::os::fd::OwnedFd;

use crate::worker::Worker;

/// Captures that run.
#[derive(Debug, Default)]
pub struct Captures {
    running: Vec<(u64, OwnedFd)>,
}

impl Worker {
    pub(crate) fn begin_capture(
        &mut self,
        _connection: u64,
        port: &str,
        _snap_bytes: u32,
        _output: OwnedFd,
    ) -> Result<(), String> {
        Err(format!("port {port:?} cannot be captured"))
    }

    pub(crate) fn end_capture(&mut self, connection: u64) {
        self.captures.running.retain(|(of, _)| *of != connection);
    }
}
