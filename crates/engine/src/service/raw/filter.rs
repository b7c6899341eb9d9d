//! Classic BPF as printed by `tcpdump -ddd`: checked once as in the kernel, then interpreted. Its
//! result is the number of bytes of a frame to keep; 0 drops it.

use shm::control::FilterInstruction;
use wire::MacAddr;

/// Maximum instructions, as in the kernel (BPF_MAXINSNS).
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Words of scratch memory.
const MEMORY_WORDS: usize = 16;
/// Offsets from here on are ancillary (SKF_AD_OFF), not bytes of the frame.
const ANCILLARY: u32 = 0xffff_f000;
const ANCILLARY_PROTOCOL: u32 = ANCILLARY;
const ANCILLARY_PACKET_TYPE: u32 = ANCILLARY + 4;

// Classes, sizes, modes, operations (linux/bpf_common.h).
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
const X: u16 = 8;

/// The destination of a frame, as in packet(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketType {
    /// This host.
    Host = 0,
    /// All hosts.
    Broadcast = 1,
    /// A group.
    Multicast = 2,
    /// Another host.
    OtherHost = 3,
    /// Sent by us.
    Outgoing = 4,
}

impl PacketType {
    /// The type of a frame received by a port with this address.
    pub fn of_received(frame: &[u8], own: MacAddr) -> Self {
        let to = frame.get(..6).and_then(|to| <[u8; 6]>::try_from(to).ok()).map(MacAddr);
        match to {
            Some(to) if to == own => Self::Host,
            Some(to) if to.is_broadcast() => Self::Broadcast,
            Some(to) if to.is_multicast() => Self::Multicast,
            Some(_) | None => Self::OtherHost,
        }
    }
}

/// Why a filter is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFilter {
    /// It has no instruction, or too many.
    Length(usize),
    /// An instruction has an unknown code.
    Unknown {
        /// Its index.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// A jump leaves the filter.
    Jump {
        /// Its index.
        at: usize,
    },
    /// An invalid constant: a divisor of 0, a shift by 32, a nonexistent word of memory, ancillary
    /// data other than protocol and packet type.
    Constant {
        /// Its index.
        at: usize,
        /// The constant.
        k: u32,
    },
    /// The last instruction does not return.
    NoReturn,
    /// A word of memory is read that was not written on every way there.
    Unwritten {
        /// Which one reads it.
        at: usize,
        /// The word.
        k: u32,
    },
}

impl std::fmt::Display for BadFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(len) => {
                write!(f, "the filter has {len} instructions; it needs 1 to {INSTRUCTIONS_MAX}")
            }
            Self::Unknown { at, code } => {
                write!(f, "instruction {at} of the filter has the unknown code {code:#x}")
            }
            Self::Jump { at } => write!(f, "instruction {at} of the filter jumps out of it"),
            Self::Constant { at, k } => {
                write!(f, "instruction {at} of the filter cannot have the constant {k}")
            }
            Self::NoReturn => write!(f, "the filter does not end with a return"),
            Self::Unwritten { at, k } => {
                write!(
                    f,
                    "instruction {at} of the filter reads word {k} of memory before it is written"
                )
            }
        }
    }
}

impl std::error::Error for BadFilter {}

/// A checked filter.
#[derive(Clone, Debug)]
pub struct RawFilter(Vec<FilterInstruction>);

impl RawFilter {
    /// Checks a filter.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(instructions: Vec<FilterInstruction>) -> Result<Self, BadFilter> {
        let len = instructions.len();
        if len == 0 || len > INSTRUCTIONS_MAX {
            return Err(BadFilter::Length(len));
        }
        for (at, one) in instructions.iter().enumerate() {
            check_one(at, len, one)?;
        }
        if instructions.last().is_none_or(|last| last.code & 7 != RET) {
            return Err(BadFilter::NoReturn);
        }
        check_memory(&instructions)?;
        Ok(Self(instructions))
    }

    /// The number of bytes of a frame to keep.
    pub fn run(&self, frame: &[u8], kind: PacketType) -> u32 {
        Machine { a: 0, x: 0, memory: [0; MEMORY_WORDS] }.run(&self.0, frame, kind)
    }
}

fn check_one(at: usize, len: usize, one: &FilterInstruction) -> Result<(), BadFilter> {
    let FilterInstruction { code, jt, jf, k } = *one;
    let unknown = Err(BadFilter::Unknown { at, code });
    let constant = |is_good| if is_good { Ok(()) } else { Err(BadFilter::Constant { at, k }) };
    let leads = |by: u64| at as u64 + 1 + by < len as u64;
    match code {
        // Absolute loads of a word, a half word and a byte.
        0x20 | 0x28 | 0x30 => {
            constant(k < ANCILLARY || k == ANCILLARY_PROTOCOL || k == ANCILLARY_PACKET_TYPE)
        }
        // Loads of the length and of constants, indirect loads, the header length of IPv4, returns,
        // and moves between A and X.
        0x80 | 0x81 | 0x00 | 0x01 | 0x40 | 0x48 | 0x50 | 0xb1 | 0x06 | 0x16 | 0x07 | 0x87 => Ok(()),
        // Memory.
        0x60 | 0x61 | 0x02 | 0x03 => constant((k as usize) < MEMORY_WORDS),
        _ if code & 7 == ALU && code & !0xff == 0 => match code & 0xf0 {
            0x30 | 0x90 => constant(code & X != 0 || k != 0),
            0x60 | 0x70 => constant(code & X != 0 || k < 32),
            0x00 | 0x10 | 0x20 | 0x40 | 0x50 | 0xa0 => Ok(()),
            0x80 if code & X == 0 => Ok(()),
            _ => unknown,
        },
        0x05 if leads(k.into()) => Ok(()),
        0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d
            if leads(jt.into()) && leads(jf.into()) =>
        {
            Ok(())
        }
        0x05 | 0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => Err(BadFilter::Jump { at }),
        _ => unknown,
    }
}

/// Whether every word of memory is written before it is read, on every way.
fn check_memory(program: &[FilterInstruction]) -> Result<(), BadFilter> {
    // A bit for each word that is written on all ways to an instruction. Jumps lead forward, so one pass
    // knows all ways before it comes to where they meet.
    let mut known = vec![u16::MAX; program.len()];
    let mut written = 0u16;
    for (at, one) in program.iter().enumerate() {
        let FilterInstruction { code, jt, jf, k } = *one;
        written &= known.get(at).copied().unwrap_or(0);
        let bit = 1u16.checked_shl(k).unwrap_or(0);
        let mut join = |by: usize| {
            if let Some(known) = known.get_mut(at + 1 + by) {
                *known &= written;
            }
        };
        match code {
            0x02 | 0x03 => written |= bit,
            0x60 | 0x61 if written & bit == 0 => return Err(BadFilter::Unwritten { at, k }),
            0x05 => {
                join(k as usize);
                written = u16::MAX;
            }
            _ if code & 7 == JMP => {
                join(jt.into());
                join(jf.into());
                written = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

struct Machine {
    a: u32,
    x: u32,
    memory: [u32; MEMORY_WORDS],
}

/// A big-endian number of 4, 2 or 1 bytes by the size bits of a code; `None` beyond the frame.
fn load(frame: &[u8], at: u32, code: u16) -> Option<u32> {
    let len = match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        _ => 1,
    };
    let at = at as usize;
    let bytes = frame.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

impl Machine {
    fn run(mut self, program: &[FilterInstruction], frame: &[u8], kind: PacketType) -> u32 {
        let mut at = 0;
        // Every instruction advances.
        while let Some(FilterInstruction { code, jt, jf, k }) = program.get(at).copied() {
            at += 1;
            match code & 7 {
                LD => match self.loaded(code, k, frame, kind) {
                    Some(value) => self.a = value,
                    None => return 0,
                },
                LDX => match code {
                    0xb1 => match load(frame, k, 0x10) {
                        Some(byte) => self.x = (byte & 15) * 4,
                        None => return 0,
                    },
                    0x61 => self.x = self.memory_at(k),
                    0x81 => self.x = frame.len() as u32,
                    _ => self.x = k,
                },
                ST => self.store(k, self.a),
                STX => self.store(k, self.x),
                ALU => {
                    let operand = if code & X != 0 { self.x } else { k };
                    match computed(code, self.a, operand) {
                        Some(value) => self.a = value,
                        None => return 0,
                    }
                }
                JMP => {
                    let operand = if code & X != 0 { self.x } else { k };
                    at += match code & 0xf0 {
                        0x00 => k as usize,
                        0x10 => usize::from(if self.a == operand { jt } else { jf }),
                        0x20 => usize::from(if self.a > operand { jt } else { jf }),
                        0x30 => usize::from(if self.a >= operand { jt } else { jf }),
                        _ => usize::from(if self.a & operand != 0 { jt } else { jf }),
                    };
                }
                RET => return if code == 0x16 { self.a } else { k },
                MISC if code == 0x07 => self.x = self.a,
                _ => self.a = self.x,
            }
        }
        0
    }

    fn loaded(&self, code: u16, k: u32, frame: &[u8], kind: PacketType) -> Option<u32> {
        match code & 0xe0 {
            0x00 => Some(k),
            0x20 if k == ANCILLARY_PROTOCOL => load(frame, 12, 0x08),
            0x20 if k == ANCILLARY_PACKET_TYPE => Some(kind as u32),
            0x20 => load(frame, k, code),
            // Offsets wrap, as the kernel's do.
            0x40 => load(frame, self.x.wrapping_add(k), code),
            0x60 => Some(self.memory_at(k)),
            _ => Some(frame.len() as u32),
        }
    }

    fn memory_at(&self, k: u32) -> u32 {
        self.memory.get(k as usize).copied().unwrap_or(0)
    }

    fn store(&mut self, k: u32, value: u32) {
        if let Some(word) = self.memory.get_mut(k as usize) {
            *word = value;
        }
    }
}

/// `None`: a division by 0, which drops the frame.
fn computed(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        // As the kernel: by the low five bits.
        0x60 => a.wrapping_shl(operand),
        0x70 => a.wrapping_shr(operand),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(operand)?,
        _ => a ^ operand,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(of: &[(u16, u8, u8, u32)]) -> Vec<FilterInstruction> {
        of.iter().map(|&(code, jt, jf, k)| FilterInstruction { code, jt, jf, k }).collect()
    }

    /// `tcpdump -ddd 'tcp port 80'` on Ethernet, its IPv4 part.
    const TCP_PORT_80: &[(u16, u8, u8, u32)] = &[
        (0x28, 0, 0, 12),
        (0x15, 0, 10, 0x0800),
        (0x30, 0, 0, 23),
        (0x15, 0, 8, 6),
        (0x28, 0, 0, 20),
        (0x45, 6, 0, 0x1fff),
        (0xb1, 0, 0, 14),
        (0x48, 0, 0, 14),
        (0x15, 2, 0, 80),
        (0x48, 0, 0, 16),
        (0x15, 0, 1, 80),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ];

    fn to_port(protocol: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12] = 8;
        frame[14] = 0x46;
        frame[23] = protocol;
        // Behind four bytes of options.
        frame[40..42].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn a_filter_of_tcpdumps_keeps_what_it_says() {
        let filter = RawFilter::check(program(TCP_PORT_80)).unwrap();
        for (protocol, port, kept) in [(6, 80, 262_144), (17, 80, 0), (6, 81, 0)] {
            assert_eq!(filter.run(&to_port(protocol, port), PacketType::Host), kept);
        }
        assert_eq!(filter.run(&to_port(6, 80)[..30], PacketType::Host), 0, "a load beyond the end");
    }

    #[test]
    fn the_packet_type_is_known() {
        let outgoing = &[
            (0x28, 0, 0, ANCILLARY_PACKET_TYPE),
            (0x15, 0, 1, 4),
            (0x06, 0, 0, 99),
            (0x06, 0, 0, 0),
        ];
        let filter = RawFilter::check(program(outgoing)).unwrap();
        assert_eq!(filter.run(&[], PacketType::Outgoing), 99);
        assert_eq!(filter.run(&[], PacketType::Host), 0);
        let own = MacAddr([2, 0, 0, 0, 0, 1]);
        let of = |to: [u8; 6]| PacketType::of_received(&to, own);
        assert_eq!(of(own.0), PacketType::Host);
        assert_eq!(of([0xff; 6]), PacketType::Broadcast);
        assert_eq!(of([1, 0, 0x5e, 0, 0, 1]), PacketType::Multicast);
        assert_eq!(of([2, 0, 0, 0, 0, 2]), PacketType::OtherHost);
    }

    #[test]
    fn what_the_kernel_would_refuse_is_refused() {
        let bad = |of: &[(u16, u8, u8, u32)]| RawFilter::check(program(of)).unwrap_err();
        assert_eq!(bad(&[]), BadFilter::Length(0));
        assert_eq!(bad(&vec![(0x06, 0, 0, 0); 4097]), BadFilter::Length(4097));
        assert_eq!(bad(&[(0x00, 0, 0, 1)]), BadFilter::NoReturn);
        let end = (0x06, 0, 0, 0);
        assert_eq!(bad(&[(0x15, 1, 0, 0), end]), BadFilter::Jump { at: 0 });
        assert_eq!(bad(&[(0x05, 0, 0, u32::MAX), end]), BadFilter::Jump { at: 0 });
        for code in [0x34, 0x94] {
            assert_eq!(bad(&[(code, 0, 0, 0), end]), BadFilter::Constant { at: 0, k: 0 });
        }
        assert_eq!(bad(&[(0x64, 0, 0, 32), end]), BadFilter::Constant { at: 0, k: 32 });
        assert_eq!(bad(&[(0x02, 0, 0, 16), end]), BadFilter::Constant { at: 0, k: 16 });
        let other = ANCILLARY + 8;
        assert_eq!(bad(&[(0x20, 0, 0, other), end]), BadFilter::Constant { at: 0, k: other });
        for code in [0x08, 0x0f, 0x18, 0x8c, 0xb0, 0x104, 0xffff] {
            assert_eq!(bad(&[(code, 0, 0, 1), end]), BadFilter::Unknown { at: 0, code });
        }
        // Written on one of two ways only.
        let (store, read, branch) = ((0x02, 0, 0, 3), (0x60, 0, 0, 3), (0x15, 1, 0, 0));
        assert_eq!(bad(&[read, end]), BadFilter::Unwritten { at: 0, k: 3 });
        assert_eq!(bad(&[branch, store, read, end]), BadFilter::Unwritten { at: 2, k: 3 });
        assert!(RawFilter::check(program(&[store, branch, end, read, end])).is_ok());
    }

    #[test]
    fn the_offset_of_an_indirect_load_wraps() {
        // X is -2; the byte at X + 3 is the frame's second one.
        let filter = program(&[(0x01, 0, 0, u32::MAX - 1), (0x50, 0, 0, 3), (0x16, 0, 0, 0)]);
        let filter = RawFilter::check(filter).unwrap();
        assert_eq!(filter.run(&[7, 8, 9], PacketType::Host), 8);
        assert_eq!(filter.run(&[7], PacketType::Host), 0);
    }

    /// Whatever passes the check ends, and never panics.
    #[test]
    fn a_checked_filter_ends() {
        let mut state = 1u64;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) as u32) % below
        };
        let mut checked = 0;
        for _ in 0..3000 {
            let mut all = Vec::new();
            for _ in 0..draw(60) {
                let k = if draw(2) == 0 { draw(100) } else { draw(u32::MAX) << draw(2) };
                let (code, jt, jf) = (draw(256) as u16, draw(4) as u8, draw(4) as u8);
                let one = FilterInstruction { code, jt, jf, k };
                all.extend(check_one(0, 1000, &one).is_ok().then_some(one));
            }
            all.extend(program(&[(0x16, 0, 0, 0); 5]));
            let frame: Vec<u8> = (0..draw(100)).map(|_| draw(256) as u8).collect();
            if let Ok(filter) = RawFilter::check(all) {
                checked += 1;
                filter.run(&frame, PacketType::Host);
            }
        }
        assert!(checked > 100, "{checked}");
    }
}
