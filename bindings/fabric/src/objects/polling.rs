//! `struct fid_poll`: a set of queues and counters, of which those with events are returned.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::domain::Domain;
use super::source::Source;
use super::waiting::source_of;
use super::{Object, fid, fid_ops, no_bind, no_control};
use crate::abi::constants::*;
use crate::abi::objects::{Fid, FidDomain, FidOps, FidPoll, PollOps};
use crate::state;

/// An open poll set.
#[repr(C)]
pub struct PollSet {
    head: FidPoll,
    /// Each with the program's context for it.
    members: Mutex<Vec<(Source, usize)>>,
    _domain: Arc<state::DomainShared>,
}

// SAFETY: as the layout above says.
unsafe impl Object for PollSet {
    type Head = FidPoll;
}

static FID_OPS: FidOps = fid_ops(close, no_bind, no_control);
static OPS: PollOps = PollOps { size: size_of::<PollOps>(), poll, poll_add, poll_del };

/// Opens a poll set: `fi_poll_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    _attr: *mut c_void,
    set: *mut *mut FidPoll,
) -> i32 {
    // SAFETY: the program passes an open domain.
    let domain = unsafe { Domain::of(domain) };
    let object = PollSet {
        head: FidPoll { fid: fid(FI_CLASS_POLL, std::ptr::null_mut(), &FID_OPS), ops: &OPS },
        members: Mutex::default(),
        _domain: domain.shared.clone(),
    };
    // SAFETY: the program passes a place for the result.
    unsafe { object.hand_over(set) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open set.
    unsafe { PollSet::end(fid) }
}

unsafe extern "C" fn poll(set: *mut FidPoll, contexts: *mut *mut c_void, count: i32) -> i32 {
    // SAFETY: the program passes an open set.
    let set = unsafe { PollSet::of(set) };
    let room = usize::try_from(count).unwrap_or(0);
    let members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = 0;
    for (source, context) in members.iter() {
        if found == room {
            break;
        }
        if source.has_news() {
            // SAFETY: the program passes room for `count` contexts.
            unsafe { *contexts.add(found) = *context as *mut c_void };
            found += 1;
        }
    }
    found as i32
}

unsafe extern "C" fn poll_add(set: *mut FidPoll, member: *mut Fid, _flags: u64) -> i32 {
    // SAFETY: the program passes an open set and an open object.
    unsafe {
        let Some(source) = source_of(member) else { return -FI_EINVAL };
        let mut members = PollSet::of(set).members.lock().unwrap_or_else(PoisonError::into_inner);
        members.push((source, (*member).context as usize));
    }
    0
}

unsafe extern "C" fn poll_del(set: *mut FidPoll, member: *mut Fid, _flags: u64) -> i32 {
    // SAFETY: the program passes an open set and an open object.
    unsafe {
        let Some(source) = source_of(member) else { return -FI_EINVAL };
        let mut members = PollSet::of(set).members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|(member, _)| *member != source);
    }
    0
}
