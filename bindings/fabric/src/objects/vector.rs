//! `struct fid_av`: an address vector.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::domain::Domain;
use super::events::{EventQueue, Events};
use super::{Object, copy_address, fid, fid_ops, no_control};
use crate::abi::constants::*;
use crate::abi::info::AvAttr;
use crate::abi::objects::{AvOps, Fid, FidAv, FidDomain, FidOps};
use crate::abi::{FiAddr, refused};
use crate::info::{from_raw, resolve_for_peer, size_of_family};
use crate::state;

/// An open vector.
#[repr(C)]
pub struct AddressVector {
    head: FidAv,
    pub domain: Arc<state::DomainShared>,
    /// Its key in the domain.
    pub key: usize,
    is_v6: bool,
    /// Insertions are reported to the event queue (FI_EVENT).
    is_asynchronous: bool,
    events: Mutex<Option<Arc<Events>>>,
}

// SAFETY: as the layout above says.
unsafe impl Object for AddressVector {
    type Head = FidAv;
}

static FID_OPS: FidOps = fid_ops(close, bind, no_control);
static OPS: AvOps = AvOps {
    size: size_of::<AvOps>(),
    insert,
    insertsvc,
    insertsym: refused,
    remove,
    lookup,
    straddr,
    av_set: refused,
};

/// Opens a vector: `fi_av_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr_place: *mut AvAttr,
    vector: *mut *mut FidAv,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the program passes an open domain and attributes.
    let (domain, attr) = unsafe { (Domain::of(domain), *attr_place) };
    if !matches!(attr.kind, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE) || attr.rx_ctx_bits != 0 {
        return -FI_EINVAL;
    }
    // A vector shared by processes, by its name.
    if !attr.name.is_null() {
        return -FI_ENOSYS;
    }
    if attr.kind == FI_AV_UNSPEC {
        // SAFETY: as above; the program reads what was chosen for it. Numbers count from zero.
        unsafe { (*attr_place).kind = FI_AV_TABLE };
    }
    let key = domain.shared.state().vectors.insert(state::vector::Vector::default());
    let object = AddressVector {
        head: FidAv { fid: fid(FI_CLASS_AV, context, &FID_OPS), ops: &OPS },
        domain: domain.shared.clone(),
        key,
        is_v6: domain.is_v6,
        is_asynchronous: attr.flags & FI_EVENT != 0,
        events: Mutex::default(),
    };
    // SAFETY: the program passes a place for the result.
    unsafe { object.hand_over(vector) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open vector.
    unsafe {
        let vector = AddressVector::of_fid(fid);
        let mut state = vector.domain.state();
        if state.is_vector_used(vector.key) {
            return -FI_EBUSY;
        }
        state.vectors.try_remove(vector.key);
        drop(state);
        AddressVector::end(fid)
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _flags: u64) -> i32 {
    // SAFETY: the program passes open objects.
    unsafe {
        if (*other).class != FI_CLASS_EQ {
            return -FI_EINVAL;
        }
        let events = EventQueue::of_fid(other).events.clone();
        let vector = AddressVector::of_fid(fid);
        *vector.events.lock().unwrap_or_else(PoisonError::into_inner) = Some(events);
    }
    0
}

impl AddressVector {
    /// Adds addresses for `fi_av_insert` and returns its result: their number, or 0 with an event
    /// to come.
    ///
    /// # Safety
    /// `numbers` and `faults`, unless null, have room for each of the addresses.
    unsafe fn add(
        &self,
        addresses: impl ExactSizeIterator<Item = Option<SocketAddr>>,
        numbers: *mut FiAddr,
        faults: *mut i32,
        context: *mut c_void,
    ) -> i32 {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.is_asynchronous && events.is_none() {
            return -FI_ENOEQ;
        }
        let mut state = self.domain.state();
        let Some(vector) = state.vectors.get_mut(self.key) else { return -FI_EINVAL };
        let (mut added, mut bad) = (0, Vec::new());
        for (place, address) in addresses.enumerate() {
            let number = address.map(|address| vector.insert(address));
            // SAFETY: the caller's promise.
            unsafe {
                if !numbers.is_null() {
                    *numbers.add(place) = number.unwrap_or(FI_ADDR_NOTAVAIL);
                }
                if !faults.is_null() {
                    *faults.add(place) = if number.is_some() { 0 } else { FI_EINVAL };
                }
            }
            match number {
                Some(_) => added += 1,
                None => bad.push(place as u64),
            }
        }
        drop(state);
        match events.filter(|_| self.is_asynchronous) {
            Some(events) => {
                let own: *const Self = self;
                events.insertion(own as usize, context as usize, added as u64, &bad);
                0
            }
            None => added,
        }
    }
}

unsafe extern "C" fn insert(
    vector: *mut FidAv,
    addresses: *const c_void,
    count: usize,
    numbers: *mut FiAddr,
    flags: u64,
    context: *mut c_void,
) -> i32 {
    if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
        return -FI_EBADFLAGS;
    }
    // SAFETY: the program passes an open vector, `count` addresses of the vector's family, and
    // room for `count` numbers and, with FI_SYNC_ERR, faults.
    unsafe {
        let vector = AddressVector::of(vector);
        let size = size_of_family(vector.is_v6);
        let each = (0..count).map(|place| {
            let address = from_raw(addresses.cast::<u8>().add(place * size).cast(), size);
            address.filter(|address| address.is_ipv6() == vector.is_v6 && address.port() != 0)
        });
        let has_faults = flags & FI_SYNC_ERR != 0 && !context.is_null();
        let faults = if has_faults { context.cast() } else { std::ptr::null_mut() };
        vector.add(each, numbers, faults, context)
    }
}

unsafe extern "C" fn insertsvc(
    vector: *mut FidAv,
    node: *const c_char,
    service: *const c_char,
    number: *mut FiAddr,
    flags: u64,
    context: *mut c_void,
) -> i32 {
    if flags & !FI_MORE != 0 {
        return -FI_EBADFLAGS;
    }
    if node.is_null() || service.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the program passes an open vector, C strings and a place for the number.
    unsafe {
        let vector = AddressVector::of(vector);
        let (node, service) = (CStr::from_ptr(node), CStr::from_ptr(service));
        let address = resolve_for_peer(node, service, vector.is_v6);
        vector.add([address].into_iter(), number, std::ptr::null_mut(), context)
    }
}

unsafe extern "C" fn remove(
    vector: *mut FidAv,
    numbers: *mut FiAddr,
    count: usize,
    _flags: u64,
) -> i32 {
    // SAFETY: the program passes an open vector and `count` numbers.
    unsafe {
        let vector = AddressVector::of(vector);
        let mut state = vector.domain.state();
        for place in 0..count {
            if state.remove_address(vector.key, *numbers.add(place)).is_none() {
                return -FI_EINVAL;
            }
        }
    }
    0
}

unsafe extern "C" fn lookup(
    vector: *mut FidAv,
    number: FiAddr,
    buffer: *mut c_void,
    len: *mut usize,
) -> i32 {
    // SAFETY: the program passes an open vector and a buffer of `len` bytes.
    unsafe {
        let vector = AddressVector::of(vector);
        let state = vector.domain.state();
        let address = state.vectors.get(vector.key).and_then(|of| of.address(number));
        let Some(address) = address else { return -FI_EINVAL };
        match copy_address(address, buffer, len) {
            // The length tells the program that it was truncated.
            status if status == -FI_ETOOSMALL => 0,
            status => status,
        }
    }
}

unsafe extern "C" fn straddr(
    vector: *mut FidAv,
    address: *const c_void,
    buffer: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: the program passes an open vector, an address of its family and a buffer of `len`
    // bytes.
    unsafe {
        let is_v6 = AddressVector::of(vector).is_v6;
        let Some(address) = from_raw(address, size_of_family(is_v6)) else {
            return std::ptr::null();
        };
        let scheme = if is_v6 { "fi_sockaddr_in6" } else { "fi_sockaddr_in" };
        let Ok(text) = CString::new(format!("{scheme}://{address}")) else {
            return std::ptr::null();
        };
        let bytes = text.as_bytes_with_nul();
        let room = *len;
        *len = bytes.len();
        if room > 0 {
            let taken = bytes.len().min(room);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buffer, taken);
            *buffer.add(taken - 1) = 0;
        }
        buffer
    }
}
