//! `struct fid_eq`: an event queue. Its events are insertions into asynchronous address vectors and
//! those written by programs.

use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::fabric::Fabric;
use super::source::Source;
use super::waiting::{Members, WaitSet};
use super::{Object, fid, fid_ops, is_unused, no_bind, words};
use crate::abi::constants::*;
use crate::abi::entries::{EqEntry, EqErrEntry};
use crate::abi::info::EqAttr;
use crate::abi::objects::{EqOps, Fid, FidEq, FidFabric, FidOps};

/// Maximum events in a queue.
const EVENTS_MAX: usize = 4096;

/// An event as the program reads it.
enum Event {
    /// By its number, in C's layout.
    Entry { number: u32, bytes: Vec<u8> },
    /// An address that could not be added, by its index in its call. Read only by `fi_eq_readerr`.
    BadAddress { fid: usize, context: usize, place: u64 },
}

/// Where a program wants an event.
struct EventPlace {
    /// For its number.
    number: *mut u32,
    /// For the event itself, of `len` bytes at most.
    buffer: *mut c_void,
    len: usize,
}

/// How long a call waits for an event.
#[derive(Clone, Copy)]
enum Patience {
    None,
    Until(Instant),
    Endless,
}

/// The events of a queue, shared with what reports to it.
pub struct Events {
    waiting: Mutex<VecDeque<Event>>,
    arrival: Condvar,
    /// Readable while events wait (FI_WAIT_FD).
    descriptor: Option<OwnedFd>,
}

impl Events {
    fn push(&self, event: Event) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= EVENTS_MAX {
            return false;
        }
        waiting.push_back(event);
        if waiting.len() == 1
            && let Some(descriptor) = &self.descriptor
        {
            // SAFETY: an eventfd of ours.
            unsafe { libc::eventfd_write(descriptor.as_raw_fd(), 1) };
        }
        self.arrival.notify_all();
        true
    }

    /// Reports the addresses of one call: `count` were added to the vector at `fid`, and those at
    /// the indices `bad` could not be. Errors come first.
    pub fn insertion(&self, fid: usize, context: usize, count: u64, bad: &[u64]) {
        let mut is_noted = true;
        for &place in bad {
            is_noted &= self.push(Event::BadAddress { fid, context, place });
        }
        let entry =
            EqEntry { fid: fid as *mut c_void, context: context as *mut c_void, data: count };
        let mut bytes = vec![0; size_of::<EqEntry>()];
        // SAFETY: both have the entry's size.
        unsafe {
            ptr::copy_nonoverlapping((&raw const entry).cast(), bytes.as_mut_ptr(), bytes.len());
        }
        is_noted &= self.push(Event::Entry { number: FI_AV_COMPLETE, bytes });
        if !is_noted {
            crate::report::line(crate::report::Level::Warn, || {
                "an event queue is full, so an insertion is not reported; read the queue".into()
            });
        }
    }

    /// Removes the first event, which the program has read.
    fn pop(&self, waiting: &mut VecDeque<Event>) {
        waiting.pop_front();
        if waiting.is_empty()
            && let Some(descriptor) = &self.descriptor
        {
            let mut count = 0;
            // SAFETY: an eventfd of ours.
            unsafe { libc::eventfd_read(descriptor.as_raw_fd(), &mut count) };
        }
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Moves the next event to the program.
    ///
    /// # Safety
    /// The place is writable.
    unsafe fn take(&self, to: EventPlace, flags: u64, patience: Patience) -> isize {
        let EventPlace { number, buffer, len } = to;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.is_empty() {
            let left = match patience {
                Patience::None => Duration::ZERO,
                Patience::Until(deadline) => deadline.saturating_duration_since(Instant::now()),
                Patience::Endless => Duration::MAX,
            };
            if left == Duration::ZERO {
                return -(FI_EAGAIN as isize);
            }
            let woken = self.arrival.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(event) = waiting.front() else { return -(FI_EAGAIN as isize) };
        let Event::Entry { number: event, bytes } = event else { return -(FI_EAVAIL as isize) };
        let size = bytes.len();
        if len < size {
            return -(FI_ETOOSMALL as isize);
        }
        // SAFETY: the caller's promise.
        unsafe {
            *number = *event;
            ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), size);
        }
        if flags & FI_PEEK == 0 {
            self.pop(&mut waiting);
        }
        size as isize
    }
}

/// An open event queue.
#[repr(C)]
pub struct EventQueue {
    head: FidEq,
    pub events: Arc<Events>,
    wait_obj: i32,
    may_write: bool,
    /// Whether error entries have a field for more details.
    has_error_data: bool,
    set: Option<Arc<Members>>,
    _fabric: Arc<()>,
}

// SAFETY: as the layout above says.
unsafe impl Object for EventQueue {
    type Head = FidEq;
}

impl EventQueue {
    /// The queue as a source to wait for.
    pub fn source(&self) -> Source {
        Source::Events(Arc::downgrade(&self.events))
    }
}

static FID_OPS: FidOps = fid_ops(close, no_bind, control);
static OPS: EqOps = EqOps { size: size_of::<EqOps>(), read, readerr, write, sread, strerror };

/// Opens an event queue: `fi_eq_open`.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    attr: *mut EqAttr,
    queue: *mut *mut FidEq,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the program passes an open fabric and attributes.
    let (fabric, attr) = unsafe { (Fabric::of(fabric), *attr) };
    let (mut descriptor, mut set) = (None, None);
    match attr.wait_obj {
        FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => {}
        FI_WAIT_FD => {
            // SAFETY: no argument is a pointer; the descriptor is new and ours.
            descriptor = unsafe {
                match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                    -1 => return -FI_ENOMEM,
                    new => Some(OwnedFd::from_raw_fd(new)),
                }
            };
        }
        FI_WAIT_SET => {
            // SAFETY: the program passes an open wait set with this kind of waiting.
            set = unsafe { WaitSet::members_of(attr.wait_set) };
            if set.is_none() {
                return -FI_EINVAL;
            }
        }
        _ => return -FI_ENOSYS,
    }
    let events =
        Arc::new(Events { waiting: Mutex::default(), arrival: Condvar::new(), descriptor });
    if let Some(set) = &set {
        set.add(Source::Events(Arc::downgrade(&events)));
    }
    let object = EventQueue {
        head: FidEq { fid: fid(FI_CLASS_EQ, context, &FID_OPS), ops: &OPS },
        events,
        wait_obj: attr.wait_obj,
        may_write: attr.flags & FI_WRITE_EVENTS != 0,
        has_error_data: fabric.api_version() >= version(1, 5),
        set,
        _fabric: fabric.token.clone(),
    };
    // SAFETY: the program passes a place for the result.
    unsafe { object.hand_over(queue) }
}

/// `FI_WRITE`: the program writes events itself.
const FI_WRITE_EVENTS: u64 = 1 << 9;

unsafe extern "C" fn close(fid: *mut Fid) -> i32 {
    // SAFETY: the program closes an open queue.
    unsafe {
        let queue = EventQueue::of_fid(fid);
        if !is_unused(&queue.events) {
            return -FI_EBUSY;
        }
        if let Some(set) = &queue.set {
            set.remove(&queue.source());
        }
        EventQueue::end(fid)
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: i32, argument: *mut c_void) -> i32 {
    // SAFETY: the program passes an open queue, and a place for an answer.
    unsafe {
        let queue = EventQueue::of_fid(fid);
        match (command, &queue.events.descriptor) {
            (FI_GETWAITOBJ, _) => *argument.cast::<i32>() = queue.wait_obj,
            (FI_GETWAIT, Some(descriptor)) => *argument.cast::<i32>() = descriptor.as_raw_fd(),
            _ => return -FI_ENOSYS,
        }
    }
    0
}

unsafe extern "C" fn read(
    queue: *mut FidEq,
    number: *mut u32,
    buffer: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: the program passes an open queue and places for the event.
    unsafe {
        let place = EventPlace { number, buffer, len };
        EventQueue::of(queue).events.take(place, flags, Patience::None)
    }
}

unsafe extern "C" fn sread(
    queue: *mut FidEq,
    number: *mut u32,
    buffer: *mut c_void,
    len: usize,
    timeout: i32,
    flags: u64,
) -> isize {
    let patience = match u64::try_from(timeout) {
        Ok(timeout) => Patience::Until(Instant::now() + Duration::from_millis(timeout)),
        Err(_) => Patience::Endless,
    };
    // SAFETY: the program passes an open queue and places for the event.
    unsafe {
        let queue = EventQueue::of(queue);
        if queue.wait_obj == FI_WAIT_NONE {
            return -(FI_EINVAL as isize);
        }
        queue.events.take(EventPlace { number, buffer, len }, flags, patience)
    }
}

unsafe extern "C" fn readerr(queue: *mut FidEq, place: *mut EqErrEntry, flags: u64) -> isize {
    // SAFETY: the program passes an open queue.
    let queue = unsafe { EventQueue::of(queue) };
    let mut waiting = queue.events.waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(&Event::BadAddress { fid, context, place: data }) = waiting.front() else {
        return -(FI_EAGAIN as isize);
    };
    // SAFETY: the program passes a place for an error entry of its version.
    unsafe {
        (*place).fid = fid as *mut c_void;
        (*place).context = context as *mut c_void;
        (*place).data = data;
        (*place).err = FI_EINVAL;
        (*place).prov_errno = FI_EINVAL;
        if queue.has_error_data {
            (*place).err_data_size = 0;
        }
    }
    if flags & FI_PEEK == 0 {
        queue.events.pop(&mut waiting);
    }
    size_of::<EqErrEntry>() as isize
}

unsafe extern "C" fn write(
    queue: *mut FidEq,
    number: u32,
    buffer: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    // SAFETY: the program passes an open queue and an event of `len` bytes.
    unsafe {
        let queue = EventQueue::of(queue);
        if !queue.may_write {
            return -(FI_EINVAL as isize);
        }
        let bytes = if len == 0 {
            Vec::new()
        } else {
            std::slice::from_raw_parts(buffer.cast::<u8>(), len).to_vec()
        };
        if queue.events.push(Event::Entry { number, bytes }) {
            len as isize
        } else {
            -(FI_EAGAIN as isize)
        }
    }
}

unsafe extern "C" fn strerror(
    _: *mut FidEq,
    errno: i32,
    _: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the program passes a buffer of `len` bytes, or none.
    unsafe { words(errno, buffer, len) }
}
