//! poll, select and epoll.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use client::sockets::{EpollEvent, Errno, PollFd, SigMask, Sockets, Verdict};
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::boundary::{answer, answer_point, serve, serve_point};
use crate::{memory, real};

/// A timeout in milliseconds; negative means no limit.
fn from_ms(ms: c_int) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// A timeout, if there is one.
pub fn from_timespec(time: *const timespec) -> Result<Option<Duration>, Errno> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: any bytes are a time.
    let time = unsafe { memory::load(time) }?;
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::INVAL)?;
    let nanos = u32::try_from(time.tv_nsec).map_err(|_| Errno::INVAL)?;
    if nanos >= 1_000_000_000 {
        return Err(Errno::INVAL);
    }
    Ok(Some(Duration::new(seconds, nanos)))
}

/// A mask, if there is one.
pub(super) fn mask_of(mask: *const sigset_t) -> Option<SigMask> {
    (!mask.is_null()).then_some(SigMask(mask as usize))
}

/// The layer and the program's array, if it contains a tracked descriptor. For an array that cannot
/// be written, the kernel returns the right error.
///
/// # Safety
/// Nobody else uses the array meanwhile.
pub(super) unsafe fn ours<'a>(
    fds: *mut pollfd,
    count: nfds_t,
) -> Option<(&'static Sockets, &'a mut [PollFd])> {
    let sockets = crate::sockets()?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
    if !memory::is_writable(fds, count) {
        return None;
    }
    // SAFETY: PollFd has pollfd's layout, and so many can be written.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds.cast::<PollFd>(), count) };
    fds.iter().any(|entry| sockets.tracks(entry.fd)).then_some((sockets, fds))
}

/// poll(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's promise about `fds`.
    match unsafe { ours(fds, count) } {
        Some((sockets, fds)) => answer_point(sockets, || {
            sockets.poll(fds, from_ms(timeout), None).map(|ready| ready as c_int)
        }),
        // SAFETY: arguments passed through.
        None => unsafe { real::poll(fds, count, timeout) },
    }
}

/// ppoll(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    sigmask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise about `fds`.
    match unsafe { ours(fds, count) } {
        Some((sockets, fds)) => answer_point(sockets, || {
            let timeout = from_timespec(timeout)?;
            sockets.poll(fds, timeout, mask_of(sigmask)).map(|ready| ready as c_int)
        }),
        // SAFETY: arguments passed through.
        None => unsafe { real::ppoll(fds, count, timeout, sigmask) },
    }
}

/// poll(2) as compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: arguments passed through; it ends the program as it should.
        return unsafe { real::__poll_chk(fds, count, timeout, room) };
    }
    // SAFETY: arguments passed through.
    unsafe { poll(fds, count, timeout) }
}

/// ppoll(2) as compiled with _FORTIFY_SOURCE.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    sigmask: *const sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: arguments passed through; it ends the program as it should.
        return unsafe { real::__ppoll_chk(fds, count, timeout, sigmask, room) };
    }
    // SAFETY: arguments passed through.
    unsafe { ppoll(fds, count, timeout, sigmask) }
}

/// The poll events requested by each of select's three sets, and those that count as ready in it
/// (as in the kernel's fs/select.c).
const ASKS: [i16; 3] = [libc::POLLIN | libc::POLLRDNORM, libc::POLLOUT, libc::POLLPRI];
const MEANS: [i16; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLERR,
    libc::POLLPRI,
];
const WORD_BITS: usize = u64::BITS as usize;

/// The words of a set for `count` descriptors: none for a null set, EFAULT for one that cannot be
/// written.
///
/// # Safety
/// Nobody else uses the set meanwhile.
unsafe fn words<'a>(set: *mut fd_set, count: usize) -> Result<Option<&'a mut [u64]>, Errno> {
    let (at, count) = (set.cast::<u64>(), count.div_ceil(WORD_BITS));
    if set.is_null() || count == 0 {
        return Ok(None);
    }
    if !memory::is_writable(at, count) {
        return Err(Errno::FAULT);
    }
    // SAFETY: so many can be written; fd_set is made of words of this size on 64-bit Linux.
    Ok(Some(unsafe { std::slice::from_raw_parts_mut(at, count) }))
}

/// select over tracked descriptors; `None` if there is none.
///
/// # Safety
/// The sets cover `count` descriptors.
pub(super) unsafe fn select_ours(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: impl FnOnce() -> Result<Option<Duration>, Errno>,
    sigmask: Option<SigMask>,
) -> Option<c_int> {
    let sockets = crate::sockets()?;
    let count = usize::try_from(count).ok()?;
    let [readable, writable, except] = sets;
    // SAFETY: by the caller's promise. What is wrong with a set, the kernel knows.
    let mut sets = unsafe {
        [words(readable, count).ok()?, words(writable, count).ok()?, words(except, count).ok()?]
    };
    let asked = |sets: &[Option<&mut [u64]>; 3], fd: usize| {
        let mut events = 0;
        for (set, ask) in sets.iter().zip(ASKS) {
            let word = set.as_ref().and_then(|set| set.get(fd / WORD_BITS));
            if word.is_some_and(|word| word >> (fd % WORD_BITS) & 1 == 1) {
                events |= ask;
            }
        }
        events
    };
    if !(0..count).any(|fd| sockets.tracks(fd as c_int) && asked(&sets, fd) != 0) {
        return None;
    }
    Some(answer_point(sockets, || {
        let mut fds: Vec<PollFd> = (0..count)
            .map(|fd| PollFd { fd: fd as c_int, events: asked(&sets, fd), revents: 0 })
            .filter(|entry| entry.events != 0)
            .collect();
        sockets.poll(&mut fds, timeout()?, sigmask)?;
        if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(Errno::BADF);
        }
        let mut ready = 0;
        for set in sets.iter_mut().flatten() {
            set.fill(0);
        }
        for entry in &fds {
            let fd = entry.fd as usize;
            for ((set, ask), means) in sets.iter_mut().zip(ASKS).zip(MEANS) {
                let word = set.as_mut().and_then(|set| set.get_mut(fd / WORD_BITS));
                if entry.events & ask != 0
                    && entry.revents & means != 0
                    && let Some(word) = word
                {
                    *word |= 1 << (fd % WORD_BITS);
                    ready += 1;
                }
            }
        }
        Ok(ready)
    }))
}

/// select(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let began = Instant::now();
    let limit = if timeout.is_null() {
        Ok(None)
    } else {
        // SAFETY: any bytes are a time.
        unsafe { memory::load(timeout) }.map(|time| {
            let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
            Some(seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0)))
        })
    };
    // SAFETY: the program's promise about the sets.
    let ours = unsafe { select_ours(count, [readable, writable, except], || limit, None) };
    let Some(ready) = ours else {
        // SAFETY: arguments passed through.
        return unsafe { real::select(count, readable, writable, except, timeout) };
    };
    if let Ok(Some(limit)) = limit {
        let left = limit.saturating_sub(began.elapsed());
        let left = timeval {
            tv_sec: left.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(left.subsec_micros()),
        };
        // Linux writes the remaining time there, if it can.
        let _ = memory::store(timeout, left);
    }
    ready
}

/// pselect(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    sigmask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise about the sets and the timeout.
    unsafe {
        let sets = [readable, writable, except];
        select_ours(count, sets, || from_timespec(timeout), mask_of(sigmask))
    }
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe {
        real::pselect(count, readable, writable, except, timeout, sigmask)
    })
}

fn made(fd: c_int) -> c_int {
    if fd >= 0
        && let Some(sockets) = crate::sockets()
    {
        answer(|| {
            sockets.epoll_created(fd);
            Ok(0)
        });
    }
    fd
}

/// epoll_create(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: arguments passed through.
    made(unsafe { real::epoll_create(size) })
}

/// epoll_create1(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: arguments passed through.
    made(unsafe { real::epoll_create1(flags) })
}

/// epoll_ctl(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    serve(epoll, |sockets| {
        // SAFETY: EpollEvent has epoll_event's layout, and any bytes are one.
        let wanted = match unsafe { memory::load(event.cast::<EpollEvent>()) } {
            Ok(wanted) => wanted,
            Err(_) if operation == libc::EPOLL_CTL_DEL => EpollEvent::default(),
            Err(error) => return Verdict::Done(Err(error)),
        };
        sockets.epoll_ctl(epoll, operation, fd, wanted).map(|()| 0)
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::epoll_ctl(epoll, operation, fd, event) })
}

/// Events whose memory is checked before a wait: those of a page. The rest may never be used.
const EVENTS_LOOKED_AT: usize = 4096 / size_of::<EpollEvent>();

/// # Safety
/// Room for `count` events at `events`.
unsafe fn wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: impl FnOnce() -> Result<Option<Duration>, Errno>,
    sigmask: Option<SigMask>,
) -> Option<c_int> {
    serve_point(epoll, |sockets| {
        let looked_at = usize::try_from(count).unwrap_or(0).min(EVENTS_LOOKED_AT);
        if looked_at == 0 {
            return Verdict::Kernel;
        }
        if !memory::is_writable(events, looked_at) {
            return Verdict::Done(Err(Errno::FAULT));
        }
        let timeout = match timeout() {
            Ok(timeout) => timeout,
            Err(error) => return Verdict::Done(Err(error)),
        };
        // SAFETY: by the caller's promise; EpollEvent has epoll_event's layout and no invalid bits.
        let room =
            unsafe { std::slice::from_raw_parts_mut(events.cast::<EpollEvent>(), count as usize) };
        sockets.epoll_wait(epoll, room, timeout, sigmask).map(|ready| ready as c_int)
    })
}

/// epoll_wait(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program's promise about `events`.
    unsafe { wait(epoll, events, count, || Ok(from_ms(timeout)), None) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::epoll_wait(epoll, events, count, timeout) })
}

/// epoll_pwait(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    sigmask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise about `events`.
    unsafe { wait(epoll, events, count, || Ok(from_ms(timeout)), mask_of(sigmask)) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::epoll_pwait(epoll, events, count, timeout, sigmask) })
}

/// epoll_pwait2(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    sigmask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise about `events`.
    unsafe { wait(epoll, events, count, || from_timespec(timeout), mask_of(sigmask)) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::epoll_pwait2(epoll, events, count, timeout, sigmask) })
}
