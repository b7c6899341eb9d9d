//! The connections of a run as an onlooker knows them: what each side means to do and has done,
//! and what may have become of it.

use std::net::SocketAddr;

use client::Errno;

use crate::random::Random;
use crate::swarm::Swarm;
use crate::violation::Violation;

/// How a side ends its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Writes all, shuts down, reads to the end, closes.
    Graceful,
    /// Writes all and closes without having read to the end.
    CloseUnread,
    /// Resets once it has written so many bytes.
    Abort(u64),
    /// Stops reading (SHUT_RD) at the start, otherwise graceful.
    Deaf,
}

/// What became of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All written, all read to the end of the stream.
    Clean,
    /// It left before the end, as it meant to.
    Left,
    /// The connection failed.
    Failed(Errno),
    /// Its program was killed.
    Killed,
}

/// What accounts for failures of connections in a run.
#[derive(Clone, Copy, Debug)]
pub struct Excuses {
    /// The network was gone for long.
    pub may_time_out: bool,
    /// An engine had so little memory that it may have reset what it could not deliver.
    pub may_be_cut: bool,
    /// A table was so small that nobody may have got in.
    pub is_cramped: bool,
}

/// What became of handshakes at an acceptor's host.
#[derive(Clone, Copy, Debug)]
pub struct Acceptor {
    /// There were more than it could keep.
    pub was_crowded: bool,
    /// Segments came that should have had a SYN cookie, and did not.
    pub missed_cookies: bool,
}

/// One side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Host and program.
    pub at: (usize, usize),
    /// Bytes that it means to write.
    pub total: u64,
    /// How it ends.
    pub ending: Ending,
    /// Bytes that it has written.
    pub written: u64,
    /// Bytes that it has read.
    pub read: u64,
    /// It has said that no more is written.
    pub shut: bool,
    /// It holds an endpoint.
    pub is_open: bool,
    /// What became of it.
    pub outcome: Option<Outcome>,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// When it is opened.
    pub opens_at: u64,
    /// Connector, acceptor.
    pub sides: [Side; 2],
    /// The local port that the connector asks for.
    pub local_port: Option<u16>,
    /// Both sides connect.
    pub simultaneous: bool,
    /// A scribbling program takes part: its bytes mean nothing.
    pub is_tainted: bool,
    /// Addresses of the connector and the acceptor.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// A program that took part was killed.
    pub lost_program: bool,
    /// With SYN cookies what was still under way opened it once more at the acceptor, without its
    /// stream.
    pub was_reopened: bool,
}

impl Connection {
    /// Draws a connection.
    pub fn draw(
        r: &mut Random,
        swarm: &Swarm,
        opens_at: u64,
        from: (usize, usize),
        to: (usize, usize),
    ) -> Self {
        let mut side = |at| {
            let total = match r.below(8) {
                0 => 0,
                1 => r.below(20),
                _ => r.scale_free(swarm.stream_bytes),
            };
            let ending = match r.below(12) {
                0 | 1 => Ending::CloseUnread,
                2 => Ending::Abort(r.below(total + 1)),
                3 => Ending::Deaf,
                _ => Ending::Graceful,
            };
            Side {
                at,
                total,
                ending,
                written: 0,
                read: 0,
                shut: false,
                is_open: false,
                outcome: None,
            }
        };
        Self {
            opens_at,
            sides: [side(from), side(to)],
            local_port: None,
            simultaneous: false,
            is_tainted: false,
            addresses: None,
            lost_program: false,
            was_reopened: false,
        }
    }

    /// Whether both sides have ended, as far as they ever began.
    pub fn is_over(&self) -> bool {
        self.sides.iter().all(|side| !side.is_open || side.outcome.is_some())
    }

    /// Checks the end of the stream at `side`: nothing that the peer wrote may be missing.
    pub fn check_end(&self, side: usize) -> Result<(), Violation> {
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        // A killed program's connections end as if it had closed them.
        let ended = peer.shut || peer.outcome == Some(Outcome::Killed);
        if self.is_tainted || ended && own.read == peer.written {
            return Ok(());
        }
        // The peer had reset it, the reset was lost, and the end is that of its second life.
        if self.was_reopened && side == 0 && peer.outcome == Some(Outcome::Left) {
            return Ok(());
        }
        Err(format!(
            "side {side} read the end of the stream at {} but its peer has written {} and {}",
            own.read,
            peer.written,
            if peer.shut { "ended there" } else { "not ended" }
        )
        .into())
    }

    /// Whether what became of the sides is what they, the faults and the acceptor's host account for.
    pub fn check_outcome(&self, excuses: Excuses, acceptor: Acceptor) -> Result<(), Violation> {
        let Excuses { may_time_out, may_be_cut, is_cramped } = excuses;
        if self.is_tainted || self.lost_program {
            return Ok(());
        }
        for side in 0..2 {
            let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
            let Some(Outcome::Failed(errno)) = own.outcome else { continue };
            let peer_left = peer.ending != Ending::Graceful
                || matches!(peer.outcome, Some(Outcome::Killed | Outcome::Left));
            let peer_failed = matches!(peer.outcome, Some(Outcome::Failed(_)));
            let explained = match errno {
                Errno::TIMEDOUT | Errno::HOSTUNREACH => {
                    may_time_out || peer_failed || is_cramped && !peer.is_open
                }
                Errno::CONNRESET | Errno::PIPE => {
                    peer_left
                        || peer_failed && peer.outcome != Some(Outcome::Failed(errno))
                        || may_time_out
                        || may_be_cut
                        // It believed in a connection that its peer had no place for any more.
                        || acceptor.was_crowded && !peer.is_open
                        // What overtakes the handshake's last ACK shows no cookie, and is answered
                        // with a reset.
                        || acceptor.missed_cookies && side == 0
                }
                // Its SYN came to a port where the other side did not connect (any more).
                Errno::CONNREFUSED => self.simultaneous && (peer_failed || !peer.is_open),
                _ => false,
            };
            if !explained {
                return Err(format!("side {side} failed with {errno:?} without a reason").into());
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((from, to)) = self.addresses {
            write!(f, "{from}>{to}")?;
        }
        for side in &self.sides {
            write!(
                f,
                " [{:?} {:?} {}/{} written{}, {} read, {}{:?}]",
                side.at,
                side.ending,
                side.written,
                side.total,
                if side.shut { " and ended" } else { "" },
                side.read,
                if side.is_open { "open, " } else { "" },
                side.outcome
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose acceptor has reset it after two bytes.
    fn reset_by_acceptor() -> Connection {
        let mut random = Random::new(1, 1);
        let mut connection = Connection::draw(&mut random, &Swarm::draw(1), 0, (0, 0), (1, 0));
        connection.sides[1].written = 2;
        connection.sides[1].outcome = Some(Outcome::Left);
        connection
    }

    #[test]
    fn an_early_end_is_excused_only_where_a_cookie_reopened_what_the_acceptor_had_reset() {
        let mut connection = reset_by_acceptor();
        assert!(connection.check_end(0).is_err());
        connection.was_reopened = true;
        assert_eq!(connection.check_end(0), Ok(()));
        connection.sides[1].outcome = None;
        assert!(connection.check_end(0).is_err(), "the acceptor has not left");
    }
}
