//! Captures of frames for observers. Each port is wrapped in a tap that costs nothing while off;
//! switching it on and writing the file are done beside the worker.

use std::fs::File;
use std::os::fd::OwnedFd;

use port::pcap::Switch;
use rustix::time::{ClockId, clock_gettime};

/// The switches of all ports, and who has turned which on.
pub struct Captures {
    switches: Vec<(String, Switch)>,
    running: Vec<(u64, usize)>,
}

impl Captures {
    /// Captures of these ports, by name.
    pub fn new(switches: Vec<(String, Switch)>) -> Self {
        Self { switches, running: Vec::new() }
    }

    /// Begins to copy a port's frames to `output` as pcapng, at most `snap_bytes` of each (0 for
    /// all). An empty `port` means the only one.
    ///
    /// # Errors
    /// A sentence: no such port, or it is being captured already.
    pub fn begin(
        &mut self,
        connection: u64,
        port: &str,
        snap_bytes: u32,
        output: OwnedFd,
    ) -> Result<(), String> {
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
        switch
            .start(File::from(output), snap_bytes as usize, epoch_ns())
            .map_err(|error| error.to_string())?;
        self.running.push((connection, index));
        Ok(())
    }

    /// Ends the captures of an observer that is gone.
    pub fn end(&mut self, connection: u64) {
        let switches = &self.switches;
        self.running.retain(|(of, index)| {
            if *of != connection {
                return true;
            }
            if let Some((name, switch)) = switches.get(*index) {
                let (name, switch) = (name.clone(), switch.clone());
                // Ending waits for the last write, which whoever reads the output may delay.
                std::thread::spawn(move || {
                    if let Err(error) = switch.stop() {
                        tracing::info!("the capture of {name} ended: {error}");
                    }
                });
            }
            false
        });
    }
}

/// What must be added to the engine's clock to give the time since 1970, in nanoseconds.
fn epoch_ns() -> u64 {
    let ns = |clock| {
        let time = clock_gettime(clock);
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
    };
    ns(ClockId::Realtime).wrapping_sub(ns(ClockId::Monotonic))
}
