//! epoll over kernel and engine descriptors.
//!
//! The set is a real kernel epoll. Kernel descriptors are added to it directly. Once the set has an
//! interest of the engine's, so are the session's wake pipes and an eventfd, with two random words
//! as data. Interests of the engine's are in a user-space list; a hint moves an interest to the
//! ready list, where it is checked when the program waits, and stays as long as it is ready and
//! level triggered. A wait costs what is ready, not what is registered.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::calls::SocketCall;
use super::link::{Attachment, Deadline, Sleeper};
use super::poll::KernelWait;
use super::socket::{Socket, held};
use super::waiter::Waiter;
use super::watches::Watch;
use super::{Entry, EpollEvent, Era, Errno, Kernel, SigMask, Sockets, Verdict};

/// Maximum time for which engine events may keep a wait from checking the kernel's.
const KERNEL_LOOK_NS: u64 = 50_000;
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

/// What a call that waits at a set is made on.
#[derive(Clone, Copy)]
struct EpollCall<'a> {
    /// The era that it is made in.
    era: &'a Era,
    /// The set.
    epoll: &'a Arc<Epoll>,
    /// The number that the program named.
    number: RawFd,
}

/// An interest of a set in a socket that the layer follows.
#[derive(Debug)]
pub(super) struct Interest {
    fd: RawFd,
    socket: Arc<Socket>,
    /// The requested events and the program's data; accessed under the set's lock.
    events: AtomicU32,
    data: AtomicU64,
    queued: AtomicBool,
    removed: AtomicBool,
    in_kernel: AtomicBool,
    /// The number under which it is in the kernel's set: its own, or a hidden one if its own was
    /// closed while the socket is open under another.
    kernel_number: AtomicI32,
    /// It is the parent's, too: a number closed here may be open there.
    is_inherited: bool,
}

impl Interest {
    /// Whether it was inherited from the parent, with which the process shares the kernel's set.
    pub fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// The number under which it was made.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// An interest that is in the kernel's set by another number, if at all.
    fn new(
        (fd, number): (RawFd, RawFd),
        socket: &Arc<Socket>,
        event: EpollEvent,
        in_kernel: bool,
    ) -> Self {
        Self {
            fd,
            socket: socket.clone(),
            events: AtomicU32::new(event.events),
            data: AtomicU64::new(event.data),
            queued: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            in_kernel: AtomicBool::new(in_kernel),
            kernel_number: AtomicI32::new(number),
            is_inherited: false,
        }
    }

    /// Marks it as removed from the kernel's set; returns the number under which it was there.
    pub fn leave_kernel(&self) -> Option<RawFd> {
        let number = self.kernel_number.load(Ordering::Relaxed);
        self.in_kernel.swap(false, Ordering::Relaxed).then_some(number)
    }

    /// Whether the kernel's set has it, and by this number.
    pub fn is_in_kernel_as(&self, number: RawFd) -> bool {
        self.in_kernel.load(Ordering::Relaxed)
            && self.kernel_number.load(Ordering::Relaxed) == number
    }

    fn key(&self) -> Key {
        key(self.fd, &self.socket)
    }

    /// The requested events, and the program's data.
    fn event(&self) -> EpollEvent {
        EpollEvent {
            events: self.events.load(Ordering::Relaxed),
            data: self.data.load(Ordering::Relaxed),
        }
    }
}

impl Socket {
    /// The sets that wait for it, with number and events.
    pub fn interests(&self) -> Vec<(Arc<Epoll>, RawFd, EpollEvent)> {
        let of = |watch: &Watch| match watch {
            Watch::Epoll(epoll, interest) => Some((epoll.clone(), interest.fd, interest.event())),
            Watch::Thread(_) | Watch::Owner(..) => None,
        };
        self.watches().iter().filter_map(of).collect()
    }
}

/// The key of an interest, as in the kernel: a number and what it referred to at the time.
type Key = (RawFd, usize);

fn key(fd: RawFd, socket: &Arc<Socket>) -> Key {
    // The interest keeps the socket, so that no other one gets its address.
    (fd, Arc::as_ptr(socket).addr())
}

#[derive(Debug, Default)]
struct Inner {
    interests: HashMap<Key, Arc<Interest>>,
    ready: VecDeque<Arc<Interest>>,
}

/// An epoll set.
#[derive(Debug)]
pub(super) struct Epoll {
    fd: RawFd,
    numbers: AtomicU32,
    inner: Mutex<Inner>,
    waiter: OnceLock<Arc<Waiter>>,
    /// Data that distinguishes the registration of the eventfd in the kernel's set from the
    /// program's, and with one bit changed those of the wake pipes; the same in all processes that
    /// have the set.
    word: u64,
    /// The kernel's set may hold registrations of the process's parent.
    is_inherited: bool,
    /// What the parent waits for of connections that this process has from it, by their numbers. They come
    /// to the kernel's set when they become sockets of the kernel's.
    bequeathed: Mutex<Vec<(RawFd, EpollEvent)>>,
    /// The session whose pipes are in the kernel's set.
    pipes_of: Mutex<Option<Arc<Attachment>>>,
    looked_ns: AtomicU64,
    /// The set's number is in a poll or in another set: events must show there.
    nested: AtomicBool,
}

/// Result of a search of the ready list.
struct Harvest {
    /// Events in all, the kernel's among them.
    count: usize,
    /// The room was used up before the list.
    more: bool,
}

impl Epoll {
    /// An empty set under a number.
    pub fn new(fd: RawFd) -> Self {
        let mut word = [0_u8; 8];
        // Without randomness it is still a value that no program uses by accident.
        let _ = rustix::rand::getrandom(&mut word, rustix::rand::GetRandomFlags::empty());
        Self {
            fd,
            numbers: AtomicU32::new(1),
            inner: Mutex::default(),
            waiter: OnceLock::new(),
            word: u64::from_ne_bytes(word) ^ 0x6f75_7462_6f61_7264,
            is_inherited: false,
            bequeathed: Mutex::default(),
            pipes_of: Mutex::new(None),
            looked_ns: AtomicU64::new(0),
            nested: AtomicBool::new(false),
        }
    }

    /// In a forked child: the set inherited under a number, with the parent's interests in those
    /// sockets for which `own_of` returns the child's own.
    pub fn inherited(
        parents: &Self,
        fd: RawFd,
        own_of: impl Fn(RawFd, &Arc<Socket>) -> Option<Arc<Socket>>,
        kernel: &dyn Kernel,
    ) -> Arc<Self> {
        let is_inherited = parents.is_mixed();
        let own = Arc::new(Self { word: parents.word, is_inherited, ..Self::new(fd) });
        // Locks are not waited for: the holder may be a thread that does not exist here.
        let Ok(inner) = parents.inner.try_lock() else { return own };
        let mut bequeathed =
            parents.bequeathed.try_lock().map(|numbers| numbers.clone()).unwrap_or_default();
        let of_connections =
            inner.interests.values().filter(|one| one.socket.connection().is_some());
        bequeathed.extend(of_connections.map(|interest| (interest.fd, interest.event())));
        held(own.bequeathed.lock()).extend(bequeathed);
        for interest in inner.interests.values().filter(|one| one.is_in_kernel_as(one.fd)) {
            let Some(socket) = own_of(interest.fd, &interest.socket) else { continue };
            let event = interest.event();
            let interest = Arc::new(Interest {
                is_inherited: true,
                ..Interest::new((interest.fd, interest.fd), &socket, event, true)
            });
            held(own.inner.lock()).interests.insert(interest.key(), interest.clone());
            socket.watches().push(Watch::Epoll(own.clone(), interest.clone()));
            own.mark_ready(&interest, kernel);
        }
        own
    }

    pub fn number(&self) -> RawFd {
        self.fd
    }

    /// The connections that the set waits for.
    pub fn connections(&self) -> Vec<Arc<Socket>> {
        let inner = held(self.inner.lock());
        let sockets = inner.interests.values().map(|interest| interest.socket.clone());
        sockets.filter(|socket| socket.connection().is_some()).collect()
    }

    /// The numbers of inherited connections that the set has yet to wait for.
    pub fn bequeathed_numbers(&self) -> Vec<RawFd> {
        held(self.bequeathed.lock()).iter().map(|(number, _)| *number).collect()
    }

    /// Those that it has yet to wait for cannot be had.
    pub fn forget_bequeathed(&self) {
        held(self.bequeathed.lock()).clear();
    }

    /// Takes what is waited for of those among `numbers`.
    pub fn take_bequeathed(&self, numbers: &[RawFd]) -> Vec<(RawFd, EpollEvent)> {
        let mut bequeathed = held(self.bequeathed.lock());
        bequeathed.extract_if(.., |(number, _)| numbers.contains(number)).collect()
    }

    pub fn add_number(&self) {
        self.numbers.fetch_add(1, Ordering::Relaxed);
    }

    /// An interest may have become ready.
    pub fn mark_ready(&self, interest: &Arc<Interest>, kernel: &dyn Kernel) {
        {
            let mut inner = held(self.inner.lock());
            if interest.removed.load(Ordering::Relaxed)
                || interest.queued.swap(true, Ordering::Relaxed)
            {
                return;
            }
            inner.ready.push_back(interest.clone());
        }
        self.wake(kernel);
    }

    fn wake(&self, kernel: &dyn Kernel) {
        if let Some(waiter) = self.waiter.get() {
            waiter.wake(kernel);
            if self.nested.load(Ordering::Relaxed) {
                kernel.signal_event(waiter.event_fd());
            }
        }
    }

    /// Changes the number of an interest in the kernel to another one of the same socket.
    pub fn renumber(
        &self,
        interest: &Interest,
        to: RawFd,
        kernel: &dyn Kernel,
    ) -> Result<(), Errno> {
        // Locked, so that no thread changes the interest meanwhile.
        let _inner = held(self.inner.lock());
        let event = interest.event();
        kernel.epoll_ctl(self.fd, libc::EPOLL_CTL_ADD, to, event)?;
        let from = interest.kernel_number.swap(to, Ordering::Relaxed);
        // The program may have deleted it in the kernel, which is fine.
        let _ = kernel.epoll_ctl(self.fd, libc::EPOLL_CTL_DEL, from, event);
        Ok(())
    }

    /// Removes an interest; returns the number in the kernel's set, if there is one.
    pub fn remove(&self, interest: &Arc<Interest>) -> Option<RawFd> {
        let mut inner = held(self.inner.lock());
        let key = interest.key();
        if inner.interests.get(&key).is_some_and(|other| Arc::ptr_eq(other, interest)) {
            inner.interests.remove(&key);
        }
        interest.removed.store(true, Ordering::Relaxed);
        interest.leave_kernel()
    }

    /// Adds ready events in turn, after the `kernel` events already in `out`. An event of a dual
    /// socket that the kernel has reported, too, is merged.
    fn harvest(&self, out: &mut [EpollEvent], kernel: usize) -> Harvest {
        let mut inner = held(self.inner.lock());
        let (told, free) = out.split_at_mut(kernel.min(out.len()));
        let mut count = 0;
        for _ in 0..inner.ready.len() {
            let Some(place) = free.get_mut(count) else {
                return Harvest { count: told.len() + count, more: true };
            };
            let Some(interest) = inner.ready.pop_front() else { break };
            interest.queued.store(false, Ordering::Relaxed);
            if interest.removed.load(Ordering::Relaxed) {
                continue;
            }
            let asked = interest.events.load(Ordering::Relaxed);
            if asked & !(EDGE | ONESHOT) == 0 {
                continue; // One-shot and used up.
            }
            let events = interest.socket.polled_bits(asked) & (asked | ALWAYS);
            if events == 0 {
                continue;
            }
            let data = interest.data.load(Ordering::Relaxed);
            let dual = interest.in_kernel.load(Ordering::Relaxed);
            let twin = told.iter_mut().find(|twin| dual && { twin.data } == data);
            match twin {
                Some(twin) => twin.events |= events,
                None => {
                    *place = EpollEvent { events, data };
                    count += 1;
                }
            }
            if asked & ONESHOT != 0 {
                interest.events.store(asked & (EDGE | ONESHOT), Ordering::Relaxed);
            } else if asked & EDGE == 0 {
                interest.queued.store(true, Ordering::Relaxed);
                inner.ready.push_back(interest);
            }
        }
        Harvest { count: told.len() + count, more: false }
    }

    /// Numbers of interests that may be ready and were moved by an heir.
    fn moved(&self) -> Vec<RawFd> {
        let inner = held(self.inner.lock());
        let is_moved = |interest: &&Arc<Interest>| {
            let connection = interest.socket.connection();
            connection.is_some_and(|connection| connection.endpoint.is_moved())
        };
        inner.ready.iter().filter(is_moved).map(|interest| interest.fd).collect()
    }

    /// Whether an engine interest may be ready.
    fn is_stirred(&self) -> bool {
        !held(self.inner.lock()).ready.is_empty()
    }

    /// Whether an engine interest is ready (for poll on the set itself).
    pub fn is_ready(&self) -> bool {
        let inner = held(self.inner.lock());
        inner.ready.iter().any(|interest| {
            let asked = interest.events.load(Ordering::Relaxed);
            !interest.removed.load(Ordering::Relaxed)
                && asked & !(EDGE | ONESHOT) != 0
                && interest.socket.polled_bits(asked) & (asked | ALWAYS) != 0
        })
    }

    /// Whether the set has or had interests of the engine's: then the kernel's set has
    /// registrations of the layer, which the program must not see.
    pub fn is_mixed(&self) -> bool {
        self.is_inherited || self.waiter.get().is_some()
    }

    /// Events must show at the set's number from now on.
    pub fn show_at_number(&self) {
        self.nested.store(true, Ordering::Relaxed);
    }

    /// The word of the wake pipes.
    fn pipe_word(&self) -> u64 {
        self.word ^ 1
    }

    /// Removes the layer's registrations from the kernel's events. If the eventfd is among them, it
    /// is drained: its events are checked next. Pipes have already been drained.
    fn sift(&self, out: &mut [EpollEvent], count: usize, kernel: &dyn Kernel) -> usize {
        let (mut kept, mut told) = (0, false);
        for at in 0..count.min(out.len()) {
            let Some(&event) = out.get(at) else { break };
            let data = event.data;
            told |= data == self.word;
            if data != self.word
                && data != self.pipe_word()
                && let Some(place) = out.get_mut(kept)
            {
                *place = event;
                kept += 1;
            }
        }
        if told && let Some(waiter) = self.waiter.get() {
            waiter.drain(kernel);
        }
        kept
    }

    /// After a search: events that are still ready must keep showing at the set's number.
    fn show_rest(&self, kernel: &dyn Kernel) {
        if self.nested.load(Ordering::Relaxed)
            && self.is_stirred()
            && let Some(waiter) = self.waiter.get()
        {
            kernel.signal_event(waiter.event_fd());
        }
    }
}

impl Sockets {
    /// The set is closed under one of its numbers.
    pub(super) fn release_epoll(&self, epoll: &Arc<Epoll>) {
        if epoll.numbers.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let interests: Vec<_> = {
            let mut inner = held(epoll.inner.lock());
            inner.ready.clear();
            inner.interests.drain().map(|(_, interest)| interest).collect()
        };
        for interest in interests {
            interest.removed.store(true, Ordering::Relaxed);
            if let Some(number) = interest.leave_kernel() {
                self.unhide(&interest, number);
            }
            interest.socket.watches().retain(
                |watch| !matches!(watch, Watch::Epoll(_, other) if Arc::ptr_eq(other, &interest)),
            );
        }
        let pipes_of = held(epoll.pipes_of.lock()).take();
        if let Some(attachment) = pipes_of.filter(|_| epoll.is_inherited) {
            // The parent may still use the set.
            self.leave_pipes(epoll, &attachment);
        }
        if let (Some(waiter), Some(era)) = (epoll.waiter.get(), self.era()) {
            era.table.take(waiter.event_fd());
            self.kernel.close(waiter.event_fd());
        }
    }

    /// The set's waiter; its eventfd is added to the kernel's set when first needed.
    fn waiter_of(&self, era: &Era, epoll: &Epoll) -> Result<Arc<Waiter>, Errno> {
        if let Some(waiter) = epoll.waiter.get() {
            return Ok(waiter.clone());
        }
        let event_fd = self.hidden_event(era)?;
        let made = Arc::new(Waiter::new(event_fd));
        if epoll.waiter.set(made.clone()).is_err() {
            era.table.take(event_fd);
            self.kernel.close(event_fd);
            return epoll.waiter.get().cloned().ok_or(Errno::NOMEM);
        }
        era.cancelled.know(None, &made);
        let event = EpollEvent { events: libc::EPOLLIN as u32, data: epoll.word };
        self.kernel.epoll_ctl(epoll.fd, libc::EPOLL_CTL_ADD, event_fd, event)?;
        Ok(made)
    }

    /// Makes the kernel's set contain the current session's pipes and no others.
    fn join_pipes(&self, epoll: &Epoll, attachment: Option<&Arc<Attachment>>) {
        let mut pipes_of = held(epoll.pipes_of.lock());
        let same = match (&*pipes_of, attachment) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if same {
            return;
        }
        if let Some(before) = pipes_of.take() {
            self.leave_pipes(epoll, &before);
        }
        if let Some(now) = attachment {
            let event = EpollEvent { events: libc::EPOLLIN as u32, data: epoll.pipe_word() };
            for &fd in now.wake_fds() {
                let _ = self.kernel.epoll_ctl(epoll.fd, libc::EPOLL_CTL_ADD, fd, event);
            }
            *pipes_of = Some(now.clone());
        }
    }

    /// Takes a session's pipes out of the kernel's set.
    fn leave_pipes(&self, epoll: &Epoll, attachment: &Attachment) {
        for &fd in attachment.wake_fds() {
            let event = EpollEvent::default();
            let _ = self.kernel.epoll_ctl(epoll.fd, libc::EPOLL_CTL_DEL, fd, event);
        }
    }

    /// epoll_ctl(2).
    pub fn epoll_ctl(
        &'static self,
        number: RawFd,
        operation: i32,
        fd: RawFd,
        event: EpollEvent,
    ) -> Verdict<()> {
        let (Some(era), Some(epoll)) = (self.era(), self.epoll(number)) else {
            return Verdict::Kernel;
        };
        // The object of the number may be gone.
        self.follows(fd);
        if let Some(inner) = self.epoll(fd) {
            if inner.is_inherited {
                let _ = self.waiter_of(era, &inner);
            }
            inner.show_at_number();
            if inner.is_stirred() {
                inner.wake(self.kernel);
            }
            return Verdict::Kernel;
        }
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        self.adopt(era, &socket);
        Verdict::Done(match operation {
            libc::EPOLL_CTL_ADD => {
                self.add_interest(SocketCall { era, socket: &socket, fd }, &epoll, fd, event)
            }
            libc::EPOLL_CTL_MOD => self.change_interest(&epoll, &socket, fd, event),
            libc::EPOLL_CTL_DEL => self.end_interest(&epoll, &socket, fd, event),
            _ => Err(Errno::INVAL),
        })
    }

    /// Adds an interest. The kernel knows it by `number`: the program's, or one of the layer's own.
    pub(super) fn add_interest(
        &self,
        SocketCall { era, socket, fd }: SocketCall<'_>,
        epoll: &Arc<Epoll>,
        number: RawFd,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        self.waiter_of(era, epoll)?;
        let in_kernel = socket.has_kernel_side();
        let interest = Arc::new(Interest::new((fd, number), socket, event, in_kernel));
        {
            let mut inner = held(epoll.inner.lock());
            if inner.interests.contains_key(&interest.key()) {
                return Err(Errno::EXIST);
            }
            if in_kernel {
                self.kernel.epoll_ctl(epoll.fd, libc::EPOLL_CTL_ADD, number, event)?;
            }
            inner.interests.insert(interest.key(), interest.clone());
        }
        socket.watches().push(Watch::Epoll(epoll.clone(), interest.clone()));
        epoll.mark_ready(&interest, self.kernel);
        Ok(())
    }

    fn change_interest(
        &self,
        epoll: &Epoll,
        socket: &Arc<Socket>,
        fd: RawFd,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        let interest = {
            let inner = held(epoll.inner.lock());
            let interest = inner.interests.get(&key(fd, socket)).cloned().ok_or(Errno::NOENT)?;
            if interest.in_kernel.load(Ordering::Relaxed) {
                let number = interest.kernel_number.load(Ordering::Relaxed);
                self.kernel.epoll_ctl(epoll.fd, libc::EPOLL_CTL_MOD, number, event)?;
            }
            interest.events.store(event.events, Ordering::Relaxed);
            interest.data.store(event.data, Ordering::Relaxed);
            interest
        };
        epoll.mark_ready(&interest, self.kernel);
        Ok(())
    }

    fn end_interest(
        &self,
        epoll: &Arc<Epoll>,
        socket: &Arc<Socket>,
        fd: RawFd,
        event: EpollEvent,
    ) -> Result<(), Errno> {
        let found = held(epoll.inner.lock()).interests.get(&key(fd, socket)).cloned();
        let interest = found.ok_or(Errno::NOENT)?;
        interest.socket.watches().retain(
            |watch| !matches!(watch, Watch::Epoll(_, other) if Arc::ptr_eq(other, &interest)),
        );
        if let Some(number) = epoll.remove(&interest) {
            let deleted = self.kernel.epoll_ctl(epoll.fd, libc::EPOLL_CTL_DEL, number, event);
            self.unhide(&interest, number);
            deleted?;
        }
        Ok(())
    }

    /// epoll_wait(2) and the like.
    pub fn epoll_wait(
        &'static self,
        number: RawFd,
        out: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<SigMask>,
    ) -> Verdict<usize> {
        let (Some(era), Some(epoll)) = (self.era(), self.epoll(number)) else {
            return Verdict::Kernel;
        };
        if !epoll.is_mixed() {
            return Verdict::Kernel;
        }
        let call = EpollCall { era, epoll: &epoll, number };
        Verdict::Done(self.wait_mixed(call, out, KernelWait { timeout, mask }))
    }

    fn wait_mixed(
        &'static self,
        EpollCall { era, epoll, number }: EpollCall<'_>,
        out: &mut [EpollEvent],
        KernelWait { timeout, mask }: KernelWait,
    ) -> Result<usize, Errno> {
        if epoll.is_inherited {
            self.adopt_bequeathed(era, epoll);
        }
        let waiter = self.waiter_of(era, epoll)?;
        let mut deadline = None;
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        if epoll.is_inherited && self.living(era).is_none() && era.link.is_wanted() {
            // For inherited interests, whose engine side has ended with the parent.
            self.attach(era);
        }
        loop {
            let attachment = self.living(era);
            waiter.clear();
            if let Some(attachment) = &attachment {
                self.pump(attachment);
            }
            if self.has_heirs() {
                self.redeem_ready(era, epoll.moved());
            }
            let now = self.kernel.now_ns();
            let due = now.wrapping_sub(epoll.looked_ns.load(Ordering::Relaxed)) >= KERNEL_LOOK_NS
                || mask.is_some();
            let mut count = 0;
            if due {
                // The kernel gets half of the room if both have many events.
                epoll.looked_ns.store(now, Ordering::Relaxed);
                let half = if epoll.is_stirred() { out.len().div_ceil(2) } else { out.len() };
                let room = out.get_mut(..half).unwrap_or_default();
                let got = self.kernel.epoll_wait(number, room, Some(Duration::ZERO), mask)?;
                count = epoll.sift(room, got, self.kernel);
            }
            let harvest = epoll.harvest(out, count);
            epoll.show_rest(self.kernel);
            if harvest.more {
                // Another thread that sleeps on this set can take the rest.
                epoll.wake(self.kernel);
            }
            if harvest.count > 0 {
                return Ok(harvest.count);
            }
            if at_once && due {
                return Ok(0);
            }
            let deadline = *deadline.get_or_insert_with(|| Deadline::after(self.kernel, timeout));
            if !at_once
                && let Some(attachment) = &attachment
                && self.spin(attachment, &waiter)
            {
                continue;
            }
            self.join_pipes(epoll, attachment.as_ref());
            let slept = if at_once {
                self.kernel.epoll_wait(number, out, Some(Duration::ZERO), mask).map(Some)
            } else {
                let sleeper =
                    Sleeper { attachment: attachment.as_ref(), waiter: &waiter, deadline };
                self.sleep(era, sleeper, |left| self.kernel.epoll_wait(number, out, left, mask))
            };
            let Some(got) = slept? else { continue };
            epoll.looked_ns.store(self.kernel.now_ns(), Ordering::Relaxed);
            let kept = epoll.sift(out, got, self.kernel);
            if self.has_heirs() && self.redeem_ready(era, epoll.moved()) && kept == 0 && !at_once {
                // The kernel reports their readiness.
                continue;
            }
            let count = epoll.harvest(out, kept).count;
            epoll.show_rest(self.kernel);
            if count > 0 || at_once || deadline.has_passed() {
                return Ok(count);
            }
        }
    }

    /// The set of a number in a poll call, made to show its events there.
    pub(super) fn polled_epoll(&self, era: &Era, fd: RawFd) -> Option<Arc<Epoll>> {
        let epoll = era.table.with(fd, |entry| match entry {
            Entry::Epoll(epoll) => Some(epoll.clone()),
            _ => None,
        })??;
        if !epoll.is_mixed() || self.waiter_of(era, &epoll).is_err() {
            return None;
        }
        epoll.show_at_number();
        Some(epoll)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::layer;
    use super::*;

    /// Every sleep that a wake pipe ended cost a system call on an eventfd that had told nothing.
    #[test]
    fn only_an_eventfd_that_has_told_is_emptied() {
        let (_, kernel) = layer();
        let epoll = Epoll::new(4);
        epoll.waiter.set(Arc::new(Waiter::new(9))).expect("the first");
        let event = |data| EpollEvent { events: libc::EPOLLIN as u32, data };
        let mut out = [event(epoll.pipe_word()), event(7)];
        assert_eq!(epoll.sift(&mut out, 2, kernel), 1);
        assert_eq!(({ out[0].data }, kernel.taken()), (7, Vec::<String>::new()));
        let mut out = [event(7), event(epoll.word)];
        assert_eq!(epoll.sift(&mut out, 2, kernel), 1);
        assert_eq!(kernel.taken(), ["drain 9"]);
    }
}
