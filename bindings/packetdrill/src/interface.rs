//! The layout of packetdrill's `struct packetdrill_interface`, which is its public interface to a
//! stack under test.

use std::ffi::{c_int, c_long, c_longlong, c_uint, c_ulong, c_void};

use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
    timeval,
};

/// The first argument of every function.
pub type Userdata = *mut c_void;

/// One function for each call, in packetdrill's order. Each is the system call of its name except
/// for the first argument; they return -1 and set errno when they fail.
#[repr(C)]
pub struct PacketdrillInterface {
    pub userdata: Userdata,
    pub free: unsafe extern "C" fn(Userdata),
    pub socket: unsafe extern "C" fn(Userdata, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(Userdata, c_int, *const sockaddr, socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(Userdata, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(Userdata, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: unsafe extern "C" fn(Userdata, c_int, *const sockaddr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(Userdata, c_int, *mut c_void, size_t) -> ssize_t,
    pub readv: unsafe extern "C" fn(Userdata, c_int, *const iovec, c_int) -> ssize_t,
    pub recv: unsafe extern "C" fn(Userdata, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    pub recvfrom: unsafe extern "C" fn(
        Userdata,
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(Userdata, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: unsafe extern "C" fn(Userdata, c_int, *const c_void, size_t) -> ssize_t,
    pub writev: unsafe extern "C" fn(Userdata, c_int, *const iovec, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(Userdata, c_int, *const c_void, size_t, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(
        Userdata,
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(Userdata, c_int, *const msghdr, c_int) -> ssize_t,
    /// Variadic in C, with at most one more argument.
    pub fcntl: unsafe extern "C" fn(Userdata, c_int, c_int, c_long) -> c_int,
    /// Variadic in C, with at most one more argument.
    pub ioctl: unsafe extern "C" fn(Userdata, c_int, c_ulong, *mut c_void) -> c_int,
    pub close: unsafe extern "C" fn(Userdata, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(Userdata, c_int, c_int) -> c_int,
    pub getsockopt:
        unsafe extern "C" fn(Userdata, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt:
        unsafe extern "C" fn(Userdata, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(Userdata, *mut pollfd, nfds_t, c_int) -> c_int,
    /// A packet for the stack, from its IP header on.
    pub netdev_send: unsafe extern "C" fn(Userdata, *const c_void, size_t) -> c_int,
    /// The next packet of the stack; waits for it. The time is in microseconds.
    pub netdev_receive:
        unsafe extern "C" fn(Userdata, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(Userdata, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(Userdata, *mut timeval, *mut c_void) -> c_int,
    pub epoll_create: unsafe extern "C" fn(Userdata, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(Userdata, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(Userdata, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(Userdata, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(
        Userdata,
        c_int,
        *mut loff_t,
        c_int,
        *mut loff_t,
        size_t,
        c_uint,
    ) -> ssize_t,
}
