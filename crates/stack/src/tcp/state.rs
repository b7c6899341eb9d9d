//! The one place where a connection's state changes: a pure, total table.

use crate::api::TcpState;

/// What can move a connection to another state. A segment that is several of these at once is
/// applied one after the other, in the order in which RFC 9293 section 3.10.7.4 looks: SYN, ACK,
/// FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Our SYN was answered by SYN and ACK of it.
    SynAck,
    /// Our SYN met the peer's (simultaneous open).
    Syn,
    /// Our SYN was acknowledged in SYN-RECEIVED.
    AckOfSyn,
    /// Our FIN was acknowledged.
    AckOfFin,
    /// The peer's FIN, everything before it having been received.
    Fin,
    /// The program closed its sending direction.
    Close,
    /// A valid reset, a timeout, an abort: the connection is over.
    Dead,
}

impl Input {
    /// All inputs, in the order of the committed table.
    pub const ALL: [Input; 7] = [
        Input::SynAck,
        Input::Syn,
        Input::AckOfSyn,
        Input::AckOfFin,
        Input::Fin,
        Input::Close,
        Input::Dead,
    ];
}

/// All states, in the order of the committed table.
pub const STATES: [TcpState; 10] = [
    TcpState::Closed,
    TcpState::SynSent,
    TcpState::SynReceived,
    TcpState::Established,
    TcpState::FinWait1,
    TcpState::FinWait2,
    TcpState::CloseWait,
    TcpState::Closing,
    TcpState::LastAck,
    TcpState::TimeWait,
];

impl TcpState {
    /// The state after `input`. Pairs that cannot meet leave the state as it is.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.3.2
    //# A TCP connection progresses from one state to another in response to
    //# events.
    pub fn after(self, input: Input) -> TcpState {
        use TcpState::*;
        match (self, input) {
            (_, Input::Dead) => Closed,
            (SynSent, Input::SynAck) => Established,
            (SynSent, Input::Syn) => SynReceived,
            (SynSent, Input::Close) => Closed,
            (SynReceived, Input::AckOfSyn) => Established,
            // A close in SYN-RECEIVED waits for ESTABLISHED (section 3.10.4 allows it).
            (Established, Input::Close) => FinWait1,
            (Established, Input::Fin) => CloseWait,
            (FinWait1, Input::AckOfFin) => FinWait2,
            (FinWait1, Input::Fin) => Closing,
            (FinWait2, Input::Fin) | (Closing, Input::AckOfFin) => TimeWait,
            (CloseWait, Input::Close) => LastAck,
            (LastAck, Input::AckOfFin) => Closed,
            (unchanged, _) => unchanged,
        }
    }

    /// Both SYNs have been seen, so the peer's sequence numbers are known.
    pub fn is_synchronized(self) -> bool {
        !matches!(self, TcpState::Closed | TcpState::SynSent | TcpState::SynReceived)
    }

    /// Nothing is sent or received any more, but for what a connection in TIME-WAIT answers.
    pub fn is_over(self) -> bool {
        matches!(self, TcpState::Closed | TcpState::TimeWait)
    }

    /// The peer may still send data.
    pub fn may_receive(self) -> bool {
        matches!(self, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2)
    }

    /// Our sending direction is not closed.
    pub fn may_write(self) -> bool {
        matches!(
            self,
            TcpState::SynSent | TcpState::SynReceived | TcpState::Established | TcpState::CloseWait
        )
    }

    /// A FIN of ours follows the written bytes (and may have been acknowledged).
    pub fn has_closed(self) -> bool {
        matches!(
            self,
            TcpState::FinWait1
                | TcpState::FinWait2
                | TcpState::Closing
                | TcpState::LastAck
                | TcpState::TimeWait
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> String {
        let mut text = String::from("state        | input    | after\n");
        for state in STATES {
            for input in Input::ALL {
                let after = state.after(input);
                let after = if after == state { "-".into() } else { format!("{after:?}") };
                text += &format!(
                    "{:<12} | {:<8} | {after}\n",
                    format!("{state:?}"),
                    format!("{input:?}")
                );
            }
        }
        text
    }

    /// The table is committed so that no transition changes unseen; `UPDATE=1` rewrites it.
    #[test]
    fn transitions_are_those_committed() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tcp/state.table");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, table()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), table());
    }

    #[test]
    fn a_dead_connection_is_closed_whatever_it_was() {
        for state in STATES {
            assert_eq!(state.after(Input::Dead), TcpState::Closed);
        }
    }

    #[test]
    fn nothing_leaves_closed() {
        for input in Input::ALL {
            assert_eq!(TcpState::Closed.after(input), TcpState::Closed);
        }
    }
}
