//! Reports to the engine by processes without a session: the listeners at which they wait, so that
//! the engine takes no new connections for them.
//!
//! A process that may open the engine's control socket creates a connection for that. A process
//! that may not (because of its user, or a changed root directory) uses the connection that its
//! parent created before the fork.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use super::socket::held;
use super::{Era, Sockets};
use crate::open::Bystander;

/// The connection inherited by this process's children, if there is one.
#[derive(Debug, Default)]
pub(super) struct Inheritable(Mutex<Option<Arc<Bystander>>>);

impl Inheritable {
    /// The connection; `None` also while another thread creates it, because a child does not wait
    /// for that.
    pub fn get(&self) -> Option<Arc<Bystander>> {
        self.0.try_lock().ok()?.clone()
    }
}

impl Sockets {
    /// Before fork(2): a process with listeners in the engine creates the connection by which a
    /// child without a session can report them. It costs a descriptor from the first fork on.
    pub fn forking(&self) {
        let Some(era) = self.era() else { return };
        if !era.link.is_wanted()
            || era.link.current().is_none()
            || era.link.listeners().next().is_none()
        {
            return;
        }
        let Ok(mut inheritable) = era.link.bystander.0.try_lock() else { return };
        if let Some(present) = inheritable.as_ref() {
            if present.is_heard() {
                return;
            }
            era.table.take(present.raw_fd());
        }
        // Without one, children cannot report.
        *inheritable = Bystander::attach(&self.config.socket, &self.config.program)
            .ok()
            .map(|made| Arc::new(made.lifted()));
        if let Some(made) = inheritable.as_ref() {
            self.hide(era, made.raw_fd());
        }
    }

    /// In a forked child: it has its parent's connection, too.
    pub(super) fn inherit_bystander(&self, era: &Era, parents: Arc<Bystander>) {
        self.hide(era, parents.raw_fd());
        *held(era.link.bystander.0.lock()) = Some(parents);
    }

    /// The engine has no session for this process: reports the listeners at which it waits.
    /// `connects`: the process may connect to the engine. False: nothing could be reported.
    pub(super) fn tell_of_listeners(&self, era: &Era, connects: bool) -> bool {
        let listeners: Vec<RawFd> = era.link.listeners().filter_map(|one| one.number()).collect();
        if listeners.is_empty() {
            return false;
        }
        let attach = || Bystander::attach(&self.config.socket, &self.config.program).ok();
        let own = connects.then(attach).flatten().map(Arc::new);
        let Some(bystander) = own.or_else(|| era.link.bystander.get()) else { return false };
        let mut is_told = true;
        for fd in listeners {
            self.kernel.lend(fd, &mut |kernel| {
                // Repeated at the next attempt.
                is_told &= bystander.leave_listener(kernel, false).is_ok();
            });
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use shm::control::{ControlListener, Role, Socket as ControlSocket, ToEngine, Wait};

    use super::super::Verdict;
    use super::super::socket::Listening;
    use super::super::tests::{idle_session, layer_at};
    use super::*;

    fn said(by: &ControlSocket) -> (ToEngine, usize) {
        let (message, shown) = by.receive(Wait::No).unwrap();
        (message, shown.len())
    }

    /// Whoever has just connected, if he is a bystander.
    fn bystander(engine: &ControlListener) -> Option<ControlSocket> {
        let came = engine.accept().ok()?;
        assert!(matches!(said(&came), (ToEngine::Hello { role: Role::Bystander, .. }, 0)));
        Some(came)
    }

    /// nginx's workers may not open the engine's socket, and waited for what the engine had accepted.
    #[test]
    fn a_child_that_cannot_reach_the_engine_tells_of_its_listener_by_its_parents_connection() {
        let file = format!("outboard-bystander-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let (sockets, kernel) = layer_at(path.clone());
        let (session, _engine) = idle_session();
        sockets.created(3, libc::AF_INET, libc::SOCK_STREAM, 0);
        sockets.use_session(session);
        let engine = ControlListener::bind(&path, 0o600).unwrap();
        rustix::io::ioctl_fionbio(&engine, true).unwrap();
        sockets.forking();
        assert!(bystander(&engine).is_none(), "it has no listener");
        assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
        sockets.forking();
        let lost = bystander(&engine).expect("the first");
        sockets.forking();
        assert!(bystander(&engine).is_none(), "one is enough");
        drop(lost);
        sockets.forking();
        let came = bystander(&engine).expect("another one, as the engine has hung up");

        let real = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        *held(kernel.lent.lock()) = Some(real.into());
        let child = || {
            sockets.forked();
            // The kernel of this test does not say that it listens.
            let own = sockets.socket(3).unwrap();
            own.become_listener(Listening::new(16));
            sockets.era().unwrap().link.remember(&own);
        };
        let waits = || sockets.adopt(sockets.era().unwrap(), &sockets.socket(3).unwrap());
        child();
        std::fs::remove_file(&path).unwrap();
        assert!(came.receive::<ToEngine>(Wait::No).is_err(), "nobody waits yet");
        waits();
        assert_eq!(said(&came), (ToEngine::LeaveListener { lasting: false }, 1));
        // A child of the child has it, too.
        child();
        waits();
        assert_eq!(said(&came), (ToEngine::LeaveListener { lasting: false }, 1));
    }
}
