//! The kernel's sockets, by sock_diag(7), and which of them are on an engine's interfaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use engine::diag::{self, Message, TCP, field};
use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use shm::control::SocketInfo;

/// Names of the kernel's states, as ss(8) prints them.
const STATES: [&str; 13] = [
    "",
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "UNCONN",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
    "SYN-RECV",
];
/// All states but TIME-WAIT; of TCP also without CLOSE, in which bound sockets are.
const ALL: u32 = 0x1fff & !(1 << 6);
const CLOSE: u32 = 1 << 7;

/// A socket of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    info: SocketInfo,
    inode: u32,
}

/// An end of a connection in a `struct inet_diag_msg`; IPv4 in IPv6 is IPv4.
fn end(message: &[u8], port: usize, address: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(field(message, port)?);
    let ip: IpAddr = match message.first()? {
        &diag::V4 => Ipv4Addr::from(field::<4>(message, address)?).into(),
        _ => Ipv6Addr::from(field::<16>(message, address)?).into(),
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// From a `struct inet_diag_msg`.
fn socket(protocol: u8, message: &[u8]) -> Option<Found> {
    let word = |at| field(message, at).map(u32::from_ne_bytes);
    let state = usize::from(*message.get(1)?);
    let remote = end(message, 6, 24)?;
    let info = SocketInfo {
        protocol: if protocol == TCP { "tcp" } else { "udp" }.to_owned(),
        state: STATES.get(state).copied().unwrap_or("?").to_owned(),
        local: end(message, 4, 8)?,
        remote: (remote.port() != 0).then_some(remote),
        receive_queue: word(56)?.into(),
        send_queue: word(60)?.into(),
        program: String::new(),
        pid: 0,
        uid: word(64)?,
        details: Vec::new(),
    };
    Some(Found { info, inode: word(68)? })
}

/// Takes what one answer holds; `true` when it is the last.
fn take(protocol: u8, answer: &[u8], sockets: &mut Vec<Found>) -> Result<bool, Errno> {
    for message in diag::messages(answer) {
        match message {
            Message::Done => return Ok(true),
            Message::Failed(errno) => return Err(errno),
            Message::Socket(message) => sockets.extend(socket(protocol, message)),
        }
    }
    Ok(false)
}

fn dump(asker: &OwnedFd, family: u8, protocol: u8, sockets: &mut Vec<Found>) -> Result<(), Errno> {
    let states = if protocol == TCP { ALL & !CLOSE } else { ALL };
    send(asker, &diag::request(family, protocol, states, None), SendFlags::empty())?;
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let (_, len) = match recv(asker, &mut buffer[..], RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        if take(protocol, buffer.get(..len).unwrap_or_default(), sockets)? {
            return Ok(());
        }
    }
}

/// The kernel's TCP and UDP sockets in the network namespace of the calling thread.
fn all() -> Result<Vec<Found>, Errno> {
    let asker = diag::socket(SocketFlags::empty(), 0)?;
    let mut sockets = Vec::new();
    for (family, protocol) in diag::KINDS {
        match dump(&asker, family, protocol, &mut sockets) {
            // Without IPv6 there is nothing to list.
            Ok(()) | Err(Errno::NOENT | Errno::AFNOSUPPORT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sockets)
}

fn entries(path: &str) -> impl Iterator<Item = std::fs::DirEntry> {
    std::fs::read_dir(path).into_iter().flatten().flatten()
}

/// The inode of the socket that a link in /proc/PID/fd leads to.
fn inode_of(descriptor: &std::path::Path) -> Option<u32> {
    let target = std::fs::read_link(descriptor).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Who holds the sockets, as far as /proc shows it: program and process by inode.
fn holders() -> BTreeMap<u32, (String, i32)> {
    let mut holders = BTreeMap::new();
    for process in entries("/proc") {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        for descriptor in entries(&format!("/proc/{pid}/fd")) {
            if let Some(inode) = inode_of(&descriptor.path()) {
                holders.entry(inode).or_insert_with(|| {
                    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                    (name.unwrap_or_default().trim().to_owned(), pid)
                });
            }
        }
    }
    holders
}

/// TCP and UDP sockets among this process's descriptors, by number.
pub fn own() -> Vec<(i32, SocketInfo)> {
    let mut numbers: Vec<(i32, u32)> = entries("/proc/self/fd")
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, inode_of(&entry.path())?))
        })
        .collect();
    if numbers.is_empty() {
        return Vec::new();
    }
    numbers.sort_unstable();
    let sockets = all().unwrap_or_default();
    let known = |(number, inode): (i32, u32)| {
        let found = sockets.iter().find(|found| found.inode == inode)?;
        Some((number, found.info.clone()))
    };
    numbers.into_iter().filter_map(known).collect()
}

/// The kernel's sockets that can be reached at an engine's interfaces: those bound to one of
/// their addresses or to all, but for the sockets by which the engine reserves ports. Programs are
/// named where `named` is set, for which every descriptor of every process is looked at.
///
/// # Errors
/// When the engine's network namespace is another one that cannot be entered.
pub fn beside(observer: &mut Observer, named: bool) -> Result<Vec<SocketInfo>> {
    let interfaces = observer.shared_interfaces()?;
    if interfaces.is_empty() {
        return Ok(Vec::new());
    }
    observer.in_namespace(move || {
        let failed = "cannot list the kernel's sockets";
        let mut addresses = Vec::new();
        let mut kernel = engine::kernel::Kernel::open().explain(failed, "report this")?;
        let asker = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .explain(failed, "raise the limit of open files (ulimit -n)")?;
        for (number, name) in interfaces.iter().enumerate() {
            // An interface that is gone has no addresses.
            let Ok(index) = rustix::net::netdevice::name_to_index(&asker, name) else { continue };
            if let Ok(facts) = kernel.watch(number, index) {
                addresses.extend(facts.addresses.iter().map(|own| own.address));
            }
        }
        let sockets = all().map_err(|error| {
            Failure::new(format!("{failed}: {error}"), "the kernel needs CONFIG_INET_DIAG")
        })?;
        let mut holders = if named { holders() } else { BTreeMap::new() };
        let here = |info: &SocketInfo| {
            info.local.ip().is_unspecified() || addresses.contains(&info.local.ip())
        };
        let with_holder = |mut found: Found| {
            if let Some((program, pid)) = holders.remove(&found.inode) {
                (found.info.program, found.info.pid) = (program, pid);
            }
            found.info
        };
        Ok(sockets.into_iter().filter(|found| here(&found.info)).map(with_holder).collect())
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn the_kernels_listeners_and_datagram_sockets_are_listed_with_their_holders() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let datagrams = UdpSocket::bind("[::]:0").expect("a socket");
        let sockets = all().expect("a list");
        let found = |protocol: &str, port| {
            let mine =
                |one: &&Found| one.info.protocol == protocol && one.info.local.port() == port;
            sockets.iter().find(mine).expect("listed")
        };
        let one = found("tcp", listener.local_addr().expect("bound").port());
        assert_eq!((one.info.state.as_str(), one.info.remote), ("LISTEN", None));
        let own = std::process::id() as i32;
        assert_eq!(holders().get(&one.inode).map(|(_, pid)| *pid), Some(own));
        let one = found("udp", datagrams.local_addr().expect("bound").port());
        assert_eq!(one.info.state, "UNCONN");
        assert!(one.info.local.ip().is_unspecified());
    }
}
