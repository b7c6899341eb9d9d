//! Access to kernel sockets that no safe library provides: any option by its number, any control
//! message, and the amount of unsent data.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrStorage;

/// Result of recvmsg(2) besides the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its return value.
    pub len: usize,
    /// Bytes of control messages.
    pub control_len: usize,
    /// The value of `msg_flags`.
    pub flags: i32,
    /// The sender, if it has an internet address.
    pub from: Option<SocketAddr>,
}

/// The interface that a packet socket is bound to; 0 for all.
///
/// # Errors
/// As of getsockname(2); EINVAL for a socket of another family.
pub fn packet_interface(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: all zero is a value of this plain C struct.
    let mut name: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `name`, in which every pattern of bits is valid.
    let failed =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut name).cast(), &raw mut len) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    match i32::from(name.sll_family) {
        libc::AF_PACKET => Ok(name.sll_ifindex.cast_unsigned()),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// An instruction of classic BPF: its code, where its jumps lead, and its constant.
pub type ClassicInstruction = (u16, u8, u8, u32);

/// Lets the kernel run a filter in classic BPF on what comes to a socket; it replaces the one before.
///
/// # Errors
/// As of setsockopt(2): EINVAL for a filter that the kernel does not take.
pub fn attach_filter(socket: BorrowedFd<'_>, program: &[ClassicInstruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> =
        program.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let len =
        u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies `len` instructions from `filter`, which lives until it returns.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// sendmsg(2), with control messages as the kernel lays them out.
///
/// # Errors
/// As of sendmsg(2).
pub fn send_message(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    control: &[u8],
    flags: i32,
    to: Option<SocketAddr>,
) -> io::Result<usize> {
    let name = to.map(SocketAddrAny::from);
    // SAFETY: all zero is a header without anything.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    if let Some(name) = &name {
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.addr_len();
    }
    // An IoSlice is laid out as struct iovec.
    header.msg_iov = parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = parts.len();
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len();
    }
    // SAFETY: name, parts and control are live for the call, which reads them alone, and their lengths
    // are said.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// recvmsg(2), with control messages in the kernel's layout.
///
/// # Errors
/// As of recvmsg(2).
pub fn receive_message(
    socket: BorrowedFd<'_>,
    parts: &mut [IoSliceMut<'_>],
    control: &mut [u8],
    flags: i32,
) -> io::Result<Received> {
    let mut name = MaybeUninit::<SocketAddrStorage>::zeroed();
    // SAFETY: all zero is a header without anything.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = size_of::<SocketAddrStorage>() as libc::socklen_t;
    // An IoSliceMut is laid out as struct iovec.
    header.msg_iov = parts.as_mut_ptr().cast();
    header.msg_iovlen = parts.len();
    if !control.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
    }
    // SAFETY: name, parts and control are live and ours alone for the call, and their lengths are said.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let len = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let from = (header.msg_namelen != 0).then(|| {
        // SAFETY: the kernel has written so many bytes of an address, or less than there was room for.
        unsafe { SocketAddrAny::new(name, header.msg_namelen) }
    });
    Ok(Received {
        len,
        control_len: header.msg_controllen,
        flags: header.msg_flags,
        from: from.and_then(|from| from.try_into().ok()),
    })
}

/// getsockopt(2); the length that the kernel wrote.
///
/// # Errors
/// As of getsockopt(2).
pub fn option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: `value` and `len` are live for the call, and `len` is the size of `value`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    if result == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

/// setsockopt(2).
///
/// # Errors
/// As of setsockopt(2).
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: `value` is live for the call and `len` is its size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// SIOCOUTQ: bytes written and not acknowledged.
///
/// # Errors
/// As of ioctl(2).
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    asked(socket, libc::TIOCOUTQ).map(|count| usize::try_from(count).unwrap_or(0))
}

/// SIOCOUTQNSD: bytes written and not sent.
///
/// # Errors
/// As of ioctl(2).
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // linux/sockios.h; not in the libc crate.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    asked(socket, SIOCOUTQNSD).map(|count| usize::try_from(count).unwrap_or(0))
}

/// SIOCATMARK: whether the next byte to be read is the urgent one.
///
/// # Errors
/// As of ioctl(2).
pub fn is_at_mark(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // asm-generic/sockios.h; not in the libc crate.
    const SIOCATMARK: libc::Ioctl = 0x8905;
    asked(socket, SIOCATMARK).map(|at_mark| at_mark != 0)
}

/// The int result of a request.
fn asked(socket: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<libc::c_int> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the requests asked here write an int, which is live for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut answer) };
    if result == 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_message_goes_and_comes_in_pieces_with_its_control_messages_and_its_sender() {
        let [from, to] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let on = 1_i32.to_ne_bytes();
        set_option(to.as_fd(), libc::IPPROTO_IP, libc::IP_RECVTTL, &on).unwrap();
        let ttl = [libc::IPPROTO_IP, libc::IP_TTL, 9].map(i32::to_ne_bytes).concat();
        // A cmsghdr of 20 bytes, an int in it.
        let control = [&20_usize.to_ne_bytes()[..], &ttl, &[0; 4]].concat();
        let parts = [&b"in "[..], b"pieces"].map(IoSlice::new);
        let name = to.local_addr().unwrap();
        let sent = send_message(from.as_fd(), &parts, &control, 0, Some(name)).unwrap();
        assert_eq!(sent, 9);
        let (mut first, mut second, mut told) = ([0; 4], [0; 3], [0; 64]);
        let mut room = [&mut first[..], &mut second].map(IoSliceMut::new);
        let got = receive_message(to.as_fd(), &mut room, &mut told, 0).unwrap();
        let sender = Some(from.local_addr().unwrap());
        let wanted = Received { len: 7, control_len: 24, flags: libc::MSG_TRUNC, from: sender };
        assert_eq!(got, wanted);
        assert_eq!((&first, &second), (b"in p", b"iec"));
        assert_eq!(told[..20], control[..20]);
    }

    #[test]
    fn a_failure_is_the_kernels() {
        let alone = UdpSocket::bind("127.0.0.1:0").unwrap();
        let nowhere = send_message(alone.as_fd(), &[], &[], 0, None).unwrap_err();
        assert_eq!(nowhere.raw_os_error(), Some(libc::EDESTADDRREQ));
        let nothing = receive_message(alone.as_fd(), &mut [], &mut [], libc::MSG_DONTWAIT);
        assert_eq!(nothing.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    }
}
