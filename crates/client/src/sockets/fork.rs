//! A forked child. The parent's engine sockets stay the parent's: the child's copies of the
//! session's descriptors are closed (so that the engine sees the parent's death). Inherited
//! connections become kernel sockets when the child first uses them (`heritage.rs`), or fail if the
//! engine has no relay. Listeners are passed again through a session of the child's own when the
//! child first uses them. Epoll sets are the kernel's, and so shared by both processes: the child
//! tracks the sockets in them that it has, and neither process sees the registrations of the
//! other's layer.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use shm::census::{Kind, Reason};

use super::epoll::Epoll;
use super::heritage::{Heirloom, Inherited};
use super::notices::Notice;
use super::sharing::Service;
use super::socket::{Listening, Refusal, Socket, held};
use super::table::Entry;
use super::{Era, Sockets, process_id};

/// Copies a locked value, unless a thread of the parent held the lock.
fn copy_free<T: Clone>(from: &Mutex<T>, to: &Mutex<T>) -> bool {
    let Ok(value) = from.try_lock() else { return false };
    held(to.lock()).clone_from(&value);
    true
}

impl Sockets {
    /// To be called in the child after fork(2), before any other function of the layer.
    pub fn forked(&self) {
        super::link::forget_pumping();
        let number = self.era.load(Ordering::Relaxed);
        let old = self.eras.get(number as usize).and_then(|era| era.get());
        let next = self.eras.get(number as usize + 1);
        self.era.store(number.saturating_add(1), Ordering::Relaxed);
        self.process.store(process_id(), Ordering::Relaxed);
        let Some(old) = old else { return };
        let bystander = old.link.bystander.get();
        self.close_inherited(old, bystander.as_ref().map(|kept| kept.raw_fd()));
        let Some(next) = next else {
            self.notice(Notice::TooManyForks, || {
                "too many generations of forked children; this one goes through the kernel".into()
            });
            return;
        };
        let era = Era::new();
        let will = self.take_bequest(&era);
        let (mut sockets, mut sets, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
        // By the address of the parent's object.
        let mut heirlooms: Vec<(usize, Arc<Heirloom>)> = Vec::new();
        old.table.inherited(|fd, entry| {
            let inherited = match entry {
                Some(Entry::Foreign(Inherited { service, heirloom })) => {
                    let listener = service.as_ref().map(|service| service.listener().clone());
                    let key = heirloom.as_ref().map(|one| Arc::as_ptr(one).addr());
                    let known = heirlooms.iter().find(|(of, _)| Some(*of) == key).cloned();
                    let heirloom =
                        known.or_else(|| Some((key?, will.of_heirloom(heirloom.as_ref()?)?)));
                    heirlooms.extend(heirloom.clone());
                    foreign.push((fd, listener, heirloom.map(|(_, own)| own)));
                    None
                }
                Some(Entry::Socket(socket)) if socket.connection().is_some() => {
                    let key = Arc::as_ptr(socket).addr();
                    let heirloom = heirlooms.iter().find(|(of, _)| *of == key).cloned();
                    let heirloom = heirloom.or_else(|| Some((key, will.of_connection(socket)?)));
                    heirlooms.extend(heirloom.clone());
                    foreign.push((fd, socket.origin.get().cloned(), heirloom.map(|(_, own)| own)));
                    None
                }
                Some(Entry::Socket(socket)) => {
                    let own = self.inherited(fd, socket);
                    if own.is_none() && Self::is_counted(socket) {
                        self.count(&era, Kind::Udp, Reason::Inherited);
                    }
                    own
                }
                Some(Entry::Epoll(epoll)) => {
                    sets.push((fd, epoll.clone(), old.table.identity(fd)));
                    None
                }
                Some(Entry::Internal) | None => None,
            };
            if let (Some(Entry::Socket(own)), Some(Entry::Socket(parents))) = (&inherited, entry) {
                own.add_number(fd);
                if own.is_listening() {
                    era.link.remember(own);
                }
                sockets.push((fd, parents.clone(), own.clone()));
            }
            if let Some(entry) = inherited {
                let _ = era.table.put(fd, entry, old.table.identity(fd));
            }
        });
        for (fd, listener, heirloom) in foreign {
            // Only a connection that the child cannot use affects the listener.
            let listener = listener.filter(|_| heirloom.is_none());
            let service = listener.and_then(|listener: Weak<Socket>| {
                // Not upgraded: the last reference would end the parent's listener.
                let is_it = |(_, parents, _): &&(RawFd, Arc<Socket>, Arc<Socket>)| {
                    std::ptr::eq(Arc::as_ptr(parents), listener.as_ptr())
                };
                sockets.iter().find(is_it).map(|(_, _, own)| Service::of(own))
            });
            let entry = Entry::Foreign(Inherited { service, heirloom });
            let _ = era.table.put(fd, entry, old.table.identity(fd));
        }
        drop(heirlooms);
        self.drop_empty(&era, will);
        self.inherit_sets(&era, &sockets, sets);
        self.hide_report(&era);
        if let Some(parents) = bystander {
            self.inherit_bystander(&era, parents);
        }
        // The old era is left untouched: dropping the parent's sessions would affect them.
        let _ = next.set(era);
    }

    /// The same in a child that shares its parent's descriptors, but not its memory: closing a
    /// descriptor would close it for the parent. All its calls go to the kernel.
    pub fn forked_with_shared_numbers(&self) {
        super::link::forget_pumping();
        self.era.store(u32::MAX, Ordering::Relaxed);
        self.process.store(process_id(), Ordering::Relaxed);
    }

    /// The same in a child of a multi-threaded process that was not created by fork(2): a thread
    /// that is missing here may have held the allocator's locks, so nothing allocates. The child
    /// closes the layer's numbers, and all its calls go to the kernel.
    pub fn forked_among_threads(&self) {
        let parents = self.era();
        self.forked_with_shared_numbers();
        if let Some(parents) = parents {
            self.close_inherited(parents, None);
        }
    }

    /// The epoll sets of a child, which are the parent's, too. Its sockets are given by number,
    /// with the parent's and the child's own object.
    fn inherit_sets(
        &self,
        era: &Era,
        sockets: &[(RawFd, Arc<Socket>, Arc<Socket>)],
        sets: Vec<(RawFd, Arc<Epoll>, u64)>,
    ) {
        let own_of = |number: RawFd, parents: &Arc<Socket>| {
            let is_it = |(fd, other, _): &&(RawFd, Arc<Socket>, Arc<Socket>)| {
                *fd == number && Arc::ptr_eq(other, parents)
            };
            sockets.iter().find(is_it).map(|(_, _, own)| own.clone())
        };
        let mut made: Vec<(Arc<Epoll>, Arc<Epoll>)> = Vec::new();
        for (fd, parents, identity) in sets {
            let before = made.iter().find(|(other, _)| Arc::ptr_eq(other, &parents));
            let own = match before {
                Some((_, own)) => {
                    own.add_number();
                    own.clone()
                }
                None => {
                    let own = Epoll::inherited(&parents, fd, own_of, self.kernel);
                    made.push((parents, own.clone()));
                    own
                }
            };
            let _ = era.table.put(fd, Entry::Epoll(own), identity);
        }
    }

    /// What an inherited socket becomes in the child. Locks are not waited for: the holder may be a
    /// thread that does not exist here.
    fn inherited(&self, fd: i32, socket: &Arc<Socket>) -> Option<Entry> {
        let listens = self.kernel.option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1);
        if !socket.stream {
            let shown = socket.datagram.try_read().map_or(true, |datagram| datagram.is_some());
            if shown {
                self.notice(Notice::InheritedDatagram, || {
                    "a UDP socket inherited by a forked child goes through the kernel there".into()
                });
            }
            return None;
        }
        let own = Socket::new(socket.v6, true, socket.is_nonblocking());
        own.versions.follow(&socket.versions);
        if socket.forced_nonblocking() {
            own.force_nonblocking(true);
        }
        own.bound.store(socket.bound.load(Ordering::Relaxed), Ordering::Relaxed);
        for (time, copy) in [
            (&socket.receive_timeout_ns, &own.receive_timeout_ns),
            (&socket.send_timeout_ns, &own.send_timeout_ns),
        ] {
            copy.store(time.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        copy_free(&socket.options, &own.options);
        copy_free(&socket.fast_open_keys, &own.fast_open_keys);
        let knows_keys = copy_free(&socket.keys, &own.keys);
        if !knows_keys && !listens {
            // Only its kernel socket knows whether it has signing keys.
            return None;
        }
        if listens {
            let mut copy = Listening::new(libc::SOMAXCONN);
            if let Ok(listening) = socket.listening.try_read()
                && let Some(listening) = listening.as_ref()
            {
                copy.backlog = listening.backlog;
                copy.refused = listening.refused;
                copy.names_address = listening.names_address;
            }
            if !knows_keys {
                // Peers without a key must not connect through the engine.
                copy.refused = Some(Refusal::ForGood);
            }
            own.become_listener(copy);
        }
        Some(Entry::Socket(Arc::new(own)))
    }
}
