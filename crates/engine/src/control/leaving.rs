//! The control thread's part in ending the engine: it admits no new programs, reports progress, and
//! hangs up sessions when their connections are closed.

use std::time::Duration;

use super::exchange::{Command, SessionKey};
use super::{Connection, Control, Stage as Of};
use crate::ending::{Left, Stage};

impl Control {
    /// The worker has reached this stage.
    pub(super) fn on_ending(&mut self, stage: Stage) {
        say(stage);
        self.is_ending = true;
        self.worker.send(Command::Reach);
        if let Stage::Closing(_) = stage {
            // The worker has already ended the sessions; the hang-up tells their programs.
            let sessions = |one: &mut Connection| matches!(one.stage, Of::Session(_));
            let ended: Vec<_> = self.connections.extract_if(.., |_, one| sessions(one)).collect();
            for (id, _) in &ended {
                // Except for those admitted since.
                self.worker.send(Command::Detach(SessionKey(*id)));
            }
            for (_, one) in ended {
                self.discard.hang_up(one.peer.uid, one.fd);
            }
        }
    }

    /// Ends a session that the worker has already ended.
    pub(super) fn hang_up(&mut self, session: SessionKey) {
        if let Some(connection) = self.connections.remove(&session.0) {
            self.discard.hang_up(connection.peer.uid, connection.fd);
        }
    }
}

fn plural(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn of(left: Left) -> String {
    let connections = plural(left.connections, "connection");
    format!("{connections}, {} attached", plural(left.programs, "program"))
}

/// One line about the progress of the end.
pub(super) fn say(stage: Stage) {
    let line = match stage {
        Stage::Draining { limit_ns: 0 } => return,
        Stage::Lost => "the interface is gone: closing the remaining connections".into(),
        Stage::Draining { limit_ns } => format!(
            "draining: new connections go to the kernel; waiting up to {:?} for established ones \
             (a second signal closes them)",
            Duration::from_nanos(limit_ns)
        ),
        Stage::Waiting(left) => format!("draining: {}", of(left)),
        Stage::Closing(Left { connections: 0, .. }) => "drained".into(),
        Stage::Closing(left) => format!("closing the remaining ones: {}", of(left)),
        Stage::Ended { reset: 0 } => "all connections have ended".into(),
        Stage::Ended { reset } => {
            format!("{} could not deliver their data and were reset", plural(reset, "connection"))
        }
    };
    tracing::info!(target: "progress", "{line}");
}
