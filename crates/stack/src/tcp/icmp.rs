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
        //= https://www.rfc-editor.org/rfc/rfc8899#section-3
        //# Any received PTB message MUST be validated before it is used to update the PLPMTU
        //# discovery information [RFC8201].
        //= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
        //# * A PL that supports PTB messages MUST validate these messages before they are further
        //# processed.
        //= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
        //# The PL MUST check the protocol information in the quoted packet carried in an ICMP PTB
        //# message payload to validate the message originated from the sending node.
        //= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
        //# The validation SHOULD utilize information that is not simple for an off-path attacker to
        //# determine [BCP145].
        //= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
        //# A PTB message that does not complete the validation MUST NOT be further utilized by the
        //# DPLPMTUD method, as discussed in the Security Considerations section (Section 8).
        //= https://www.rfc-editor.org/rfc/rfc8899#section-8
        //# A node supporting DPLPMTUD MUST therefore appropriately validate the payload of PTB
        //# messages to ensure these are received in response to transmitted traffic (i.e., a
        //# reported error condition that corresponds to a datagram actually sent by the path layer,
        //# see Section 4.6.1).
        let outstanding = if self.hot.is_opening() {
            sequence == self.hot.iss
        } else {
            let offset = self.hot.send_offset(sequence);
            // The SYN of a connection that stands since the peer's SYN (Fast Open) is before its data.
            let first = if self.hot.syn_unacked { -1 } else { self.hot.una.cast_signed() };
            offset >= first && offset < self.hot.nxt.cast_signed()
        };
        if !outstanding {
            step.shared.counters.icmp_out_of_window += 1;
            return Err(DropReason::IcmpInvalid);
        }
        step.shared.counters.icmp_errors += 1;
        match error {
            IcmpError::Failed(error) => self.on_unreachable(step, error),
            IcmpError::TooBig { mtu } => {
                // One that makes nothing smaller says nothing, or is a lie.
                let heeds = self.cold.options.heeds_routers();
                if !heeds || !self.on_too_big(step, mtu) {
                    return Err(DropReason::IcmpInvalid);
                }
            }
        }
        Ok(())
    }

    /// During the handshake it ends the connection, later it is only remembered. One with data on the
    /// SYN is in its handshake, as Linux has it, until a program has accepted it.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.1
    //# The transport layer SHOULD use the information appropriately; for example, see Sections
    //# 4.1.3.3, 4.2.3.9, and 4.2.4 below.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.1
    //# A transport protocol that has its own mechanism for notifying the sender that a port is
    //# unreachable (e.g., TCP, which sends RST segments) MUST nevertheless accept an ICMP Port
    //# Unreachable for the same purpose.
    pub fn on_unreachable(&mut self, step: &mut Step<'_>, error: TcpError) {
        let is_unseen = self.hot.syn_unacked && self.cold.listener.is_some();
        if self.hot.is_opening() || is_unseen {
            self.die(step, error);
        } else {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
            //# There MUST be a mechanism for reporting soft TCP error conditions to the
            //# application (MUST-47).
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
            //# and it SHOULD make the information available to the application (SHLD-25).
            self.cold.soft_error = Some(error);
        }
    }
}
