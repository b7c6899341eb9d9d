//! Every packet script of the project against our stack. Whether the kernel does the same is
//! looked at by `outboard script --kernel`.

use std::path::{Path, PathBuf};

use outboard_script::many::all_against_us;
use outboard_script::script::Script;

fn scripts(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            scripts(&path, all);
        } else if path.extension().is_some_and(|end| end == "pkt") {
            all.push(path);
        }
    }
}

#[test]
fn every_packet_script_goes_as_written() {
    let mut paths = Vec::new();
    scripts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet"), &mut paths);
    paths.sort();
    assert!(paths.len() >= 300, "only {} scripts are found", paths.len());
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        Script::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    };
    let parsed: Vec<Script> = paths.iter().map(read).collect();
    let failures: Vec<String> = paths
        .iter()
        .zip(all_against_us(&parsed))
        .filter_map(|(path, outcome)| Some(format!("{}: {}", path.display(), outcome.err()?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_script_that_expects_something_else_fails_with_its_line() {
    let run = |lines: &str| {
        let text = format!("// t\n{lines}\n");
        all_against_us(&[Script::parse(&text).unwrap()]).remove(0)
    };
    let listen = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n\
        +0 listen(3, 1) = 0\n+0 < S 0:0(0) win 1000 <mss 1000>\n";
    assert_eq!(run(&format!("{listen}+0 > S. 0:0(0) ack 1 <mss 1460>")), Ok(()));
    let wrong = [
        ("+0 > S. 0:0(0) ack 2 <mss 1460>", "line 6: expected"),
        ("+.1 > S. 0:0(0) ack 1 <mss 1460>", "line 6: S. 0:0(0)"),
        ("+.1 close(3) = 0", "came out, which nothing expects"),
        ("+0 accept(3, ..., ...) = 4", "has not returned"),
        ("+0 > S. 0:0(0) ack 1 <...>\n+0 close(3) = -1 EBADF", "gave 0, expected -1 EBADF"),
    ];
    for (line, told) in wrong {
        let outcome = run(&format!("{listen}{line}"));
        assert!(outcome.clone().unwrap_err().to_string().contains(told), "{line}: {outcome:?}");
    }
}

#[test]
fn a_message_that_tells_something_else_fails_with_its_line() {
    let run = |message: &str, flags: &str| {
        let text = format!(
            "// t\n0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3\n+0 bind(3, ..., ...) = 0\n\
             +0 setsockopt(3, SOL_IP, IP_RECVTTL, [1], 4) = 0\n+.01 < [ttl 7] udp (100)\n\
             +0 recvmsg(3, {{{message}}}, {flags}) = 50\n"
        );
        all_against_us(&[Script::parse(&text).unwrap()]).remove(0)
    };
    let (name, room) = ("msg_name(...)=\"10.0.0.2:40000\"", "msg_iov(2)=[{..., 20}, {..., 30}]");
    let ttl = |value: &str| {
        format!("msg_control=[{{cmsg_level=SOL_IP, cmsg_type=IP_TTL, cmsg_data={value}}}]")
    };
    let whole = |value: &str| format!("{name}, {room}, msg_flags=MSG_TRUNC, {}", ttl(value));
    assert_eq!(run(&whole("7"), "0"), Ok(()));
    assert_eq!(run(&whole("..."), "MSG_PEEK"), Ok(()));
    let wrong = [
        (whole("8"), "the control messages are [{level 0, type 2, data [7, 0, 0, 0]}]"),
        (whole("7").replace("MSG_TRUNC", "0"), "msg_flags are 0x20, expected 0x0"),
        (whole("7").replace(":40000", ":40001"), "recvmsg told Some(10.0.0.2:40000)"),
        (whole("7").replace("iov(2)", "iov(1)"), "msg_iov(1) has 2 pieces"),
        (whole("7").replace("msg_flags", "msg_flag"), "msg_flag=Number(32) is nothing"),
        (whole("7").replace("cmsg_type", "cmsg_kind"), "cmsg_kind=Number(2) is nothing"),
        (format!("{name}, {room}, msg_flags=MSG_TRUNC"), "msg_flags are 0x28, expected 0x20"),
    ];
    for (message, told) in wrong {
        let outcome = run(&message, "0");
        let why = outcome.clone().unwrap_err().to_string();
        assert!(why.starts_with("line 6") && why.contains(told), "{message}: {outcome:?}");
    }
}
