//! The same connections through the kernel on both sides, and with Outboard on one of them and a bad
//! network between: what programs see must not differ.

use lab::{Finished, Side};
use outboard_tests::joined::PATIENCE;
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, SERVERS, SERVERS_KERNEL, World, scripted};

/// Connections, of as many seeds.
const CONNECTIONS: &str = "500";
const FAULTS: &str = "loss:1%+reorder:2%+dup:1%+corrupt:0.2%";
const PORT: u16 = 9100;

/// Plays all connections between host A and `address`; what both sides say, in order.
fn play(world: &World, address: &str, accelerated: bool) -> Vec<String> {
    let script = |role: &str| {
        scripted(&world.lab, "dialogue.py").args([role, address, &PORT.to_string(), CONNECTIONS])
    };
    let listens = |pid| lab::listens(pid, PORT);
    let server = if accelerated {
        world.serve(script("server"), PORT).expect("a server")
    } else {
        let mut server = world.lab.start(Side::B, script("server")).expect("a server");
        server.until(PATIENCE, |server| listens(server.pid())).expect("it listens");
        server
    };
    let client = if accelerated {
        world.start(Side::A, script("client"))
    } else {
        world.lab.start(Side::A, script("client"))
    };
    let patience = PATIENCE * 5;
    let ended = [client.expect("a client"), server].map(|one| one.wait(patience).expect("it ends"));
    let said = |one: &Finished| one.output.lines().map(str::to_owned).collect::<Vec<_>>();
    let mut lines: Vec<String> = ended.iter().flat_map(said).collect();
    lines.sort();
    let expected = 2 * CONNECTIONS.parse::<usize>().expect("a number");
    assert_eq!(lines.len(), expected, "{}{}", ended[0].errors, ended[1].errors);
    lines
}

#[test]
fn programs_see_the_same_through_outboard_on_a_bad_network_as_through_the_kernel() {
    let name = "programs_see_the_same_through_outboard_on_a_bad_network_as_through_the_kernel";
    let Some(_turn) = turn(name) else { return };
    let mut reference = Vec::new();
    for arrangement in [Arrangement::TapServers, Arrangement::PacketClients] {
        let world = World::new(arrangement, Some(FAULTS)).expect("a world");
        if reference.is_empty() {
            let wrong = |line: &&String| !line.contains(" right ");
            // Once in a while the kernel alone gives a connection with a tiny receive buffer nothing for a
            // minute; that says nothing of what is compared with it.
            for _ in 0..3 {
                reference = play(&world, &SERVERS_KERNEL.to_string(), false);
                if reference.iter().all(|line| !wrong(&line)) {
                    break;
                }
            }
            assert_eq!(reference.iter().find(wrong), None, "the kernel itself");
        }
        let seen = play(&world, &SERVERS.to_string(), true);
        let differ = reference.iter().zip(&seen).filter(|(kernel, ours)| kernel != ours);
        let differ: Vec<_> = differ.take(10).collect();
        assert!(differ.is_empty(), "{}: kernel and ours: {differ:#?}", arrangement.name());
    }
}
