//! Running a script, line by line, against a host.

use std::collections::VecDeque;

use crate::calls::{Files, PORT, Ready};
use crate::compare;
use crate::control::Clock;
use crate::errors::RunError;
use crate::frame::{self, Ports, Seen, SeenBody};
use crate::layers;
use crate::script::*;
use crate::system::{System, SystemCall};

/// Ports of the peer when it opens: this one for conversation 0, the next for 1 and so on.
const PEER_PORT: u16 = 40_000;
/// How long something may take that may take any time.
const ANY_NS: u64 = 20_000_000_000;
/// Where fields of TCP_INFO lie (linux/tcp.h) and how long they are.
const INFO: &[(&str, usize, usize)] = &[
    ("tcpi_state", 0, 1),
    ("tcpi_ca_state", 1, 1),
    ("tcpi_retransmits", 2, 1),
    ("tcpi_probes", 3, 1),
    ("tcpi_backoff", 4, 1),
    ("tcpi_options", 5, 1),
    ("tcpi_rto", 8, 4),
    ("tcpi_ato", 12, 4),
    ("tcpi_snd_mss", 16, 4),
    ("tcpi_rcv_mss", 20, 4),
    ("tcpi_unacked", 24, 4),
    ("tcpi_sacked", 28, 4),
    ("tcpi_lost", 32, 4),
    ("tcpi_retrans", 36, 4),
    ("tcpi_pmtu", 60, 4),
    ("tcpi_rcv_ssthresh", 64, 4),
    ("tcpi_rtt", 68, 4),
    ("tcpi_rttvar", 72, 4),
    ("tcpi_snd_ssthresh", 76, 4),
    ("tcpi_snd_cwnd", 80, 4),
    ("tcpi_advmss", 84, 4),
    ("tcpi_reordering", 88, 4),
    ("tcpi_total_retrans", 100, 4),
];

/// A conversation.
#[derive(Debug)]
struct Flow {
    ports: Ports,
    /// The program opens it: its port is known with the first packet.
    active: bool,
    isn: Option<u32>,
    peer_isn: u32,
    /// A SYN of the host may have another sequence number than the last.
    fresh: bool,
    /// The host's timestamps less the script's.
    ticks: Option<u32>,
}

/// A call that has not ended.
struct Pending {
    line: usize,
    call: Call,
    ready: Ready,
    began: u64,
    ends: Option<(u64, u64)>,
}

struct Runner<'a> {
    system: &'a mut dyn System,
    files: Files,
    flows: Vec<Flow>,
    queue: VecDeque<(u64, Seen)>,
    /// Frames that have no words of their own, as lines of text; whether anybody must expect them.
    lines: VecDeque<(u64, String, bool)>,
    v6: bool,
    wants_lines: bool,
    pending: Option<Pending>,
    tolerance: u64,
    start: u64,
    /// When the event before was.
    last: u64,
}

/// Runs a script.
///
/// # Errors
/// Where it did not go as written.
pub fn run(script: &Script, system: &mut dyn System) -> Result<(), RunError> {
    let tolerance = script.tolerance.map_or(0, |tolerance| tolerance.as_nanos() as u64);
    let tolerance = tolerance.max(system.tolerance_ns());
    let start = system.now();
    let clock = Clock { start_ns: system.calendar_ns(), tolerance_ns: tolerance };
    let mut runner = Runner {
        system,
        files: Files::new(script.version, clock),
        flows: Vec::new(),
        queue: VecDeque::new(),
        lines: VecDeque::new(),
        v6: script.version.has_v6_packets(),
        wants_lines: false,
        pending: None,
        tolerance,
        start,
        last: start,
    };
    // Whatever came out is wanted as a line by some scripts, and as what it is by the others.
    let wants_lines = script.events.iter().any(|event| match &event.action {
        Action::Expect(packet) => matches!(packet.body, Body::Line(_)),
        _ => false,
    });
    runner.wants_lines = wants_lines;
    for event in &script.events {
        let line = event.line;
        runner.event(event).map_err(|what| RunError::Mismatch { line, what })?;
    }
    runner.finish().map_err(|what| RunError::Leftover { what })
}

impl Runner<'_> {
    fn event(&mut self, event: &Event) -> Result<(), String> {
        let (from, to) = self.times(event.when);
        match &event.action {
            Action::Inject(packet) => {
                self.wait(from)?;
                self.last = self.system.now();
                self.inject(packet)
            }
            Action::Expect(packet) => self.expect(packet, event.when, from, to),
            Action::Call(call, until) => {
                self.wait(from)?;
                self.end_pending()?;
                let base = self.last;
                self.last = self.system.now();
                self.call(event, call, until.map(|until| self.end_of(event.when, base, until)))
            }
            Action::Assert(conditions) => {
                self.wait(from)?;
                self.end_pending()?;
                self.last = self.system.now();
                self.assert(conditions)
            }
        }
    }

    fn times(&self, when: When) -> (u64, u64) {
        match when {
            When::Any => (self.system.now(), self.system.now() + ANY_NS),
            When::At { relative: true, from, to } => (self.last + from, self.last + to),
            When::At { relative: false, from, to } => (self.start + from, self.start + to),
        }
    }

    fn end_of(&self, when: When, base: u64, until: u64) -> u64 {
        match when {
            When::At { relative: false, .. } => self.start + until,
            _ => base + until,
        }
    }

    /// Takes what came out.
    fn gather(&mut self) -> Result<(), String> {
        for (time, bytes) in self.system.take_frames() {
            let seen = frame::read(&bytes).transpose().map_err(|error| error.to_string())?;
            let has_words =
                matches!(&seen, Some(Seen { body: SeenBody::Tcp(..) | SeenBody::Udp(_), .. }));
            match seen {
                Some(seen) if has_words || !self.wants_lines => self.queue.push_back((time, seen)),
                _ => {
                    let line = wire::text::Line::of(&bytes).to_string();
                    let is_background = layers::is_background(&bytes);
                    self.lines.push_back((time, line, is_background));
                }
            }
        }
        if let Some((time, outcome)) = self.system.take_outcome()
            && let Some(pending) = self.pending.take()
        {
            let within = |at: u64| time + self.tolerance >= at && time <= at + self.tolerance;
            let in_time = match pending.ends {
                None => true,
                Some((first, last)) => within(first) || within(last),
            };
            let judged = self.files.judge(&pending.call, &pending.ready, &outcome);
            let judged = judged.and_then(|()| match pending.ends {
                Some((at, _)) if !in_time => Err(format!(
                    "{} returned after {}, expected {}",
                    pending.call.name,
                    seconds(time - pending.began),
                    seconds(at.saturating_sub(pending.began))
                )),
                _ => Ok(()),
            });
            return judged.map_err(|why| format!("(call of line {}) {why}", pending.line));
        }
        Ok(())
    }

    /// Lets time pass until `until`.
    fn wait(&mut self, until: u64) -> Result<(), String> {
        loop {
            self.gather()?;
            if self.system.now() >= until {
                return Ok(());
            }
            self.system.pass(until);
        }
    }

    /// Waits for a call that is under way.
    fn end_pending(&mut self) -> Result<(), String> {
        while let Some(pending) = &self.pending {
            let limit = pending.ends.map_or(pending.began, |(_, last)| last) + self.tolerance;
            if self.system.now() > limit {
                return Err(format!(
                    "{} of line {} has not returned after {}",
                    pending.call.name,
                    pending.line,
                    seconds(self.system.now() - pending.began)
                ));
            }
            self.system.pass(limit + 1);
            self.gather()?;
        }
        Ok(())
    }

    fn call(&mut self, event: &Event, call: &Call, ends: Option<u64>) -> Result<(), String> {
        let ready = self.files.ready(call)?;
        match &ready.call {
            SystemCall::Connect { address, .. } => self.open(*address),
            SystemCall::Send { to: Some(to), flags, .. } if flags & libc::MSG_FASTOPEN != 0 => {
                self.open(*to);
            }
            SystemCall::Bind { address, .. } if address.port() != 0 => {
                let index = usize::from(address.port().wrapping_sub(PORT));
                if index < 64 {
                    self.flow(index);
                    self.flows[index].ports.local = address.port();
                }
            }
            _ => {}
        }
        let began = self.system.now();
        self.system.start(ready.call.clone());
        let ends = ends.map(|at| (at, at));
        self.pending = Some(Pending { line: event.line, call: call.clone(), ready, began, ends });
        self.gather()?;
        if ends.is_none() { self.end_pending() } else { Ok(()) }
    }

    fn assert(&mut self, conditions: &[Condition]) -> Result<(), String> {
        let fd = self.files.last().ok_or("there is no socket to ask")?;
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        self.system.start(SystemCall::Option { fd, level, name, len: 104 });
        let limit = self.system.now() + self.tolerance;
        let outcome = loop {
            if let Some((_, outcome)) = self.system.take_outcome() {
                break outcome;
            }
            if self.system.now() > limit {
                return Err("getsockopt(TCP_INFO) does not return".into());
            }
            self.system.pass(limit + 1);
        };
        let bytes = outcome.map_err(|errno| format!("TCP_INFO: {errno}"))?.bytes;
        for Condition { name, operator, number } in conditions {
            let value = info(name, &bytes)?;
            let holds = match operator.as_str() {
                "==" => value == *number,
                "!=" => value != *number,
                "<" => value < *number,
                "<=" => value <= *number,
                ">" => value > *number,
                _ => value >= *number,
            };
            if !holds {
                return Err(format!("{name} is {value}, expected {operator} {number}"));
            }
        }
        Ok(())
    }

    /// The host opens the conversation that goes to `address`.
    fn open(&mut self, address: std::net::SocketAddr) {
        let index = usize::from(address.port().wrapping_sub(PORT));
        if address.ip().to_canonical() == crate::system::remote(self.v6) && index < 64 {
            self.flow(index);
            let flow = &mut self.flows[index];
            flow.active = true;
            flow.fresh = true;
            flow.ports.remote = address.port();
        }
    }

    /// Makes sure that a conversation is known.
    fn flow(&mut self, index: usize) {
        while self.flows.len() <= index {
            let number = self.flows.len() as u16;
            self.flows.push(Flow {
                ports: Ports { remote: PEER_PORT + number, local: PORT, v6: self.v6 },
                active: false,
                isn: None,
                peer_isn: 0,
                fresh: true,
                ticks: None,
            });
        }
    }

    /// The same for that of a packet, which may say of which version of IP it is.
    fn flow_of(&mut self, packet: &Packet) {
        self.flow(packet.flow);
        if let Some(version) = packet.marks.iter().find_map(Mark::version) {
            self.flows[packet.flow].ports.v6 = version == 6;
        }
    }

    fn inject(&mut self, packet: &Packet) -> Result<(), String> {
        self.flow_of(packet);
        let flow = &mut self.flows[packet.flow];
        let isn = flow.isn.unwrap_or(0);
        let mut ports = flow.ports;
        if packet.marks.contains(&Mark::OtherPort) {
            ports.local = 9;
        }
        let frame = match &packet.body {
            Body::Tcp(segment) => {
                if segment.flags & 2 != 0 {
                    flow.peer_isn = segment.seq;
                }
                let mut live = segment.clone();
                live.ack = segment.ack.map(|ack| ack.wrapping_add(isn));
                for option in live.options.iter_mut().flatten() {
                    match option {
                        TcpOption::Timestamps { echo, .. } if *echo != 0 => {
                            *echo = echo.wrapping_add(flow.ticks.unwrap_or(0));
                        }
                        TcpOption::Sack(blocks) => {
                            for (left, right) in blocks {
                                *left = left.wrapping_add(isn);
                                *right = right.wrapping_add(isn);
                            }
                        }
                        _ => {}
                    }
                }
                // Data on a SYN stands behind it.
                let behind = u32::from(segment.flags & 2 == 0);
                let offset = segment.seq.wrapping_sub(flow.peer_isn).wrapping_sub(behind);
                let payload = frame::patterned(u64::from(offset), segment.len);
                // A reset or a SYN where there was an end begins something new.
                if segment.flags & 5 != 0 {
                    flow.fresh = true;
                }
                frame::segment_from_peer(ports, &live, &payload, &packet.marks)
            }
            Body::Udp { from, len } => {
                frame::datagram_from_peer(ports, &frame::patterned(*from, *len), &packet.marks)
            }
            Body::Icmp(error) => {
                let quoted = error.quoted.map(|(seq, len)| Segment {
                    flags: 16,
                    seq: seq.wrapping_add(isn),
                    len,
                    ack: Some(flow.peer_isn.wrapping_add(1)),
                    ..Segment::default()
                });
                frame::icmp_from_peer(ports, error, quoted.as_ref(), &packet.marks)
            }
            Body::Raw(frame) => frame.clone(),
            Body::Line(line) => return Err(format!("`{line}` cannot be sent; write it as raw")),
        };
        match packet.marks.iter().find_map(Mark::gso) {
            Some(segment_bytes) => self.system.inject_datagrams(frame, segment_bytes),
            None => self.system.inject(frame),
        }
        Ok(())
    }

    /// Takes the next packet of a conversation that came out.
    fn next(&mut self, index: usize, icmp: bool) -> Option<(u64, Seen)> {
        let flow = &self.flows[index];
        let at = self.queue.iter().position(|(_, seen)| match &seen.body {
            SeenBody::Icmp { .. } => icmp,
            _ if icmp => false,
            _ if flow.active => seen.ports.remote == flow.ports.remote,
            _ => seen.ports == flow.ports || seen.ports.remote == flow.ports.remote,
        })?;
        self.queue.remove(at)
    }

    /// Waits for a frame that a line of text describes.
    fn expect_line(
        &mut self,
        line: &str,
        when: When,
        (from, to): (u64, u64),
    ) -> Result<(), String> {
        let time = loop {
            self.gather()?;
            let found = self.lines.iter().position(|(_, seen, _)| seen == line);
            if let Some((time, ..)) = found.and_then(|at| self.lines.remove(at)) {
                break time;
            }
            if self.system.now() > to + self.tolerance {
                let seen: Vec<&str> = self.lines.iter().map(|(_, seen, _)| &**seen).collect();
                return Err(format!("`{line}` did not come out, but: {}", seen.join(" | ")));
            }
            self.system.pass(to + self.tolerance + 1);
        };
        self.in_time(line, when, time, (from, to))
    }

    /// Something came out at `time`, which must be within its times.
    fn in_time(
        &mut self,
        what: &str,
        when: When,
        time: u64,
        (from, to): (u64, u64),
    ) -> Result<(), String> {
        let early = time + self.tolerance < from;
        if when != When::Any && (early || time > to + self.tolerance) {
            let base = self.last;
            return Err(format!(
                "{what} came out {} after the event before, expected {}",
                seconds(time.saturating_sub(base)),
                seconds(from.saturating_sub(base)),
            ));
        }
        self.last = time;
        Ok(())
    }

    fn expect(&mut self, packet: &Packet, when: When, from: u64, to: u64) -> Result<(), String> {
        if let Body::Line(line) = &packet.body {
            return self.expect_line(line, when, (from, to));
        }
        self.flow_of(packet);
        let icmp = matches!(packet.body, Body::Icmp(_));
        let (time, seen) = loop {
            self.gather()?;
            if let Some(next) = self.next(packet.flow, icmp) {
                break next;
            }
            if self.system.now() > to + self.tolerance {
                return Err(format!("nothing came out, expected {}", told(&packet.body)));
            }
            self.system.pass(to + self.tolerance + 1);
        };
        let body = self.relative(packet.flow, &seen, packet);
        let ticks = (self.tolerance / 1_000_000) as u32 + 1;
        let same = match (&packet.body, &body) {
            (Body::Tcp(expected), Body::Tcp(seen)) => compare::matches(expected, seen, ticks),
            (Body::Udp { len: expected, .. }, Body::Udp { len: seen, .. }) => expected == seen,
            (Body::Icmp(expected), Body::Icmp(seen)) => {
                (expected.kind, expected.code) == (seen.kind, seen.code)
            }
            _ => false,
        };
        if !same {
            return Err(format!("expected {}, but out came {}", told(&packet.body), told(&body)));
        }
        if seen.ports.v6 != self.flows[packet.flow].ports.v6 {
            return Err(format!("{} came out by the other version of IP", told(&body)));
        }
        self.judge_marks(packet, &seen)?;
        self.judge_payload(packet.flow, &body, &seen)?;
        self.in_time(&told(&packet.body), when, time, (from, to))
    }

    /// What was seen, in the script's numbers.
    fn relative(&mut self, index: usize, seen: &Seen, expected: &Packet) -> Body {
        let flow = &mut self.flows[index];
        match &seen.body {
            SeenBody::Udp(bytes) => {
                flow.ports.local = seen.ports.local;
                let from = match expected.body {
                    Body::Udp { from, .. } => from,
                    _ => 0,
                };
                Body::Udp { from, len: bytes.len() }
            }
            SeenBody::Icmp { kind, code } => {
                Body::Icmp(IcmpError { kind: *kind, code: *code, mtu: 0, quoted: None })
            }
            SeenBody::Tcp(segment, _) => {
                let mut segment = segment.clone();
                if segment.flags & 2 != 0 && (flow.fresh || flow.isn.is_none()) {
                    flow.isn = Some(segment.seq);
                    flow.fresh = false;
                    flow.ports.local = seen.ports.local;
                    flow.ticks = None;
                }
                let is_reset = segment.flags & 4 != 0;
                let isn = flow.isn.unwrap_or(0);
                // A reset that answers a segment without a connection takes its number from it.
                if !(is_reset && flow.isn.is_none()) {
                    segment.seq = segment.seq.wrapping_sub(isn);
                }
                if segment.flags & 1 != 0 || is_reset {
                    flow.fresh = true;
                }
                let wanted = match &expected.body {
                    Body::Tcp(Segment { options: Some(options), .. }) => {
                        options.iter().find_map(|option| match option {
                            TcpOption::Timestamps { value, .. } => Some(*value),
                            _ => None,
                        })
                    }
                    _ => None,
                };
                for option in segment.options.iter_mut().flatten() {
                    if let TcpOption::Timestamps { value, .. } = option {
                        if let Some(wanted) = wanted
                            && flow.ticks.is_none()
                        {
                            flow.ticks = Some(value.wrapping_sub(wanted));
                        }
                        *value = value.wrapping_sub(flow.ticks.unwrap_or(0));
                    }
                }
                Body::Tcp(segment)
            }
        }
    }

    fn judge_marks(&self, packet: &Packet, seen: &Seen) -> Result<(), String> {
        for mark in &packet.marks {
            let (name, wanted, got) = match mark {
                Mark::Ecn(bits) => ("ECN", *bits, seen.tos & 3),
                Mark::Tos(tos) => ("type of service", *tos, seen.tos),
                Mark::Ttl(ttl) => ("time to live", *ttl, seen.ttl),
                Mark::DontFragment(df) => ("DF bit", u8::from(*df), u8::from(seen.df)),
                // Looked at already.
                Mark::Version(_) => continue,
                other => return Err(format!("{other:?} cannot be expected")),
            };
            if wanted != got {
                return Err(format!("the {name} that came out is {got:#x}, expected {wanted:#x}"));
            }
        }
        Ok(())
    }

    /// What the host sends must be what its program wrote.
    fn judge_payload(&self, index: usize, body: &Body, seen: &Seen) -> Result<(), String> {
        let (offset, bytes) = match (body, &seen.body) {
            (Body::Tcp(segment), SeenBody::Tcp(_, bytes)) if self.flows[index].isn.is_some() => {
                let behind = u32::from(segment.flags & 2 == 0);
                (u64::from(segment.seq.wrapping_sub(behind)), bytes)
            }
            (Body::Udp { from, .. }, SeenBody::Udp(bytes)) => (*from, bytes),
            _ => return Ok(()),
        };
        // The byte before the first that is not acknowledged, sent again to keep alive, may be
        // anything (RFC 9293, section 3.8.4).
        if bytes.len() <= 1 || *bytes == frame::patterned(offset, bytes.len()) {
            return Ok(());
        }
        Err("the payload that came out is not what the program wrote".into())
    }

    /// The end: every call has returned, and nothing came out that nobody expected.
    fn finish(mut self) -> Result<(), String> {
        self.end_pending()?;
        self.wait(self.last)?;
        let last = self.last;
        let tolerance = self.tolerance;
        let unasked = self
            .lines
            .iter()
            .find(|(time, _, is_background)| !is_background && time + tolerance < last);
        if let Some((_, line, _)) = unasked {
            return Err(format!("`{line}` came out, which nothing expects"));
        }
        let leftover = self.queue.iter().position(|(time, _)| time + tolerance < last);
        if let Some(at) = leftover
            && let Some((_, seen)) = self.queue.remove(at)
        {
            let remote = seen.ports.remote;
            let index = self.flows.iter().position(|flow| flow.ports.remote == remote).unwrap_or(0);
            self.flow(index);
            let body = Body::Udp { from: 0, len: 0 };
            let nothing = Packet { flow: index, marks: Vec::new(), body };
            let body = self.relative(index, &seen, &nothing);
            return Err(format!("{} came out, which nothing expects", told(&body)));
        }
        Ok(())
    }
}

/// A field of TCP_INFO.
fn info(name: &str, bytes: &[u8]) -> Result<i64, String> {
    let (_, at, len) = INFO
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| format!("{name} is no field of TCP_INFO that scripts know"))?;
    let field = bytes.get(*at..at + len).ok_or_else(|| format!("{name} is not told"))?;
    Ok(match field {
        [byte] => i64::from(*byte),
        word => i64::from(u32::from_ne_bytes(word.try_into().unwrap_or_default())),
    })
}

fn told(body: &Body) -> String {
    match body {
        Body::Tcp(segment) => compare::words(segment),
        Body::Udp { from: 0, len } => format!("udp ({len})"),
        Body::Udp { from, len } => format!("udp {from}:{}({len})", from + *len as u64),
        Body::Icmp(error) => format!("icmp type {} code {}", error.kind, error.code),
        Body::Raw(_) => "a raw frame".into(),
        Body::Line(line) => line.clone(),
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}
