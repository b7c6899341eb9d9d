//! A process that has no descriptors left. Its limit is the whole process's: one test, in a
//! program of its own.

#![cfg(not(loom))]

use outboard_shm::control::{ControlError, Socket, ToEngine, Wait};
use rustix::process::{Resource, getrlimit, setrlimit};

#[test]
fn descriptors_that_the_kernel_could_not_give_are_named_as_what_is_missing() {
    let (here, there) = Socket::pair().unwrap();
    let shown = std::fs::File::open("/dev/null").unwrap();
    let listen = ToEngine::Listen { serial: 1, context: 0, backlog: 1 };
    for _ in 0..2 {
        here.send(&listen, &[std::os::fd::AsFd::as_fd(&shown)], Wait::No).unwrap();
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(3);
    setrlimit(Resource::Nofile, limit).unwrap();
    let error = there.receive::<ToEngine>(Wait::No).unwrap_err();
    assert!(matches!(error, ControlError::DescriptorsLost), "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    // The message itself is not lost, so that what it grants can be given back.
    let (message, descriptors, is_whole) = there.receive_partly::<ToEngine>(Wait::No).unwrap();
    assert!(matches!(message, ToEngine::Listen { serial: 1, .. }));
    assert!(descriptors.is_empty() && !is_whole);
}
