//! A test of the whole path at the start: the kernel's live test run injects a frame, which passes
//! through the program, the maps and a socket into our memory. Nothing leaves the machine, and the
//! kernel's stack sees nothing.

use std::io;

use wire::MacAddr;

use super::owned::{self, Owned, WHOLLY};
use super::receive::Queue;
use crate::bpf::Program;
use crate::open::random_seed;

/// IEEE 802's EtherType for local experiments: if the frame goes astray, the kernel drops it.
const ETHERTYPE: u16 = 0x88b5;
/// Shortest Ethernet frame, without its check sequence.
const FRAME_BYTES: usize = 60;

/// Sends a frame through to `queue`, the first of the interface.
///
/// # Errors
/// If the kernel cannot run the test, or nothing arrived.
pub(super) fn run(
    program: &Program,
    owned: &Owned,
    queue: &mut Queue,
    interface_index: u32,
    mac: MacAddr,
) -> io::Result<()> {
    let mark = random_seed().map_err(|why| io::Error::other(why.sentence))?;
    let mut frame = [mac.0, mac.0].concat();
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.extend(mark.to_ne_bytes());
    frame.resize(FRAME_BYTES, 0);
    let key = owned::ethertype_key(ETHERTYPE);
    owned.set(&key, WHOLLY, u32::MAX)?;
    let ran = program.run_live(&frame, interface_index);
    owned.0.remove(&key)?;
    ran?;
    match queue.take_all().contains(&frame) {
        true => Ok(()),
        false => Err(io::Error::other("a frame sent through it was not received")),
    }
}
