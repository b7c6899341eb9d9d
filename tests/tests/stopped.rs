//! An engine that is stopped: the kernel's half of what programs have open serves meanwhile.

use lab::{Program, Side, Task};
use outboard_tests::joined::{Joined, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use rustix::process::{Pid, Signal, kill_process};

/// Lets an engine go on when dropped, so that it can end.
struct Stopped(Pid);

impl Stopped {
    fn stop(engine: &Program) -> Self {
        let engine = Pid::from_raw(engine.pid()).expect("a process");
        kill_process(engine, Signal::STOP).expect("it is ours");
        Self(engine)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// redis was gone from the network for as long as the engine was stopped.
#[test]
fn the_kernel_serves_what_is_new_while_the_engine_is_stopped() {
    let name = "the_kernel_serves_what_is_new_while_the_engine_is_stopped";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let _redis = joined.redis();
    assert!(joined.answers(SERVER));
    let stopped = Stopped::stop(joined.engine());
    // Their frames are those that wait.
    let ask = || Task::words(&format!("redis-cli -h {SERVER} ping"));
    let clients: Vec<Program> =
        (0..8).map(|_| joined.lab.start(Side::A, ask()).expect("a client")).collect();
    for client in clients {
        let finished = client.wait(PATIENCE).expect("it is answered");
        assert_eq!(finished.output.trim(), "PONG", "{}", finished.errors);
    }
    drop(stopped);
    let kept_back = format!("port_rx_kept_back{{port=xdp:{}}}", joined.link.end(Side::B));
    eventually("the count", || joined.counter(&kept_back) > 0);
    let before = joined.counter("accepts");
    assert!(joined.answers(SERVER));
    assert!(joined.counter("accepts") > before, "the engine serves again");
}
