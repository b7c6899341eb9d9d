//! The answer to `fi_getinfo`: memory of the C library, zeroed, which `fi_freeinfo` frees.

use std::net::SocketAddr;
use std::ptr;

use super::address::{Ends, to_raw};
use super::hints::Hints;
use crate::abi::constants::*;
use crate::abi::info::{DomainAttr, EpAttr, FabricAttr, Info, RxAttr, TxAttr};
use crate::pieces::PIECES_MAX;
use crate::{NAME, duplicate};

/// Bytes of a job's key.
pub const KEY_BYTES: usize = 16;
/// Bytes of immediate data.
pub const DATA_BYTES: usize = 4;
/// Bytes of a memory region's key.
pub const MEMORY_KEY_BYTES: usize = 8;
/// Longest injected message, in bytes.
pub const INJECT_MAX: usize = 4096;
/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = u32::MAX as usize;
/// Concurrent operations announced to programs; more are accepted.
pub const OPERATIONS: usize = 4096;
/// Endpoints of a domain: the maximum of a session with the engine.
const ENDPOINTS: usize = 64;

/// The order in which messages of one sender match.
pub const ORDER: u64 = FI_ORDER_SAS;
/// The capability without which the source of a receive is ignored.
pub const DIRECTED: u64 = FI_DIRECTED_RECV;

/// Capabilities that a program must request.
const PRIMARY: u64 = FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_DIRECTED_RECV;
/// Capabilities that every endpoint has.
const SECONDARY: u64 = FI_MULTI_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM;
/// All capabilities.
pub const CAPS: u64 = PRIMARY | SECONDARY;
/// Capabilities of the transmit side.
pub const TX_CAPS: u64 = FI_MSG | FI_TAGGED | FI_SEND;
/// Capabilities of the receive side.
pub const RX_CAPS: u64 =
    FI_MSG | FI_TAGGED | FI_RECV | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE;
/// Permitted default flags of the transmit side.
pub const TX_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
/// Permitted default flags of the receive side.
pub const RX_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// The capabilities of an endpoint requested with `asked`.
fn caps(asked: u64) -> u64 {
    let mut primary = if asked == 0 { PRIMARY } else { asked & PRIMARY };
    if primary & (FI_MSG | FI_TAGGED) != 0 && primary & (FI_SEND | FI_RECV) == 0 {
        primary |= FI_SEND | FI_RECV;
    }
    primary | SECONDARY
}

/// Zeroed memory of the C library; null without memory.
fn zeroed<T>() -> *mut T {
    // SAFETY: no argument is a pointer.
    unsafe { libc::calloc(1, size_of::<T>()) }.cast()
}

/// An answer that owns its memory until it is passed on.
struct Answer(*mut Info);

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: what was not allocated is null, which `free` takes.
        unsafe {
            let info = &*self.0;
            if let Some(attr) = info.domain_attr.as_ref() {
                libc::free(attr.name.cast());
            }
            if let Some(attr) = info.fabric_attr.as_ref() {
                libc::free(attr.name.cast());
            }
            libc::free(info.src_addr);
            libc::free(info.dest_addr);
            libc::free(info.tx_attr.cast());
            libc::free(info.rx_attr.cast());
            libc::free(info.ep_attr.cast());
            libc::free(info.domain_attr.cast());
            libc::free(info.fabric_attr.cast());
            libc::free(self.0.cast());
        }
    }
}

/// Builds the answer; `None` when memory is short.
pub fn make(version: u32, hints: &Hints, ends: &Ends) -> Option<*mut Info> {
    let info = zeroed::<Info>();
    if info.is_null() {
        return None;
    }
    let answer = Answer(info);
    // SAFETY: the memory is ours, of the right size and zeroed.
    let info = unsafe { &mut *info };
    let caps = caps(hints.caps);
    info.caps = caps;
    info.addr_format = ends.format();
    info.tx_attr = zeroed();
    info.rx_attr = zeroed();
    info.ep_attr = zeroed();
    info.domain_attr = zeroed();
    info.fabric_attr = zeroed();
    (info.src_addr, info.src_addrlen) = address(ends.source)?;
    (info.dest_addr, info.dest_addrlen) = address(ends.destination)?;
    // SAFETY: as above.
    unsafe {
        *info.tx_attr.as_mut()? = transmit(hints, caps);
        *info.rx_attr.as_mut()? = receive(hints, caps);
        *info.ep_attr.as_mut()? = endpoint();
        *info.domain_attr.as_mut()? = domain(version, hints);
        *info.fabric_attr.as_mut()? = FabricAttr {
            fabric: ptr::null_mut(),
            name: duplicate(NAME),
            // libfabric fills it in, and requires it to be null.
            prov_name: ptr::null_mut(),
            prov_version: crate::OWN_VERSION,
            api_version: version,
        };
        if (*info.domain_attr).name.is_null() || (*info.fabric_attr).name.is_null() {
            return None;
        }
    }
    let made = answer.0;
    std::mem::forget(answer);
    Some(made)
}

/// An address in memory of the C library, and its length.
fn address(address: Option<SocketAddr>) -> Option<(*mut std::ffi::c_void, usize)> {
    let Some(address) = address else { return Some((ptr::null_mut(), 0)) };
    let (raw, len) = to_raw(address);
    // SAFETY: no argument is a pointer.
    let memory = unsafe { libc::calloc(1, len) };
    if memory.is_null() {
        return None;
    }
    // SAFETY: both have `len` bytes.
    unsafe { ptr::copy_nonoverlapping(raw.as_ptr(), memory.cast(), len) };
    Some((memory, len))
}

fn transmit(hints: &Hints, caps: u64) -> TxAttr {
    let asked = hints.tx.as_ref();
    TxAttr {
        caps: caps & TX_CAPS,
        mode: 0,
        op_flags: asked.map_or(0, |attr| attr.op_flags),
        msg_order: ORDER,
        comp_order: 0,
        inject_size: INJECT_MAX,
        size: OPERATIONS,
        iov_limit: PIECES_MAX,
        rma_iov_limit: 0,
        tclass: 0,
    }
}

fn receive(hints: &Hints, caps: u64) -> RxAttr {
    let asked = hints.rx.as_ref();
    RxAttr {
        caps: caps & RX_CAPS,
        mode: 0,
        op_flags: asked.map_or(0, |attr| attr.op_flags),
        msg_order: ORDER,
        comp_order: 0,
        total_buffered_recv: 0,
        size: OPERATIONS,
        iov_limit: PIECES_MAX,
    }
}

fn endpoint() -> EpAttr {
    EpAttr {
        kind: FI_EP_RDM,
        protocol: PROTOCOL,
        protocol_version: 1,
        max_msg_size: MESSAGE_MAX,
        mem_tag_format: FI_TAG_GENERIC,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        ..EpAttr::zero()
    }
}

fn domain(version: u32, hints: &Hints) -> DomainAttr {
    let asked = hints.domain.as_ref();
    let or = |asked: Option<i32>, otherwise| match asked {
        None | Some(0) => otherwise,
        Some(value) => value,
    };
    let mr_mode = match asked.map_or(0, |attr| attr.mr_mode) {
        // Before version 1.5 there are only two modes, and zero means either.
        0 if version < version_of_modes() => FI_MR_SCALABLE,
        mode @ (FI_MR_BASIC | FI_MR_SCALABLE) => mode,
        // We need none of the conditions that the program can meet.
        _ => 0,
    };
    DomainAttr {
        name: duplicate(NAME),
        threading: or(asked.map(|attr| attr.threading), FI_THREAD_SAFE),
        control_progress: FI_PROGRESS_MANUAL,
        data_progress: FI_PROGRESS_MANUAL,
        resource_mgmt: FI_RM_ENABLED,
        // Both are provided, so a program that has not chosen can.
        av_type: asked.map_or(FI_AV_UNSPEC, |attr| attr.av_type),
        mr_mode,
        mr_key_size: MEMORY_KEY_BYTES,
        cq_data_size: DATA_BYTES,
        cq_cnt: ENDPOINTS,
        ep_cnt: ENDPOINTS,
        tx_ctx_cnt: ENDPOINTS,
        rx_ctx_cnt: ENDPOINTS,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        cntr_cnt: ENDPOINTS,
        mr_iov_limit: 1,
        caps: FI_LOCAL_COMM | FI_REMOTE_COMM,
        mr_cnt: 1 << 16,
        ..DomainAttr::zero()
    }
}

/// The first version in which modes of memory registration are bits.
const fn version_of_modes() -> u32 {
    crate::abi::constants::version(1, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_address_vectors_is_the_programs_choice() {
        // A program that reads FI_AV_TABLE may count addresses itself and not ask for their numbers.
        for kind in [FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE] {
            let asked = DomainAttr { av_type: kind, ..DomainAttr::zero() };
            let mut hints = Hints::default();
            hints.domain = Some(asked);
            let answer = domain(version_of_modes(), &hints);
            // SAFETY: the answer owns its name.
            unsafe { libc::free(answer.name.cast()) };
            assert_eq!(answer.av_type, kind);
        }
    }
}
