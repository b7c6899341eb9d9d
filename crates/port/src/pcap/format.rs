//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng), in this machine's byte order, which the
//! section header's magic identifies.

use arch::SharedBytes;

use super::CaptureCounters;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameDirection {
    In,
    Out,
}

/// A frame that a port has received or sent.
#[derive(Clone, Copy)]
pub(super) struct SeenFrame<'a> {
    /// When, in nanoseconds.
    pub time_ns: u64,
    pub direction: FrameDirection,
    /// Its first bytes.
    pub header: &'a [u8],
    /// The pieces that follow.
    pub payload: &'a [SharedBytes<'a>],
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

const OPTION_END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

/// Type and length before an enhanced packet's body, and the length again after it.
const FRAME_OVERHEAD: usize = 12 + 20 + 8 + 4;

/// Bytes of the block of a frame of which `captured` bytes are kept.
pub(super) const fn frame_block_bytes(captured: usize) -> usize {
    FRAME_OVERHEAD + captured.next_multiple_of(4)
}

/// Writes a block around what `body` writes. Lengths fit 32 bits: a block holds one frame.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = ((out.len() - start + 4) as u32).to_ne_bytes();
    out.extend_from_slice(&len);
    if let Some(field) = out.get_mut(start + 4..start + 8) {
        field.copy_from_slice(&len);
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    out.extend_from_slice(value);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The section header and the one interface of the file.
pub(super) fn emit_head(out: &mut Vec<u8>, name: &str, snap_bytes: usize) {
    block(out, SECTION_HEADER, |out| {
        out.extend_from_slice(&MAGIC.to_ne_bytes());
        // Version 1.0, with a length not known in advance.
        out.extend_from_slice(&1u16.to_ne_bytes());
        out.extend_from_slice(&0u16.to_ne_bytes());
        out.extend_from_slice(&u64::MAX.to_ne_bytes());
    });
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&ETHERNET.to_ne_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(snap_bytes as u32).to_ne_bytes());
        let name = name.as_bytes();
        option(out, IF_NAME, name.get(..name.len().min(255)).unwrap_or_default());
        // Times count units of 10 to the power of minus 9 seconds.
        option(out, IF_TSRESOL, &[9]);
        option(out, OPTION_END, &[]);
    });
}

/// One frame, of which at most `snap_bytes` are kept.
pub(super) fn emit_frame(out: &mut Vec<u8>, frame: &SeenFrame<'_>, snap_bytes: usize) {
    let SeenFrame { time_ns, direction, header, payload } = *frame;
    let len = crate::copy::length(header, payload);
    let captured = len.min(snap_bytes);
    block(out, ENHANCED_PACKET, |out| {
        out.extend_from_slice(&0u32.to_ne_bytes());
        out.extend_from_slice(&((time_ns >> 32) as u32).to_ne_bytes());
        out.extend_from_slice(&(time_ns as u32).to_ne_bytes());
        out.extend_from_slice(&(captured as u32).to_ne_bytes());
        out.extend_from_slice(&(len as u32).to_ne_bytes());
        let end = out.len() + captured;
        out.extend_from_slice(header.get(..captured).unwrap_or(header));
        for piece in payload {
            let at = out.len();
            out.resize(end.min(at + piece.len()), 0);
            if let Some(room) = out.get_mut(at..).filter(|room| !room.is_empty()) {
                piece.slice(0..room.len()).copy_to(room);
            }
        }
        pad(out);
        let direction: u32 = match direction {
            FrameDirection::In => 1,
            FrameDirection::Out => 2,
        };
        option(out, EPB_FLAGS, &direction.to_ne_bytes());
        option(out, OPTION_END, &[]);
    });
}

/// The counts of captured and dropped frames, at the end of the file.
pub(super) fn emit_statistics(out: &mut Vec<u8>, counters: CaptureCounters) {
    block(out, INTERFACE_STATISTICS, |out| {
        // The interface, and no time.
        out.extend_from_slice(&[0; 12]);
        let seen = counters.captured.wrapping_add(counters.dropped);
        option(out, ISB_IFRECV, &seen.to_ne_bytes());
        option(out, ISB_IFDROP, &counters.dropped.to_ne_bytes());
        option(out, OPTION_END, &[]);
    });
}
