//! Counters by name. Each has one writer and can be read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, or a level that is set.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`. Each counter has one writer, so this need not be one atomic step.
    pub fn add(&self, count: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(count);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// Sets a level.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The engine's own counters.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            /// Counters kept elsewhere (ports, stack, cycles), by name; set by the worker.
            pub copied: CopiedCounters,
        }

        impl Counters {
            /// Names and values of the engine's own counters.
            fn own(&self) -> Vec<(String, u64)> {
                vec![$((stringify!($name).to_string(), self.$name.read()),)*]
            }
        }
    };
}

counters! {
    /// Turns of the worker's loop.
    turns,
    /// Turns with work.
    turns_with_work,
    /// Times the worker slept.
    sleeps,
    /// Times the worker yielded its core between turns, to programs of its scheduling group.
    yields,
    /// Times the worker yielded its core to a client's program, or slept for a moment to do so.
    ways_given,
    /// Processor time of the worker without idle polling, in nanoseconds.
    busy_ns,
    /// Processor time of idle polling, in nanoseconds.
    idle_ns,
    /// Sessions attached now.
    sessions,
    /// Sessions of dead programs whose connections still deliver.
    sessions_dying,
    /// Sessions attached so far.
    sessions_total,
    /// Sessions refused because of a limit, another contract version or lack of memory.
    sessions_refused,
    /// Sessions refused because their user has the maximum per user, or because the last ones are
    /// reserved for root and for users with few.
    sessions_refused_of_user,
    /// Sessions refused because the user's other sessions use all the memory that one user may
    /// have.
    sessions_refused_memory,
    /// Forked children that held connections of their parents, so far.
    heirs_total,
    /// Forked children that hold none, for lack of control connections or descriptors.
    heirs_refused,
    /// Control connections of such children.
    heirs,
    /// Connections that became sockets of the kernel's, for other processes, so far.
    passed_total,
    /// Connections that could not be converted.
    passes_failed,
    /// Times that a conversion was postponed because a thread was reading or writing, or because
    /// there was no room for the unsent data; the requester retries.
    passes_put_off,
    /// Connections moved to the relay, which could not create a socket for them.
    tickets_failed,
    /// Moved connections whose sockets are being made, or kept for processes that may yet ask for them.
    tickets,
    /// Programs left to the kernel because the lists name their user.
    left_users,
    /// Accelerated sockets that were not reported, because the receiver was behind.
    accelerated_untold,
    /// Sockets left to the kernel because [allow] or [deny] name their port.
    left_ports,
    /// Sessions ended for breaking the contract.
    breaches,
    /// Control connections refused at the limit.
    control_refused,
    /// Silent control connections and observers ended to make room at the limit.
    control_evicted,
    /// Times that a control message waited for the answer to the previous one.
    control_held,
    /// Control connections ended because their client does not read its answers.
    control_deaf,
    /// Times that the kernel dropped notifications of closed sockets.
    closings_missed,
    /// Sockets that were shut down, disconnected, bound to another address, or whose port another
    /// user got, too: the engine no longer serves them.
    rights_withdrawn,
    /// Ports held in the kernel for connections whose sockets are closed.
    ports_held,
    /// Ports that it is to be told of once the sockets that have them are closed.
    ports_awaited,
    /// Times that one was not, for there are too many.
    holds_exhausted,
    /// Descriptors of clients that wait to be closed.
    discards_waiting,
    /// Times that a user exceeded the limit of descriptors to be closed: connections ended.
    discards_refused,
    /// Control messages that were malformed or out of order.
    control_garbage,
    /// Passed kernel sockets that gave no right to their address.
    authority_refused,
    /// Ports without room in the XDP program's map: served by the kernel.
    claims_failed,
    /// Routes of the kernel's main table beyond the limit: programs reach only on-link
    /// destinations.
    routes_left_out,
    /// Routes not announced to programs because of the limit: their destinations are left to the
    /// kernel.
    routes_untold,
    /// Messages of programs with more descriptors than the engine could take.
    descriptors_exhausted,
    /// Listeners refused because their user, or all users, have reached the limit.
    listeners_refused,
    /// Listeners without an attached process for a time, while other processes may have had them.
    listeners_unattended,
    /// Listeners left to the kernel because a process without acceleration waits there.
    listeners_left,
    /// UDP sockets refused for the same reason.
    udp_sockets_refused,
    /// Connects refused, or left to the kernel, because their user, or all users, have reached the
    /// limit of sockets.
    connects_refused,
    /// Connections reset because their registered memory no longer existed.
    stream_memory_refused,
    /// Registered memories.
    memories,
    /// Registered memories refused because of a limit or lack of memory.
    memories_refused,
    /// Endpoints in use.
    endpoints,
    /// Requests served.
    requests,
    /// Requests answered with an error.
    requests_failed,
    /// Doorbells served.
    doorbells,
    /// Events published.
    events,
    /// Wakeups written to clients' pipes.
    wakeups,
    /// Lanes that went idle and are no longer polled.
    lanes_demoted,
    /// Connections handed to a program by accept.
    accepts,
    /// Bytes of streams copied to programs.
    stream_rx_bytes,
    /// Bytes of streams passed to ports, retransmissions included.
    stream_tx_bytes,
    /// Datagrams copied to programs.
    datagrams_rx,
    /// Datagrams passed to ports.
    datagrams_tx,
    /// Datagrams that could not be sent.
    datagrams_tx_failed,
    /// Closed connections reset because their session has too many that still deliver.
    orphans_reset,
    /// Connections reset because their peers acknowledge nothing and their program has no buffers
    /// left.
    stalled_reset,
    /// Segments after a gap refused while a session's buffers are scarce.
    out_of_order_refused,
    /// Listens refused because too many sockets share the listener.
    sharers_exhausted,
    /// Datagrams dropped because the program's receive queue is full.
    datagrams_rx_full,
    /// Error reports given to datagram sockets that request them.
    datagram_errors,
    /// Connects, accepts and grants refused because a session has no free endpoint.
    endpoints_exhausted,
    /// The same because the user's sessions have reached the limit per user.
    endpoints_exhausted_of_user,
    /// Received bytes refused, or stock not refilled, for lack of a free buffer.
    buffers_exhausted,
    /// Send descriptors left in the queue for lack of a free span.
    spans_exhausted,
    /// Send descriptors left in the queue because their connection holds its share of spans.
    spans_shared,
    /// Early bytes refused because their stash is full.
    stash_full,
    /// Bytes in stashes now.
    stash_bytes,
    /// Address authorizations refused at the limit.
    tokens_exhausted,
    /// Frames held back because a port was full.
    tx_held,
    /// Frames that a port's own queue dropped: their data was never sent.
    tx_refused,
    /// Frames dropped because a port could not send them.
    tx_dropped,
    /// Transmissions dropped because their bytes were already released.
    tx_stale,
    /// Raw endpoints open now.
    raw_endpoints,
    /// Raw endpoints refused because their port has the maximum, or the session has no free
    /// endpoint.
    raw_refused,
    /// Raw endpoints refused for lack of a right or of memory.
    raw_denied,
    /// Frames of raw endpoints passed to ports.
    raw_tx,
    /// Frames of raw endpoints dropped: malformed, for no port, with a foreign source, or refused
    /// by their port.
    raw_tx_dropped,
    /// The same because of a foreign source, which their program may not use.
    raw_spoofed,
    /// Visits to raw endpoints' rings that ended at a full port.
    raw_tx_full,
    /// Frames of raw endpoints dropped because too many waited for their port already.
    raw_tx_overrun,
    /// Frames that programs with raw endpoints had no room for in their rings.
    raw_rx_dropped,
    /// Frames forwarded by bridges.
    bridge_frames,
    /// Frames of bridges for which their port had no room.
    bridge_full,
    /// Frames of bridges that their port could not send: too long for the link, or the link is
    /// down.
    bridge_dropped,
    /// Buffers of all sessions.
    buffers_total,
    /// Buffers of all sessions in their pools.
    buffers_free,
}

/// Counters kept elsewhere, which the worker copies periodically.
#[derive(Debug, Default)]
pub struct CopiedCounters(std::sync::Mutex<Vec<(String, u64)>>);

impl CopiedCounters {
    /// Replaces all of them; skipped while a reader holds the lock.
    pub fn replace(&self, fill: impl FnOnce(&mut Vec<(String, u64)>)) {
        if let Ok(mut list) = self.0.try_lock() {
            list.clear();
            fill(&mut list);
        }
    }

    fn read(&self) -> Vec<(String, u64)> {
        self.0.lock().map(|list| list.clone()).unwrap_or_default()
    }
}

impl Counters {
    /// Names of all counters, in the order of the statistics page.
    pub fn names(&self) -> Vec<String> {
        self.read().into_iter().map(|(name, _)| name).collect()
    }

    /// Names and values of all counters.
    pub fn read(&self) -> Vec<(String, u64)> {
        let mut all = self.own();
        all.extend(self.copied.read());
        all
    }
}
