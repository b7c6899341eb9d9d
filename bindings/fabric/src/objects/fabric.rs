//! `struct fid_fabric`: the object on which domains, event queues and wait sets are opened.

use std::ffi::c_void;
use std::sync::Arc;

use super::{Object, domain, events, fid, fid_ops, is_unused, no_bind, no_control, waiting};
use crate::abi::constants::*;
use crate::abi::info::FabricAttr;
use crate::abi::objects::{FabricOps, Fid, FidFabric, FidOps};
use crate::abi::refused;

/// An open fabric.
#[repr(C)]
pub struct Fabric {
    head: FidFabric,
    /// Held by everything opened on it.
    pub token: Arc<()>,
}

// SAFETY: as the layout above says.
unsafe impl Object for Fabric {
    type Head = FidFabric;
}

impl Fabric {
    /// The version of the interface used by the program. libfabric sets it after the fabric is
    /// open.
    pub fn api_version(&self) -> u32 {
        self.head.api_version
    }
}

static FID_OPS: FidOps = fid_ops(close, no_bind, no_control);
static OPS: FabricOps = FabricOps {
    size: size_of::<FabricOps>(),
    domain: domain::open,
    passive_ep: refused,
    eq_open: events::open,
    wait_open: waiting::open,
    trywait: waiting::trywait,
    domain2: refused,
};

/// Opens a fabric: `fi_fabric`.
pub unsafe extern "C" fn open(
    _attr: *mut FabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> i32 {
    let head = FidFabric {
        fid: fid(FI_CLASS_FABRIC, context, &FID_OPS),
        ops: &OPS,
        api_version: crate::INTERFACE,
    };
    // SAFETY: libfabric passes a place for the result.
    unsafe { Fabric { head, token: Arc::new(()) }.hand_over(fabric) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open fabric.
    unsafe {
        if !is_unused(&Fabric::of_fid(fid).token) {
            return -FI_EBUSY;
        }
        Fabric::end(fid)
    }
}
