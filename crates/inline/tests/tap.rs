//! The example over a TAP device, against programs on the kernel's sockets.

use std::time::Duration;

use lab::{Lab, Side, Task, find};

/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a megabyte and compares what comes back, then three datagrams.
const CLIENT: &str = "
import socket, sys, threading
where = (sys.argv[1], 7)
sent = bytes((i * 31 + i // 251) % 256 for i in range(1 << 20))
with socket.create_connection(where, timeout=30) as s:
    def send():
        s.sendall(sent)
        s.shutdown(socket.SHUT_WR)
    thread = threading.Thread(target=send)
    thread.start()
    got = b''
    while part := s.recv(65536):
        got += part
    thread.join()
assert got == sent, f'{len(got)} bytes came back, or others'
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(30)
    for size in (1, 1400, 9000):
        s.sendto(sent[:size], where)
        got, sender = s.recvfrom(65536)
        assert got == sent[:size] and sender == where, f'{len(got)} bytes of {sender}'
print('same')
";

#[test]
fn a_program_with_the_engine_inside_echoes_to_the_kernels_programs() {
    let test = "a_program_with_the_engine_inside_echoes_to_the_kernels_programs";
    if !skips::is_root(test) {
        return;
    }
    let python = find("python3").expect("scripts/setup installs it");
    let lab = Lab::new().expect("a laboratory");
    let example = std::env::current_exe().expect("the test's path");
    let built = example.parent().and_then(|deps| deps.parent()).expect("a build folder");
    let tap = format!("{}t", lab.stem());
    let port = format!("tap:{tap},addr=10.78.0.2/24");
    let task = Task::new(built.join("examples/inline_echo")).args([port.as_str(), "10.78.0.2:7"]);
    let mut server = lab.start(Side::A, task).expect("it starts");
    server.until(PATIENCE, |one| one.output().contains("listening")).expect("it listens");
    lab.adopt(Side::A, &tap, [10, 78, 0, 1].into()).expect("the kernel's end");
    let client = Task::new(python).args(["-c", CLIENT, "10.78.0.2"]);
    let client = lab.start(Side::A, client).and_then(|one| one.wait(4 * PATIENCE));
    let client = client.expect("it ends");
    assert_eq!(client.output.trim(), "same", "{}", client.errors);
    let all = "served 1 connections, 3 datagrams";
    server.until(PATIENCE, |one| one.output().contains(all)).expect("it counts");
    let output = server.output();
    for counted in ["accepts 1", "datagrams_rx 3", "datagrams_tx 3", "tcp_resets_sent 0"] {
        assert!(output.lines().any(|line| line == counted), "{counted} is not in\n{output}");
    }
    server.stop();
}
