//! Conversion of a received frame to a form that another port can send. A partial checksum is left
//! to a port that can complete it; large frames are segmented here if the port cannot.

use wire::checksum::Sum;
use wire::ipv4::Protocol;
use wire::tcp::TcpFlags;

use crate::copy::ETHERNET_BYTES;
use crate::interface::{Gso, GsoKind, Offloads, PortInfo, RxChecksum, RxFrame, TxError, TxMeta};
use crate::layers::Transport;

/// Offloads of the port to which frames are forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    mtu: u16,
    offloads: Offloads,
}

impl Reach {
    /// Those of a port.
    pub fn of(info: &PortInfo) -> Self {
        Self { mtu: info.mtu, offloads: info.offloads }
    }

    /// Whether the port segments such frames itself.
    fn cuts(self, gso: Gso) -> bool {
        match gso.kind {
            GsoKind::Tcp4 => self.offloads.tso4,
            GsoKind::Tcp6 => self.offloads.tso6,
            GsoKind::Udp => self.offloads.uso,
        }
    }
}

/// Forwards frames; its memory is reused.
#[derive(Debug, Default)]
pub struct Forwarder {
    segment: Vec<u8>,
}

impl Forwarder {
    /// Passes `frame` to `send`, in as many pieces as the port needs: whole, or in segments.
    ///
    /// # Errors
    /// The error of `send` for the first piece that it refuses, after which the rest is dropped; or
    /// that the frame cannot be segmented.
    pub fn forward(
        &mut self,
        to: Reach,
        frame: &RxFrame<'_>,
        mut send: impl FnMut(&TxMeta, &[u8]) -> Result<(), TxError>,
    ) -> Result<(), TxError> {
        let checksum = match frame.meta.checksum {
            RxChecksum::Partial { start, offset } => Some((start, offset)),
            RxChecksum::Unknown | RxChecksum::Valid => None,
        };
        let Some(gso) = frame.meta.gso else {
            let header_bytes = match checksum {
                Some(_) => Transport::parse(frame.bytes).map_or(0, |found| found.payload as u16),
                None => 0,
            };
            return send(&TxMeta { checksum, gso: None, header_bytes }, frame.bytes);
        };
        let found = Transport::parse(frame.bytes).ok_or(TxError::Unsendable)?;
        let unit = usize::from(to.mtu) + found.ip.start.max(ETHERNET_BYTES);
        if gso.size == 0 || found.payload + usize::from(gso.size) > unit {
            return Err(TxError::Unsendable);
        }
        if to.cuts(gso) && checksum.is_some() && checksum == found.checksum_place() {
            let header_bytes = found.payload as u16;
            return send(&TxMeta { checksum, gso: Some(gso), header_bytes }, frame.bytes);
        }
        self.cut(&found, gso.size, frame.bytes, send)
    }

    fn cut(
        &mut self,
        found: &Transport,
        size: u16,
        frame: &[u8],
        mut send: impl FnMut(&TxMeta, &[u8]) -> Result<(), TxError>,
    ) -> Result<(), TxError> {
        let headers = frame.get(..found.payload).ok_or(TxError::Unsendable)?;
        let payload = frame.get(found.payload..found.ip.end).ok_or(TxError::Unsendable)?;
        let meta = TxMeta {
            checksum: found.checksum_place(),
            gso: None,
            header_bytes: found.payload as u16,
        };
        let last = payload.len().div_ceil(usize::from(size)).saturating_sub(1);
        for (number, piece) in payload.chunks(usize::from(size)).enumerate() {
            self.segment.clear();
            self.segment.extend_from_slice(headers);
            self.segment.extend_from_slice(piece);
            let place = Place { number, size, is_last: number == last };
            rewrite(&mut self.segment, found, &place).ok_or(TxError::Unsendable)?;
            send(&meta, &self.segment)?;
        }
        Ok(())
    }
}

/// Index of a segment in its large frame.
struct Place {
    number: usize,
    size: u16,
    is_last: bool,
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value;
    Some(())
}

/// Turns the headers of a large frame into those of one of its segments, with a partial checksum.
fn rewrite(segment: &mut [u8], found: &Transport, place: &Place) -> Option<()> {
    let (start, layer4) = (found.ip.start, found.ip.payload);
    let bytes = segment.len();
    if found.ip.source.is_ipv4() {
        put(segment, start + 2, u16::try_from(bytes - start).ok()?.to_be_bytes())?;
        let identification = segment.get(start + 4..)?.first_chunk().copied()?;
        let identification = u16::from_be_bytes(identification).wrapping_add(place.number as u16);
        put(segment, start + 4, identification.to_be_bytes())?;
        put(segment, start + 10, [0, 0])?;
        let sum = Sum::of(segment.get(start..layer4)?).finish();
        put(segment, start + 10, sum.to_be_bytes())?;
    } else {
        let behind = bytes.checked_sub(start + wire::ipv6::HEADER_LEN)?;
        put(segment, start + 4, u16::try_from(behind).ok()?.to_be_bytes())?;
    }
    if found.ip.protocol == Protocol::TCP {
        let sequence = segment.get(layer4 + 4..)?.first_chunk().copied()?;
        let before = place.number as u32 * u32::from(place.size);
        let sequence = u32::from_be_bytes(sequence).wrapping_add(before);
        put(segment, layer4 + 4, sequence.to_be_bytes())?;
        let flags = segment.get_mut(layer4 + 13)?;
        if !place.is_last {
            *flags &= !(TcpFlags::FIN.0 | TcpFlags::PSH.0);
        }
        // RFC 3168, section 6.1.2: CWR is set in one segment only.
        if place.number > 0 {
            *flags &= !TcpFlags::CWR.0;
        }
    } else {
        put(segment, layer4 + 4, u16::try_from(bytes - layer4).ok()?.to_be_bytes())?;
    }
    let pseudo = found.pseudo(bytes - layer4)?.folded();
    put(segment, layer4 + found.checksum_offset(), pseudo.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::RxMeta;

    fn large() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([
            0, 80, 1, 0, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x50, 0x99, 1, 0, 0, 0, 0, 0,
        ]);
        frame.extend((0..2500u32).map(|byte| byte as u8));
        let total = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame
    }

    fn meta() -> RxMeta {
        let checksum = RxChecksum::Partial { start: 34, offset: 16 };
        RxMeta { checksum, gso: Some(Gso { size: 1000, kind: GsoKind::Tcp4 }) }
    }

    fn forwarded(offloads: Offloads, mtu: u16) -> (Vec<Vec<u8>>, Result<(), TxError>) {
        let frame = large();
        let mut sent = Vec::new();
        let frame = RxFrame { bytes: &frame, meta: meta() };
        let outcome =
            Forwarder::default().forward(Reach { mtu, offloads }, &frame, |meta, bytes| {
                let mut bytes = bytes.to_vec();
                if let (Some((start, offset)), None) = (meta.checksum, meta.gso) {
                    wire::checksum::complete(&mut bytes, start.into(), offset.into()).unwrap();
                }
                sent.push(bytes);
                Ok(())
            });
        (sent, outcome)
    }

    #[test]
    fn a_large_frame_is_cut_into_segments_with_good_sums() {
        let (sent, outcome) = forwarded(Offloads::default(), 1500);
        assert_eq!(outcome, Ok(()));
        let lens: Vec<usize> = sent.iter().map(Vec::len).collect();
        assert_eq!(lens, [1054, 1054, 554]);
        let mut sequence = 0xffff_fff0u32;
        let mut data = Vec::new();
        for (number, frame) in sent.iter().enumerate() {
            let packet = wire::ipv4::parse(&frame[14..]).expect("the header's sum is good");
            let covered = Sum::pseudo_v4(
                packet.header.src,
                packet.header.dst,
                Protocol::TCP,
                packet.payload.len() as u32,
            );
            assert!(covered.then(Sum::of(packet.payload)).is_valid());
            assert_eq!(packet.header.identification, 0xffffu16.wrapping_add(number as u16));
            let segment = wire::tcp::parse(packet.payload).expect("a segment");
            assert_eq!(segment.header.seq.0, sequence);
            let flags = segment.header.flags;
            assert_eq!((flags.fin(), flags.psh()), (number == 2, number == 2));
            assert_eq!(flags.contains(TcpFlags::CWR), number == 0);
            sequence = sequence.wrapping_add(segment.payload.len() as u32);
            data.extend_from_slice(segment.payload);
        }
        assert_eq!(data, large()[54..]);
    }

    #[test]
    fn a_port_that_cuts_gets_the_frame_whole() {
        let offloads = Offloads { tso4: true, ..Offloads::default() };
        let (sent, outcome) = forwarded(offloads, 1500);
        assert_eq!((sent.len(), outcome), (1, Ok(())));
        assert_eq!(sent[0], large());
    }

    #[test]
    fn segments_longer_than_the_link_are_refused() {
        let (sent, outcome) = forwarded(Offloads::default(), 1000);
        assert_eq!((sent.len(), outcome), (0, Err(TxError::Unsendable)));
    }
}
