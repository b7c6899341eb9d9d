//! Bounds of the limits. Beyond them an engine would do nothing, never finish a turn, or request
//! more memory than any machine has.

use std::fmt;

use shm::layout::{BadGeometry, Layout};

use super::Limits;

/// Why an engine cannot run with these limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLimit {
    /// A limit is out of its range.
    OutOfRange {
        /// Its name, as in a configuration file.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Its minimum.
        least: u64,
        /// Its maximum.
        most: u64,
    },
    /// The limits of a region contradict each other.
    Geometry(BadGeometry),
    /// A limit promises more than another permits.
    Unmet {
        /// The promise.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The limit that does not permit it.
        against: &'static str,
        /// Its value.
        has: u64,
        /// The minimum of that for the promise to hold.
        needs: u64,
    },
}

impl fmt::Display for BadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { name, value, .. } => write!(f, "{name} is {value}"),
            Self::Geometry(bad) => write!(f, "the limits do not make a valid region: {bad}"),
            Self::Unmet { name, value, against, has, needs } => write!(
                f,
                "{name} is {value}, which contradicts {against}: it is {has} and would have to be \
                 {needs}"
            ),
        }
    }
}

impl std::error::Error for BadLimit {}

impl BadLimit {
    /// The advice to the user.
    pub fn advice(&self) -> String {
        match self {
            Self::OutOfRange { least, most, .. } => format!("give {least} to {most}"),
            Self::Geometry(_) => "change that limit, or leave it out".to_owned(),
            Self::Unmet { name, against, .. } => format!("lower {name} or raise {against}"),
        }
    }
}

impl Limits {
    /// Approximate address space of an engine with these limits at its start: tables are allocated
    /// at their full size, and their pages are touched when used.
    pub fn bytes_at_start(&self) -> u64 {
        // Thread stacks, ports, and everything without a limit of its own.
        const REST: u64 = 16 << 20;
        // As measured, including its entries in the lookup tables.
        const CONNECTION: u64 = 800;
        const UDP_SOCKET: u64 = 320;
        const NEIGHBOR: u64 = 80;
        REST + u64::from(self.sockets) * CONNECTION
            + u64::from(self.udp_sockets) * UDP_SOCKET
            + u64::from(self.neighbors) * NEIGHBOR
    }

    /// Checks whether an engine can run with these limits.
    ///
    /// # Errors
    /// The first limit that is invalid.
    pub fn check(&self) -> Result<(), BadLimit> {
        // Tables of this many entries are allocated at the start; none may exceed memory.
        const ENTRIES_MAX: u64 = 1 << 24;
        const PER_TURN_MAX: u64 = 1 << 16;
        const BYTES_MAX: u64 = 1 << 40;
        // Early data goes to a receive queue and must fit into its pages.
        let queue_bytes =
            u64::from(self.receive_slots.saturating_sub(1)) * u64::from(self.buffer_bytes);
        let ranges = [
            ("sessions", self.sessions.into(), 1, u16::MAX.into()),
            ("sessions_per_user", self.sessions_per_user.into(), 1, u16::MAX.into()),
            ("control_connections", self.control_connections.into(), 1, u16::MAX.into()),
            ("spans", self.spans.into(), 1, ENTRIES_MAX),
            ("stash_connection_bytes", self.stash_connection_bytes as u64, 0, queue_bytes),
            ("stash_total_bytes", self.stash_total_bytes as u64, 0, BYTES_MAX),
            ("frames_per_turn", self.frames_per_turn as u64, 1, PER_TURN_MAX),
            ("doorbells_per_turn", self.doorbells_per_turn as u64, 1, PER_TURN_MAX),
            ("requests_per_turn", self.requests_per_turn as u64, 1, PER_TURN_MAX),
            ("events_per_turn", self.events_per_turn as u64, 1, PER_TURN_MAX),
            ("transmits_per_turn", self.transmits_per_turn as u64, 1, PER_TURN_MAX),
            ("sockets", self.sockets.into(), 1, ENTRIES_MAX),
            ("listeners", self.listeners.into(), 1, ENTRIES_MAX),
            ("listeners_per_user", self.listeners_per_user.into(), 1, ENTRIES_MAX),
            ("udp_sockets", self.udp_sockets.into(), 1, ENTRIES_MAX),
            ("udp_sockets_per_user", self.udp_sockets_per_user.into(), 1, ENTRIES_MAX),
            ("endpoints_per_user", self.endpoints_per_user.into(), 1, ENTRIES_MAX),
            ("neighbors", self.neighbors.into(), 1, ENTRIES_MAX),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(BadLimit::OutOfRange { name, value, least, most });
            }
        }
        let layout = Layout::sized(self.geometry(1)).map_err(BadLimit::Geometry)?;
        self.check_promises(layout.geometry().region_bytes)
    }

    /// Checks that the promise of each limit is possible within the others.
    fn check_promises(&self, region_bytes: u64) -> Result<(), BadLimit> {
        // Half of the address space of a process on x86-64 and aarch64.
        const ADDRESS_SPACE: u64 = 1 << 46;
        let of_user = u64::from(self.sessions_per_user);
        let sessions = u64::from(self.sessions);
        let needs = [
            ("sessions_per_user", of_user, "sessions", sessions, of_user),
            (
                "sessions",
                sessions,
                "control_connections",
                self.control_connections.into(),
                // An observer, and a connection that has not said hello.
                sessions + 2,
            ),
            (
                "sessions_per_user",
                of_user,
                "memory_per_user",
                self.memory_per_user,
                of_user.saturating_mul(self.session_bytes_first()),
            ),
            (
                "listeners_per_user",
                self.listeners_per_user.into(),
                "listeners",
                self.listeners.into(),
                self.listeners_per_user.into(),
            ),
            (
                "udp_sockets_per_user",
                self.udp_sockets_per_user.into(),
                "udp_sockets",
                self.udp_sockets.into(),
                self.udp_sockets_per_user.into(),
            ),
            (
                "sessions",
                sessions,
                "the address space of a process",
                ADDRESS_SPACE,
                sessions.saturating_mul(region_bytes),
            ),
        ];
        for (name, value, against, has, needs) in needs {
            if has < needs {
                return Err(BadLimit::Unmet { name, value, against, has, needs });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_limits_may_be_had_and_none_or_too_many_of_something_not() {
        assert_eq!(Limits::default().check(), Ok(()));
        let none = Limits { transmits_per_turn: 0, ..Limits::default() };
        let bad = none.check().unwrap_err();
        assert_eq!(
            (bad.to_string(), bad.advice()),
            ("transmits_per_turn is 0".to_owned(), "give 1 to 65536".to_owned(),)
        );
        let many = Limits { spans: u32::MAX, ..Limits::default() };
        assert!(many.check().unwrap_err().to_string().contains("spans"));
        let early = Limits { receive_slots: 16, ..Limits::default() };
        assert!(early.check().unwrap_err().to_string().contains("stash_connection_bytes"));
        let promised =
            Limits { sessions_per_user: 300, memory_per_user: 8 << 20, ..Limits::default() };
        let bad = promised.check().unwrap_err();
        let said = format!("{bad}; {}", bad.advice());
        assert!(said.contains("sessions_per_user is 300") && said.contains("8388608"), "{said}");
        assert!(said.contains("raise memory_per_user"), "{said}");
        let places = Limits { control_connections: 64, ..Limits::default() };
        assert!(places.check().unwrap_err().advice().contains("control_connections"));
        let odd = Limits { send_slots: 3, ..Limits::default() };
        assert!(odd.check().unwrap_err().to_string().contains("send_slots"));
    }
}
