//! Looks at every frame that a host emits: no sender goes beyond the window that its peer has
//! advertised, nothing is sent for a session that is gone, and all frames together make a hash.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use wire::tcp::SeqNumber;

use crate::digest::Digest;
use crate::frames::{TcpFrame, as_tcp};
use crate::violation::Violation;

/// One direction of a connection.
type Flow = (SocketAddr, SocketAddr);

#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// The furthest that its peer has ever allowed it to send.
    right: Option<SeqNumber>,
    /// Shift of the windows that it advertises itself.
    scale: Option<u8>,
    /// End of what it has sent.
    sent_to: Option<SeqNumber>,
    /// Number of its SYN.
    iss: Option<SeqNumber>,
    /// Nothing may be sent from this time on.
    silent_from: Option<u64>,
}

/// The witness.
#[derive(Debug, Default)]
pub struct Witness {
    senders: HashMap<Flow, Sender>,
    digest: Digest,
    frames: u64,
}

/// What is special about a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameClass {
    /// It carries bytes that were sent before.
    pub is_retransmission: bool,
}

impl Witness {
    /// Hash of all frames so far, with their times and hosts.
    pub fn hash(&self) -> u64 {
        self.digest.value()
    }

    /// Frames so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Whatever is sent by `local` to `remote` after `time` is an error, until one of them
    /// opens a new connection.
    pub fn silence(&mut self, local: SocketAddr, remote: SocketAddr, time: u64) {
        self.senders.entry((local, remote)).or_default().silent_from = Some(time);
    }

    /// Takes a frame of `host` at `now`.
    pub fn on_frame(
        &mut self,
        now: u64,
        host: usize,
        frame: &[u8],
    ) -> Result<FrameClass, Violation> {
        self.frames += 1;
        self.digest.add(now);
        self.digest.add(host as u64 | (frame.len() as u64) << 8);
        self.digest.add_bytes(frame);
        match as_tcp(frame) {
            Some(tcp) => self.on_segment(now, &tcp),
            None => Ok(FrameClass::default()),
        }
    }

    fn on_segment(&mut self, now: u64, tcp: &TcpFrame<'_>) -> Result<FrameClass, Violation> {
        let TcpFrame { src, dst, segment, .. } = tcp;
        let header = &segment.header;
        let at = |address: IpAddr, port| SocketAddr::new(address, port);
        let flow = (at(*src, header.src_port), at(*dst, header.dst_port));
        let back = (flow.1, flow.0);
        if header.flags.rst() {
            return Ok(FrameClass::default());
        }
        let len = segment.payload.len() as u32;
        if header.flags.syn() {
            let sender = self.senders.entry(flow).or_default();
            // The same SYN again begins nothing new.
            if sender.iss != Some(header.seq) {
                *sender = Sender {
                    scale: segment.options.window_scale,
                    iss: Some(header.seq),
                    ..Sender::default()
                };
                // What the other side did in an earlier connection counts no more; its SYN does
                // when both open at once.
                let opens = |peer: &Sender| peer.right.is_none() && peer.sent_to.is_none();
                if !header.flags.ack() && !self.senders.get(&back).is_some_and(opens) {
                    self.senders.insert(back, Sender::default());
                }
            }
        }
        let peer_scales = self.senders.get(&back).is_some_and(|peer| peer.scale.is_some());
        let sender = self.senders.entry(flow).or_default();
        let mut seen = FrameClass::default();
        if len > 0 || header.flags.fin() {
            let end = SeqNumber(header.seq.0.wrapping_add(len));
            if let Some(silent_from) = sender.silent_from.filter(|from| now > *from) {
                return Err(format!(
                    "{}>{} sends {len} bytes (FIN {}) {} ms after its session was forgotten",
                    flow.0,
                    flow.1,
                    header.flags.fin(),
                    (now - silent_from) / 1_000_000
                )
                .into());
            }
            // One byte beyond is a window probe (RFC 9293, section 3.8.6.1).
            if let Some(right) =
                sender.right.filter(|right| end.gt(SeqNumber(right.0.wrapping_add(1))))
            {
                return Err(format!(
                    "{}>{} sends up to {} but its peer's window ends at {}",
                    flow.0, flow.1, end.0, right.0
                )
                .into());
            }
            seen.is_retransmission = sender.sent_to.is_some_and(|to| header.seq.lt(to));
            if sender.sent_to.is_none_or(|to| end.gt(to)) {
                sender.sent_to = Some(end);
            }
        }
        if header.flags.ack() {
            let shift = match (header.flags.syn(), sender.scale) {
                (false, Some(scale)) if peer_scales => scale,
                _ => 0,
            };
            let edge = header.ack.0.wrapping_add(u32::from(header.window) << shift);
            let peer = self.senders.entry(back).or_default();
            if peer.right.is_none_or(|right| SeqNumber(edge).gt(right)) {
                peer.right = Some(SeqNumber(edge));
            }
        }
        Ok(seen)
    }
}
