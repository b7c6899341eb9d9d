//! Two engines that share memory: what programs on them say to each other.

use lab::{Side, Task};
use outboard_tests::joined::PATIENCE;
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, PYTHON, SERVERS, World, scripted};

/// Has bytes echoed: 1 MiB at once, while as many come back, and then 64 at a time.
const ECHOED: &str = "
import random, socket, sys, threading
connection = socket.create_connection((sys.argv[1], 7000), 60)
connection.settimeout(60)
bulk = random.Random(1).randbytes(1 << 20)
threading.Thread(target=connection.sendall, args=(bulk,)).start()
def take(count):
    blocks = []
    while count:
        block = connection.recv(min(count, 1 << 20))
        assert block, 'the connection has ended'
        blocks.append(block)
        count -= len(block)
    return b''.join(blocks)
assert take(len(bulk)) == bulk, 'the bulk has changed'
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for number in range(50):
    question = bulk[number * 64:][:64]
    connection.sendall(question)
    assert take(64) == question, number
print('whole')
";

#[test]
#[ignore = "takes 15 s to more than a minute: engines that cannot sleep share their cores with the programs"]
fn programs_on_two_engines_speak_through_shared_memory() {
    let Some(_turn) = turn("programs_on_two_engines_speak_through_shared_memory") else { return };
    let world = World::new(Arrangement::MemifBoth, None).expect("two hosts");
    let address = SERVERS.to_string();
    let echo = scripted(&world.lab, "echo.py").args(["epoll", &address, "7000"]);
    let _echo = world.serve(echo, 7000).expect("it serves");
    let task = Task::new(PYTHON).args(["-c", ECHOED, &address]);
    let echoed = world.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert_eq!(echoed.output.trim(), "whole", "{}", echoed.errors);
    let port = format!("memif:{}", world.lab.scratch().join("m.sock").display());
    for side in Side::BOTH {
        let stats = world.observe(side).expect("an engine").stats().expect("counters");
        let of = |name: &str| stats.counter(&format!("{name}{{port={port}}}"));
        let [frames, bytes, errors] = ["port_tx_frames", "port_tx_bytes", "port_rx_errors"].map(of);
        assert!(bytes > 1 << 20, "{bytes} bytes through the memory");
        assert!(bytes / frames <= 1514, "{frames} frames have {bytes} bytes");
        assert_eq!(errors, 0);
    }
}
