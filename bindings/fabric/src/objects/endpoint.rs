//! `struct fid_ep`: an endpoint.

use std::ffi::c_void;
use std::sync::Arc;

use client::message;

use super::counter::EventCounter;
use super::domain::Domain;
use super::queue::CompletionQueue;
use super::vector::AddressVector;
use super::{Object, copy_address, fid, fid_ops, messages, tagged};
use crate::abi::constants::*;
use crate::abi::info::Info;
use crate::abi::objects::{
    AtomicOps, CmOps, CollectiveOps, EpOps, Fid, FidDomain, FidEp, FidOps, RmaOps,
};
use crate::abi::{RefusedOps, refused};
use crate::info::{DIRECTED, from_raw};
use crate::report::{self, Level};
use crate::state;
use crate::state::endpoint::{EndpointState, Receive, Report, Send};

/// An open endpoint.
#[repr(C)]
pub struct Endpoint {
    head: FidEp,
    domain: Arc<state::DomainShared>,
    /// Its key in the domain.
    key: usize,
}

// SAFETY: as the layout above says.
unsafe impl Object for Endpoint {
    type Head = FidEp;
}

static FID_OPS: FidOps = fid_ops(close, bind, control);
static OPS: EpOps = EpOps {
    size: size_of::<EpOps>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: refused,
    rx_ctx: refused,
    rx_size_left: refused,
    tx_size_left: refused,
};
static CM: CmOps = CmOps {
    size: size_of::<CmOps>(),
    setname: refused,
    getname,
    getpeer: refused,
    connect: refused,
    listen: refused,
    accept: refused,
    reject: refused,
    shutdown: refused,
    join: refused,
};
static RMA: RmaOps = RefusedOps::new();
static ATOMIC: AtomicOps = RefusedOps::new();
static COLLECTIVE: CollectiveOps = RefusedOps::new();

/// The key at an address of the program; `None` if there is none.
///
/// # Errors
/// If it does not have 16 bytes.
///
/// # Safety
/// `len` bytes at `key` are readable.
pub unsafe fn key_at(key: *const u8, len: usize) -> Result<Option<[u8; 16]>, ()> {
    match (key.is_null(), len) {
        (_, 0) => Ok(None),
        // SAFETY: the caller's promise.
        (false, 16) => Ok(Some(unsafe { key.cast::<[u8; 16]>().read() })),
        _ => Err(()),
    }
}

/// Opens an endpoint: `fi_endpoint`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut Info,
    endpoint: *mut *mut FidEp,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the program passes an open domain and an answer of `fi_getinfo`.
    let (domain, caps, source, own_key, flags) = unsafe {
        let info = &*info;
        if info.ep_attr.as_ref().is_some_and(|attr| attr.kind != FI_EP_RDM) {
            return -FI_EINVAL;
        }
        let own_key = match info.ep_attr.as_ref() {
            Some(attr) => key_at(attr.auth_key, attr.auth_key_size),
            None => Ok(None),
        };
        let flags = (
            info.tx_attr.as_ref().map_or(0, |attr| attr.op_flags),
            info.rx_attr.as_ref().map_or(0, |attr| attr.op_flags),
        );
        let source = from_raw(info.src_addr, info.src_addrlen);
        (Domain::of(domain), info.caps, source, own_key, flags)
    };
    let Ok(own_key) = own_key else { return -FI_EINVAL };
    let session = &domain.shared.session;
    let local = source.or_else(|| {
        let own = session.own_addresses();
        let fitting = own.into_iter().find(|own| own.is_ipv6() == domain.is_v6);
        fitting.map(|own| (own, 0).into())
    });
    let Some(local) = local else { return -FI_EADDRNOTAVAIL };
    let transport = match message::Endpoint::open(session, local, own_key.or(domain.shared.key)) {
        Ok(transport) => transport,
        Err(error) => {
            let errno = error.errno.raw_os_error();
            report::line(Level::Warn, || format!("no endpoint at {local}: {error}"));
            return -errno;
        }
    };
    let mut state = EndpointState::new(Arc::new(transport), caps & DIRECTED != 0);
    (state.transmit.op_flags, state.receive.op_flags) = flags;
    let key = domain.shared.state().endpoints.insert(state);
    let head = FidEp {
        fid: fid(FI_CLASS_EP, context, &FID_OPS),
        ops: &OPS,
        cm: &CM,
        msg: &messages::OPS,
        rma: &RMA,
        tagged: &tagged::OPS,
        atomic: &ATOMIC,
        collective: &COLLECTIVE,
    };
    // SAFETY: the program passes a place for the result.
    unsafe { Endpoint { head, domain: domain.shared.clone(), key }.hand_over(endpoint) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open endpoint.
    unsafe {
        let endpoint = Endpoint::of_fid(fid);
        endpoint.domain.state().close_endpoint(endpoint.key);
        Endpoint::end(fid)
    }
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> i32 {
    // SAFETY: the program passes open objects; the class tells the type.
    unsafe {
        let endpoint = Endpoint::of_fid(fid);
        let bound = match (*other).class {
            FI_CLASS_EQ => Ok(()),
            FI_CLASS_AV => {
                let vector = AddressVector::of_fid(other);
                endpoint.bind_vector(&vector.domain, vector.key)
            }
            FI_CLASS_CQ => {
                let queue = CompletionQueue::of_fid(other);
                endpoint.bind_queue(&queue.domain, queue.key, flags)
            }
            FI_CLASS_CNTR => {
                let counter = EventCounter::of_fid(other);
                endpoint.bind_counter(&counter.domain, counter.key, flags)
            }
            _ => Err(FI_EINVAL),
        };
        bound.map_or_else(|error| -error, |()| 0)
    }
}

/// Binding flags for operations on remote memory, which an endpoint does not have.
const REMOTE_MEMORY: u64 = 1 << 8 | 1 << 9 | 1 << 12 | 1 << 13;

impl Endpoint {
    fn bind_vector(&self, domain: &Arc<state::DomainShared>, vector: usize) -> Result<(), i32> {
        self.with_own(domain, |state| {
            let endpoint = state.endpoints.get_mut(self.key).ok_or(FI_EINVAL)?;
            if endpoint.vector.replace(vector).is_some_and(|before| before != vector) {
                return Err(FI_EINVAL);
            }
            Ok(())
        })
    }

    fn bind_queue(
        &self,
        domain: &Arc<state::DomainShared>,
        queue: usize,
        flags: u64,
    ) -> Result<(), i32> {
        if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
            || flags & (FI_SEND | FI_RECV) == 0
        {
            return Err(FI_EBADFLAGS);
        }
        self.with_own(domain, |state| {
            let endpoint = state.endpoints.get_mut(self.key).ok_or(FI_EINVAL)?;
            let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
            for (side, flag) in
                [(&mut endpoint.transmit, FI_SEND), (&mut endpoint.receive, FI_RECV)]
            {
                if flags & flag != 0 {
                    if side.queue.is_some() {
                        return Err(FI_EINVAL);
                    }
                    side.queue = Some(queue);
                    side.is_selective = is_selective;
                }
            }
            note(&mut state.queues.get_mut(queue).ok_or(FI_EINVAL)?.endpoints, self.key);
            Ok(())
        })
    }

    fn bind_counter(
        &self,
        domain: &Arc<state::DomainShared>,
        counter: usize,
        flags: u64,
    ) -> Result<(), i32> {
        if flags & !(FI_SEND | FI_RECV | REMOTE_MEMORY) != 0 {
            return Err(FI_EBADFLAGS);
        }
        self.with_own(domain, |state| {
            let endpoint = state.endpoints.get_mut(self.key).ok_or(FI_EINVAL)?;
            if flags & FI_SEND != 0 {
                endpoint.transmit.counter = Some(counter);
            }
            if flags & FI_RECV != 0 {
                endpoint.receive.counter = Some(counter);
            }
            note(&mut state.counters.get_mut(counter).ok_or(FI_EINVAL)?.endpoints, self.key);
            Ok(())
        })
    }

    /// The state, if the other object belongs to the endpoint's domain and the endpoint is not
    /// enabled.
    fn with_own(
        &self,
        domain: &Arc<state::DomainShared>,
        then: impl FnOnce(&mut state::State) -> Result<(), i32>,
    ) -> Result<(), i32> {
        if !Arc::ptr_eq(domain, &self.domain) {
            return Err(FI_EDOMAIN);
        }
        let mut state = self.domain.state();
        if state.endpoints.get(self.key).is_none_or(|endpoint| endpoint.is_enabled) {
            return Err(FI_EOPBADSTATE);
        }
        then(&mut state)
    }

    fn enable(&self) -> Result<(), i32> {
        let mut state = self.domain.state();
        let endpoint = state.endpoints.get_mut(self.key).ok_or(FI_EINVAL)?;
        if endpoint.vector.is_none() {
            return Err(FI_ENOAV);
        }
        for side in [&endpoint.transmit, &endpoint.receive] {
            if side.queue.is_none() && side.counter.is_none() {
                return Err(FI_ENOCQ);
            }
        }
        endpoint.is_enabled = true;
        Ok(())
    }

    /// Sends; if there is no room, retries once after processing completions.
    pub fn send(&self, send: &Send) -> isize {
        self.post(|endpoint, vector| endpoint.send(send, vector))
    }

    /// Sends without a completion.
    pub fn inject(&self, send: &Send) -> isize {
        let mut is_complete = false;
        let status = self.post(|endpoint, vector| {
            is_complete = endpoint.inject(send, vector)?;
            Ok(())
        });
        if is_complete {
            self.domain.state().deliver(self.key, Report::of_injected(false));
        }
        status
    }

    /// Receives, or looks for, claims or discards a message.
    pub fn receive(&self, receive: &Receive) -> isize {
        self.post(|endpoint, vector| endpoint.receive(receive, vector))
    }

    fn post(
        &self,
        mut operation: impl FnMut(&mut EndpointState, Option<&state::vector::Vector>) -> Result<(), i32>,
    ) -> isize {
        let mut state = self.domain.state();
        for is_last in [false, true] {
            let state = &mut *state;
            let Some(endpoint) = state.endpoints.get_mut(self.key) else { break };
            let vector = endpoint.vector.and_then(|vector| state.vectors.get(vector));
            match operation(endpoint, vector) {
                Ok(()) => return 0,
                Err(FI_EAGAIN) if !is_last => state.progress(self.key),
                Err(error) => return -(error as isize),
            }
        }
        -(FI_EINVAL as isize)
    }
}

/// Adds a key to a list that does not have it.
fn note(keys: &mut Vec<usize>, key: usize) {
    if !keys.contains(&key) {
        keys.push(key);
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: i32, argument: *mut c_void) -> i32 {
    // SAFETY: the program passes an open endpoint, and a place for flags with the commands for them.
    unsafe {
        let endpoint = Endpoint::of_fid(fid);
        match command {
            FI_ENABLE => endpoint.enable().map_or_else(|error| -error, |()| 0),
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let flags = argument.cast::<u64>();
                let mut state = endpoint.domain.state();
                let Some(of) = state.endpoints.get_mut(endpoint.key) else { return -FI_EINVAL };
                let side = match *flags & (FI_SEND | FI_RECV) {
                    FI_SEND => &mut of.transmit,
                    FI_RECV => &mut of.receive,
                    _ => return -FI_EINVAL,
                };
                if command == FI_GETOPSFLAG {
                    *flags = side.op_flags;
                } else {
                    side.op_flags = *flags & !(FI_SEND | FI_RECV);
                }
                0
            }
            _ => -FI_ENOSYS,
        }
    }
}

unsafe extern "C" fn getname(fid: *mut Fid, buffer: *mut c_void, len: *mut usize) -> i32 {
    // SAFETY: the program passes an open endpoint and a buffer of `len` bytes.
    unsafe {
        let endpoint = Endpoint::of_fid(fid);
        let state = endpoint.domain.state();
        let Some(of) = state.endpoints.get(endpoint.key) else { return -FI_EINVAL };
        copy_address(of.transport.address(), buffer, len)
    }
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: the program passes an open endpoint.
    let endpoint = unsafe { Endpoint::of_fid(fid) };
    let mut state = endpoint.domain.state();
    let Some(of) = state.endpoints.get_mut(endpoint.key) else { return -(FI_EINVAL as isize) };
    match of.cancel(context as usize) {
        Ok(report) => {
            if let Some(report) = report {
                state.deliver(endpoint.key, report);
            }
            0
        }
        Err(error) => -(error as isize),
    }
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: i32,
    name: i32,
    value: *mut c_void,
    len: *mut usize,
) -> i32 {
    if level != FI_OPT_ENDPOINT {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: the program passes an open endpoint and a value of `len` bytes.
    unsafe {
        let endpoint = Endpoint::of_fid(fid);
        let state = endpoint.domain.state();
        let Some(of) = state.endpoints.get(endpoint.key) else { return -FI_EINVAL };
        let answer = match name {
            FI_OPT_MIN_MULTI_RECV => of.buffers.room_min,
            FI_OPT_CM_DATA_SIZE => 0,
            _ => return -FI_ENOPROTOOPT,
        };
        if *len < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        *value.cast::<usize>() = answer;
        *len = size_of::<usize>();
    }
    0
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: i32,
    name: i32,
    value: *const c_void,
    len: usize,
) -> i32 {
    if level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV {
        return -FI_ENOPROTOOPT;
    }
    if len != size_of::<usize>() {
        return -FI_EINVAL;
    }
    // SAFETY: the program passes an open endpoint and a value of `len` bytes.
    unsafe {
        let endpoint = Endpoint::of_fid(fid);
        let mut state = endpoint.domain.state();
        let Some(of) = state.endpoints.get_mut(endpoint.key) else { return -FI_EINVAL };
        of.buffers.room_min = *value.cast::<usize>();
    }
    0
}
