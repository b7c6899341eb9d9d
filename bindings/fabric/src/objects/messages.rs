//! The operations on plain messages: `struct fi_ops_msg`.

use std::ffi::c_void;

use super::Object;
use super::endpoint::Endpoint;
use crate::abi::constants::*;
use crate::abi::entries::Msg;
use crate::abi::objects::{Descriptors, FidEp, MsgOps};
use crate::abi::{FiAddr, Iovec};
use crate::pieces::Pieces;
use crate::state::endpoint::{Receive, Send};

/// The table of every endpoint.
pub static OPS: MsgOps = MsgOps {
    size: size_of::<MsgOps>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

/// The error for a list that is too long.
const TOO_MANY: isize = -(FI_EINVAL as isize);

unsafe extern "C" fn recv(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    _descriptor: *mut c_void,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    let pieces = Pieces::one(buffer as usize, len);
    let tag = None;
    let receive = Receive { from, tag, pieces, context: context as usize, flags: None };
    // SAFETY: the program passes an open endpoint.
    unsafe { Endpoint::of(endpoint) }.receive(&receive)
}

unsafe extern "C" fn recvv(
    endpoint: *mut FidEp,
    list: *const Iovec,
    _descriptors: Descriptors,
    count: usize,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program passes an open endpoint and a list of `count` pieces.
    unsafe {
        let Some(pieces) = Pieces::of_list(list, count) else { return TOO_MANY };
        let tag = None;
        let receive = Receive { from, tag, pieces, context: context as usize, flags: None };
        Endpoint::of(endpoint).receive(&receive)
    }
}

unsafe extern "C" fn recvmsg(endpoint: *mut FidEp, message: *const Msg, flags: u64) -> isize {
    // SAFETY: the program passes an open endpoint and a message with its list.
    unsafe {
        let message = &*message;
        let Some(pieces) = Pieces::of_list(message.msg_iov, message.iov_count) else {
            return TOO_MANY;
        };
        Endpoint::of(endpoint).receive(&Receive {
            from: message.addr,
            tag: None,
            pieces,
            context: message.context as usize,
            flags: Some(flags),
        })
    }
}

unsafe extern "C" fn send(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    let pieces = Pieces::one(buffer as usize, len);
    let tag = None;
    let send = Send { to, tag, data: None, pieces, context: context as usize, flags: None };
    // SAFETY: the program passes an open endpoint.
    unsafe { Endpoint::of(endpoint) }.send(&send)
}

unsafe extern "C" fn sendv(
    endpoint: *mut FidEp,
    list: *const Iovec,
    _descriptors: Descriptors,
    count: usize,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program passes an open endpoint and a list of `count` pieces.
    unsafe {
        let Some(pieces) = Pieces::of_list(list, count) else { return TOO_MANY };
        let tag = None;
        let send = Send { to, tag, data: None, pieces, context: context as usize, flags: None };
        Endpoint::of(endpoint).send(&send)
    }
}

unsafe extern "C" fn sendmsg(endpoint: *mut FidEp, message: *const Msg, flags: u64) -> isize {
    // SAFETY: the program passes an open endpoint and a message with its list.
    unsafe {
        let message = &*message;
        let Some(pieces) = Pieces::of_list(message.msg_iov, message.iov_count) else {
            return TOO_MANY;
        };
        Endpoint::of(endpoint).send(&Send {
            to: message.addr,
            tag: None,
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            pieces,
            context: message.context as usize,
            flags: Some(flags),
        })
    }
}

unsafe extern "C" fn inject(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    len: usize,
    to: FiAddr,
) -> isize {
    let pieces = Pieces::one(buffer as usize, len);
    let tag = None;
    let send = Send { to, tag, data: None, pieces, context: 0, flags: None };
    // SAFETY: the program passes an open endpoint.
    unsafe { Endpoint::of(endpoint) }.inject(&send)
}

unsafe extern "C" fn senddata(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    len: usize,
    _descriptor: *mut c_void,
    data: u64,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    let pieces = Pieces::one(buffer as usize, len);
    let (tag, data) = (None, Some(data));
    let send = Send { to, tag, data, pieces, context: context as usize, flags: None };
    // SAFETY: the program passes an open endpoint.
    unsafe { Endpoint::of(endpoint) }.send(&send)
}

unsafe extern "C" fn injectdata(
    endpoint: *mut FidEp,
    buffer: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
) -> isize {
    let pieces = Pieces::one(buffer as usize, len);
    let (tag, data) = (None, Some(data));
    let send = Send { to, tag, data, pieces, context: 0, flags: None };
    // SAFETY: the program passes an open endpoint.
    unsafe { Endpoint::of(endpoint) }.inject(&send)
}
