//! What the core counts.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counted since the core was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct MessageCounters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl MessageCounters {
            /// All counters with the names that `outboard stats` shows.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((concat!("messages_core_", stringify!($name)), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Messages taken from endpoints.
    sends,
    /// Messages that a receive took whole or in part.
    received,
    /// Frames sent, again or for the first time.
    frames_out,
    /// Frames taken.
    frames_in,
    /// Frames sent again.
    resent,
    /// ACKs sent.
    acks_out,
    /// Timeouts.
    timeouts,
    /// Unexpected messages kept.
    unexpected,
    /// Messages held with their senders.
    held,
    /// Messages refused.
    refused,
    /// Messages begun again after a refusal.
    resumed,
    /// Local messages.
    local,
    /// Associations opened.
    opened,
    /// Associations that ended because the other host restarted.
    ended_reset,
    /// Associations that ended because the other host was silent.
    ended_timeout,
    /// RESETs sent.
    resets_out,
    /// RESETs not sent because there were too many.
    resets_limited,
    /// Dropped: not a frame.
    drop_malformed,
    /// Dropped: of a job without an endpoint here.
    drop_unknown_job,
    /// Dropped: the authenticator is wrong.
    drop_unverified,
    /// Dropped: came before.
    drop_duplicate,
    /// Dropped: too far ahead of what has arrived.
    drop_beyond,
    /// Dropped: belongs to a message whose START is missing.
    drop_early,
    /// Dropped: acknowledges what was not sent, or is about a message of other bounds.
    drop_invalid,
    /// Dropped: a START whose answer found no room, or an ABORT behind too many answers.
    drop_no_record,
    /// Dropped: a RESET about a frame that is not under way.
    drop_reset,
    /// Hosts forgotten because nothing was about them.
    hosts_forgotten,
    /// Associations not opened because too many hosts are remembered.
    peers_refused,
    /// Messages found all numbers of their flow in use, and waited for one.
    no_number,
    /// READ, WRITE and ATOMIC answered as unsupported.
    unsupported,
}

/// What a core holds at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageUsage {
    /// Endpoints, open or closing.
    pub endpoints: usize,
    /// Sends that have not ended, those that wait for the answer to ABORT included.
    pub sends: usize,
    /// Receives that have not ended.
    pub receives: usize,
    /// Messages on their way in, or unexpected.
    pub incoming: usize,
    /// Envelopes in use or promised.
    pub envelopes: u64,
    /// Bytes granted that have not arrived.
    pub granted: u64,
    /// Hosts.
    pub hosts: usize,
    /// Hosts whose epochs are remembered, counted for each job.
    pub peers: usize,
}
