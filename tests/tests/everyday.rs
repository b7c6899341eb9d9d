//! Everyday tools against an engine's address and against a kernel's: what they say is the same.

use std::fmt::Write as _;

use lab::{Side, Task, require_programs};
use outboard_tests::beside::{Answerer, ENGINE, Hosts, KERNEL};
use outboard_tests::joined::{PATIENCE, iperf3_measures};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, scripted};

/// What a tool says of an answerer, in words that do not depend on which one it is.
fn says_of(hosts: &Hosts, line: &str, who: Answerer) -> String {
    let everybody = who.v4.replace(".0.2", ".0.255");
    let line = line.replace("ALL4", &everybody).replace("V4", who.v4).replace("V6", who.v6);
    let mut said = hosts.says(&line);
    for (address, name) in [
        (&*everybody, "ALL4"),
        (who.v4, "V4"),
        (who.v6, "V6"),
        (who.own[0], "own4"),
        (who.own[1], "own6"),
    ] {
        said = said.replace(address, name);
    }
    said.lines().map(timeless).collect::<Vec<_>>().join("\n")
}

/// A line without the times in it: numbers before `ms`, after `time` and in statistics.
fn timeless(line: &str) -> String {
    if line.starts_with("rtt ") {
        return "rtt".into();
    }
    // Stations and times that a packet has recorded; a stack without a time of day says so.
    if line.starts_with("TS:") || line.starts_with('\t') {
        let is_time = |word: &str| {
            let digits = word.strip_prefix('-').unwrap_or(word);
            digits.chars().all(|c| c.is_ascii_digit())
        };
        let words =
            line.split_whitespace().filter(|word| !["absolute", "not-standard"].contains(word));
        return words.map(|word| if is_time(word) { "N " } else { word }).collect();
    }
    let mut said = String::new();
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let is_time = words.peek().is_some_and(|next| next.starts_with("ms"));
        let word = match word.split_once('=') {
            Some(("time", _)) => "time=",
            _ if is_time
                || (word.ends_with("ms") && word.starts_with(|c: char| c.is_ascii_digit())) =>
            {
                "T"
            }
            _ => word,
        };
        let _ = write!(said, "{word} ");
    }
    said
}

/// Prints what a tool said, so that whoever reads the run sees what was compared.
fn show(line: &str, who: Answerer, said: &str) {
    let name = if who.is_engine { "engine" } else { "kernel" };
    println!("{name}: {line}");
    for said in said.lines().filter(|said| !said.trim().is_empty()) {
        println!("    {}", said.trim());
    }
}

/// How often a ping is repeated that differs. Its patience after its last question is twice the round trip
/// before, which a machine that stands still for a moment outlasts, whoever answers; no other tool's is.
const PINGS: usize = 3;

/// Compares what a tool says of both answerers, and looks for what it must say.
#[track_caller]
fn alike(hosts: &Hosts, line: &str, must_say: &str) {
    let mut tries = if line.starts_with("ping ") { PINGS } else { 1 };
    loop {
        tries -= 1;
        let [kernels, ours] = [KERNEL, ENGINE].map(|who| says_of(hosts, line, who));
        show(line, KERNEL, &kernels);
        show(line, ENGINE, &ours);
        if kernels.contains(must_say) && ours == kernels {
            return;
        }
        if tries == 0 {
            let must = format!("`{line}` is to say `{must_say}`");
            assert!(kernels.contains(must_say), "{must}, but of the kernel it says\n{kernels}");
            assert_eq!(ours, kernels, "`{line}` of the engine, and of the kernel");
        }
    }
}

#[test]
fn pings_of_every_kind_find_an_engine_as_they_find_a_kernel() {
    let Some(_turn) = turn("pings_of_every_kind_find_an_engine_as_they_find_a_kernel") else {
        return;
    };
    let hosts = Hosts::start();
    let answered = " 0% packet loss";
    for family in ["ping -4 -n V4", "ping -6 -n V6"] {
        for (options, must_say) in [
            ("-c 3 -i 0.01", answered),
            ("-c 2 -i 0.01 -s 0", answered),
            ("-c 2 -i 0.01 -s 1400", answered),
            // In fragments, there and back.
            ("-c 2 -i 0.01 -s 1473", answered),
            ("-c 2 -i 0.01 -s 8000", answered),
            ("-c 1 -s 65400", answered),
            // Not to be cut: the asker's own kernel knows the link.
            ("-c 1 -s 1400 -M do", answered),
            ("-c 1 -s 3000 -M do -W 1", "essage too long"),
            ("-c 2 -i 0.01 -t 1", answered),
            ("-c 2 -i 0.01 -t 255", answered),
            ("-c 2 -i 0.01 -p ff00a5", answered),
            ("-c 2 -i 0.01 -Q 0x10", answered),
            ("-c 50 -i 0.002 -q", answered),
        ] {
            let (tool, of) = family.split_at(family.len() - 2);
            alike(&hosts, &format!("{tool} {options} {of}"), must_say);
        }
    }
    // Every router and host on the way puts its address down.
    alike(&hosts, "ping -4 -n -c 2 -i 0.01 -R V4", "RR:");
    alike(&hosts, "ping -4 -n -c 1 -T tsonly V4", "TS:");
    alike(&hosts, "ping -4 -n -c 1 -T tsandaddr V4", "TS:");
    // Nobody answers what is asked of everybody, as Linux is set when it comes.
    alike(&hosts, "ping -4 -n -b -c 1 -W 1 ALL4", "100% packet loss");
}

#[test]
fn routes_are_traced_to_an_engine_as_to_a_kernel() {
    let Some(_turn) = turn("routes_are_traced_to_an_engine_as_to_a_kernel") else { return };
    require_programs(&["traceroute", "tracepath"]).expect("run scripts/setup programs");
    // An answer is waited for as long on a busy machine, also when others have come sooner.
    let trace = "traceroute -n -w 5,0,0";
    for of in ["-4 V4", "-6 V6"] {
        // A kernel sends six ICMP errors to an address at once and then one a second, and so does an engine:
        // who has asked already may be told nothing. So may the first of sixteen probes where those that
        // waited in the asker's kernel for the answerer's address are overtaken by later ones, which is why
        // the address is known beforehand. Echoes are not limited.
        let afresh = |command: &str, must_say: &str| {
            let hosts = Hosts::start();
            alike(&hosts, &format!("ping -n -c 1 {of}"), " 0% packet loss");
            alike(&hosts, &command.replace("OF", of), must_say);
        };
        let first = format!("1 {}", &of[3..]);
        for how in ["", "-I", "-T -p 9", "-U -p 9", "-F"] {
            afresh(&format!("{trace} {how} OF"), &first);
        }
        for how in ["", "-I"] {
            afresh(&format!("{trace} {how} OF 3000"), &first);
        }
        afresh("tracepath -n OF", "reached");
    }
}

#[test]
fn clients_find_servers_on_an_engine_as_on_a_kernel() {
    let Some(_turn) = turn("clients_find_servers_on_an_engine_as_on_a_kernel") else { return };
    let hosts = Hosts::start();
    // Where nobody listens.
    for of in ["V4", "V6"] {
        let url = if of == "V6" { "[V6]" } else { of };
        alike(&hosts, &format!("curl -sS http://{url}:81/"), "Failed to connect");
        alike(&hosts, &format!("nc -n -v -z -w 5 {of} 81"), "refused");
    }
    let text = "what is served\n";
    std::fs::write(hosts.lab.scratch().join("served"), text).expect("a file");
    let directory = hosts.lab.scratch().display().to_string();
    for who in [KERNEL, ENGINE] {
        let [v4, v6] = [who.v4, who.v6];
        let _http = hosts.serve_at(
            who,
            Task::words(&format!("{PYTHON} -m http.server 8000 --bind {v6} -d {directory}")),
            8000,
        );
        let fetch = format!("curl -6 -sS http://[{v6}]:8000/served");
        assert_eq!(hosts.says(&fetch), text);
        let code = "curl -6 -s -o /dev/null -w %{http_code}:%{remote_ip}:%{size_download}";
        let said = hosts.says(&format!("{code} http://[{v6}]:8000/served"));
        show(code, who, &said);
        assert_eq!(said, format!("200:{v6}:{}", text.len()));
        let echo = scripted(&hosts.lab, "tools.py").args([v4, v6]);
        let _echo = hosts.serve_until(who, echo, |one| one.output().contains("ready"));
        for address in [v4, v6] {
            let said = says_of(&hosts, &format!("nc -n -v -z -w 5 {address} 8001"), who);
            assert!(said.contains("8001 (?) open") || said.contains("succeeded"), "{said}");
            let with = |asks: &str, options: &str| {
                let line = format!("{asks} | nc -n {options} {address} 8001");
                let finished = hosts
                    .lab
                    .start(Side::A, Task::new("sh").args(["-c", &line]))
                    .and_then(|one| one.wait(PATIENCE));
                let said = finished.map_or_else(|failure| failure.to_string(), |one| one.output);
                show(&line, who, &said);
                said
            };
            assert_eq!(with("echo asked", "-N"), "tcp: asked\n", "{address}");
            // At the end of what it is to send it hears no answer any more.
            let asks = "(echo asked; sleep 1)";
            assert_eq!(with(asks, "-u -q 0"), "udp: asked\n", "{address}");
        }
        let _iperf = hosts.serve_at(
            who,
            Task::words(&format!("iperf3 --server --bind {v6} --port 5301")),
            5301,
        );
        for options in ["-u -b 20M", "-u -b 20M -R", "-u -b 20M -l 4000", ""] {
            let line = format!("iperf3 -6 --client {v6} --port 5301 --time 1 --json {options}");
            let measured = iperf3_measures(|| hosts.says(&line));
            show(&line, who, &format!("{measured:?}"));
            assert!(measured.bytes > 100_000, "{measured:?}");
        }
    }
}
