//! `struct fid_cq`: a completion queue.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use super::domain::Domain;
use super::source::{self, Source};
use super::waiting::WaitSet;
use super::{Object, fid, fid_ops, no_bind, words};
use crate::abi::FiAddr;
use crate::abi::constants::*;
use crate::abi::entries::{CqEntry, CqErrEntry};
use crate::abi::info::CqAttr;
use crate::abi::objects::{CqOps, Fid, FidCq, FidDomain, FidOps};
use crate::state;
use crate::state::queue::{Entry, Queue};

/// An open queue.
#[repr(C)]
pub struct CompletionQueue {
    head: FidCq,
    pub domain: Arc<state::DomainShared>,
    /// Its key in the domain.
    pub key: usize,
    /// Bytes of an entry.
    entry_bytes: usize,
    /// Whether error entries have a field for more details.
    has_error_data: bool,
    wait_obj: i32,
    set: Option<Arc<super::waiting::Members>>,
}

// SAFETY: as the layout above says.
unsafe impl Object for CompletionQueue {
    type Head = FidCq;
}

static FID_OPS: FidOps = fid_ops(close, no_bind, control);
static OPS: CqOps =
    CqOps { size: size_of::<CqOps>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

/// Bytes of an entry of a format; the shorter ones are prefixes of the longest.
fn entry_bytes(format: i32) -> Option<usize> {
    match format {
        FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Some(std::mem::offset_of!(CqEntry, flags)),
        FI_CQ_FORMAT_MSG => Some(std::mem::offset_of!(CqEntry, buf)),
        FI_CQ_FORMAT_DATA => Some(std::mem::offset_of!(CqEntry, tag)),
        FI_CQ_FORMAT_TAGGED => Some(size_of::<CqEntry>()),
        _ => None,
    }
}

/// Opens a queue: `fi_cq_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the program passes an open domain and attributes.
    let (domain, attr) = unsafe { (Domain::of(domain), *attr) };
    let Some(entry_bytes) = entry_bytes(attr.format) else { return -FI_EINVAL };
    let set = match attr.wait_obj {
        FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => None,
        // SAFETY: the program passes an open wait set with this kind of waiting.
        FI_WAIT_SET => match unsafe { WaitSet::members_of(attr.wait_set) } {
            Some(members) => Some(members),
            None => return -FI_EINVAL,
        },
        _ => return -FI_ENOSYS,
    };
    let key = domain.shared.state().queues.insert(Queue::default());
    if let Some(set) = &set {
        set.add(Source::Queue(Arc::downgrade(&domain.shared), key));
    }
    let object = CompletionQueue {
        head: FidCq { fid: fid(FI_CLASS_CQ, context, &FID_OPS), ops: &OPS },
        domain: domain.shared.clone(),
        key,
        entry_bytes,
        has_error_data: domain.api_version >= version(1, 5),
        wait_obj: attr.wait_obj,
        set,
    };
    // SAFETY: the program passes a place for the result.
    unsafe { object.hand_over(cq) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open queue.
    unsafe {
        let queue = CompletionQueue::of_fid(fid);
        let mut state = queue.domain.state();
        if state.queues.get(queue.key).is_some_and(|of| !of.endpoints.is_empty()) {
            return -FI_EBUSY;
        }
        state.queues.try_remove(queue.key);
        drop(state);
        if let Some(set) = &queue.set {
            set.remove(&queue.source());
        }
        CompletionQueue::end(fid)
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: i32, argument: *mut c_void) -> i32 {
    // SAFETY: the program passes an open queue, and a place for an answer.
    unsafe {
        match command {
            FI_GETWAITOBJ => {
                *argument.cast::<i32>() = CompletionQueue::of_fid(fid).wait_obj;
                0
            }
            _ => -FI_ENOSYS,
        }
    }
}

impl CompletionQueue {
    /// The queue as a source to wait for.
    pub fn source(&self) -> Source {
        Source::Queue(Arc::downgrade(&self.domain), self.key)
    }

    /// Moves up to `count` entries to the program: returns their number, -FI_EAVAIL before an
    /// error, or -FI_EAGAIN.
    ///
    /// # Safety
    /// `buffer` has room for `count` entries, `sources`, unless null, for as many addresses.
    unsafe fn take(&self, buffer: *mut c_void, count: usize, sources: *mut FiAddr) -> isize {
        let mut state = self.domain.state();
        state.progress_queue(self.key);
        let Some(queue) = state.queues.get_mut(self.key) else { return -(FI_EINVAL as isize) };
        let mut taken = 0;
        while taken < count {
            let Some(entry) = queue.take() else { break };
            // SAFETY: the caller's promise.
            unsafe {
                let raw = raw(&entry);
                let place = buffer.cast::<u8>().add(taken * self.entry_bytes);
                ptr::copy_nonoverlapping((&raw const raw).cast(), place, self.entry_bytes);
                if !sources.is_null() {
                    *sources.add(taken) = entry.source;
                }
            }
            taken += 1;
        }
        if taken > 0 || (count == 0 && !queue.is_empty()) {
            taken as isize
        } else if queue.has_error_next() {
            -(FI_EAVAIL as isize)
        } else {
            drop(state);
            // A program that polls would otherwise keep the CPU from an engine that shares it.
            self.domain.session.give_way();
            -(FI_EAGAIN as isize)
        }
    }

    /// As [`Self::take`], but waits for an entry up to `timeout` milliseconds, without limit if
    /// negative.
    ///
    /// # Safety
    /// As there.
    unsafe fn wait(
        &self,
        buffer: *mut c_void,
        count: usize,
        sources: *mut FiAddr,
        timeout: i32,
    ) -> isize {
        if self.wait_obj == FI_WAIT_NONE || self.wait_obj == FI_WAIT_SET {
            return -(FI_EINVAL as isize);
        }
        let again = -(FI_EAGAIN as isize);
        let ready = || {
            // SAFETY: the caller's promise.
            let taken = unsafe { self.take(buffer, count, sources) };
            let mut state = self.domain.state();
            let is_signaled = state
                .queues
                .get_mut(self.key)
                .is_some_and(|queue| std::mem::take(&mut queue.is_signaled));
            (taken != again || is_signaled).then_some(taken)
        };
        source::wait(&[self.source()], timeout, ready).unwrap_or(again)
    }
}

/// An entry in C's layout.
fn raw(entry: &Entry) -> CqEntry {
    CqEntry {
        op_context: entry.context as *mut c_void,
        flags: entry.flags,
        len: entry.len,
        buf: entry.buffer as *mut c_void,
        data: entry.data,
        tag: entry.tag,
    }
}

unsafe extern "C" fn read(cq: *mut FidCq, buffer: *mut c_void, count: usize) -> isize {
    // SAFETY: the program passes an open queue and room for `count` entries.
    unsafe { CompletionQueue::of(cq).take(buffer, count, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut FidCq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut FiAddr,
) -> isize {
    // SAFETY: as for `read`, with room for as many addresses.
    unsafe { CompletionQueue::of(cq).take(buffer, count, sources) }
}

unsafe extern "C" fn sread(
    cq: *mut FidCq,
    buffer: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout: i32,
) -> isize {
    // SAFETY: as for `read`.
    unsafe { CompletionQueue::of(cq).wait(buffer, count, ptr::null_mut(), timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut FidCq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut FiAddr,
    _condition: *const c_void,
    timeout: i32,
) -> isize {
    // SAFETY: as for `readfrom`.
    unsafe { CompletionQueue::of(cq).wait(buffer, count, sources, timeout) }
}

unsafe extern "C" fn readerr(cq: *mut FidCq, place: *mut CqErrEntry, _flags: u64) -> isize {
    // SAFETY: the program passes an open queue.
    let queue = unsafe { CompletionQueue::of(cq) };
    let mut state = queue.domain.state();
    state.progress_queue(queue.key);
    let Some(entry) = state.queues.get_mut(queue.key).and_then(Queue::take_error) else {
        return -(FI_EAGAIN as isize);
    };
    let Some(error) = entry.error else { return -(FI_EAGAIN as isize) };
    // SAFETY: the program passes a place for an error entry of its version; what the entry has
    // to say about the error is said by its numbers.
    unsafe {
        let CqEntry { op_context, flags, len, buf, data, tag } = raw(&entry);
        (*place).op_context = op_context;
        (*place).flags = flags;
        (*place).len = len;
        (*place).buf = buf;
        (*place).data = data;
        (*place).tag = tag;
        (*place).olen = error.overflow;
        (*place).err = error.number;
        (*place).prov_errno = error.errno;
        if queue.has_error_data {
            (*place).err_data_size = 0;
        }
    }
    1
}

unsafe extern "C" fn signal(cq: *mut FidCq) -> i32 {
    // SAFETY: the program passes an open queue.
    let queue = unsafe { CompletionQueue::of(cq) };
    if let Some(of) = queue.domain.state().queues.get_mut(queue.key) {
        of.is_signaled = true;
    }
    0
}

unsafe extern "C" fn strerror(
    _: *mut FidCq,
    errno: i32,
    _: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the program passes a buffer of `len` bytes, or none.
    unsafe { words(errno, buffer, len) }
}
