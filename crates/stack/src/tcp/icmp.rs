//! ICMP errors and unreachable next hops, checked against the connection (RFC 5927).

use super::IcmpError;
use super::connection::{Connection, NEVER, Phase, Step};
use super::frto::Frto;
use crate::api::TcpError;
use crate::drops::DropReason;
use wire::tcp::SeqNumber;

/// Below this a path MTU is not believed (Linux's min_pmtu).
const PATH_MTU_MIN: u16 = 552;

impl Connection<'_> {
    /// An error about a segment with sequence number `sequence`.
    pub fn on_icmp(
        &mut self,
        step: &mut Step<'_>,
        sequence: u32,
        error: IcmpError,
    ) -> Result<(), DropReason> {
        let sequence = SeqNumber(sequence);
        //= https://www.rfc-editor.org/rfc/rfc5927#section-4.1
        //# These implementations check that the TCP sequence number contained in
        //# the payload of the ICMP error message is within the range
        //# SND.UNA =< SEG.SEQ < SND.NXT.
        let outstanding = if self.hot.is_opening() {
            sequence == self.hot.iss
        } else {
            let offset = self.hot.send_offset(sequence);
            offset >= self.hot.una.cast_signed() && offset < self.hot.nxt.cast_signed()
        };
        if !outstanding {
            return Err(DropReason::IcmpInvalid);
        }
        step.shared.counters.icmp_errors += 1;
        match error {
            IcmpError::PortUnreachable => self.on_unreachable(step, TcpError::Refused),
            IcmpError::HostUnreachable => self.on_unreachable(step, TcpError::HostUnreachable),
            IcmpError::NetUnreachable => self.on_unreachable(step, TcpError::NetUnreachable),
            IcmpError::TooBig { mtu } => self.on_too_big(step, mtu),
        }
        Ok(())
    }

    /// During the handshake it ends the connection, later it is only remembered.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-4.2.3.9
    //# conditions, TCP MUST NOT abort the connection, and it
    //# SHOULD make the information available to the
    //# application.
    pub fn on_unreachable(&mut self, step: &mut Step<'_>, error: TcpError) {
        if self.hot.is_opening() {
            self.die(step, error);
        } else {
            self.cold.soft_error = Some(error);
        }
    }

    /// RFC 1191: smaller segments from now on, and what was too big again.
    fn on_too_big(&mut self, step: &mut Step<'_>, mtu: u16) {
        // Routers older than RFC 1191 do not tell; half is a guess that converges.
        let told = if mtu == 0 { self.cold.mtu / 2 } else { mtu };
        let mtu = told.max(PATH_MTU_MIN);
        if mtu >= self.cold.mtu {
            return;
        }
        step.shared.counters.path_mtu_reductions += 1;
        self.shrink_mtu(step, mtu);
    }

    /// The interface's largest packet was `before` bytes and is `mtu` now.
    pub fn follow_mtu(&mut self, step: &mut Step<'_>, before: u16, mtu: u16) {
        if mtu < self.cold.mtu {
            self.shrink_mtu(step, mtu);
        } else if self.cold.mtu == before {
            self.cold.mtu = mtu;
            if !self.hot.is_opening() {
                self.update_mss();
            }
        }
    }

    /// Smaller segments from now on, and what was sent in larger ones again.
    fn shrink_mtu(&mut self, step: &mut Step<'_>, mtu: u16) {
        self.cold.mtu = mtu;
        self.update_mss();
        if self.hot.is_opening() || self.hot.flight() == 0 {
            return;
        }
        // Not a sign of congestion: the window stays.
        self.hot.phase = Phase::Recovery;
        self.hot.timed_at = NEVER;
        self.cold.recover = self.hot.nxt;
        self.cold.reorder_at = NEVER;
        self.cold.tlp.reset();
        self.cold.prr = None;
        self.cold.frto = Frto::Off;
        self.cold.scoreboard.lose_until(u64::MAX);
        self.arm_send_timer(step.now);
        step.ready = true;
    }
}
