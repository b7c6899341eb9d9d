//! An expected packet beside one that was seen, in the script's own words.

use std::fmt::Write;

use crate::script::{Segment, TcpOption};

/// The flag PSH.
const PSH: u8 = 8;

/// A segment as scripts write it.
pub fn words(segment: &Segment) -> String {
    let letters = [(1, 'F'), (2, 'S'), (4, 'R'), (8, 'P'), (32, 'U'), (64, 'E'), (128, 'W')];
    let mut text: String =
        letters.iter().filter(|(bit, _)| segment.flags & bit != 0).map(|(_, l)| *l).collect();
    if segment.flags & 16 != 0 {
        text.push('.');
    }
    if text.is_empty() {
        text.push('-');
    }
    let end = segment.seq.wrapping_add(segment.len as u32);
    let _ = write!(text, " {}:{end}({})", segment.seq, segment.len);
    for (name, number) in [
        ("ack", segment.ack),
        ("win", segment.window.map(u32::from)),
        ("urg", segment.urgent.map(u32::from)),
    ] {
        if let Some(number) = number {
            let _ = write!(text, " {name} {number}");
        }
    }
    match &segment.options {
        None => text.push_str(" <...>"),
        Some(options) if options.is_empty() => {}
        Some(options) => {
            let options: Vec<String> = options.iter().map(option_words).collect();
            let _ = write!(text, " <{}>", options.join(","));
        }
    }
    text
}

fn option_words(option: &TcpOption) -> String {
    match option {
        TcpOption::End => "eol".into(),
        TcpOption::Nop => "nop".into(),
        TcpOption::Mss(mss) => format!("mss {mss}"),
        TcpOption::WindowScale(shift) => format!("wscale {shift}"),
        TcpOption::SackPermitted => "sackOK".into(),
        TcpOption::Sack(blocks) => {
            let blocks: Vec<String> =
                blocks.iter().map(|(left, right)| format!("{left}:{right}")).collect();
            format!("sack {}", blocks.join(" "))
        }
        TcpOption::Timestamps { value, echo } => format!("TS val {value} ecr {echo}"),
        TcpOption::Other(kind, bytes) => {
            let bytes: String = bytes.iter().map(|byte| format!(" {byte}")).collect();
            format!("kind {kind}{bytes}")
        }
    }
}

/// Whether a segment (in the script's numbers) is as expected. Timestamps' values may be off by
/// `ticks`, and are taken as expected by then. A segment with data may have PSH where none is
/// expected: where it stands within what was written is nobody's business.
pub fn matches(expected: &Segment, seen: &Segment, ticks: u32) -> bool {
    let options = match (&expected.options, &seen.options) {
        (None, _) => true,
        (Some(expected), Some(seen)) => {
            expected.len() == seen.len()
                && expected.iter().zip(seen).all(|(one, other)| same_option(one, other, ticks))
        }
        (Some(_), None) => false,
    };
    options
        && (expected.flags == seen.flags || expected.len > 0 && expected.flags | PSH == seen.flags)
        && expected.seq == seen.seq
        && expected.len == seen.len
        && expected.ack == seen.ack
        && (expected.window.is_none() || expected.window == seen.window)
        && (expected.urgent.is_none() || expected.urgent == seen.urgent)
}

fn same_option(expected: &TcpOption, seen: &TcpOption, ticks: u32) -> bool {
    match (expected, seen) {
        (
            TcpOption::Timestamps { value, echo },
            TcpOption::Timestamps { value: seen_value, echo: seen_echo },
        ) => {
            let off = value.wrapping_sub(*seen_value).cast_signed().unsigned_abs();
            echo == seen_echo && off <= ticks
        }
        _ => expected == seen,
    }
}
