//! Captures of frames for observers. Each port is wrapped in a tap that costs nothing while off.
//! Other threads switch it on and write the file.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use port::pcap::{Filter, Switch};
use rustix::thread::CapabilitySet;
use rustix::time::{ClockId, clock_gettime};
use shm::control::FromEngine;

use super::{Control, connection, is_master};
use crate::privileges;

/// A capture's file, and the observer to inform when it cannot be written. The observer's
/// connection does not hang up before this is dropped, when everything is written.
struct Output {
    file: Arc<File>,
    observer: OwnedFd,
}

impl Output {
    fn told<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &outcome
            && !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::BrokenPipe)
        {
            let refused = Some(format!("its file cannot be written: {error}"));
            // An observer that is gone needs no message.
            let _ =
                connection::send(self.observer.as_fd(), &FromEngine::Capturing { refused }, &[]);
        }
        outcome
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = (&*self.file).write(bytes);
        self.told(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = (&*self.file).flush();
        self.told(outcome)
    }
}

/// The switches of all ports, and the observers that switched them on.
pub struct Captures {
    switches: Vec<(String, Switch)>,
    running: Vec<(u64, usize)>,
    /// Captures to be ended, for which no thread could be started yet.
    ending: Vec<usize>,
}

/// What of a port's frames is captured.
pub(super) struct CaptureOptions {
    /// The port's name; empty for the only one.
    pub port: String,
    /// Bytes to keep of each frame; 0 for all.
    pub snap_bytes: u32,
    /// Which frames to keep, in tcpdump's words.
    pub filter: String,
}

/// What an observer asks for.
struct CaptureRequest<'a> {
    /// Its connection.
    connection: u64,
    /// What is captured.
    options: &'a CaptureOptions,
    /// The file, which gets pcapng.
    output: &'a Arc<File>,
    /// Informed when the output fails.
    observer: BorrowedFd<'a>,
}

/// Work for another thread than the control thread.
type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread for work that may block.
fn beside(work: Work) -> io::Result<()> {
    std::thread::Builder::new().name("outboard-pcap".into()).spawn(work).map(drop)
}

impl Captures {
    /// Captures of these ports, by name.
    pub fn new(switches: Vec<(String, Switch)>) -> Self {
        Self { switches, running: Vec::new(), ending: Vec::new() }
    }

    /// Starts a capture. The error is the message for the observer.
    fn begin(&mut self, request: &CaptureRequest<'_>) -> Result<(), String> {
        let CaptureRequest { connection, options, output, observer } = *request;
        let CaptureOptions { port, snap_bytes, filter } = options;
        self.end_left(beside);
        let filter = Filter::compile(filter).map_err(|error| error.to_string())?;
        let names = || {
            let names: Vec<&str> = self.switches.iter().map(|(name, _)| name.as_str()).collect();
            names.join(", ")
        };
        let mut found =
            (0..).zip(&self.switches).filter(|(_, (name, _))| port.is_empty() || name == port);
        let Some((index, (_, switch))) = found.next() else {
            return Err(format!("the engine has no port {port:?}; it has {}", names()));
        };
        if found.next().is_some() {
            return Err(format!("name one of the engine's ports: {}", names()));
        }
        let observer = observer.try_clone_to_owned().map_err(|error| {
            format!("out of descriptors: {error}; raise the engine's limit (ulimit -n)")
        })?;
        let output = Output { file: Arc::clone(output), observer };
        // The thread that writes what the observer chose needs no capability of ours.
        let start = || switch.start(output, filter, *snap_bytes as usize, epoch_ns());
        let started = privileges::without(start).map_err(|error| {
            format!("cannot start a thread: {error}; raise the limit (ulimit -u)")
        })?;
        started.map_err(|error| error.to_string())?;
        self.running.push((connection, index));
        Ok(())
    }

    /// Ends the captures of an observer that is gone.
    pub fn end(&mut self, connection: u64) {
        let of_it = self.running.extract_if(.., |(of, _)| *of == connection);
        self.ending.extend(of_it.map(|(_, index)| index));
        self.end_left(beside);
    }

    /// Ends pending captures as far as threads can be started. The rest end with the next start or
    /// end of a capture; until then frames are copied in vain.
    fn end_left(&mut self, mut beside: impl FnMut(Work) -> io::Result<()>) {
        while let Some(index) = self.ending.pop() {
            let Some((name, switch)) = self.switches.get(index).cloned() else { continue };
            // Ending waits for the last write, which the reader of the output may delay.
            let started = beside(Box::new(move || {
                privileges::keep_or_warn(CapabilitySet::empty());
                if let Err(error) = switch.stop() {
                    tracing::info!("the capture of {name} ended: {error}");
                }
            }));
            if let Err(error) = started {
                tracing::warn!(
                    "cannot start a thread to end a capture ({error}), which continues until the \
                     next one: raise the limit (ulimit -u)"
                );
                return self.ending.push(index);
            }
        }
    }
}

impl Control {
    pub(super) fn on_capture(
        &mut self,
        id: u64,
        options: &CaptureOptions,
        fds: Vec<OwnedFd>,
    ) -> bool {
        let (output, is_within) = self.only(id, fds);
        let output = output.map(|fd| Arc::new(File::from(fd)));
        let Some(connection) = self.connections.get(&id) else { return false };
        let uid = connection.peer.uid;
        let refused = match &output {
            _ if !is_master(&connection.peer) => {
                Some("only root and the engine's own user may capture frames".to_string())
            }
            Some(output) => {
                let observer = connection.fd.as_fd();
                let connection = id;
                let request = CaptureRequest { connection, options, output, observer };
                self.captures.begin(&request).err()
            }
            None => Some("no descriptor came with the request".to_string()),
        };
        // Ours alone if nothing is written to it.
        let unused = output.and_then(Arc::into_inner).map(Into::into).into_iter().collect();
        is_within
            && self.discard.close(uid, unused)
            && self.tell(id, &FromEngine::Capturing { refused })
    }
}

/// The offset from the engine's clock to the time since 1970, in nanoseconds.
fn epoch_ns() -> u64 {
    let ns = |clock| {
        let time = clock_gettime(clock);
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
    };
    ns(ClockId::Realtime).wrapping_sub(ns(ClockId::Monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_no_thread_is_left_to_end_ends_with_the_next_occasion() {
        let (port, _peer, _link) = port::pair::pair(&port::pair::PairConfig::default());
        let (_port, switch) = port::pcap::wrap(port);
        let mut captures = Captures::new(vec![("pair".into(), switch)]);
        captures.ending.push(0);
        captures.end_left(|_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(captures.ending, [0]);
        let mut ended = 0;
        captures.end_left(|_| {
            ended += 1;
            Ok(())
        });
        assert_eq!((ended, captures.ending.len()), (1, 0));
        // Of an observer that captures nothing there is nothing to end.
        captures.end(7);
    }
}
