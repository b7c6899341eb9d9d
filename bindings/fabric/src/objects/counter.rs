//! `struct fid_cntr`: an event counter.

use std::ffi::c_void;
use std::sync::Arc;

use super::domain::Domain;
use super::source::{self, Source};
use super::waiting::{Members, WaitSet};
use super::{Object, fid, fid_ops, no_bind};
use crate::abi::constants::*;
use crate::abi::info::CntrAttr;
use crate::abi::objects::{CntrOps, Fid, FidCntr, FidDomain, FidOps};
use crate::state;

/// An open counter.
#[repr(C)]
pub struct EventCounter {
    head: FidCntr,
    pub domain: Arc<state::DomainShared>,
    /// Its key in the domain.
    pub key: usize,
    wait_obj: i32,
    set: Option<Arc<Members>>,
}

// SAFETY: as the layout above says.
unsafe impl Object for EventCounter {
    type Head = FidCntr;
}

static FID_OPS: FidOps = fid_ops(close, no_bind, control);
static OPS: CntrOps =
    CntrOps { size: size_of::<CntrOps>(), read, readerr, add, set, wait, adderr, seterr };

/// Opens a counter: `fi_cntr_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CntrAttr,
    counter: *mut *mut FidCntr,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the program passes an open domain, and attributes or none.
    let (domain, attr) = unsafe { (Domain::of(domain), attr.as_ref().copied()) };
    let wait_obj = attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj);
    let members = match (wait_obj, attr) {
        (FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD, _) => None,
        // SAFETY: the program passes an open wait set with this kind of waiting.
        (FI_WAIT_SET, Some(attr)) => match unsafe { WaitSet::members_of(attr.wait_set) } {
            Some(members) => Some(members),
            None => return -FI_EINVAL,
        },
        _ => return -FI_ENOSYS,
    };
    let key = domain.shared.state().counters.insert(state::counter::Counter::default());
    if let Some(members) = &members {
        members.add(Source::Counter(Arc::downgrade(&domain.shared), key));
    }
    let object = EventCounter {
        head: FidCntr { fid: fid(FI_CLASS_CNTR, context, &FID_OPS), ops: &OPS },
        domain: domain.shared.clone(),
        key,
        wait_obj,
        set: members,
    };
    // SAFETY: the program passes a place for the result.
    unsafe { object.hand_over(counter) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open counter.
    unsafe {
        let counter = EventCounter::of_fid(fid);
        let mut state = counter.domain.state();
        if state.counters.get(counter.key).is_some_and(|of| !of.endpoints.is_empty()) {
            return -FI_EBUSY;
        }
        state.counters.try_remove(counter.key);
        drop(state);
        if let Some(set) = &counter.set {
            set.remove(&counter.source());
        }
        EventCounter::end(fid)
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: i32, argument: *mut c_void) -> i32 {
    // SAFETY: the program passes an open counter, and a place for an answer.
    unsafe {
        match command {
            FI_GETWAITOBJ => {
                *argument.cast::<i32>() = EventCounter::of_fid(fid).wait_obj;
                0
            }
            _ => -FI_ENOSYS,
        }
    }
}

impl EventCounter {
    /// The counter as a source to wait for.
    pub fn source(&self) -> Source {
        Source::Counter(Arc::downgrade(&self.domain), self.key)
    }

    /// Both counts, including operations completed by now.
    fn counts(&self) -> (u64, u64) {
        let mut state = self.domain.state();
        state.progress_counter(self.key);
        state.counters.get(self.key).map_or((0, 0), |of| (of.successes, of.failures))
    }

    fn change(&self, change: impl FnOnce(&mut state::counter::Counter)) -> i32 {
        match self.domain.state().counters.get_mut(self.key) {
            Some(counter) => {
                change(counter);
                0
            }
            None => -FI_EINVAL,
        }
    }
}

unsafe extern "C" fn read(counter: *mut FidCntr) -> u64 {
    // SAFETY: the program passes an open counter.
    unsafe { EventCounter::of(counter) }.counts().0
}

unsafe extern "C" fn readerr(counter: *mut FidCntr) -> u64 {
    // SAFETY: as for `read`.
    unsafe { EventCounter::of(counter) }.counts().1
}

unsafe extern "C" fn add(counter: *mut FidCntr, value: u64) -> i32 {
    // SAFETY: as for `read`.
    let counter = unsafe { EventCounter::of(counter) };
    counter.change(|of| of.successes = of.successes.wrapping_add(value))
}

unsafe extern "C" fn set(counter: *mut FidCntr, value: u64) -> i32 {
    // SAFETY: as for `read`.
    unsafe { EventCounter::of(counter) }.change(|of| of.successes = value)
}

unsafe extern "C" fn adderr(counter: *mut FidCntr, value: u64) -> i32 {
    // SAFETY: as for `read`.
    let counter = unsafe { EventCounter::of(counter) };
    counter.change(|of| of.failures = of.failures.wrapping_add(value))
}

unsafe extern "C" fn seterr(counter: *mut FidCntr, value: u64) -> i32 {
    // SAFETY: as for `read`.
    unsafe { EventCounter::of(counter) }.change(|of| of.failures = value)
}

/// Waits until the counter has reached `threshold`: returns 0; -FI_EAVAIL if an operation failed
/// meanwhile, -FI_ETIMEDOUT after `timeout` milliseconds.
unsafe extern "C" fn wait(counter: *mut FidCntr, threshold: u64, timeout: i32) -> i32 {
    // SAFETY: as for `read`.
    let counter = unsafe { EventCounter::of(counter) };
    let (_, failures) = counter.counts();
    let ready = || {
        let (successes, now_failed) = counter.counts();
        if successes >= threshold {
            return Some(0);
        }
        (now_failed != failures).then_some(-FI_EAVAIL)
    };
    source::wait(&[counter.source()], timeout, ready).unwrap_or(-FI_ETIMEDOUT)
}
