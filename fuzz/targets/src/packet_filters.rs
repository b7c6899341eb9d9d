//! Filters in classic BPF: the engine takes what the kernel takes, and keeps of a frame what the kernel
//! keeps of a datagram with the same bytes.

use std::os::fd::{AsFd, OwnedFd};

use engine::service::raw::filter::{PacketType, RawFilter};
use port::sockets::{ClassicInstruction, attach_filter};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use shm::control::FilterInstruction;

/// Every code that there is.
const CODES: [u16; 52] = [
    0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x00, 0x01, 0x80, 0x81, 0x60, 0x61, 0x02, 0x03, 0xb1, 0x06,
    0x16, 0x07, 0x87, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64,
    0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c, 0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45,
    0x4d, 0x06, 0x16, 0x50,
];
/// Of absolute loads, offsets from here on mean something else than bytes of the frame.
const SPECIAL: u32 = 1 << 31;
const INSTRUCTIONS_MAX: usize = 48;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn constant(&mut self) -> u32 {
        match self.byte() % 8 {
            0 => (0..4).fold(0, |sum, _| sum << 8 | u32::from(self.byte())),
            1 => u32::from(self.byte()) << 8 | u32::from(self.byte()),
            2 => 0xffff_f000 + u32::from(self.byte() % 8),
            3 => u32::from(self.byte() % 18),
            _ => u32::from(self.byte() % 64),
        }
    }

    fn instruction(&mut self) -> ClassicInstruction {
        let (shape, low) = (self.byte(), self.byte());
        let code = match shape {
            0 => u16::from(self.byte()) << 8 | u16::from(low),
            1 => low.into(),
            _ => CODES[usize::from(low) % CODES.len()],
        };
        (code, self.byte() % 5, self.byte() % 5, self.constant())
    }
}

/// What the kernel takes of a filter and a frame.
struct Kernel {
    near: OwnedFd,
    far: OwnedFd,
}

impl Kernel {
    fn new() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .expect("a pair of sockets");
        Self { near, far }
    }

    /// Whether it takes a filter; `None` when it has no memory.
    fn takes(&self, program: &[ClassicInstruction]) -> Option<bool> {
        match attach_filter(self.far.as_fd(), program) {
            Ok(()) => Some(true),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INVAL) => Some(false),
                _ => None,
            },
        }
    }

    /// What is left of a frame; `None` when it is dropped.
    fn keeps(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let sent = send(&self.near, frame, SendFlags::DONTWAIT);
        assert!(matches!(sent, Ok(_) | Err(Errno::PERM)), "{sent:?}");
        let mut room = vec![0; frame.len() + 1];
        match recv(&self.far, room.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((len, _)) => {
                room.truncate(len);
                Some(room)
            }
            Err(Errno::AGAIN) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A filter, and behind it a frame.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let len = usize::from(input.byte()) % INSTRUCTIONS_MAX;
    let program: Vec<ClassicInstruction> = (0..len).map(|_| input.instruction()).collect();
    let frame = input.0.get(..input.0.len().min(300)).unwrap_or_default();
    let instructions: Vec<FilterInstruction> =
        program.iter().map(|&(code, jt, jf, k)| FilterInstruction { code, jt, jf, k }).collect();
    let checked = RawFilter::check(instructions);
    if let Ok(filter) = &checked {
        let _ = filter.run(frame, PacketType::Outgoing);
    }
    // What is told beside the bytes differs: a datagram has no Ethernet header.
    if program.iter().any(|(code, _, _, k)| matches!(code, 0x20 | 0x28 | 0x30) && *k >= SPECIAL) {
        return;
    }
    let kernel = Kernel::new();
    let Some(takes) = kernel.takes(&program) else { return };
    assert_eq!(checked.is_ok(), takes, "{program:?}: {checked:?}");
    let Ok(filter) = checked else { return };
    let kept = filter.run(frame, PacketType::Host) as usize;
    let expected = (kept > 0).then(|| frame.get(..kept.min(frame.len())).unwrap_or_default());
    assert_eq!(kernel.keeps(frame).as_deref(), expected, "{program:?} keeps {kept}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_and_the_engine_agree_on_random_filters() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..20_000usize {
            let data: Vec<u8> = (0..round % 400)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 24) as u8
                })
                .collect();
            super::run(&data);
        }
    }
}
