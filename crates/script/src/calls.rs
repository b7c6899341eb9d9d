//! System calls of scripts made ready for a host, and their outcomes judged.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use client::sockets::Queue;

use crate::control::Clock;
use crate::frame;
use crate::messages::Header;
use crate::names;
use crate::script::{Call, Value, Version};
use crate::system::{Answer, Outcome, SystemCall};

/// Port that `bind(fd, ..., ...)` takes and that `connect(fd, ..., ...)` goes to; further ones
/// follow it.
pub const PORT: u16 = 8080;

/// Descriptors of a script and what their programs have read and written so far.
#[derive(Debug)]
pub struct Files {
    live: BTreeMap<i64, i32>,
    written: BTreeMap<i64, u64>,
    read: BTreeMap<i64, u64>,
    datagrams: Vec<i64>,
    /// With UDP_CORK.
    corked: Vec<i64>,
    marked: bool,
    version: Version,
    clock: Clock,
}

/// A call made ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// For the host.
    pub call: SystemCall,
    /// The script's descriptor.
    fd: i64,
}

fn number(call: &Call, index: usize) -> Result<i64, String> {
    match call.arguments.get(index) {
        Some(Value::Number(number)) => Ok(*number),
        other => Err(format!("argument {} of {} is {other:?}, no number", index + 1, call.name)),
    }
}

fn int(call: &Call, index: usize) -> Result<i32, String> {
    let number = number(call, index)?;
    i32::try_from(number)
        .or_else(|_| u32::try_from(number).map(u32::cast_signed))
        .map_err(|_| format!("{number} is no int"))
}

fn length(call: &Call, index: usize) -> Result<usize, String> {
    usize::try_from(number(call, index)?).map_err(|_| format!("{} of a negative length", call.name))
}

/// `...`, `"#1"` (the same of conversation 1) or `"10.0.0.2:80"`.
pub fn address_of(value: &Value, host: IpAddr) -> Result<SocketAddr, String> {
    match value {
        Value::Any => Ok(SocketAddr::from((host, PORT))),
        Value::Text(text) => match text.strip_prefix('#') {
            Some(flow) => {
                let flow: u16 = flow.parse().map_err(|_| format!("#{flow} is no conversation"))?;
                Ok(SocketAddr::from((host, PORT + flow)))
            }
            None => text.parse().map_err(|_| format!("{text} is no address")),
        },
        other => Err(format!("{other:?} is no address")),
    }
}

fn address(call: &Call, index: usize, host: IpAddr) -> Result<SocketAddr, String> {
    let value =
        call.arguments.get(index).ok_or_else(|| format!("{} needs an address", call.name))?;
    address_of(value, host)
}

/// Bytes in pieces of these lengths.
fn parted(bytes: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let piece = |len: &usize| {
        let (piece, behind) = rest.split_at((*len).min(rest.len()));
        rest = behind;
        piece.to_vec()
    };
    lens.iter().map(piece).collect()
}

/// An option's value as bytes.
fn option_bytes(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::List(all) => match all.as_slice() {
            [Value::Number(number)] => Ok((*number as i32).to_ne_bytes().to_vec()),
            _ => Err("an option's value is [number]".into()),
        },
        Value::Text(text) => Ok(text.clone().into_bytes()),
        Value::Fields(fields) => {
            let mut bytes = Vec::new();
            for (name, value) in fields {
                let number = match value {
                    Value::Number(number) => number,
                    // An address: of a group, or what names an interface.
                    Value::Text(text) => {
                        match text.parse() {
                            Ok(IpAddr::V4(address)) => bytes.extend(address.octets()),
                            Ok(IpAddr::V6(address)) => bytes.extend(address.octets()),
                            Err(_) => return Err(format!("{name}: {text} is no address")),
                        }
                        continue;
                    }
                    _ => return Err(format!("{name} is no number")),
                };
                if name.starts_with("tv_") {
                    bytes.extend(number.to_ne_bytes());
                } else {
                    bytes.extend((*number as i32).to_ne_bytes());
                }
            }
            Ok(bytes)
        }
        other => Err(format!("{other:?} is no option's value")),
    }
}

impl Files {
    /// None yet.
    pub fn new(version: Version, clock: Clock) -> Self {
        Self {
            live: BTreeMap::new(),
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            datagrams: Vec::new(),
            corked: Vec::new(),
            marked: false,
            version,
            clock,
        }
    }

    fn live(&self, fd: i64) -> i32 {
        // A descriptor that the script has not opened stays what it is: surely closed.
        self.live.get(&fd).copied().unwrap_or(fd as i32 | 0x4000)
    }

    /// The live descriptor of the connection or socket that was opened last.
    pub fn last(&self) -> Option<i32> {
        self.live.values().next_back().copied()
    }

    /// Makes a call ready.
    pub fn ready(&self, call: &Call) -> Result<Ready, String> {
        let script_fd =
            if call.name == "socket" || call.name == "poll" { -1 } else { number(call, 0)? };
        let fd = self.live(script_fd);
        let flags = |index| if call.arguments.len() > index { int(call, index) } else { Ok(0) };
        let outgoing = |len: usize| {
            let from = self.written.get(&script_fd).copied().unwrap_or(0);
            frame::patterned(from, len)
        };
        let peer = self.version.peer();
        let send = |flags, to| {
            let parts = vec![outgoing(length(call, 2)?)];
            Ok::<_, String>(SystemCall::Send { fd, parts, control: Vec::new(), flags, to })
        };
        let receive = |flags| {
            let room = vec![length(call, 2)?];
            Ok::<_, String>(SystemCall::Receive { fd, room, control_len: 0, flags })
        };
        let ready = match call.name.as_str() {
            "socket" => {
                let domain = match call.arguments.first() {
                    Some(Value::Number(domain)) => *domain as i32,
                    _ if self.version.has_v6_sockets() => libc::AF_INET6,
                    _ => libc::AF_INET,
                };
                SystemCall::Socket { domain, kind: int(call, 1)?, protocol: int(call, 2)? }
            }
            "bind" => SystemCall::Bind { fd, address: address(call, 1, self.version.any())? },
            "listen" => SystemCall::Listen { fd, backlog: int(call, 1)? },
            "accept" => SystemCall::Accept { fd, flags: 0 },
            "accept4" => SystemCall::Accept { fd, flags: int(call, 3)? },
            // AF_UNSPEC.
            "connect" if call.arguments.get(1) == Some(&Value::Number(0)) => {
                SystemCall::Disconnect { fd }
            }
            "connect" => SystemCall::Connect { fd, address: address(call, 1, peer)? },
            "getsockname" => SystemCall::Name { fd, of_peer: false },
            "getpeername" => SystemCall::Name { fd, of_peer: true },
            "read" => receive(0)?,
            "recv" | "recvfrom" => receive(flags(3)?)?,
            "recvmsg" => {
                let header = Header::read(call.arguments.get(1), peer)?;
                let control_len = header.control_room();
                SystemCall::Receive { fd, room: header.lens, control_len, flags: int(call, 2)? }
            }
            "write" => send(0, None)?,
            "send" => send(flags(3)?, None)?,
            "sendto" => send(flags(3)?, Some(address(call, 4, peer)?))?,
            "sendmsg" => {
                let header = Header::read(call.arguments.get(1), peer)?;
                SystemCall::Send {
                    fd,
                    parts: parted(&outgoing(header.lens.iter().sum()), &header.lens),
                    control: header.control_bytes()?,
                    flags: int(call, 2)?,
                    to: header.to(peer),
                }
            }
            "close" => SystemCall::Close { fd },
            "shutdown" => SystemCall::Shutdown { fd, how: int(call, 1)? },
            "fcntl" => match number(call, 1)? as i32 {
                libc::F_GETFL => SystemCall::StatusFlags { fd },
                libc::F_SETFL => SystemCall::SetStatusFlags { fd, flags: int(call, 2)? },
                other => return Err(format!("fcntl {other} is not spoken")),
            },
            "ioctl" => {
                let request = number(call, 1)?;
                match request == names::SIOCATMARK {
                    true => SystemCall::AtMark { fd },
                    false => {
                        let queue = Queue::asked_by(request.unsigned_abs());
                        let queue =
                            queue.ok_or_else(|| format!("ioctl {request} is not spoken"))?;
                        SystemCall::Queued { fd, queue }
                    }
                }
            }
            "getsockopt" => {
                let wanted = call.arguments.get(3).unwrap_or(&Value::Any);
                let len = match call.arguments.get(4) {
                    Some(Value::List(all)) => match all.as_slice() {
                        [Value::Number(len)] => *len as usize,
                        _ => return Err("getsockopt's length is [number]".into()),
                    },
                    _ => option_bytes(wanted)?.len(),
                };
                SystemCall::Option { fd, level: int(call, 1)?, name: int(call, 2)?, len }
            }
            "setsockopt" => {
                let value = call.arguments.get(3).ok_or("setsockopt needs a value")?;
                let mut bytes = option_bytes(value)?;
                if let Some(Value::Number(len)) = call.arguments.get(4) {
                    bytes.truncate(*len as usize);
                }
                SystemCall::SetOption { fd, level: int(call, 1)?, name: int(call, 2)?, bytes }
            }
            "poll" => {
                let fds = self.polled(call)?.into_iter().map(|(fd, events, _)| (fd, events));
                SystemCall::Poll { fds: fds.collect(), timeout_ms: int(call, 2)? }
            }
            name => return Err(format!("{name} is no call that scripts can make")),
        };
        Ok(Ready { call: ready, fd: script_fd })
    }

    /// Descriptors of a poll, with what is asked and what is expected.
    fn polled(&self, call: &Call) -> Result<Vec<(i32, i16, i16)>, String> {
        let Some(Value::List(entries)) = call.arguments.first() else {
            return Err("poll's first argument is [{fd=4, events=POLLIN, revents=POLLIN}]".into());
        };
        let mut all = Vec::new();
        for entry in entries {
            let Value::Fields(fields) = entry else { return Err("poll takes {fd=...}".into()) };
            let field = |wanted: &str| {
                fields.iter().find_map(|(name, value)| match value {
                    Value::Number(number) if name == wanted => Some(*number),
                    _ => None,
                })
            };
            let fd = field("fd").ok_or("poll's entry has no fd")?;
            let [events, revents] =
                ["events", "revents"].map(|name| field(name).unwrap_or(0) as i16);
            all.push((self.live(fd), events, revents));
        }
        Ok(all)
    }

    /// Compares an outcome with what the script expects, and remembers it.
    pub fn judge(&mut self, call: &Call, ready: &Ready, outcome: &Outcome) -> Result<(), String> {
        let told = match outcome {
            Ok(answer) => format!("{}", answer.value),
            Err(errno) => format!("-1 {}", names::error_name(*errno)),
        };
        let expected = match (call.result, &call.errno) {
            (None, _) => "...".to_string(),
            (Some(result), None) => result.to_string(),
            (Some(result), Some(errno)) => format!("{result} {errno}"),
        };
        let wrong = || Err(format!("{} gave {told}, expected {expected}", call.name));
        let answer = match (outcome, call.result) {
            (_, None) => return Ok(()),
            (Err(errno), Some(-1)) => {
                let same =
                    call.errno.as_ref().is_none_or(|name| *name == names::error_name(*errno));
                return if same { Ok(()) } else { wrong() };
            }
            (Err(_), _) | (Ok(_), Some(-1)) => return wrong(),
            (Ok(answer), _) => answer,
        };
        let result = call.result.unwrap_or(0);
        match &ready.call {
            SystemCall::Socket { kind, .. } => {
                self.live.insert(result, answer.value as i32);
                if kind & 0xf == libc::SOCK_DGRAM {
                    self.datagrams.push(result);
                }
                return Ok(());
            }
            SystemCall::Accept { .. } => {
                self.live.insert(result, answer.value as i32);
                return self.judge_address(call, 1, answer);
            }
            _ if answer.value != result => return wrong(),
            SystemCall::Send { flags, .. } => {
                let is_held = flags & libc::MSG_MORE != 0 || self.corked.contains(&ready.fd);
                if self.datagrams.contains(&ready.fd) && !is_held {
                    // The next datagram begins anew.
                    self.written.remove(&ready.fd);
                } else {
                    *self.written.entry(ready.fd).or_default() += answer.value as u64;
                }
            }
            SystemCall::SetOption {
                level: libc::IPPROTO_UDP, name: libc::UDP_CORK, bytes, ..
            } => {
                self.corked.retain(|fd| *fd != ready.fd);
                if bytes.iter().any(|byte| *byte != 0) {
                    self.corked.push(ready.fd);
                } else {
                    self.written.remove(&ready.fd);
                }
            }
            SystemCall::Receive { flags, .. } => {
                if call.name == "recvmsg" {
                    let header = Header::read(call.arguments.get(1), self.version.peer())?;
                    header.judge(answer, &self.clock)?;
                }
                self.judge_address(call, 4, answer)?;
                return self.judge_bytes(ready, *flags, &answer.bytes);
            }
            SystemCall::Name { .. } => return self.judge_address(call, 1, answer),
            SystemCall::Close { .. } => {
                self.live.remove(&ready.fd);
                self.written.remove(&ready.fd);
                self.read.remove(&ready.fd);
                self.datagrams.retain(|fd| *fd != ready.fd);
                self.corked.retain(|fd| *fd != ready.fd);
            }
            SystemCall::Queued { .. } | SystemCall::AtMark { .. } => {
                let Some(wanted @ Value::List(_)) = call.arguments.get(2) else { return Ok(()) };
                self.marked = matches!(ready.call, SystemCall::AtMark { .. })
                    && answer.bytes.first() == Some(&1);
                if option_bytes(wanted)? != answer.bytes {
                    let got = i32::from_ne_bytes(answer.bytes[..4].try_into().unwrap_or_default());
                    return Err(format!("ioctl told {got}"));
                }
            }
            SystemCall::Option { .. } => {
                let wanted = call.arguments.get(3).unwrap_or(&Value::Any);
                if *wanted != Value::Any {
                    let wanted = option_bytes(wanted)?;
                    let got = answer.bytes.get(..wanted.len().min(answer.bytes.len()));
                    if got != Some(&wanted[..]) {
                        return Err(format!(
                            "getsockopt told {:?}, expected {wanted:?}",
                            answer.bytes
                        ));
                    }
                }
            }
            SystemCall::Poll { .. } => {
                let wanted: Vec<i16> = self.polled(call)?.iter().map(|entry| entry.2).collect();
                if wanted != answer.revents {
                    return Err(format!("poll saw {:#x?}, expected {wanted:#x?}", answer.revents));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An address that is written must be the one that was told.
    fn judge_address(&self, call: &Call, index: usize, answer: &Answer) -> Result<(), String> {
        let Some(wanted @ Value::Text(_)) = call.arguments.get(index) else { return Ok(()) };
        let wanted = address_of(wanted, self.version.peer())?;
        match answer.address {
            Some(told) if told == wanted => Ok(()),
            told => Err(format!("{} told {told:?}, expected {wanted}", call.name)),
        }
    }

    /// Bytes read must be the next of the pattern.
    fn judge_bytes(&mut self, ready: &Ready, flags: i32, bytes: &[u8]) -> Result<(), String> {
        if flags & libc::MSG_OOB != 0 {
            return Ok(());
        }
        let datagram = self.datagrams.contains(&ready.fd);
        let read = self.read.entry(ready.fd).or_default();
        let from = if datagram { 0 } else { *read };
        let is = |from| *bytes == frame::patterned(from, bytes.len())[..];
        // The script says with `ioctl(fd, SIOCATMARK, [1])` that the next byte is out of band.
        let marked = std::mem::take(&mut self.marked);
        if marked && is(from + 1) && !bytes.is_empty() {
            *read = from + 1 + bytes.len() as u64;
            return Ok(());
        }
        if flags & libc::MSG_TRUNC == 0 && !is(from) {
            return Err(format!("the bytes read at offset {from} are not those that were sent"));
        }
        // Neither what is looked at nor what an error quotes is the next of the stream.
        if flags & (libc::MSG_PEEK | libc::MSG_ERRQUEUE) == 0 {
            *read += bytes.len() as u64;
        }
        Ok(())
    }
}
