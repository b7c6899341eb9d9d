//! `struct msghdr` in scripts, as sendmsg and recvmsg have it:
//! `{msg_name(...)=..., msg_iov(1)=[{..., 100}], msg_flags=0, msg_control=[...]}`.

use std::net::{IpAddr, SocketAddr};

use crate::calls::{PORT, address_of};
use crate::control::{self, Clock, ControlMessage};
use crate::script::Value;
use crate::system::Answer;

/// Room for control messages where a script does not say how much.
const CONTROL_ROOM: usize = 1024;

/// A message as a script has it: what is sent, or the room for what is received and what that must be.
#[derive(Clone, Debug)]
pub struct Header {
    name: Name,
    /// Lengths of the pieces.
    pub lens: Vec<usize>,
    /// What `msg_flags` must say; `None` for anything.
    flags: Option<i32>,
    control: Vec<ControlMessage>,
    /// `msg_controllen`.
    control_len: Option<usize>,
    /// `msg_control` is written.
    has_control: bool,
}

/// `msg_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// `...`
    Any,
    /// There is none: left out, or NULL.
    Absent,
    Is(SocketAddr),
}

fn length(value: &Value) -> Result<usize, String> {
    match value {
        Value::Number(number) => usize::try_from(*number).map_err(|_| format!("{number} bytes")),
        other => Err(format!("{other:?} is no length")),
    }
}

/// `[{..., 100}, {..., 200}]`.
fn pieces(value: &Value) -> Result<Vec<usize>, String> {
    let Value::List(pieces) = value else { return Err("msg_iov is [{..., length}]".into()) };
    let of_piece = |piece: &Value| match piece {
        Value::Fields(fields) => match fields.as_slice() {
            [(_, Value::Any), (_, len)] => length(len),
            _ => Err("a piece is {..., length}".to_string()),
        },
        _ => Err("a piece is {..., length}".to_string()),
    };
    pieces.iter().map(of_piece).collect()
}

impl Header {
    /// Reads a script's words; `peer` is who is meant where an address is left open.
    pub fn read(value: Option<&Value>, peer: IpAddr) -> Result<Self, String> {
        let Some(Value::Fields(fields)) = value else {
            return Err("a message is {msg_name(...)=, msg_iov(1)=, msg_flags=}".into());
        };
        let mut header = Self {
            name: Name::Absent,
            lens: Vec::new(),
            flags: Some(0),
            control: Vec::new(),
            control_len: None,
            has_control: false,
        };
        let mut count = None;
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("msg_name", Value::Any) => header.name = Name::Any,
                ("msg_name", Value::Name(name)) if name == "NULL" => header.name = Name::Absent,
                ("msg_name", value) => header.name = Name::Is(address_of(value, peer)?),
                // Room for any address.
                ("msg_namelen", Value::Any) => {}
                ("msg_iov", value) => header.lens = pieces(value)?,
                ("msg_iovlen", value) => count = Some(length(value)?),
                ("msg_flags", Value::Any) => header.flags = None,
                ("msg_flags", Value::Number(flags)) => header.flags = Some(*flags as i32),
                ("msg_control", Value::List(all)) => {
                    header.has_control = true;
                    header.control =
                        all.iter().map(ControlMessage::read).collect::<Result<_, _>>()?;
                }
                ("msg_controllen", value) => header.control_len = Some(length(value)?),
                _ => return Err(format!("{name}={value:?} is nothing of a message")),
            }
        }
        match count {
            Some(count) if count != header.lens.len() => {
                Err(format!("msg_iov({count}) has {} pieces", header.lens.len()))
            }
            _ => Ok(header),
        }
    }

    /// Where a message is sent to.
    pub fn to(&self, peer: IpAddr) -> Option<SocketAddr> {
        match self.name {
            Name::Any => Some(SocketAddr::from((peer, PORT))),
            Name::Absent => None,
            Name::Is(address) => Some(address),
        }
    }

    /// Control messages that are sent.
    pub fn control_bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for message in &self.control {
            bytes.extend(message.bytes()?);
        }
        bytes.truncate(self.control_len.unwrap_or(usize::MAX));
        Ok(bytes)
    }

    /// Room for control messages that are received.
    pub fn control_room(&self) -> usize {
        self.control_len.unwrap_or(if self.has_control { CONTROL_ROOM } else { 0 })
    }

    /// What was received must be what the script says.
    pub fn judge(&self, answer: &Answer, clock: &Clock) -> Result<(), String> {
        let is_named = match self.name {
            Name::Any => true,
            Name::Absent => answer.address.is_none(),
            Name::Is(address) => answer.address == Some(address),
        };
        if !is_named {
            return Err(format!("recvmsg told {:?}, expected {:?}", answer.address, self.name));
        }
        if let Some(flags) = self.flags
            && flags != answer.flags
        {
            return Err(format!("msg_flags are {:#x}, expected {flags:#x}", answer.flags));
        }
        control::judge(&self.control, &answer.control, clock)
    }
}
