//! Counters by name. One writer each, read by anyone at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, or a level that is set.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more. Each counter has one writer, so this need not be one atomic step.
    pub fn add(&self, count: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(count);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// Sets a level.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// As it stands.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Everything the engine itself counts.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            /// What is counted elsewhere (ports, stack, cycles), by name; set by the worker.
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
    /// Turns that found work.
    turns_with_work,
    /// Times the worker slept.
    sleeps,
    /// Times the worker yielded its core between turns, to programs of its scheduling group.
    yields,
    /// Times the worker slept for a moment, to let a program run that has the same core.
    ways_given,
    /// Processor time of the worker without idle polling, in nanoseconds.
    busy_ns,
    /// Processor time of polling that found nothing, in nanoseconds.
    idle_ns,
    /// Sessions attached now.
    sessions,
    /// Sessions of dead programs whose connections still deliver.
    sessions_dying,
    /// Sessions attached so far.
    sessions_total,
    /// Sessions refused for a limit, a wrong contract version or lack of memory.
    sessions_refused,
    /// Sessions refused because their user has as many as one user may have, or because the last
    /// ones are kept for root and for users who have few.
    sessions_refused_of_user,
    /// Sessions refused because their user's others have all the memory that one user may have.
    sessions_refused_memory,
    /// Children that were forked and hold their parents' connections, so far.
    heirs_total,
    /// Children that hold none, for want of control connections or descriptors.
    heirs_refused,
    /// Control connections of such children.
    heirs,
    /// Connections that became sockets of the kernel's, for other processes, so far.
    passed_total,
    /// Connections that could not become one.
    passes_failed,
    /// Times that a connection was asked for while a thread of its process was reading or writing, or while
    /// there was no room for what it had written; whoever asked asks again.
    passes_put_off,
    /// Connections that were moved to the relay, which could make no sockets for them.
    tickets_failed,
    /// Moved connections whose sockets are being made, or kept for processes that may yet ask for them.
    tickets,
    /// Programs left to the kernel because the lists name their user.
    left_users,
    /// Sockets whose acceleration was not told on, because whoever hears of it was behind.
    accelerated_untold,
    /// Sockets left to the kernel because the lists name their port.
    left_ports,
    /// Sessions ended for breaking the contract.
    breaches,
    /// Control connections refused at the limit.
    control_refused,
    /// Silent control connections and observers ended to make room at the limit.
    control_evicted,
    /// Control messages left unread until their connection's last question was answered.
    control_held,
    /// Control connections ended because their client does not read its answers.
    control_deaf,
    /// Times that the kernel dropped news of closed sockets.
    closings_missed,
    /// Sockets that were shut down, disconnected, bound elsewhere, or whose port another user got, too:
    /// the engine serves them no more.
    rights_withdrawn,
    /// Ports that the kernel is told to be in use by connections whose sockets are closed.
    ports_held,
    /// Ports that it is to be told of once the sockets that have them are closed.
    ports_awaited,
    /// Times that one was not, for there are too many.
    holds_exhausted,
    /// Descriptors of clients that wait to be closed.
    discards_waiting,
    /// Times that a user's descriptors were more than may wait to be closed: connections ended.
    discards_refused,
    /// Control messages that were none, or out of order.
    control_garbage,
    /// Kernel sockets shown that did not entitle to their address.
    authority_refused,
    /// Ports that the kernel's tables had no room for: served by the kernel.
    claims_failed,
    /// Routes of the kernel's main table that are not followed, for there are too many: programs
    /// reach the links alone.
    routes_left_out,
    /// Routes of which programs are not told, for there are too many: what they could concern is
    /// left to the kernel.
    routes_untold,
    /// Messages of programs that came with more descriptors than the engine could take.
    descriptors_exhausted,
    /// Listeners refused because their user, or all users, have as many as they may have.
    listeners_refused,
    /// Listeners that nobody attended for a time, while other processes may have had them.
    listeners_unattended,
    /// Listeners left to the kernel because a process waits there that cannot be accelerated.
    listeners_left,
    /// UDP sockets refused for the same reason.
    udp_sockets_refused,
    /// Connects refused, or left to the kernel, because their user, or all users, have as many
    /// sockets as they may have.
    connects_refused,
    /// Connections reset because what they were to send from registered memory was not there.
    stream_memory_refused,
    /// Registered memories.
    memories,
    /// Registered memories refused for a limit or lack of memory.
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
    /// Wake-ups written to clients' pipes.
    wakeups,
    /// Lanes that went idle and are waited for instead of polled.
    lanes_demoted,
    /// Connections handed to a program by accept.
    accepts,
    /// Bytes of streams copied to programs.
    stream_rx_bytes,
    /// Bytes of streams given to ports, retransmissions included.
    stream_tx_bytes,
    /// Datagrams copied to programs.
    datagrams_rx,
    /// Datagrams given to ports.
    datagrams_tx,
    /// Datagrams that could not be sent.
    datagrams_tx_failed,
    /// Closed connections reset because their session has too many that still deliver.
    orphans_reset,
    /// Connections reset because their peers take nothing and their program has no buffers left.
    stalled_reset,
    /// Segments behind a gap refused while a session's buffers are scarce.
    out_of_order_refused,
    /// Listens refused because too many sockets share the listener.
    sharers_exhausted,
    /// Datagrams dropped because the program's receive queue is full.
    datagrams_rx_full,
    /// Reports of errors given to datagram sockets that ask for them.
    datagram_errors,
    /// Connects, accepts and grants refused because a session has no free endpoint.
    endpoints_exhausted,
    /// The same because its user's sessions have as many as one user may have.
    endpoints_exhausted_of_user,
    /// Received bytes refused, or stock not refilled, for lack of a free buffer.
    buffers_exhausted,
    /// Send descriptors left with the client for lack of a free span.
    spans_exhausted,
    /// Send descriptors left with the client because their connection holds its share of spans.
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
    /// Raw endpoints refused: their port has as many as it may have, or the session no endpoint.
    raw_refused,
    /// Raw endpoints refused for want of a right or of memory.
    raw_denied,
    /// Frames of raw endpoints given to ports.
    raw_tx,
    /// Frames of raw endpoints dropped: malformed, for no port, in the name of others, or not taken by
    /// their port.
    raw_tx_dropped,
    /// The same because they bear the name of others, which their program may not.
    raw_spoofed,
    /// Visits to raw endpoints' rings that ended at a full port.
    raw_tx_full,
    /// Frames of raw endpoints dropped because too many waited for their port already.
    raw_tx_overrun,
    /// Frames that programs with raw endpoints had no room for in their rings.
    raw_rx_dropped,
    /// Frames that bridges passed on.
    bridge_frames,
    /// Frames of bridges for which their port had no room.
    bridge_full,
    /// Frames of bridges that their port could not send: too long for the link, or it is down.
    bridge_dropped,
    /// Buffers of all sessions.
    buffers_total,
    /// Buffers of all sessions in their pools.
    buffers_free,
}

/// Counters that others keep and the worker copies now and then.
#[derive(Debug, Default)]
pub struct CopiedCounters(std::sync::Mutex<Vec<(String, u64)>>);

impl CopiedCounters {
    /// Replaces all of them; skipped when a reader is just looking.
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
    /// Names of everything, in the order of the statistics page.
    pub fn names(&self) -> Vec<String> {
        self.read().into_iter().map(|(name, _)| name).collect()
    }

    /// Names and values of everything.
    pub fn read(&self) -> Vec<(String, u64)> {
        let mut all = self.own();
        all.extend(self.copied.read());
        all
    }
}
