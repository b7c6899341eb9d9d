//! Urgent data between the engine's connections and the kernel's, as programs in Python see it: SIGURG to
//! the owner, select's exceptional conditions, the mark, in band and out of it; and SIGIO.

use lab::{Program, Side};
use outboard_tests::joined::{Joined, PATIENCE};
use outboard_tests::turn;
use outboard_tests::world::scripted;

const PORT: u16 = 7200;

/// What both ends say: who asks on host A, who serves on host B, with the library where asked for.
fn said(joined: &Joined, accelerated: bool) -> [String; 2] {
    let port = PORT + u16::from(accelerated);
    let task = |role| {
        let task = scripted(&joined.lab, "urgent.py");
        task.args([role, joined.server(), &port.to_string()])
    };
    let serving = task("serve");
    let serving = if accelerated { joined.accelerated(serving) } else { serving };
    let ready = |server: &Program| server.output().contains("ready");
    let mut server = joined.start_ready(Side::B, serving, ready);
    let asked = joined.run(Side::A, task("ask")).success();
    let asked = asked
        .unwrap_or_else(|failure| panic!("{failure:?}{}{}", server.output(), server.errors()))
        .output;
    let told = |server: &Program| server.output().lines().count() > asked.lines().count();
    server.until(PATIENCE, told).expect("the server sees as much");
    [asked, server.output()]
}

#[test]
fn urgent_data_is_told_and_read_as_by_the_kernel_in_both_roles() {
    let name = "urgent_data_is_told_and_read_as_by_the_kernel_in_both_roles";
    let Some(_turn) = turn(name) else { return };
    for joined in Joined::over_each_family() {
        let kernels = said(&joined, false);
        assert!(kernels[0].contains("signalled True"), "{}", kernels[0]);
        let accepts = joined.counter("accepts");
        let engines = said(&joined, true);
        assert_eq!(joined.counter("accepts"), accepts + 1, "through the engine");
        assert_eq!(engines, kernels);
        // And the engine's program as the one who connects.
        let task = scripted(&joined.lab, "urgent.py");
        let port = (PORT + 2).to_string();
        let serving = task.args(["serve", joined.client(), &port]);
        let ready = |server: &Program| server.output().contains("ready");
        let _server = joined.start_ready(Side::A, serving, ready);
        let task = scripted(&joined.lab, "urgent.py").args(["ask", joined.client(), &port]);
        let connects = joined.counter("tcp_active_opens");
        let asked = joined.run(Side::B, joined.accelerated(task)).success().expect("it ends");
        assert_eq!(joined.counter("tcp_active_opens"), connects + 1, "through the engine");
        assert_eq!(asked.output, kernels[0]);
    }
}
