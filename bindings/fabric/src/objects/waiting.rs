//! `struct fid_wait`: a set of queues and counters to wait for together; and `fi_trywait`.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::counter::EventCounter;
use super::events::EventQueue;
use super::fabric::Fabric;
use super::queue::CompletionQueue;
use super::source::{self, Source};
use super::{Object, fid, fid_ops, is_unused, no_bind, no_control};
use crate::abi::constants::*;
use crate::abi::info::WaitAttr;
use crate::abi::objects::{Fid, FidFabric, FidOps, FidWait, WaitOps};

/// The sources of a set; held by each member.
#[derive(Default)]
pub struct Members(Mutex<Vec<Source>>);

impl Members {
    /// Adds a queue or counter that was opened with the set.
    pub fn add(&self, source: Source) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(source);
    }

    /// Removes one that is being closed.
    pub fn remove(&self, source: &Source) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|member| member != source);
    }

    fn all(&self) -> Vec<Source> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An open wait set.
#[repr(C)]
pub struct WaitSet {
    head: FidWait,
    members: Arc<Members>,
    _fabric: Arc<()>,
}

// SAFETY: as the layout above says.
unsafe impl Object for WaitSet {
    type Head = FidWait;
}

impl WaitSet {
    /// The members of the set in an attribute; `None` without a set.
    ///
    /// # Safety
    /// `set` is null or an open wait set.
    pub unsafe fn members_of(set: *mut c_void) -> Option<Arc<Members>> {
        if set.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { Self::of(set.cast()) }.members.clone())
    }
}

static FID_OPS: FidOps = fid_ops(close, no_bind, no_control);
static OPS: WaitOps = WaitOps { size: size_of::<WaitOps>(), wait };

/// Opens a wait set: `fi_wait_open`.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    attr: *mut WaitAttr,
    set: *mut *mut FidWait,
) -> i32 {
    // SAFETY: the program passes an open fabric, and attributes or none.
    let (fabric, attr) = unsafe { (Fabric::of(fabric), attr.as_ref().copied()) };
    if !matches!(attr.map_or(FI_WAIT_UNSPEC, |attr| attr.wait_obj), FI_WAIT_UNSPEC | FI_WAIT_YIELD)
    {
        return -FI_ENOSYS;
    }
    let object = WaitSet {
        head: FidWait { fid: fid(FI_CLASS_WAIT, std::ptr::null_mut(), &FID_OPS), ops: &OPS },
        members: Arc::default(),
        _fabric: fabric.token.clone(),
    };
    // SAFETY: the program passes a place for the result.
    unsafe { object.hand_over(set) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open set.
    unsafe {
        if !is_unused(&WaitSet::of_fid(fid).members) {
            return -FI_EBUSY;
        }
        WaitSet::end(fid)
    }
}

unsafe extern "C" fn wait(set: *mut FidWait, timeout: i32) -> i32 {
    // SAFETY: the program passes an open set.
    let members = unsafe { WaitSet::of(set) }.members.all();
    let ready = || members.iter().any(Source::has_news).then_some(0);
    source::wait(&members, timeout, ready).unwrap_or(-FI_ETIMEDOUT)
}

/// Whether a program may sleep until one of its objects has an event: returns 0, or -FI_EAGAIN if
/// one has.
pub unsafe extern "C" fn trywait(_: *mut FidFabric, fids: *mut *mut Fid, count: i32) -> i32 {
    for place in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the program passes `count` open objects.
        let news = unsafe {
            let fid = *fids.add(place);
            match source_of(fid) {
                Some(source) => source.has_news(),
                None if (*fid).class == FI_CLASS_WAIT => {
                    WaitSet::of_fid(fid).members.all().iter().any(Source::has_news)
                }
                None => return -FI_EINVAL,
            }
        };
        if news {
            return -FI_EAGAIN;
        }
    }
    0
}

/// A queue, counter or event queue as a source to wait for; `None` for other objects.
///
/// # Safety
/// `fid` is an open object.
pub unsafe fn source_of(fid: *mut Fid) -> Option<Source> {
    // SAFETY: the class tells the type.
    unsafe {
        match (*fid).class {
            FI_CLASS_CQ => Some(CompletionQueue::of_fid(fid).source()),
            FI_CLASS_CNTR => Some(EventCounter::of_fid(fid).source()),
            FI_CLASS_EQ => Some(EventQueue::of_fid(fid).source()),
            _ => None,
        }
    }
}
