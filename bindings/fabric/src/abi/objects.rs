//! `struct fid` and the objects and operation tables that begin with it.

use std::ffi::{c_char, c_void};

use super::entries::{CqErrEntry, EqErrEntry, Msg, MsgTagged};
use super::info::{AvAttr, CntrAttr, CqAttr, EqAttr, Info, MrAttr, WaitAttr};
use super::{FiAddr, Iovec, Refused};

/// `struct fid`, with which every object begins.
#[repr(C)]
pub struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: *const FidOps,
}

/// `struct fi_ops`.
#[repr(C)]
pub struct FidOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> i32,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> i32,
    pub control: unsafe extern "C" fn(*mut Fid, i32, *mut c_void) -> i32,
    pub ops_open: Refused,
    pub tostr: Refused,
    pub ops_set: Refused,
}

/// `struct fid_fabric`.
#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const FabricOps,
    pub api_version: u32,
}

/// `struct fi_ops_fabric`.
#[repr(C)]
pub struct FabricOps {
    pub size: usize,
    pub domain:
        unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> i32,
    pub passive_ep: Refused,
    pub eq_open:
        unsafe extern "C" fn(*mut FidFabric, *mut EqAttr, *mut *mut FidEq, *mut c_void) -> i32,
    pub wait_open: unsafe extern "C" fn(*mut FidFabric, *mut WaitAttr, *mut *mut FidWait) -> i32,
    pub trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, i32) -> i32,
    pub domain2: Refused,
}

/// `struct fid_domain`.
#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub mr: *const MrOps,
}

/// `struct fi_ops_domain`.
#[repr(C)]
pub struct DomainOps {
    pub size: usize,
    pub av_open:
        unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> i32,
    pub cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> i32,
    pub endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> i32,
    pub scalable_ep: Refused,
    pub cntr_open:
        unsafe extern "C" fn(*mut FidDomain, *mut CntrAttr, *mut *mut FidCntr, *mut c_void) -> i32,
    pub poll_open: unsafe extern "C" fn(*mut FidDomain, *mut c_void, *mut *mut FidPoll) -> i32,
    pub stx_ctx: Refused,
    pub srx_ctx: Refused,
    pub query_atomic: Refused,
    pub query_collective: Refused,
    pub endpoint2: Refused,
}

/// `struct fi_ops_mr`.
#[repr(C)]
pub struct MrOps {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> i32,
    pub regv: unsafe extern "C" fn(
        *mut Fid,
        *const Iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> i32,
    pub regattr: unsafe extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> i32,
}

/// `struct fid_mr`.
#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// `struct fid_av`.
#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const AvOps,
}

/// `struct fi_ops_av`.
#[repr(C)]
pub struct AvOps {
    pub size: usize,
    pub insert: unsafe extern "C" fn(
        *mut FidAv,
        *const c_void,
        usize,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> i32,
    pub insertsvc: unsafe extern "C" fn(
        *mut FidAv,
        *const c_char,
        *const c_char,
        *mut FiAddr,
        u64,
        *mut c_void,
    ) -> i32,
    pub insertsym: Refused,
    pub remove: unsafe extern "C" fn(*mut FidAv, *mut FiAddr, usize, u64) -> i32,
    pub lookup: unsafe extern "C" fn(*mut FidAv, FiAddr, *mut c_void, *mut usize) -> i32,
    pub straddr:
        unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub av_set: Refused,
}

/// `struct fid_cq`.
#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const CqOps,
}

/// `struct fi_ops_cq`.
#[repr(C)]
pub struct CqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut FiAddr) -> isize,
    pub readerr: unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> isize,
    pub sread: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, i32) -> isize,
    pub sreadfrom: unsafe extern "C" fn(
        *mut FidCq,
        *mut c_void,
        usize,
        *mut FiAddr,
        *const c_void,
        i32,
    ) -> isize,
    pub signal: unsafe extern "C" fn(*mut FidCq) -> i32,
    pub strerror: StrError<FidCq>,
}

/// The `strerror` of a queue.
pub type StrError<T> =
    unsafe extern "C" fn(*mut T, i32, *const c_void, *mut c_char, usize) -> *const c_char;

/// `struct fid_cntr`.
#[repr(C)]
pub struct FidCntr {
    pub fid: Fid,
    pub ops: *const CntrOps,
}

/// `struct fi_ops_cntr`.
#[repr(C)]
pub struct CntrOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub add: unsafe extern "C" fn(*mut FidCntr, u64) -> i32,
    pub set: unsafe extern "C" fn(*mut FidCntr, u64) -> i32,
    pub wait: unsafe extern "C" fn(*mut FidCntr, u64, i32) -> i32,
    pub adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> i32,
    pub seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> i32,
}

/// `struct fid_eq`.
#[repr(C)]
pub struct FidEq {
    pub fid: Fid,
    pub ops: *const EqOps,
}

/// `struct fi_ops_eq`.
#[repr(C)]
pub struct EqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
    pub readerr: unsafe extern "C" fn(*mut FidEq, *mut EqErrEntry, u64) -> isize,
    pub write: unsafe extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
    pub sread: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, i32, u64) -> isize,
    pub strerror: StrError<FidEq>,
}

/// `struct fid_wait`.
#[repr(C)]
pub struct FidWait {
    pub fid: Fid,
    pub ops: *const WaitOps,
}

/// `struct fi_ops_wait`.
#[repr(C)]
pub struct WaitOps {
    pub size: usize,
    pub wait: unsafe extern "C" fn(*mut FidWait, i32) -> i32,
}

/// `struct fid_poll`.
#[repr(C)]
pub struct FidPoll {
    pub fid: Fid,
    pub ops: *const PollOps,
}

/// `struct fi_ops_poll`.
#[repr(C)]
pub struct PollOps {
    pub size: usize,
    pub poll: unsafe extern "C" fn(*mut FidPoll, *mut *mut c_void, i32) -> i32,
    pub poll_add: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> i32,
    pub poll_del: unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> i32,
}

/// `struct fid_ep`.
#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const EpOps,
    pub cm: *const CmOps,
    pub msg: *const MsgOps,
    pub rma: *const RmaOps,
    pub tagged: *const TaggedOps,
    pub atomic: *const AtomicOps,
    pub collective: *const CollectiveOps,
}

/// `struct fi_ops_rma`.
pub type RmaOps = super::RefusedOps<9>;
/// `struct fi_ops_atomic`.
pub type AtomicOps = super::RefusedOps<13>;
/// `struct fi_ops_collective`.
pub type CollectiveOps = super::RefusedOps<11>;

/// `struct fi_ops_ep`.
#[repr(C)]
pub struct EpOps {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub getopt: unsafe extern "C" fn(*mut Fid, i32, i32, *mut c_void, *mut usize) -> i32,
    pub setopt: unsafe extern "C" fn(*mut Fid, i32, i32, *const c_void, usize) -> i32,
    pub tx_ctx: Refused,
    pub rx_ctx: Refused,
    pub rx_size_left: Refused,
    pub tx_size_left: Refused,
}

/// `struct fi_ops_cm`.
#[repr(C)]
pub struct CmOps {
    pub size: usize,
    pub setname: Refused,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> i32,
    pub getpeer: Refused,
    pub connect: Refused,
    pub listen: Refused,
    pub accept: Refused,
    pub reject: Refused,
    pub shutdown: Refused,
    pub join: Refused,
}

/// Memory descriptors of an operation's pieces, which the provider does not need.
pub type Descriptors = *mut *mut c_void;

/// `struct fi_ops_msg`.
#[repr(C)]
pub struct MsgOps {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        Descriptors,
        usize,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(*mut FidEp, *const Msg, u64) -> isize,
    pub send: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        Descriptors,
        usize,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(*mut FidEp, *const Msg, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr) -> isize,
    pub senddata: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        *mut c_void,
    ) -> isize,
    pub injectdata: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr) -> isize,
}

/// `struct fi_ops_tagged`.
#[repr(C)]
pub struct TaggedOps {
    pub size: usize,
    pub recv: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        Descriptors,
        usize,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub recvmsg: unsafe extern "C" fn(*mut FidEp, *const MsgTagged, u64) -> isize,
    pub send: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    pub sendv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        Descriptors,
        usize,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(*mut FidEp, *const MsgTagged, u64) -> isize,
    pub inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, FiAddr, u64) -> isize,
    pub senddata: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        FiAddr,
        u64,
        *mut c_void,
    ) -> isize,
    pub injectdata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, FiAddr, u64) -> isize,
}
