//! Division of shared tables among users: no user can take all of a table, a user with few entries
//! always finds some, and root always finds more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Fraction of a table reserved for root.
const ROOT_PART: u32 = 8;
/// Fraction of a table reserved for root and for users with few entries.
const NEWCOMER_PART: u32 = 8;
/// Fraction of a table that counts as few entries.
const LITTLE_PART: u32 = 64;

/// A table that all users share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Total entries.
    pub total: u32,
    /// Maximum entries of one user, except root.
    pub per_user: u32,
}

/// Why a user gets no further entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The user has reached the limit per user.
    User {
        /// The limit.
        limit: u32,
    },
    /// The table has no entry left that this user may take.
    Table {
        /// Total entries.
        limit: u32,
        /// The last ones are reserved for root and for users with few.
        is_reserved: bool,
    },
}

impl Shared {
    /// Whether user `uid`, who has `of_user` of the `used` entries, may take another one.
    ///
    /// # Errors
    /// The limit that was reached.
    pub fn admit(&self, uid: u32, of_user: u32, used: u32) -> Result<(), Full> {
        let left = self.total.saturating_sub(used);
        if left == 0 {
            return Err(Full::Table { limit: self.total, is_reserved: false });
        }
        if uid == 0 {
            return Ok(());
        }
        if of_user >= self.per_user {
            return Err(Full::User { limit: self.per_user });
        }
        let for_root = self.total / ROOT_PART;
        let for_newcomers =
            if of_user < self.total / LITTLE_PART { 0 } else { self.total / NEWCOMER_PART };
        if left <= for_root.saturating_add(for_newcomers) {
            return Err(Full::Table { limit: self.total, is_reserved: true });
        }
        Ok(())
    }
}

impl Full {
    /// The refusal as a sentence. `what` names the entries; `key` and `key_per_user` are the keys
    /// under `[limits]`.
    pub fn sentence(&self, what: &str, key: &str, key_per_user: &str) -> String {
        match self {
            Self::User { limit } => format!(
                "the programs of this user have {limit} {what}, as many as `{key_per_user}` \
                 permits; raise it under [limits], or end one of them"
            ),
            Self::Table { limit, is_reserved } => {
                let rest = if *is_reserved {
                    "; the last ones are reserved for root and for users who have few"
                } else {
                    ""
                };
                format!(
                    "`{key}` permits {limit} {what} in total, and all are in use{rest}; raise it \
                     under [limits], or end a program"
                )
            }
        }
    }
}

/// A shared count.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<AtomicU32>);

impl Tally {
    /// The current count.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to it. Each tally has one writer, so this need not be one atomic step.
    pub fn add(&self, count: u32) {
        self.0.store(self.count().saturating_add(count), Ordering::Relaxed);
    }

    /// Subtracts from it.
    pub fn sub(&self, count: u32) {
        self.0.store(self.count().saturating_sub(count), Ordering::Relaxed);
    }
}

/// Entries of the sessions of one user, or of all users.
#[derive(Clone, Debug, Default)]
pub struct Tallies {
    /// Endpoints in use.
    pub endpoints: Tally,
    /// Listeners, each counted once for the user who created it.
    pub listeners: Tally,
    /// UDP sockets.
    pub udp_sockets: Tally,
}

impl Tallies {
    /// Whether a session or an entry refers to them.
    fn is_held(&self) -> bool {
        let Self { endpoints, listeners, udp_sockets } = self;
        [endpoints, listeners, udp_sockets].iter().any(|tally| Arc::strong_count(&tally.0) > 1)
    }
}

/// The tallies of each user, kept as long as a session or an entry refers to them.
#[derive(Debug, Default)]
pub struct Users(BTreeMap<u32, Tallies>);

impl Users {
    /// The tallies of a user.
    pub fn of(&mut self, uid: u32) -> Tallies {
        self.0.retain(|_, tallies| tallies.is_held());
        self.0.entry(uid).or_default().clone()
    }
}

/// An entry that counts for its user and in total, until it is dropped.
#[derive(Debug)]
pub struct Entry {
    of_user: Tally,
    of_all: Tally,
}

impl Entry {
    /// Adds an entry.
    pub fn new(of_user: &Tally, of_all: &Tally) -> Self {
        of_user.add(1);
        of_all.add(1);
        Self { of_user: of_user.clone(), of_all: of_all.clone() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.of_user.sub(1);
        self.of_all.sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users take entries in turn, each as many as it gets; returns how many each has.
    fn fill(shared: Shared, users: &[u32]) -> Vec<u32> {
        let mut taken = vec![0; users.len()];
        for (at, uid) in users.iter().enumerate() {
            while shared.admit(*uid, taken[at], taken.iter().sum()).is_ok() {
                taken[at] += 1;
            }
        }
        taken
    }

    #[test]
    fn greedy_users_leave_something_to_newcomers_and_to_root() {
        let shared = Shared { total: 1024, per_user: 512 };
        assert_eq!(fill(shared, &[1, 2, 3, 4, 0]), [512, 256, 16, 16, 224]);
        // However many come, the last eighth is root's.
        let many: Vec<u32> = (1..100).chain([0]).collect();
        assert_eq!(fill(shared, &many).last(), Some(&128));
    }

    #[test]
    fn what_outlives_a_session_still_counts_for_its_user() {
        let mut users = Users::default();
        let all = Tally::default();
        let session = users.of(7);
        let entry = Entry::new(&session.listeners, &all);
        drop(session);
        assert_eq!(users.of(8).listeners.count(), 0);
        assert_eq!(users.of(7).listeners.count(), 1);
        drop(entry);
        assert_eq!(users.of(7).listeners.count(), 0);
        users.of(9);
        assert_eq!(users.0.len(), 1);
    }

    #[test]
    fn small_tables_are_not_cut_further() {
        assert_eq!(fill(Shared { total: 3, per_user: 2 }, &[1, 2]), [2, 1]);
        assert_eq!(fill(Shared { total: 1, per_user: 1 }, &[1]), [1]);
    }

    #[test]
    fn a_refusal_names_the_limit_its_value_and_its_key() {
        let shared = Shared { total: 64, per_user: 32 };
        let said = |full: Full| full.sentence("sessions", "sessions", "sessions_per_user");
        let of_user = said(shared.admit(7, 32, 32).unwrap_err());
        assert!(of_user.contains("32 sessions") && of_user.contains("`sessions_per_user`"));
        let reserved = said(shared.admit(7, 20, 60).unwrap_err());
        assert!(reserved.contains("`sessions` permits 64 sessions") && reserved.contains("root"));
        assert!(!said(shared.admit(0, 0, 64).unwrap_err()).contains("root"));
    }
}
