//! The kernel's addresses, routes, rules and MTU under an engine on its interface: what changes for
//! connections, listeners and programs that are attached already.

use lab::{Program, Side, Task, listens};
use outboard_tests::joined::{CLIENT, Family, Joined, Keeper, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script, scripted};

#[test]
fn connections_outlive_the_removal_of_their_address() {
    let Some(_turn) = turn("connections_outlive_the_removal_of_their_address") else { return };
    for joined in Joined::over_each_family() {
        let _redis = joined.redis();
        let (server, second) = (joined.server(), joined.spare_address());
        joined.add_address(Side::B, second);
        let mut keeper = Keeper::start(&joined, Side::A, false);
        assert_eq!(keeper.open("first", server, 6379), "ok");
        eventually("a connection of the engine's to the new address", || {
            let accepts = joined.counter("accepts");
            assert_eq!(keeper.open("second", second, 6379), "ok");
            assert_eq!(keeper.ask("second", 0), "ok");
            joined.counter("accepts") > accepts
        });
        joined.remove_address(Side::B, second);
        // The other address goes on, for connections that stand and new ones.
        assert_eq!(keeper.ask("first", 0), "ok");
        let accepts = joined.counter("accepts");
        assert!(joined.answers(server));
        assert_eq!(joined.counter("accepts"), accepts + 1);
        // And the first waits until its own is back.
        let asked = keeper.begin("use", "second 0");
        joined.add_address(Side::B, second);
        assert_eq!(keeper.outcome(asked), "ok");
        assert_eq!(keeper.ask("first", 0), "ok");
    }
}

#[test]
fn an_address_that_is_replaced_takes_its_listeners_and_connections_along() {
    let Some(_turn) = turn("an_address_that_is_replaced_takes_its_listeners_and_connections_along")
    else {
        return;
    };
    for joined in Joined::over_each_family() {
        let _redis = joined.redis();
        let b = joined.link.end(Side::B);
        let mut keeper = Keeper::of_redis(&joined);
        let (server, second) = (joined.server(), joined.spare_address());
        // The same address with another prefix, and the old one away; of IPv6 an address has one.
        let prefix = match joined.family {
            Family::V4 => {
                joined.ip(Side::B, &format!("addr add {server}/25 dev {b}"));
                joined.remove_address(Side::B, server);
                25
            }
            Family::V6 => {
                joined.ip(Side::B, &format!("addr replace {server}/64 dev {b} preferred_lft 0"));
                64
            }
        };
        assert_eq!(keeper.ask("held", 0), "ok");
        let accepts = joined.counter("accepts");
        assert!(joined.answers(server));
        assert_eq!(joined.counter("accepts"), accepts + 1, "still the engine's");
        // Another address altogether: the same listener has it.
        joined.add_address(Side::B, second);
        joined.ip(Side::B, &format!("addr del {server}/{prefix} dev {b}"));
        eventually("acceleration at the new address", || {
            let accepts = joined.counter("accepts");
            assert!(joined.answers(second), "one of the two halves serves");
            joined.counter("accepts") > accepts
        });
    }
}

/// A plain server on host A that echoes.
fn echo(joined: &Joined, address: &str, port: u16) -> Program {
    let task = Task::new(PYTHON).arg(script(&joined.lab, "echo.py")).args(["epoll", address]);
    let mut server = joined.lab.start(Side::A, task.arg(port.to_string())).expect("a server");
    server.until(PATIENCE, |server| listens(server.pid(), port)).expect("it listens");
    server
}

#[test]
fn attached_programs_learn_of_new_addresses_and_routes() {
    let Some(_turn) = turn("attached_programs_learn_of_new_addresses_and_routes") else { return };
    for joined in Joined::over_each_family() {
        let (client, server) = (joined.client(), joined.server());
        let _echo = echo(&joined, joined.anywhere(), 7000);
        let mut keeper = Keeper::start(&joined, Side::B, true);
        assert_eq!(keeper.open("near", client, 7000), "ok");
        assert_eq!(joined.counter("tcp_active_opens"), 1);
        // A network without a route: the kernel is asked, and says so.
        let (far, network) = joined.beyond();
        joined.ip(Side::A, &format!("addr add {far} dev lo"));
        assert_eq!(keeper.open("far", far, 7000), "ENETUNREACH");
        joined.ip(Side::B, &format!("route add {network} via {client}"));
        let mut opens = 1;
        eventually("the engine's way to a network with a route", || {
            assert_eq!(keeper.open("far", far, 7000), "ok");
            let now = joined.counter("tcp_active_opens");
            std::mem::replace(&mut opens, now) < now
        });
        assert_eq!(keeper.ask("far", 1000), "ok");
        // A second network on the link.
        let [near, own] = match joined.family {
            Family::V4 => ["10.99.0.1", "10.99.0.2"],
            Family::V6 => ["fd99::1", "fd99::2"],
        };
        joined.add_address(Side::A, near);
        joined.add_address(Side::B, own);
        eventually("the engine's way to a new network on the link", || {
            assert_eq!(keeper.open("new", near, 7000), "ok");
            let now = joined.counter("tcp_active_opens");
            std::mem::replace(&mut opens, now) < now
        });
        // What leads elsewhere is the kernel's, although the network is the engine's otherwise.
        joined.ip(Side::B, &format!("route add unreachable {far}"));
        eventually("the kernel's way", || {
            let before = joined.counter("tcp_active_opens");
            keeper.open("elsewhere", far, 7000) != "ok"
                && joined.counter("tcp_active_opens") == before
        });
        // To the machine's own address an accelerated program goes through the kernel.
        let own = scripted(&joined.lab, "echo.py").args(["epoll", server, "7001"]);
        let _own = joined.serve(own, 7001);
        let before = joined.counter("tcp_active_opens");
        assert_eq!(keeper.open("own", server, 7001), "ok");
        assert_eq!(keeper.ask("own", 1000), "ok");
        assert_eq!(joined.counter("tcp_active_opens"), before);
    }
}

/// Tells the length of every IP packet with TCP that comes from a port.
const LENGTHS: &str = "
import socket, sys
taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
taken.bind((sys.argv[1], 0))
print('ready', flush=True)
while True:
    ip = taken.recv(70000)[14:]
    if ip[0] >> 4 == 4:
        header, protocol, size = (ip[0] & 15) * 4, ip[9], int.from_bytes(ip[2:4], 'big')
    else:
        header, protocol, size = 40, ip[6], 40 + int.from_bytes(ip[4:6], 'big')
    if protocol == 6 and ip[header:][:2] == int(sys.argv[2]).to_bytes(2, 'big'):
        print(size, flush=True)
";

#[test]
fn segments_of_running_connections_follow_the_mtu() {
    let Some(_turn) = turn("segments_of_running_connections_follow_the_mtu") else { return };
    for joined in Joined::over_each_family() {
        let [a, b] = Side::BOTH.map(|side| joined.link.end(side));
        joined.lab.inside(Side::A, &["ethtool", "-K", &a, "gro", "off"]).expect("ethtool");
        let server = joined.server();
        let _echo = joined.python("echo.py", &["epoll", server, "7000"], 7000);
        let mut keeper = Keeper::start(&joined, Side::A, false);
        assert_eq!(keeper.open("held", server, 7000), "ok");
        assert_eq!(keeper.ask("held", 200_000), "ok");
        assert_eq!(joined.counter("accepts"), 1);
        for mtu in [1300, 1500] {
            for (side, end) in [(Side::A, &a), (Side::B, &b)] {
                joined.ip(side, &format!("link set {end} mtu {mtu}"));
            }
            eventually("news of the MTU", || {
                let seen = Task::new(PYTHON).args(["-c", LENGTHS, &a, "7000"]);
                let mut seen = joined.lab.start(Side::A, seen).expect("an observer");
                seen.until(PATIENCE, |one| one.output().contains("ready")).expect("it begins");
                assert_eq!(keeper.ask("held", 200_000), "ok");
                let output = seen.output();
                let sizes = output.lines().filter_map(|line| line.parse::<usize>().ok());
                sizes.max() == Some(mtu)
            });
        }
    }
}

/// Routes that the engine follows, and a few more.
const ROUTES: usize = 16 * 1024 + 100;

#[test]
fn routes_beyond_what_is_followed_are_counted_until_they_are_gone() {
    let Some(_turn) = turn("routes_beyond_what_is_followed_are_counted") else { return };
    let joined = Joined::start();
    assert_eq!(joined.counter("routes_left_out") + joined.counter("routes_untold"), 0);
    let batch = |name: &str, verb: &str| {
        let lines = (0..ROUTES).map(|at| {
            format!(
                "route {verb} 172.{}.{}.{}/32 via {CLIENT}\n",
                16 + (at >> 16),
                at >> 8 & 255,
                at & 255
            )
        });
        let path = joined.lab.scratch().join(name);
        std::fs::write(&path, lines.collect::<String>()).expect("a file");
        joined.ip(Side::B, &format!("-batch {}", path.display()));
    };
    batch("add", "add");
    eventually("too many routes", || joined.counter("routes_left_out") >= 100);
    assert!(joined.counter("routes_untold") > 0);
    batch("del", "del");
    let counts = || joined.counter("routes_left_out") + joined.counter("routes_untold");
    eventually("as few as before", || counts() == 0);
}

#[test]
fn rules_of_the_kernels_own_keep_new_connections_from_the_engine() {
    let Some(_turn) = turn("rules_of_the_kernels_own_keep_new_connections_from_the_engine") else {
        return;
    };
    let mut joined = Joined::start();
    let _redis = joined.redis();
    let mut keeper = Keeper::of_redis(&joined);
    joined.ip(Side::B, "rule add fwmark 7 table 100");
    joined.engine_says("routing rules");
    eventually("new connections through the kernel", || {
        let accepts = joined.counter("accepts");
        assert!(joined.answers(SERVER));
        joined.counter("accepts") == accepts
    });
    assert_eq!(keeper.ask("held", 0), "ok", "what stands goes on");
    // Those that programs open, too.
    let _echo = echo(&joined, "0.0.0.0", 7000);
    let mut client = Keeper::start(&joined, Side::B, true);
    assert_eq!(client.open("out", CLIENT, 7000), "ok");
    assert_eq!(joined.counter("tcp_active_opens"), 0);
    joined.ip(Side::B, "rule del fwmark 7 table 100");
    eventually("acceleration again", || {
        let accepts = joined.counter("accepts");
        assert!(joined.answers(SERVER));
        joined.counter("accepts") > accepts
    });
    eventually("the engine's connects again", || {
        assert_eq!(client.open("out", CLIENT, 7000), "ok");
        joined.counter("tcp_active_opens") > 0
    });
}

/// Connects with a mark, and says what the kernel knows of the connection.
const MARKED: &str = "
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, 36, 7)  # SO_MARK
s.settimeout(60)
s.connect((sys.argv[1], 7000))
s.sendall(b'x')
print(s.recv(1), s.getsockopt(socket.SOL_SOCKET, 36), flush=True)
";

#[test]
fn a_marked_socket_goes_through_the_kernel_and_says_so() {
    let Some(_turn) = turn("a_marked_socket_goes_through_the_kernel_and_says_so") else { return };
    let joined = Joined::start();
    let _echo = echo(&joined, "0.0.0.0", 7000);
    let task = Task::new(PYTHON).args(["-c", MARKED, CLIENT]);
    let finished = joined.run(Side::B, joined.accelerated(task));
    assert_eq!(finished.output.trim(), "b'x' 7", "{}", finished.errors);
    assert!(finished.errors.contains("SO_MARK"), "{}", finished.errors);
    assert_eq!(joined.counter("tcp_active_opens"), 0);
}

/// Serves with filters and hops of its own, set when the engine serves already, and says what a connection
/// of the engine's says of them.
const FILTERED: &str = "
import ctypes, socket, struct, sys
SO_ATTACH_FILTER, IP_MINTTL = 26, 21
u = socket.socket(type=socket.SOCK_DGRAM)
u.bind(('0.0.0.0', 7100))
t = socket.socket()
t.bind(('0.0.0.0', 7101))
t.listen()
c = socket.create_connection((sys.argv[1], 7000))
print('serves', flush=True)
u.recv(1)
one = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))  # ret 0: nothing passes
u.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack('HL', 1, ctypes.addressof(one)))
t.setsockopt(socket.IPPROTO_IP, IP_MINTTL, 255)
try:
    c.setsockopt(socket.IPPROTO_IP, IP_MINTTL, 255)
except OSError as error:
    print(error.errno, flush=True)
print(t.accept()[0].recv(1), flush=True)
";

#[test]
fn what_a_program_filters_does_not_come_past_the_kernel_by_the_engine() {
    let test = "what_a_program_filters_does_not_come_past_the_kernel_by_the_engine";
    let Some(_turn) = turn(test) else { return };
    let joined = Joined::start();
    let _echo = echo(&joined, "0.0.0.0", 7000);
    let task = joined.accelerated(Task::new(PYTHON).args(["-c", FILTERED, CLIENT]));
    let both = [7100, 7101];
    let server = joined.start_ready(Side::B, task, |server| {
        server.output().contains("serves") && both.iter().all(|port| joined.is_accelerated(*port))
    });
    let accepts = joined.counter("accepts");
    let near = "import socket, sys\n\
                socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 7100))";
    assert!(joined.run(Side::A, Task::new(PYTHON).args(["-c", near, SERVER])).status.success());
    eventually("the kernel's sockets", || both.iter().all(|port| !joined.is_accelerated(*port)));
    let near = "import socket, sys\n\
                s = socket.socket()\n\
                s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)\n\
                s.connect((sys.argv[1], 7101))\n\
                s.sendall(b'x')\n\
                s.recv(1)";
    let asked = joined.run(Side::A, Task::new(PYTHON).args(["-c", near, SERVER]));
    assert!(asked.status.success(), "{}", asked.errors);
    let finished = server.wait(PATIENCE).expect("it ends");
    let refused = rustix::io::Errno::NOPROTOOPT.raw_os_error();
    assert_eq!(finished.output.trim(), format!("serves\n{refused}\nb'x'"), "{}", finished.errors);
    assert!(finished.errors.contains("SO_ATTACH_FILTER"), "{}", finished.errors);
    assert_eq!((joined.counter("accepts"), joined.counter("tcp_active_opens")), (accepts, 1));
}
