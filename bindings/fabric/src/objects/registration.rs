//! `struct fid_mr`: registered memory. Messages need none; a program that registers memory gets a
//! region that describes it and has no effect.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::domain::Domain;
use super::{Object, fid, fid_ops};
use crate::abi::Iovec;
use crate::abi::constants::*;
use crate::abi::info::MrAttr;
use crate::abi::objects::{Fid, FidMr, FidOps, MrOps};
use crate::state;

/// A registered region.
#[repr(C)]
struct Registration {
    head: FidMr,
    _domain: Arc<state::DomainShared>,
}

// SAFETY: as the layout above says.
unsafe impl Object for Registration {
    type Head = FidMr;
}

static FID_OPS: FidOps = fid_ops(close, bind, control);

/// The registering functions of a domain.
pub static OPS: MrOps = MrOps { size: size_of::<MrOps>(), reg, regv, regattr };

/// Registers a region under a key that is unique in the process.
///
/// # Safety
/// `domain` is an open domain, `region` a place for the result.
unsafe fn register(domain: *mut Fid, region: *mut *mut FidMr, context: *mut c_void) -> i32 {
    static NEXT_KEY: AtomicU64 = AtomicU64::new(1);
    // SAFETY: the caller's promise.
    unsafe {
        if (*domain).class != FI_CLASS_DOMAIN {
            return -FI_EINVAL;
        }
        let object = Registration {
            head: FidMr {
                fid: fid(FI_CLASS_MR, context, &FID_OPS),
                mem_desc: std::ptr::null_mut(),
                key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            },
            _domain: Domain::of_fid(domain).shared.clone(),
        };
        object.hand_over(region)
    }
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    _base: *const c_void,
    _len: usize,
    _access: u64,
    _offset: u64,
    _key: u64,
    _flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the program's arguments.
    unsafe { register(domain, region, context) }
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    _list: *const Iovec,
    count: usize,
    _access: u64,
    _offset: u64,
    _key: u64,
    _flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> i32 {
    if count != 1 {
        return -FI_EINVAL;
    }
    // SAFETY: the program's arguments.
    unsafe { register(domain, region, context) }
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    _flags: u64,
    region: *mut *mut FidMr,
) -> i32 {
    // SAFETY: the program's arguments.
    unsafe {
        if (*attr).iov_count != 1 {
            return -FI_EINVAL;
        }
        register(domain, region, (*attr).context)
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open region.
    unsafe { Registration::end(fid) }
}

/// A region may be bound to an endpoint or counter, but no remote access uses it.
unsafe extern "C" fn bind(_: *mut Fid, _: *mut Fid, _: u64) -> i32 {
    0
}

unsafe extern "C" fn control(_: *mut Fid, command: i32, _: *mut c_void) -> i32 {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}
