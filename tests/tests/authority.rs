//! A port is whose the kernel says it is: an ordinary user who speaks the control protocol itself can
//! neither keep one that the kernel has taken back nor receive, divert or block what comes to it.

use lab::{Program, Side, Task, listens};
use outboard_tests::joined::{CLIENT, Joined, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script, scripted};

/// An ordinary user's program that shows a socket in this way, and has done it.
fn hostile(joined: &Joined, before: &str, how: &str, port: u16) -> Program {
    let user = "setpriv --reuid 2 --regid 2 --clear-groups";
    let task = Task::words(&format!("{before}{user} {PYTHON}"));
    let task = task.arg(script(&joined.lab, "hostile.py")).arg(&joined.socket);
    let task = task.args([how, SERVER, &port.to_string()]);
    let hostile = joined.lab.start(Side::B, task).expect("a program");
    ready(hostile, "ready")
}

/// The port that it was granted.
fn granted(hostile: &Program) -> u16 {
    let said = hostile.output();
    let port = said.strip_prefix("granted ").and_then(|rest| rest.lines().next()?.parse().ok());
    port.unwrap_or_else(|| panic!("{said}"))
}

fn ready(mut program: Program, word: &str) -> Program {
    if let Err(failure) = program.until(PATIENCE, |one| one.output().contains(word)) {
        panic!("{failure}: {}{}", program.output(), program.errors());
    }
    program
}

/// Root's service at the port, which it binds without an error, once the engine leaves it alone.
fn service(joined: &Joined, accelerated: bool, words: &[&str]) -> Program {
    let task = scripted(&joined.lab, "service.py").args(words);
    let task = if accelerated { joined.accelerated(task) } else { task };
    ready(joined.lab.start(Side::B, task).expect("a service"), "serves")
}

/// Who answers a client of the other host.
fn answer(joined: &Joined, protocol: &str, port: u16) -> String {
    let task = scripted(&joined.lab, "ask.py").args([protocol, SERVER, &port.to_string()]);
    let finished = joined.run(Side::A, task);
    finished.output.trim().to_owned() + &finished.errors
}

#[test]
fn a_tcp_port_that_was_given_back_is_the_next_owners() {
    let Some(_turn) = turn("a_tcp_port_that_was_given_back_is_the_next_owners") else { return };
    let joined = Joined::start();
    for (port, how) in (20_000..).zip(["shut", "disconnected", "moved", "passed"]) {
        let withdrawn = joined.counter("rights_withdrawn");
        let mut hostile = hostile(&joined, "", how, port);
        let port = granted(&hostile);
        let words = ["tcp", SERVER, &port.to_string(), "reuse"];
        let native = service(&joined, false, &words);
        eventually(how, || joined.counter("rights_withdrawn") == withdrawn + 1);
        let accepts = joined.counter("accepts");
        assert_eq!(answer(&joined, "tcp", port), "0", "{how}");
        assert_eq!(joined.counter("accepts"), accepts);
        drop(native);
        let _service = service(&joined, true, &words);
        eventually(how, || joined.is_accelerated(port));
        assert_eq!(answer(&joined, "tcp", port), "0", "{how}");
        assert_eq!(joined.counter("accepts"), accepts + 1, "the engine brought it, {how}");
        assert!(hostile.is_running(), "{how}: {}", hostile.errors());
    }
}

#[test]
fn a_udp_port_that_was_given_back_or_is_anothers_too_is_the_kernels_to_give() {
    let test = "a_udp_port_that_was_given_back_or_is_anothers_too_is_the_kernels_to_give";
    let Some(_turn) = turn(test) else { return };
    let joined = Joined::start();
    for (port, how) in (20_000..).zip(["loosened", "narrowed", "shared"]) {
        let withdrawn = joined.counter("rights_withdrawn");
        let mut hostile = hostile(&joined, "", how, port);
        let port = granted(&hostile);
        let port_words = port.to_string();
        let mut words = vec!["udp", SERVER, &port_words];
        let is_shared = how == "shared";
        if is_shared {
            words.push("reuse");
        }
        let native = service(&joined, false, &words);
        eventually(how, || joined.counter("rights_withdrawn") == withdrawn + 1);
        assert_eq!(answer(&joined, "udp", port), "0", "{how}");
        drop(native);
        let service = service(&joined, true, &words);
        if is_shared {
            // Which of the two gets what comes is the kernel's to say, and it says the younger.
            let reason = "another user has a socket";
            assert!(service.errors().contains(reason), "{how}: {}", service.errors());
        } else {
            eventually(how, || joined.is_accelerated(port));
        }
        let by_kernel = joined.udp_received(Side::B);
        assert_eq!(answer(&joined, "udp", port), "0", "{how}");
        let came = joined.udp_received(Side::B) - by_kernel;
        assert_eq!(came, u64::from(is_shared), "datagrams that the kernel brought, {how}");
        assert!(hostile.is_running(), "{how}: {}", hostile.errors());
    }
}

#[test]
fn what_is_no_socket_at_the_port_is_no_right_to_it() {
    let Some(_turn) = turn("what_is_no_socket_at_the_port_is_no_right_to_it") else { return };
    let joined = Joined::start();
    let forged = hostile(&joined, "", "forged", 20_000);
    assert!(forged.output().starts_with("denied all"), "{}", forged.output());
    let foreign = hostile(&joined, "unshare --net ", "foreign", 20_001);
    let said = foreign.output();
    assert_eq!(said.matches("denied Invalid cross-device link").count(), 2, "{said}");
    for port in [20_000, 20_001] {
        assert!(!joined.is_accelerated(port));
    }
    drop(forged);
    for protocol in ["tcp", "udp"] {
        let _service = service(&joined, true, &[protocol, SERVER, "20000"]);
        eventually(protocol, || joined.is_accelerated(20_000));
        assert_eq!(answer(&joined, protocol, 20_000), "0");
    }
}

/// Whoever may bind what while connections use a port without a socket of their own there.
fn rebinds(joined: &Joined, port: u16, accelerated: bool) -> Vec<String> {
    let held = joined.lab.scratch().join(format!("held-{port}-"));
    let task = scripted(&joined.lab, "rebinds.py");
    let task = task.args([SERVER, CLIENT, &port.to_string(), "7000"]).arg(&held);
    let task = if accelerated { joined.accelerated(task) } else { task };
    let mut program = joined.lab.start(Side::B, task).expect("a program");
    let holder = "import socket, sys\n\
                  with socket.create_connection(sys.argv[1:]) as held: held.recv(1)";
    let mut holders = Vec::new();
    // In TIME-WAIT they stay for a minute.
    for (look, ports) in (1..).zip([1, 1, 2, 3, 3, 4]) {
        if [1, 4].contains(&look) {
            let asked = format!("ask {}", port + u16::from(look == 4));
            program.until(PATIENCE, |one| one.output().contains(&asked)).expect("it listens");
            let at = (port + u16::from(look == 4)).to_string();
            let task = Task::new(PYTHON).args(["-c", holder, SERVER, &at]);
            holders.push(joined.lab.start(Side::A, task).expect("a client"));
        }
        let word = format!("look {look}\n");
        program.until(PATIENCE, |one| one.output().contains(&word)).expect("a connection");
        if accelerated {
            eventually(&word, || joined.counter("ports_held") == ports);
        }
        std::fs::write(format!("{}{look}", held.display()), "").expect("a file");
    }
    let finished = program.wait(PATIENCE).expect("it ends");
    assert!(finished.output.ends_with("end\n"), "{}", finished.errors);
    finished.output.lines().filter(|line| line.starts_with('=')).map(str::to_owned).collect()
}

#[test]
fn the_kernel_knows_of_ports_that_connections_use_whose_sockets_are_closed() {
    let test = "the_kernel_knows_of_ports_that_connections_use_whose_sockets_are_closed";
    let Some(_turn) = turn(test) else { return };
    let joined = Joined::start();
    let echo = scripted(&joined.lab, "echo.py").args(["epoll", CLIENT, "7000"]);
    let _echo = joined.start_ready(Side::A, echo, |echo| listens(echo.pid(), 7000));
    let kernel = rebinds(&joined, 20_000, false);
    assert_eq!((kernel.len(), joined.counter("accepts")), (36, 0));
    let ours = rebinds(&joined, 20_100, true);
    assert_eq!(ours, kernel);
    let opened = ["accepts", "tcp_active_opens"].map(|name| joined.counter(name));
    assert_eq!(opened, [2, 2], "the engine had them");
}
