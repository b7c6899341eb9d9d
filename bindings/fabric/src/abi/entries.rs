//! What programs read from queues, and what they pass to operations.

use std::ffi::c_void;

use super::{FiAddr, Iovec};

/// `struct fi_cq_tagged_entry`; the shorter formats are its beginnings.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqErrEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: i32,
    pub prov_errno: i32,
    /// Destination of more details of the error, since version 1.5.
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fi_eq_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EqEntry {
    pub fid: *mut c_void,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_eq_err_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EqErrEntry {
    pub fid: *mut c_void,
    pub context: *mut c_void,
    pub data: u64,
    pub err: i32,
    pub prov_errno: i32,
    /// Destination of more details of the error, since version 1.5.
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fi_msg`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Msg {
    pub msg_iov: *const Iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_msg_tagged`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MsgTagged {
    pub msg_iov: *const Iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}
