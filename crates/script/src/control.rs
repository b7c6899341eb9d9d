//! Control messages: from the words of scripts to bytes as the kernel lays them out, and back, to be
//! compared.

use std::net::{IpAddr, SocketAddr};

use crate::script::Value;

/// `struct cmsghdr`, and what messages start at multiples of.
const HEADER_BYTES: usize = 16;
const ALIGN: usize = 8;

/// By what times of day are judged that control messages tell.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// When the script began, nanoseconds since 1970.
    pub start_ns: u64,
    /// How far off a time may be.
    pub tolerance_ns: u64,
}

/// `{cmsg_level=..., cmsg_type=..., cmsg_data=...}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    level: i32,
    kind: i32,
    data: Data,
    /// `cmsg_len`, where it is not what follows from the data.
    len: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Data {
    /// `...`
    Any,
    /// Bytes, of which those that are `None` may be anything. More may follow where only the beginning
    /// is said.
    Bytes { bytes: Vec<Option<u8>>, is_beginning: bool },
    /// A time of day, counted from the script's beginning, in seconds and so many nanoseconds.
    Time { at_ns: u64, unit_ns: u64 },
}

/// An address as C has it.
pub fn address_bytes(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.resize(size_of::<libc::sockaddr_in>(), 0);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_be_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

fn known(bytes: &[u8]) -> impl Iterator<Item = Option<u8>> {
    bytes.iter().copied().map(Some)
}

/// Bytes of a number of so many.
fn number_bytes(number: i64, width: usize) -> Result<Vec<u8>, String> {
    let fits = match width {
        1 => u8::try_from(number).map(|byte| vec![byte]).ok(),
        2 => u16::try_from(number).map(|short| short.to_ne_bytes().to_vec()).ok(),
        4 => i32::try_from(number)
            .or_else(|_| u32::try_from(number).map(u32::cast_signed))
            .map(|int| int.to_ne_bytes().to_vec())
            .ok(),
        _ => Some(number.to_ne_bytes().to_vec()),
    };
    fits.ok_or_else(|| format!("{number} does not fit {width} bytes"))
}

/// How many bytes a number has that is all there is of a message.
fn width(level: i32, kind: i32) -> usize {
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) => 1,
        (libc::IPPROTO_UDP, libc::UDP_SEGMENT) => 2,
        _ => 4,
    }
}

/// How many bytes a field of a structure has, and how many nobody's come behind it.
fn field_width(name: &str) -> (usize, usize) {
    match name {
        "ee_origin" | "ee_type" => (1, 0),
        "ee_code" => (1, 1),
        _ => (4, 0),
    }
}

/// `{tv_sec=1, tv_usec=500000}` and its kin.
fn time(fields: &[(String, Value)]) -> Result<Option<Data>, String> {
    let [(first, seconds), (second, fraction)] = fields else { return Ok(None) };
    let unit_ns = match (first.as_str(), second.as_str()) {
        ("tv_sec", "tv_usec") => 1_000,
        ("tv_sec", "tv_nsec") | ("scm_sec", "scm_nsec") => 1,
        _ => return Ok(None),
    };
    let number = |value: &Value| match value {
        Value::Number(number) => u64::try_from(*number).map_err(|_| "a time is not negative"),
        _ => Err("a time is two numbers"),
    };
    let at_ns = number(seconds)? * 1_000_000_000 + number(fraction)? * unit_ns;
    Ok(Some(Data::Time { at_ns, unit_ns }))
}

/// A structure, field by field in its order.
fn structure(fields: &[(String, Value)]) -> Result<Data, String> {
    let mut bytes = Vec::new();
    let mut is_beginning = false;
    for (name, value) in fields {
        let (width, behind) = field_width(name);
        match value {
            Value::Any => bytes.extend(vec![None; width]),
            Value::Number(number) => bytes.extend(known(&number_bytes(*number, width)?)),
            Value::Text(text) => {
                let address: IpAddr =
                    text.parse().map_err(|_| format!("{name}: {text} is no address"))?;
                // Who says so is told as a socket's address, the rest as addresses alone.
                match (name.as_str(), address) {
                    ("ee_offender", address) => {
                        bytes.extend(known(&address_bytes(SocketAddr::new(address, 0))));
                    }
                    (_, IpAddr::V4(v4)) => bytes.extend(known(&v4.octets())),
                    (_, IpAddr::V6(v6)) => bytes.extend(known(&v6.octets())),
                }
            }
            other => return Err(format!("{name}: {other:?} is nothing of a control message")),
        }
        bytes.extend(vec![Some(0); behind]);
        // Who says so follows the structure, and need not be said.
        is_beginning = name == "ee_data";
    }
    Ok(Data::Bytes { bytes, is_beginning })
}

impl ControlMessage {
    /// Reads a script's words.
    pub(crate) fn read(value: &Value) -> Result<Self, String> {
        let Value::Fields(fields) = value else {
            return Err("a control message is {cmsg_level=, cmsg_type=, cmsg_data=}".into());
        };
        let (mut level, mut kind, mut len, mut data) = (None, None, None, &Value::Any);
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("cmsg_level", Value::Number(number)) => level = Some(*number as i32),
                ("cmsg_type", Value::Number(number)) => kind = Some(*number as i32),
                ("cmsg_len", Value::Number(number)) => len = Some(*number as usize),
                ("cmsg_data", value) => data = value,
                _ => return Err(format!("{name}={value:?} is nothing of a control message")),
            }
        }
        let level = level.ok_or("a control message needs cmsg_level")?;
        let kind = kind.ok_or("a control message needs cmsg_type")?;
        let whole =
            |bytes: &[u8]| Data::Bytes { bytes: known(bytes).collect(), is_beginning: false };
        let data = match data {
            Value::Any => Data::Any,
            Value::Number(number) => whole(&number_bytes(*number, width(level, kind))?),
            Value::Text(text) => {
                let address =
                    text.parse().map_err(|_| format!("{text} is no address with a port"))?;
                whole(&address_bytes(address))
            }
            Value::Fields(fields) => match time(fields)? {
                Some(time) => time,
                None => structure(fields)?,
            },
            other => return Err(format!("{other:?} is no cmsg_data")),
        };
        Ok(Self { level, kind, data, len })
    }

    /// As sendmsg(2) takes it.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        let Data::Bytes { bytes: data, .. } = &self.data else {
            return Err("a control message that is sent needs its cmsg_data".into());
        };
        let len = self.len.unwrap_or(HEADER_BYTES + data.len());
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(self.level.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(data.iter().map(|byte| byte.unwrap_or(0)));
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        Ok(bytes)
    }

    fn is(&self, told: &Told<'_>, clock: &Clock) -> bool {
        if (self.level, self.kind) != (told.level, told.kind) {
            return false;
        }
        if self.len.is_some_and(|len| len != HEADER_BYTES + told.data.len()) {
            return false;
        }
        match &self.data {
            Data::Any => true,
            Data::Bytes { bytes, is_beginning } => {
                let as_long = *is_beginning && told.data.len() >= bytes.len()
                    || self.len.is_some()
                    || told.data.len() == bytes.len();
                as_long
                    && bytes
                        .iter()
                        .zip(told.data)
                        .all(|(wanted, byte)| wanted.is_none_or(|wanted| wanted == *byte))
            }
            Data::Time { at_ns, unit_ns } => {
                let word = |at: usize| {
                    told.data.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
                };
                let (Some(seconds), Some(fraction)) = (word(0), word(8)) else { return false };
                let told_ns = seconds
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(fraction.wrapping_mul(*unit_ns));
                told_ns.abs_diff(clock.start_ns.wrapping_add(*at_ns)) <= clock.tolerance_ns
            }
        }
    }
}

/// A control message that was told.
struct Told<'a> {
    level: i32,
    kind: i32,
    data: &'a [u8],
}

/// What recvmsg(2) brought, message by message.
fn told(mut control: &[u8]) -> Result<Vec<Told<'_>>, String> {
    let mut all = Vec::new();
    while let Some((header, _)) = control.split_first_chunk::<HEADER_BYTES>() {
        let &[l0, l1, l2, l3, l4, l5, l6, l7, v0, v1, v2, v3, k0, k1, k2, k3] = header;
        let len = usize::from_ne_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
        let data = control
            .get(HEADER_BYTES..len)
            .ok_or_else(|| format!("a control message says that it has {len} bytes"))?;
        let level = i32::from_ne_bytes([v0, v1, v2, v3]);
        let kind = i32::from_ne_bytes([k0, k1, k2, k3]);
        all.push(Told { level, kind, data });
        control = control.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
    }
    Ok(all)
}

/// Compares what recvmsg(2) brought with what a script expects.
pub(crate) fn judge(
    expected: &[ControlMessage],
    control: &[u8],
    clock: &Clock,
) -> Result<(), String> {
    let told = told(control)?;
    let same = expected.len() == told.len()
        && expected.iter().zip(&told).all(|(wanted, told)| wanted.is(told, clock));
    if same {
        return Ok(());
    }
    let told: Vec<String> = told
        .iter()
        .map(|one| format!("{{level {}, type {}, data {:?}}}", one.level, one.kind, one.data))
        .collect();
    Err(format!("the control messages are [{}], expected {expected:?}", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { start_ns: 5_000_000_000, tolerance_ns: 1_000_000 };

    fn message(fields: &[(&str, Value)]) -> ControlMessage {
        let fields = fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        ControlMessage::read(&Value::Fields(fields)).unwrap()
    }

    fn of_ip(kind: i32, data: Value) -> ControlMessage {
        message(&[
            ("cmsg_level", Value::Number(libc::IPPROTO_IP.into())),
            ("cmsg_type", Value::Number(kind.into())),
            ("cmsg_data", data),
        ])
    }

    #[test]
    fn what_is_written_is_what_is_expected_and_nothing_else() {
        let (ttl, tos) =
            (of_ip(libc::IP_TTL, Value::Number(9)), of_ip(libc::IP_TOS, Value::Number(9)));
        let bytes = [ttl.bytes().unwrap(), tos.bytes().unwrap()].concat();
        assert_eq!(bytes.len(), 48);
        assert_eq!(judge(&[ttl.clone(), tos.clone()], &bytes, &CLOCK), Ok(()));
        assert!(judge(&[tos.clone(), ttl.clone()], &bytes, &CLOCK).is_err());
        assert!(judge(std::slice::from_ref(&ttl), &bytes, &CLOCK).is_err());
        let other = of_ip(libc::IP_TTL, Value::Number(8));
        assert!(judge(&[other, tos], &bytes, &CLOCK).is_err());
    }

    #[test]
    fn a_field_that_is_left_open_may_be_anything() {
        let fields = |index: Value| {
            let own = Value::Text("10.0.0.1".into());
            Value::Fields(vec![
                ("ipi_ifindex".into(), index),
                ("ipi_spec_dst".into(), own.clone()),
                ("ipi_addr".into(), own),
            ])
        };
        let sent = of_ip(libc::IP_PKTINFO, fields(Value::Number(7))).bytes().unwrap();
        assert_eq!(sent.len(), 32);
        let open = of_ip(libc::IP_PKTINFO, fields(Value::Any));
        assert_eq!(judge(&[open], &sent, &CLOCK), Ok(()));
        let other = of_ip(libc::IP_PKTINFO, fields(Value::Number(6)));
        assert!(judge(&[other], &sent, &CLOCK).is_err());
    }

    #[test]
    fn times_count_from_the_beginning_and_may_be_a_little_off() {
        let at = |usec: i64| {
            let fields = [("tv_sec", 1), ("tv_usec", usec)]
                .map(|(name, number)| (name.to_string(), Value::Number(number)));
            of_ip(libc::IP_TTL, Value::Fields(fields.to_vec()))
        };
        let time = [6_u64.to_ne_bytes(), 500_000_u64.to_ne_bytes()].concat();
        let header =
            [32_usize.to_ne_bytes().to_vec(), [0, libc::IP_TTL].map(i32::to_ne_bytes).concat()];
        let bytes = [header.concat(), time].concat();
        assert_eq!(judge(&[at(499_500)], &bytes, &CLOCK), Ok(()));
        assert!(judge(&[at(498_500)], &bytes, &CLOCK).is_err());
        assert!(at(0).bytes().is_err(), "a time cannot be sent");
    }
}
