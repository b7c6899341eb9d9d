//! ICMP errors and unreachable next hops, checked against the connection (RFC 5927).

use super::IcmpError;
use super::connection::{Connection, Step};
use crate::api::TcpError;
use crate::drops::DropReason;
use wire::tcp::SeqNumber;

impl Connection<'_> {
    /// An error about a segment with sequence number `sequence`.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
    //# TCP implementations MUST act on an ICMP error message passed up from the IP layer,
    //# directing it to the connection that created the error (MUST-54).
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
            IcmpError::ProtocolUnreachable => self.on_unreachable(step, TcpError::NoProtocol),
            IcmpError::HostUnreachable => self.on_unreachable(step, TcpError::HostUnreachable),
            IcmpError::NetUnreachable => self.on_unreachable(step, TcpError::NetUnreachable),
            IcmpError::TooBig { mtu } if self.cold.options.pmtu.heeds_routers() => {
                self.on_too_big(step, mtu);
            }
            IcmpError::TooBig { .. } => return Err(DropReason::IcmpInvalid),
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
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
            //# There MUST be a mechanism for reporting soft TCP error conditions to the
            //# application (MUST-47).
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
            //# Since these Unreachable messages indicate soft error conditions, a TCP
            //# implementation MUST NOT abort the connection (MUST-56), and it SHOULD make the
            //# information available to the application (SHLD-25).
            self.cold.soft_error = Some(error);
        }
    }
}
