//! The kernel's half of a program's sockets, in memory: numbers, addresses, and what a socket
//! says that is not connected. No traffic ever comes to it.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::sockets::{About, EpollEvent, Errno, Kernel, Owner, PollFd, Received, SigMask};
use sim::port::locked;

use super::baton::Baton;
use super::{Settings, sysctls};

/// What numbers descriptors have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// Of this kernel alone.
    #[default]
    Own,
    /// Those of real descriptors, which stand for nothing but which whoever calls may close.
    Real,
}

/// Length of `struct tcp_info` as Linux 6.18 tells it.
const INFO_BYTES: usize = 280;
/// Length of SO_MEMINFO's answer.
const MEMORY_BYTES: usize = 36;
/// First port for sockets that name none.
const FREE_PORTS: u16 = 50_000;

#[derive(Debug)]
enum File {
    Socket {
        stream: bool,
        v6: bool,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
        listening: bool,
        /// Directions of a UDP socket that are shut down: 1 reading, 2 writing.
        shut: i32,
        flags: i32,
        options: Options,
    },
    /// An eventfd with its count.
    Event(u64),
    /// An epoll set, which nothing is read from.
    Inert,
}

#[derive(Debug, Default)]
struct Files {
    by_number: BTreeMap<RawFd, File>,
    real: BTreeMap<RawFd, OwnedFd>,
    /// What listens in the real kernel, too, as a listener under the library does.
    listeners: BTreeMap<RawFd, TcpListener>,
    next_port: u16,
    lent: Option<RawFd>,
}

/// The kernel.
#[derive(Debug)]
pub struct InMemory {
    files: Mutex<Files>,
    baton: Arc<Baton>,
    addresses: Vec<IpAddr>,
    numbers: Numbers,
    /// Data may go with SYNs.
    opens_fast: AtomicBool,
    /// The time of day when time began, nanoseconds, going round.
    calendar: AtomicU64,
    /// Something real to lend.
    token: OwnedFd,
}

type Options = BTreeMap<(i32, i32), i32>;

/// SO_REUSEADDR.
fn reuses(options: &Options) -> bool {
    options.get(&(libc::SOL_SOCKET, libc::SO_REUSEADDR)).is_some_and(|on| *on != 0)
}

/// IPV6_V6ONLY.
fn is_v6_only(options: &Options) -> bool {
    options.get(&(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)).is_some_and(|on| *on != 0)
}

/// IP_BIND_ADDRESS_NO_PORT.
fn leaves_port(options: &Options) -> bool {
    options.get(&(libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)).is_some_and(|on| *on != 0)
}

/// Whether two sockets of one port get in each other's way.
fn overlap(one: (IpAddr, &Options), other: (IpAddr, &Options)) -> bool {
    // What each takes, of IPv4 and of IPv6.
    let versions = |(address, options): (IpAddr, &Options)| match address {
        IpAddr::V4(_) => (true, false),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => (true, false),
        IpAddr::V6(v6) => (v6.is_unspecified() && !is_v6_only(options), true),
    };
    let (of_one, of_other) = (versions(one), versions(other));
    let any = one.0.is_unspecified() || other.0.is_unspecified();
    (of_one.0 && of_other.0 || of_one.1 && of_other.1)
        && (any || one.0.to_canonical() == other.0.to_canonical())
}

impl Files {
    fn is_taken(
        &self,
        except: RawFd,
        wanted: SocketAddr,
        stream: bool,
        wanted_options: &Options,
    ) -> bool {
        self.by_number.iter().any(|(fd, file)| match file {
            File::Socket { stream: other, local: Some(local), options, listening, .. } => {
                let shares = reuses(wanted_options) && reuses(options) && !listening;
                *fd != except
                    && *other == stream
                    && local.port() == wanted.port()
                    && overlap((local.ip(), options), (wanted.ip(), wanted_options))
                    && !shares
            }
            _ => false,
        })
    }
}

impl InMemory {
    /// A kernel without files.
    pub fn new(baton: Arc<Baton>, settings: &Settings) -> Self {
        let token = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
            .expect("a descriptor can be had");
        let files = Files { next_port: FREE_PORTS, ..Files::default() };
        let addresses = settings.addresses.iter().map(|(address, _)| *address).collect();
        let tcp = sysctls::meaning(&settings.sysctls).0;
        let opens_fast = AtomicBool::new(tcp.fast_open & 1 != 0);
        Self {
            files: Mutex::new(files),
            baton,
            addresses,
            numbers: settings.numbers,
            opens_fast,
            calendar: AtomicU64::new(0),
            token,
        }
    }

    /// Time began at that time of day.
    pub fn set_calendar(&self, at_ns: u64) {
        self.calendar.store(at_ns, Ordering::Relaxed);
    }

    /// Takes other settings while it runs.
    pub fn follow(&self, sysctls: &sysctls::Sysctls) {
        let opens_fast = sysctls::meaning(sysctls).0.fast_open & 1 != 0;
        self.opens_fast.store(opens_fast, Ordering::Relaxed);
    }

    /// A file under a new number.
    fn add(&self, files: &mut Files, at_least: RawFd, file: File) -> Result<RawFd, Errno> {
        let fd = match self.numbers {
            Numbers::Own => {
                (at_least..).find(|fd| !files.by_number.contains_key(fd)).ok_or(Errno::MFILE)?
            }
            Numbers::Real => {
                let real = rustix::io::fcntl_dupfd_cloexec(&self.token, at_least)?;
                let fd = real.as_raw_fd();
                files.real.insert(fd, real);
                fd
            }
        };
        files.by_number.insert(fd, file);
        Ok(fd)
    }

    /// epoll_create(2).
    pub fn epoll(&self) -> Result<RawFd, Errno> {
        self.add(&mut locked(&self.files), 3, File::Inert)
    }

    /// The socket that is being shown to the engine, and its address.
    pub fn lent(&self) -> Option<(RawFd, SocketAddr)> {
        let files = locked(&self.files);
        let fd = files.lent?;
        match files.by_number.get(&fd) {
            Some(File::Socket { local: Some(address), .. }) => Some((fd, *address)),
            _ => None,
        }
    }

    /// SO_REUSEADDR.
    pub fn reuses(&self, fd: RawFd) -> bool {
        self.option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR).is_ok_and(|value| value != 0)
    }

    /// IPV6_V6ONLY.
    pub fn is_v6_only(&self, fd: RawFd) -> bool {
        self.option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_ok_and(|value| value != 0)
    }

    /// socket(2).
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Result<RawFd, Errno> {
        let stream = match kind & 0xf {
            libc::SOCK_STREAM => true,
            libc::SOCK_DGRAM => false,
            _ => return Err(Errno::INVAL),
        };
        let v6 = domain == libc::AF_INET6;
        let speaks = self.addresses.iter().any(|address| address.is_ipv6() == v6);
        if !speaks || !v6 && domain != libc::AF_INET {
            return Err(Errno::AFNOSUPPORT);
        }
        let wanted = if stream { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
        if protocol != 0 && protocol != wanted {
            return Err(Errno::PROTONOSUPPORT);
        }
        let flags = kind & libc::O_NONBLOCK;
        let options = BTreeMap::new();
        let (local, peer) = (None, None);
        let socket =
            File::Socket { stream, v6, local, peer, listening: false, shut: 0, flags, options };
        self.add(&mut locked(&self.files), 3, socket)
    }

    /// shutdown(2) of a socket that is not the engine's.
    pub fn shutdown(&self, fd: RawFd, how: i32) -> Result<(), Errno> {
        if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
            return Err(Errno::INVAL);
        }
        let mut files = locked(&self.files);
        let outcome = match files.by_number.get_mut(&fd) {
            Some(File::Socket { listening: true, .. }) if how == libc::SHUT_WR => return Ok(()),
            Some(File::Socket { listening, .. }) if *listening => {
                *listening = false;
                Ok(())
            }
            // Without a peer, too, which it says.
            Some(File::Socket { stream: false, shut, peer, .. }) => {
                *shut |= how + 1;
                peer.map(|_| ()).ok_or(Errno::NOTCONN)
            }
            Some(File::Socket { peer: Some(_), .. }) => Ok(()),
            Some(_) => Err(Errno::NOTCONN),
            None => Err(Errno::BADF),
        };
        files.listeners.remove(&fd);
        outcome
    }

    /// F_SETFL.
    pub fn set_status_flags(&self, fd: RawFd, wanted: i32) -> Result<(), Errno> {
        match locked(&self.files).by_number.get_mut(&fd) {
            Some(File::Socket { flags, .. }) => {
                *flags = wanted & libc::O_NONBLOCK;
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(Errno::BADF),
        }
    }

    /// Whether a number is open.
    pub fn is_open(&self, fd: RawFd) -> bool {
        locked(&self.files).by_number.contains_key(&fd)
    }

    fn socket_error(&self, fd: RawFd, stream_error: Errno, other: Errno) -> Errno {
        match locked(&self.files).by_number.get(&fd) {
            Some(File::Socket { stream: true, .. }) => stream_error,
            Some(File::Socket { .. }) => other,
            Some(_) => Errno::NOTCONN,
            None => Errno::BADF,
        }
    }
}

/// What a second number stands for.
fn copy_of(file: Option<&File>) -> Result<File, Errno> {
    Ok(match file {
        Some(File::Event(count)) => File::Event(*count),
        Some(File::Socket { stream, v6, options, .. }) => File::Socket {
            stream: *stream,
            v6: *v6,
            local: None,
            peer: None,
            listening: false,
            shut: 0,
            flags: 0,
            options: options.clone(),
        },
        Some(File::Inert) => File::Inert,
        None => return Err(Errno::BADF),
    })
}

/// What an option is that nobody has set.
fn usual(stream: bool, listening: bool, level: i32, name: i32) -> Option<i32> {
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TYPE) if stream => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_DGRAM,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_INET,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) if stream => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_UDP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => i32::from(listening),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => 131_072,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => 16_384,
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => 1,
        (libc::SOL_SOCKET, 1..=90) => 0,
        (libc::IPPROTO_IP, libc::IP_TTL) => 64,
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => libc::IP_PMTUDISC_WANT,
        (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL | libc::IP_MULTICAST_LOOP) => 1,
        (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL) => 1,
        (libc::IPPROTO_IP, _) => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => 64,
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS | libc::IPV6_MULTICAST_LOOP) => 1,
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => libc::IP_PMTUDISC_WANT,
        (libc::IPPROTO_IPV6, _) => 0,
        // The state comes first: TCP_LISTEN and TCP_CLOSE.
        (libc::IPPROTO_TCP, libc::TCP_INFO) if stream => {
            if listening {
                10
            } else {
                7
            }
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) if stream => 7200,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) if stream => 75,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) if stream => 9,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) if stream => 536,
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) if stream => 6,
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) if stream => 60,
        (libc::IPPROTO_TCP, 1..=45) if stream => 0,
        (libc::IPPROTO_UDP, _) if !stream => 0,
        _ => return None,
    })
}

/// The name and the value that an option is told by: of a buffer twice what is said, within its bounds.
fn kept_as(level: i32, name: i32, value: i32) -> (i32, i32) {
    /// net.core.rmem_max and wmem_max.
    const MOST: i32 = 4 << 20;
    let (buffer, least, is_forced) = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => (libc::SO_RCVBUF, 2304, false),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE) => (libc::SO_RCVBUF, 2304, true),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => (libc::SO_SNDBUF, 4608, false),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE) => (libc::SO_SNDBUF, 4608, true),
        _ => return (name, value),
    };
    // As unsigned numbers, so that a negative one is the most; a forced one is none.
    let said = match is_forced {
        true => value.clamp(0, i32::MAX / 2),
        false => value.cast_unsigned().min(MOST.cast_unsigned()).cast_signed(),
    };
    (buffer, (said * 2).max(least))
}

/// Whether an option is about a group of IPv4, and names no interface for it.
fn names_no_interface(level: i32, name: i32, value: &[u8]) -> bool {
    let is_about_group = matches!(
        name,
        libc::IP_ADD_MEMBERSHIP
            | libc::IP_DROP_MEMBERSHIP
            | libc::IP_ADD_SOURCE_MEMBERSHIP
            | libc::IP_DROP_SOURCE_MEMBERSHIP
            | libc::IP_BLOCK_SOURCE
            | libc::IP_UNBLOCK_SOURCE
    );
    level == libc::IPPROTO_IP && is_about_group && value.get(4..8) == Some(&[0; 4])
}

/// What the kernel refuses to be set.
fn admits(level: i32, name: i32, value: i32) -> bool {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL) => {
            (1..=32767).contains(&value)
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => (1..=127).contains(&value),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => value == 0 || (88..=32767).contains(&value),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => value >= 0,
        // TCP_RTO_MAX_MS.
        (libc::IPPROTO_TCP, 44) => (1_000..=120_000).contains(&value),
        (libc::IPPROTO_IP, libc::IP_TTL) => value == -1 || (1..=255).contains(&value),
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => (0..=5).contains(&value),
        (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL)
        | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS | libc::IPV6_UNICAST_HOPS) => {
            (-1..=255).contains(&value)
        }
        (libc::IPPROTO_UDP, libc::UDP_SEGMENT) => (0..=0xffff).contains(&value),
        _ => true,
    }
}

impl Kernel for InMemory {
    fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        _: Option<SigMask>,
    ) -> Result<usize, Errno> {
        let look = |fds: &mut [PollFd]| {
            let files = locked(&self.files);
            for entry in &mut *fds {
                entry.revents = match files.by_number.get(&entry.fd) {
                    Some(File::Event(count)) if *count > 0 => entry.events & libc::POLLIN,
                    // As the kernel says of a stream that is neither connected nor listens.
                    Some(File::Socket { stream: true, listening: false, .. }) => {
                        entry.events & libc::POLLOUT | libc::POLLHUP
                    }
                    Some(File::Socket { stream: false, shut, .. }) => {
                        let read = if shut & 1 != 0 { libc::POLLIN | libc::POLLRDHUP } else { 0 };
                        let both = if *shut == 3 { libc::POLLHUP } else { 0 };
                        entry.events & (libc::POLLOUT | read) | both
                    }
                    _ => 0,
                };
            }
            fds.iter().filter(|entry| entry.revents != 0).count()
        };
        let ready = look(fds);
        if ready > 0 || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Ok(ready);
        }
        self.wait(timeout)?;
        Ok(look(fds))
    }

    fn epoll_ctl(&self, _: RawFd, _: i32, _: RawFd, _: EpollEvent) -> Result<(), Errno> {
        Ok(())
    }

    fn epoll_wait(
        &self,
        _: RawFd,
        _: &mut [EpollEvent],
        timeout: Option<Duration>,
        _: Option<SigMask>,
    ) -> Result<usize, Errno> {
        if !timeout.is_some_and(|timeout| timeout.is_zero()) {
            self.wait(timeout)?;
        }
        Ok(0)
    }

    fn accept(&self, fd: RawFd, _: i32) -> Result<(RawFd, SocketAddr), Errno> {
        match locked(&self.files).by_number.get(&fd) {
            Some(File::Socket { stream: true, listening: true, .. }) => Err(Errno::AGAIN),
            Some(File::Socket { stream: false, .. }) => Err(Errno::OPNOTSUPP),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::BADF),
        }
    }

    fn bind(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno> {
        let mut files = locked(&self.files);
        let (stream, options) = match files.by_number.get(&fd) {
            Some(File::Socket { local: Some(local), .. }) if local.port() != 0 => {
                return Err(Errno::INVAL);
            }
            Some(File::Socket { stream, options, .. }) => (*stream, options.clone()),
            Some(_) => return Err(Errno::INVAL),
            None => return Err(Errno::BADF),
        };
        let ip = addr.ip().to_canonical();
        let is_group = ip.is_multicast() && !stream;
        if !ip.is_unspecified() && !is_group && !self.addresses.contains(&ip) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let mut wanted = addr;
        if wanted.port() == 0 && !leaves_port(&options) {
            files.next_port = files.next_port.wrapping_add(1);
            wanted.set_port(files.next_port);
        }
        if wanted.port() != 0 && files.is_taken(fd, wanted, stream, &options) {
            return Err(Errno::ADDRINUSE);
        }
        if let Some(File::Socket { local, .. }) = files.by_number.get_mut(&fd) {
            *local = Some(wanted);
        }
        Ok(())
    }

    fn listen(&self, fd: RawFd, _: i32) -> Result<(), Errno> {
        let bound = match locked(&self.files).by_number.get(&fd) {
            Some(File::Socket { stream: false, .. }) => return Err(Errno::OPNOTSUPP),
            Some(File::Socket { local, .. }) => local.is_some(),
            Some(_) => return Err(Errno::INVAL),
            None => return Err(Errno::BADF),
        };
        if !bound {
            let any = self.local(fd)?;
            self.bind(fd, any)?;
        }
        let mut files = locked(&self.files);
        if let Some(File::Socket { listening, .. }) = files.by_number.get_mut(&fd) {
            *listening = true;
        }
        drop(files);
        if self.numbers == Numbers::Real
            && let Ok(shown) = TcpListener::bind(self.local(fd)?)
        {
            // For who looks there: nobody can reach it, and without a device it cannot be.
            locked(&self.files).listeners.insert(fd, shown);
        }
        Ok(())
    }

    fn connect(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno> {
        match locked(&self.files).by_number.get_mut(&fd) {
            Some(File::Socket { v6: false, .. }) if addr.is_ipv6() => Err(Errno::AFNOSUPPORT),
            Some(File::Socket { stream: false, options, .. })
                if is_v6_only(options) && addr.ip().to_canonical().is_ipv4() =>
            {
                Err(Errno::NETUNREACH)
            }
            Some(File::Socket { stream: false, peer, .. }) => {
                *peer = Some(addr);
                Ok(())
            }
            // There is no network but the engine's.
            Some(File::Socket { listening: false, .. }) => Err(Errno::NETUNREACH),
            Some(_) => Err(Errno::ISCONN),
            None => Err(Errno::BADF),
        }
    }

    fn disconnect(&self, fd: RawFd) -> Result<(), Errno> {
        let mut files = locked(&self.files);
        files.listeners.remove(&fd);
        match files.by_number.get_mut(&fd) {
            Some(File::Socket { stream, listening, local, peer, .. }) => {
                (*listening, *peer) = (false, None);
                // A port that nobody named goes.
                local.take_if(|local| !*stream && local.port() > FREE_PORTS);
                Ok(())
            }
            Some(_) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    fn local(&self, fd: RawFd) -> Result<SocketAddr, Errno> {
        match locked(&self.files).by_number.get(&fd) {
            Some(File::Socket { local, v6, .. }) => Ok(local.unwrap_or(if *v6 {
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
            } else {
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
            })),
            Some(_) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    fn receive(
        &self,
        fd: RawFd,
        _: &mut [IoSliceMut<'_>],
        _: &mut [u8],
        flags: i32,
    ) -> Result<Received, Errno> {
        // Reports are none, and asked for at any time.
        let stream = if flags & libc::MSG_ERRQUEUE != 0 { Errno::AGAIN } else { Errno::NOTCONN };
        Err(self.socket_error(fd, stream, Errno::AGAIN))
    }

    fn send(
        &self,
        fd: RawFd,
        _: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let datagram = match to {
            _ if flags & libc::MSG_OOB != 0 => Errno::OPNOTSUPP,
            None => Errno::DESTADDRREQ,
            Some(_) => Errno::NETUNREACH,
        };
        Err(self.socket_error(fd, Errno::PIPE, datagram))
    }

    fn option(&self, fd: RawFd, level: i32, name: i32) -> Result<i32, Errno> {
        match locked(&self.files).by_number.get(&fd) {
            // Nothing is known of a path that there is not.
            Some(File::Socket { stream: false, .. })
                if matches!(
                    (level, name),
                    (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, libc::IPV6_MTU)
                ) =>
            {
                Err(Errno::NOTCONN)
            }
            Some(File::Socket { stream, listening, options, .. }) => {
                let value = options.get(&(level, name)).copied();
                value.or_else(|| usual(*stream, *listening, level, name)).ok_or(Errno::NOPROTOOPT)
            }
            Some(_) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    fn raw_option(&self, fd: RawFd, level: i32, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        let value = self.option(fd, level, name)?.to_ne_bytes();
        for (place, byte) in out.iter_mut().zip(value) {
            *place = byte;
        }
        let len = match (level, name) {
            // Of what is not connected everything but the state is nought.
            (libc::IPPROTO_TCP, libc::TCP_INFO) => INFO_BYTES,
            (libc::SOL_SOCKET, libc::SO_MEMINFO) => MEMORY_BYTES,
            _ => value.len(),
        };
        Ok(len.min(out.len()))
    }

    fn set_raw_option(&self, fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        if names_no_interface(level, name, value) {
            // No route leads to any group.
            return Err(Errno::NODEV);
        }
        let first = value.first_chunk().ok_or(Errno::INVAL)?;
        self.set_option(fd, level, name, i32::from_ne_bytes(*first))
    }

    fn set_option(&self, fd: RawFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
        match locked(&self.files).by_number.get_mut(&fd) {
            Some(File::Socket { stream, listening, local, options, .. }) => {
                if usual(*stream, *listening, level, name).is_none() {
                    return Err(Errno::NOPROTOOPT);
                }
                let comes_late =
                    (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) && local.is_some();
                if !admits(level, name, value) || comes_late {
                    return Err(Errno::INVAL);
                }
                let opens = (level, name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
                if opens && !self.opens_fast.load(Ordering::Relaxed) {
                    return Err(Errno::OPNOTSUPP);
                }
                let (name, value) = kept_as(level, name, value);
                options.insert((level, name), value);
                Ok(())
            }
            Some(_) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    fn status_flags(&self, fd: RawFd) -> Result<i32, Errno> {
        match locked(&self.files).by_number.get(&fd) {
            Some(File::Socket { flags, .. }) => Ok(libc::O_RDWR | flags),
            Some(_) => Ok(libc::O_RDWR),
            None => Err(Errno::BADF),
        }
    }

    fn duplicate(&self, fd: RawFd, at_least: RawFd, _: bool) -> Result<RawFd, Errno> {
        let mut files = locked(&self.files);
        let file = copy_of(files.by_number.get(&fd))?;
        self.add(&mut files, at_least.max(3), file)
    }

    fn close(&self, fd: RawFd) {
        let mut files = locked(&self.files);
        files.by_number.remove(&fd);
        files.real.remove(&fd);
        files.listeners.remove(&fd);
    }

    fn replace(&self, from: RawFd, at: RawFd) -> Result<(), Errno> {
        let mut files = locked(&self.files);
        let file = copy_of(files.by_number.get(&from))?;
        files.by_number.insert(at, file);
        Ok(())
    }

    fn event_fd(&self) -> Result<RawFd, Errno> {
        self.add(&mut locked(&self.files), 900, File::Event(0))
    }

    fn signal_event(&self, fd: RawFd) {
        if let Some(File::Event(count)) = locked(&self.files).by_number.get_mut(&fd) {
            *count += 1;
        }
    }

    fn drain_event(&self, fd: RawFd) {
        if let Some(File::Event(count)) = locked(&self.files).by_number.get_mut(&fd) {
            *count = 0;
        }
    }

    fn inert(&self, v6: bool) -> Result<RawFd, Errno> {
        let socket = File::Socket {
            stream: true,
            v6,
            local: None,
            peer: None,
            listening: false,
            shut: 0,
            flags: 0,
            options: BTreeMap::new(),
        };
        self.add(&mut locked(&self.files), 900, socket)
    }

    fn lend(&self, fd: RawFd, body: &mut dyn FnMut(BorrowedFd<'_>)) {
        locked(&self.files).lent = Some(fd);
        body(self.token.as_fd());
        locked(&self.files).lent = None;
    }

    fn restarts_after_signal(&self) -> bool {
        false
    }

    fn signal(&self, _: Owner, _: i32, _: Option<About>) -> Result<(), Errno> {
        Err(Errno::SRCH)
    }

    fn start_thread(&self, _: Box<dyn FnOnce() + Send>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn log(&self, _: &str) {}

    fn now_ns(&self) -> u64 {
        self.baton.now()
    }

    fn calendar_ns(&self) -> u64 {
        // What the script's program is told of the time of day, too.
        self.baton.now().wrapping_add(self.calendar.load(Ordering::Relaxed))
    }
}

impl InMemory {
    /// Sleeps; EINTR when the script is over.
    fn wait(&self, timeout: Option<Duration>) -> Result<(), Errno> {
        let after = |timeout: Duration| {
            self.baton.now().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
        };
        self.baton.sleep(timeout.map(after));
        if self.baton.is_over() { Err(Errno::INTR) } else { Ok(()) }
    }
}
