//! Packets.

use super::cursor::Cursor;
use crate::script::*;

const FLAGS: [(char, u8); 8] =
    [('F', 1), ('S', 2), ('R', 4), ('P', 8), ('.', 16), ('U', 32), ('E', 64), ('W', 128)];

/// A packet after `<` or `>`.
pub fn packet(cursor: &mut Cursor<'_>, injected: bool) -> Result<Packet, String> {
    let flow = if cursor.take("#") { cursor.sized()? } else { 0 };
    let mut marks = Vec::new();
    cursor.skip_blanks();
    while cursor.take("[") {
        let text = cursor.until("]").ok_or("[ has no ]")?;
        for mark in text.split(',') {
            marks.push(self::mark(mark.trim())?);
        }
        cursor.skip_blanks();
    }
    let body = if cursor.take("udp") {
        datagram(cursor, injected)?
    } else if injected && cursor.take("raw") {
        Body::Raw(crate::layers::packet(quoted(cursor)?)?)
    } else if !injected && cursor.take("line") {
        Body::Line(quoted(cursor)?.to_string())
    } else if cursor.take("icmp6") {
        Body::Icmp(icmp(cursor, true)?)
    } else if cursor.take("icmp") {
        Body::Icmp(icmp(cursor, false)?)
    } else {
        Body::Tcp(segment(cursor, injected)?)
    };
    Ok(Packet { flow, marks, body })
}

/// `(length)`, or `first:end(length)` of what was written.
fn datagram(cursor: &mut Cursor<'_>, injected: bool) -> Result<Body, String> {
    cursor.skip_blanks();
    let mut between = None;
    if !injected && !cursor.sees("(") {
        let from: u64 = cursor.sized()?;
        cursor.need(":")?;
        between = Some((from, cursor.sized::<u64>()?));
    }
    cursor.need("(")?;
    let len: usize = cursor.sized()?;
    cursor.need(")")?;
    let (from, end) = between.unwrap_or((0, len as u64));
    if end.checked_sub(from) != Some(len as u64) {
        return Err(format!("{from}:{end} is not {len} bytes"));
    }
    Ok(Body::Udp { from, len })
}

/// A string between quotation marks.
fn quoted<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, String> {
    cursor.skip_blanks();
    cursor.need("\"")?;
    cursor.until("\"").ok_or_else(|| "a string has no end".into())
}

fn mark(text: &str) -> Result<Mark, String> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let number = || -> Result<usize, String> {
        let word =
            text.split_whitespace().nth(1).ok_or_else(|| format!("{name} needs a number"))?;
        let read = match word.strip_prefix("0x") {
            Some(digits) => usize::from_str_radix(digits, 16),
            None => word.parse(),
        };
        read.map_err(|_| format!("{word} is no number"))
    };
    let byte = || number().and_then(|n| u8::try_from(n).map_err(|_| format!("{n} is too large")));
    Ok(match name {
        "noecn" => Mark::Ecn(0),
        "ect1" => Mark::Ecn(1),
        "ect0" => Mark::Ecn(2),
        "ce" => Mark::Ecn(3),
        "tos" => Mark::Tos(byte()?),
        "ttl" => Mark::Ttl(byte()?),
        "df" => Mark::DontFragment(true),
        "nodf" => Mark::DontFragment(false),
        "bad_sum" => Mark::BadSum,
        "bad_ip_sum" => Mark::BadIpSum,
        "doff" => Mark::DataOffset(byte()?),
        "cut" => Mark::Truncated(number()?),
        "no_sum" => Mark::NoSum,
        "other_port" => Mark::OtherPort,
        "ip4" => Mark::Version(4),
        "ip6" => Mark::Version(6),
        "gso" => {
            Mark::Gso(u16::try_from(number()?).map_err(|_| "a datagram has at most 65535 bytes")?)
        }
        _ => return Err(format!("[{name}] says nothing of a packet")),
    })
}

fn segment(cursor: &mut Cursor<'_>, injected: bool) -> Result<Segment, String> {
    let mut segment = Segment::default();
    let letters = cursor.run(|c| FLAGS.iter().any(|(letter, _)| *letter == c) || c == '-');
    if letters.is_empty() {
        return Err(format!("TCP flags are missing at {}", cursor.near()));
    }
    for letter in letters.chars() {
        segment.flags |=
            FLAGS.iter().find(|(known, _)| *known == letter).map_or(0, |(_, bit)| *bit);
    }
    segment.seq = cursor.sized()?;
    cursor.need(":")?;
    let end: u32 = cursor.sized()?;
    cursor.need("(")?;
    segment.len = cursor.sized()?;
    cursor.need(")")?;
    if end.wrapping_sub(segment.seq) as usize != segment.len {
        return Err(format!("{}:{end} is not {} bytes", segment.seq, segment.len));
    }
    loop {
        cursor.skip_blanks();
        if cursor.take("ack") {
            segment.ack = Some(cursor.sized()?);
        } else if cursor.take("win") {
            segment.window = Some(cursor.sized()?);
        } else if cursor.take("urg") {
            segment.urgent = Some(cursor.sized()?);
        } else {
            break;
        }
    }
    if cursor.take("<...>") {
        if injected {
            return Err("an injected segment needs its options".into());
        }
        segment.options = None;
    } else if cursor.take("<") {
        segment.options = Some(options(cursor)?);
    } else {
        segment.options = Some(Vec::new());
    }
    if segment.ack.is_some() != (segment.flags & 16 != 0) {
        return Err("`ack` and the flag `.` go together".into());
    }
    Ok(segment)
}

fn options(cursor: &mut Cursor<'_>) -> Result<Vec<TcpOption>, String> {
    let mut all = Vec::new();
    loop {
        cursor.skip_blanks();
        if cursor.take(">") {
            return Ok(all);
        }
        if !all.is_empty() {
            cursor.need(",")?;
            cursor.skip_blanks();
        }
        all.push(option(cursor)?);
    }
}

fn option(cursor: &mut Cursor<'_>) -> Result<TcpOption, String> {
    let near = cursor.near();
    Ok(match cursor.word() {
        "eol" => TcpOption::End,
        "nop" => TcpOption::Nop,
        "mss" => TcpOption::Mss(cursor.sized()?),
        "wscale" => TcpOption::WindowScale(cursor.sized()?),
        "sackOK" => TcpOption::SackPermitted,
        "sack" => {
            let mut blocks = Vec::new();
            loop {
                cursor.skip_blanks();
                if cursor.sees(",") || cursor.sees(">") {
                    return Ok(TcpOption::Sack(blocks));
                }
                let left = cursor.sized()?;
                cursor.need(":")?;
                blocks.push((left, cursor.sized()?));
            }
        }
        "TS" => {
            cursor.need("val")?;
            let value = cursor.sized()?;
            cursor.need("ecr")?;
            TcpOption::Timestamps { value, echo: cursor.sized()? }
        }
        "kind" => {
            let kind = cursor.sized()?;
            let mut bytes = Vec::new();
            loop {
                cursor.skip_blanks();
                if cursor.sees(",") || cursor.sees(">") {
                    return Ok(TcpOption::Other(kind, bytes));
                }
                bytes.push(cursor.sized()?);
            }
        }
        _ => return Err(format!("there is no TCP option at {near}")),
    })
}

fn icmp(cursor: &mut Cursor<'_>, v6: bool) -> Result<IcmpError, String> {
    cursor.skip_blanks();
    let kind = cursor.word();
    cursor.skip_blanks();
    let code = if cursor.sees("[") { "" } else { cursor.word() };
    let (kind, code) = match (kind, code) {
        ("unreachable", "no_route") if v6 => (1, 0),
        ("unreachable", "admin_prohibited") if v6 => (1, 1),
        ("unreachable", "beyond_scope") if v6 => (1, 2),
        ("unreachable", "address") if v6 => (1, 3),
        ("unreachable", "port_unreachable") if v6 => (1, 4),
        ("unreachable", "policy") if v6 => (1, 5),
        ("unreachable", "reject") if v6 => (1, 6),
        ("unreachable", "source_routing") if v6 => (1, 7),
        ("packet_too_big", "mtu") if v6 => {
            let error = IcmpError { kind: 2, code: 0, mtu: cursor.sized()?, quoted: None };
            return about(cursor, error);
        }
        ("time_exceeded", "ttl_exceeded" | "") if v6 => (3, 0),
        ("parameter_problem", "") if v6 => (4, 0),
        _ if v6 => return Err(format!("icmp6 {kind} {code} is not known")),
        ("unreachable", "net_unreachable") => (3, 0),
        ("unreachable", "host_unreachable") => (3, 1),
        ("unreachable", "protocol_unreachable") => (3, 2),
        ("unreachable", "port_unreachable") => (3, 3),
        ("unreachable", "frag_needed") => (3, 4),
        ("unreachable", "source_route_failed") => (3, 5),
        ("unreachable", "net_unknown") => (3, 6),
        ("unreachable", "host_unknown") => (3, 7),
        ("unreachable", "source_host_isolated") => (3, 8),
        ("unreachable", "net_prohibited") => (3, 9),
        ("unreachable", "host_prohibited") => (3, 10),
        ("unreachable", "net_tos") => (3, 11),
        ("unreachable", "host_tos") => (3, 12),
        ("unreachable", "admin_prohibited") => (3, 13),
        ("unreachable", "host_precedence") => (3, 14),
        ("unreachable", "precedence_cutoff") => (3, 15),
        ("source_quench", "") => (4, 0),
        ("time_exceeded", "ttl_exceeded" | "") => (11, 0),
        ("parameter_problem", "") => (12, 0),
        _ => return Err(format!("icmp {kind} {code} is not known")),
    };
    let mut error = IcmpError { kind, code, mtu: 0, quoted: None };
    cursor.skip_blanks();
    if cursor.take("mtu") {
        error.mtu = cursor.sized()?;
    }
    about(cursor, error)
}

/// What an error quotes, if it says so.
fn about(cursor: &mut Cursor<'_>, mut error: IcmpError) -> Result<IcmpError, String> {
    cursor.skip_blanks();
    if cursor.take("[") {
        let left: u32 = cursor.sized()?;
        cursor.need(":")?;
        let right: u32 = cursor.sized()?;
        cursor.need("(")?;
        let len: usize = cursor.sized()?;
        if right.wrapping_sub(left) as usize != len {
            return Err(format!("{left}:{right} is not {len} bytes"));
        }
        cursor.need(")")?;
        cursor.need("]")?;
        error.quoted = Some((left, len));
    }
    Ok(error)
}
