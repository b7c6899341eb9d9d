//! What the core counts.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counted since the core was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct MessageCounters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl MessageCounters {
            /// All counters with their names.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
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
    /// READ, WRITE and ATOMIC answered as unsupported.
    unsupported,
}
