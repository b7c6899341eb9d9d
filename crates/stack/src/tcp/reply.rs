//! Segments that belong to no connection (any more): resets, TIME-WAIT's acknowledgements.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, TcpSegment, Timestamps, UserTimeout};

use super::connection::{Connection, Step};
use super::signing::SigningKey;
use crate::api::InterfaceIndex;

/// The ECN field of the type of service.
const ECN: u8 = 3;

/// What the SYN and ACK of no connection (a SYN cookie) says beside its timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SynOptions {
    /// Largest segment that we take.
    pub mss: u16,
    /// Shift of our windows, where the peer scales its own.
    pub window_scale: Option<u8>,
    /// The peer understands SACK, and so do we.
    pub sack_permitted: bool,
    /// The user timeout of the connection that is to be, where it is told.
    pub user_timeout: Option<UserTimeout>,
}

/// A segment without payload, complete in itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Where it goes out.
    pub interface: InterfaceIndex,
    /// Own address.
    pub local: SocketAddr,
    /// Where to.
    pub remote: SocketAddr,
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK.
    pub ack: SeqNumber,
    /// SEG.CTL.
    pub flags: TcpFlags,
    /// SEG.WND, not scaled.
    pub window: u16,
    /// Timestamps, where the connection had them.
    pub timestamps: Option<Timestamps>,
    /// The other options of a SYN.
    pub syn: Option<SynOptions>,
    /// Type of service.
    pub tos: u8,
    /// What it is signed with.
    pub key: Option<Box<SigningKey>>,
}

impl Connection<'_> {
    /// The reset that answers a segment which the connection does not accept.
    pub fn reset_for(&self, step: &Step<'_>, segment: &TcpSegment<'_>) -> Option<Reply> {
        let (local, remote) = (self.cold.local.address(), self.cold.remote.address());
        let reset = Reply::reset(self.hot.interface, local, remote, segment, step.answers_as)?;
        Some(reset.signed_with(self.cold.key()))
    }
}

impl Reply {
    /// The type of service of what answers a segment by itself: the segment's, without ECN, as Linux.
    pub fn tos_to(segment: u8) -> u8 {
        segment & !ECN
    }

    /// The reset that answers a segment which no connection accepts; `None` for a reset.
    pub fn reset(
        interface: InterfaceIndex,
        local: SocketAddr,
        remote: SocketAddr,
        segment: &TcpSegment<'_>,
        tos: u8,
    ) -> Option<Reply> {
        let header = &segment.header;
        if header.flags.rst() {
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.1
        //# If the ACK bit is off, sequence number zero is used,
        //#
        //#    <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>
        //#
        //# If the ACK bit is on,
        //#
        //#    <SEQ=SEG.ACK><CTL=RST>
        let (seq, ack, flags) = if header.flags.ack() {
            (header.ack, SeqNumber(0), TcpFlags::RST)
        } else {
            let ack = header.seq + segment.seq_len();
            (SeqNumber(0), ack, TcpFlags::RST | TcpFlags::ACK)
        };
        Some(Reply {
            interface,
            local,
            remote,
            seq,
            ack,
            flags,
            window: 0,
            timestamps: None,
            syn: None,
            tos,
            key: None,
        })
    }

    /// The same, signed where there is a key.
    pub fn signed_with(mut self, key: Option<&SigningKey>) -> Reply {
        self.key = key.cloned().map(Box::new);
        self
    }

    /// The header to emit.
    pub fn header(&self) -> (TcpHeader, TcpOptions) {
        let header = TcpHeader {
            src_port: self.local.port(),
            dst_port: self.remote.port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            checksum: 0,
            urgent: 0,
        };
        let signature = self.key.is_some().then_some([0; 16]);
        let mut options = TcpOptions { timestamps: self.timestamps, signature, ..TcpOptions::NONE };
        if let Some(syn) = self.syn {
            options = TcpOptions {
                mss: Some(syn.mss),
                window_scale: syn.window_scale,
                sack_permitted: syn.sack_permitted,
                user_timeout: syn.user_timeout,
                ..options
            };
        }
        (header, options)
    }
}
