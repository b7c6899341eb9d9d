//! `struct fid_domain`: a session with the engine.

use std::ffi::c_void;
use std::sync::Arc;

use super::fabric::Fabric;
use super::{
    Object, counter, endpoint, fid, fid_ops, is_unused, polling, queue, registration, vector,
};
use crate::abi::constants::*;
use crate::abi::info::Info;
use crate::abi::objects::{DomainOps, Fid, FidDomain, FidFabric, FidOps};
use crate::abi::refused;
use crate::report::{self, Level};
use crate::settings;
use crate::state;

/// An open domain.
#[repr(C)]
pub struct Domain {
    head: FidDomain,
    /// Held by everything opened on it.
    pub shared: Arc<state::DomainShared>,
    /// Version of the interface used by the program.
    pub api_version: u32,
    /// The family of its addresses.
    pub is_v6: bool,
    _fabric: Arc<()>,
}

// SAFETY: as the layout above says.
unsafe impl Object for Domain {
    type Head = FidDomain;
}

static FID_OPS: FidOps = fid_ops(close, bind, super::no_control);
static OPS: DomainOps = DomainOps {
    size: size_of::<DomainOps>(),
    av_open: vector::open,
    cq_open: queue::open,
    endpoint: endpoint::open,
    scalable_ep: refused,
    cntr_open: counter::open,
    poll_open: polling::open,
    stx_ctx: refused,
    srx_ctx: refused,
    query_atomic: refused,
    query_collective: refused,
    endpoint2: refused,
};

/// Opens a domain: `fi_domain`.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the program passes an open fabric and an answer of `fi_getinfo`.
    let (fabric, is_v6, own_key) = unsafe {
        let info = &*info;
        let own_key = match info.domain_attr.as_ref() {
            Some(attr) => endpoint::key_at(attr.auth_key, attr.auth_key_size),
            None => Ok(None),
        };
        (Fabric::of(fabric), info.addr_format == FI_SOCKADDR_IN6, own_key)
    };
    let Ok(own_key) = own_key else { return -FI_EINVAL };
    let key = match own_key.map_or_else(settings::key, |key| Ok(Some(key))) {
        Ok(key) => key,
        Err(sentence) => {
            report::line(Level::Warn, || sentence);
            return -FI_ENOKEY;
        }
    };
    let session = match settings::attach() {
        Ok(session) => session,
        Err(error) => {
            report::line(Level::Warn, || error.to_string());
            return -FI_ENODATA;
        }
    };
    let head = FidDomain {
        fid: fid(FI_CLASS_DOMAIN, context, &FID_OPS),
        ops: &OPS,
        mr: &registration::OPS,
    };
    let object = Domain {
        head,
        shared: Arc::new(state::DomainShared::new(session, key)),
        api_version: fabric.api_version(),
        is_v6,
        _fabric: fabric.token.clone(),
    };
    // SAFETY: the program passes a place for the result.
    unsafe { object.hand_over(domain) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open domain.
    unsafe {
        if !is_unused(&Domain::of_fid(fid).shared) {
            return -FI_EBUSY;
        }
        Domain::end(fid)
    }
}

/// An event queue may be bound; no operation of a domain is asynchronous.
unsafe extern "C" fn bind(_: *mut Fid, other: *mut Fid, _: u64) -> i32 {
    // SAFETY: the program passes an open object.
    if unsafe { (*other).class } == FI_CLASS_EQ { 0 } else { -FI_EINVAL }
}
