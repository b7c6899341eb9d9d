//! A frame as one line, in the manner of tcpdump: for golden transcripts and logs.

use core::fmt;

/// Shows a frame, from its Ethernet header on, as one line.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a>(pub &'a [u8]);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, _) = match crate::ethernet::parse(self.0) {
            Ok(parts) => parts,
            Err(error) => return write!(f, "ethernet: {error}"),
        };
        write!(f, "{} > {} ethertype {:#06x}", header.src, header.dst, header.ethertype.0)
    }
}
