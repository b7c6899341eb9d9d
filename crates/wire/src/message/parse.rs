//! Bytes to frames.

use crate::Malformed;

use super::{
    ALIGNMENT, Body, COMMON_LEN, EPOCHS_LEN, Epoch, Epochs, Frame, Remote, VERSION, WHOLE_MAX,
    authenticator, flags,
};

/// A frame as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Its header.
    pub frame: Frame,
    /// The authenticator that it has.
    pub authenticator: u64,
    /// The bytes that the authenticator covers.
    pub header: &'a [u8],
    /// Payload, or an ACK's bitmap.
    pub payload: &'a [u8],
}

impl Received<'_> {
    /// Whether the authenticator is that of this key.
    pub fn verify(&self, key: &[u8; 16], upper: u32) -> bool {
        authenticator(key, self.header, upper) == self.authenticator
    }

    /// The words of an ACK's bitmap: bit 0 of the first one is the frame behind the next expected.
    pub fn bitmap(&self) -> impl Iterator<Item = u64> {
        self.payload.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word))
    }
}

/// The frames of a packet, up to the first malformed one.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Of everything behind the link's or UDP's header.
    pub fn new(packet: &'a [u8]) -> Self {
        Self { rest: packet }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Received<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if *self.rest.first()? == 0 {
            self.rest = &[];
            return None;
        }
        match parse(self.rest) {
            Ok((received, len)) => {
                self.rest = self.rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or(&[]);
                Some(Ok(received))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

/// Takes fields from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }

    fn remote(&mut self) -> Result<Remote, Malformed> {
        Ok(Remote {
            source: self.u16()?,
            destination: self.u16()?,
            immediate: self.u32()?,
            memory_key: self.u64()?,
            number: self.u32()?,
            length: self.u32()?,
            address: self.u64()?,
        })
    }

    fn epochs(&mut self) -> Result<Epochs, Malformed> {
        let (sender, receiver) = (self.u64()?, self.u64()?);
        Ok(Epochs {
            sender: Epoch { incarnation: sender, life: self.u32()? },
            receiver: Epoch { incarnation: receiver, life: self.u32()? },
        })
    }

    fn body(&mut self, kind: u8, flags: u8, behind: usize) -> Result<Body, Malformed> {
        Ok(match kind {
            1 => {
                let fields = u128::from_be_bytes(self.take()?);
                let (source, destination) = ((fields >> 112) as u16, (fields >> 96) as u16);
                let (immediate, tag) = ((fields >> 64) as u32, fields as u64);
                let (number, length) = if flags & flags::WHOLE != 0 {
                    let epochs = if flags & flags::FIRST != 0 { EPOCHS_LEN } else { 0 };
                    let length = behind.checked_sub(16 + epochs).ok_or(Malformed::Length)?;
                    if length > WHOLE_MAX {
                        return Err(Malformed::Length);
                    }
                    (0, length as u32)
                } else {
                    (self.u32()?, self.u32()?)
                };
                Body::Start { source, destination, immediate, tag, number, length }
            }
            2 => Body::More { number: self.u32()?, offset: self.u32()? },
            3 => Body::Read(self.remote()?),
            4 => Body::Write(self.remote()?),
            5 => {
                let remote = self.remote()?;
                let [operation, data_type] = self.take()?;
                let count = self.u16()?;
                self.u32()?;
                Body::Atomic { remote, operation, data_type, count }
            }
            6 => Body::Reply { number: self.u32()?, offset: self.u32()? },
            7 => Body::Done { message: self.u32()?, status: self.u32()? },
            8 => Body::Grant { number: self.u32()?, offset: self.u32()? },
            9 => Body::Hold { message: self.u32()?, offset: self.u32()? },
            10 => {
                let port = self.u16()?;
                self.take::<6>()?;
                Body::Go { port }
            }
            11 => Body::Abort { number: self.u32()?, reason: self.u32()? },
            12 => Body::Probe,
            13 => Body::Ack { newest: self.u32()?, answered: self.u32()? },
            14 => Body::Reset { authenticator: self.u64()?, epochs: self.epochs()? },
            _ => return Err(Malformed::Unsupported),
        })
    }
}

fn parse(bytes: &[u8]) -> Result<(Received<'_>, usize), Malformed> {
    let first = *bytes.first().ok_or(Malformed::Short)?;
    if first >> 4 != VERSION {
        return Err(Malformed::Version);
    }
    let mut fields = Fields(bytes);
    let common = u128::from_be_bytes(fields.take()?);
    let authenticator = fields.u64()?;
    let (flags, behind) = ((common >> 112) as u8, usize::from((common >> 96) as u16));
    let (job, sequence, counter) =
        ((common >> 64) as u32, (common >> 32) as u32, (common >> 16) as u16);
    let len = COMMON_LEN + behind;
    fields.0 = bytes.get(COMMON_LEN..len).ok_or(Malformed::Length)?;
    let body = fields.body(first & 15, flags, behind)?;
    let epochs = if flags & flags::FIRST != 0 { Some(fields.epochs()?) } else { None };
    let payload = fields.0;
    let covered = match body {
        Body::Ack { .. } if !payload.len().is_multiple_of(8) => return Err(Malformed::Length),
        Body::Ack { .. } => len,
        _ => len - payload.len(),
    };
    let frame = Frame { flags, job, sequence, counter, epochs, body };
    Ok((Received { frame, authenticator, header: &bytes[..covered], payload }, len))
}
