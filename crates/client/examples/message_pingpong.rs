//! Sends messages back and forth between two programs and tells how long a round trip takes.
//!
//! ```text
//! message_pingpong SOCKET serve ADDRESS:PORT
//! message_pingpong SOCKET ping ADDRESS:PORT [COUNT [BYTES]]
//! ```
//!
//! SOCKET is the engine's control socket. The job's key is taken from OUTBOARD_MESSAGE_KEY, 32
//! hexadecimal digits; without it both programs must be on one host.

use std::error::Error;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use outboard_client::Session;
use outboard_client::message::{Buffers, Completion, Endpoint, Outcome, Pattern, Send};

/// Tag of a ping, and of its answer.
const PING: u64 = 1;
const PONG: u64 = 2;
/// Longest wait for an answer: a server that ends between a ping and its answer leaves no error.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Longest message that is answered.
const BYTES_MAX: usize = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [socket, "serve", address] => serve(socket, address.parse()?),
        [socket, "ping", address, rest @ ..] => {
            let count = rest.first().map_or(Ok(1000), |count| count.parse())?;
            let bytes = rest.get(1).map_or(Ok(8), |bytes| bytes.parse())?;
            ping(socket, address.parse()?, count, bytes)
        }
        _ => Err("usage: message_pingpong SOCKET serve|ping ADDRESS:PORT [COUNT [BYTES]]".into()),
    }
}

fn open(socket: &str, local: SocketAddr) -> Result<Endpoint, Box<dyn Error>> {
    let session = Session::attach_messages(Path::new(socket), "message_pingpong")?;
    let key = match std::env::var("OUTBOARD_MESSAGE_KEY") {
        Ok(digits) => Some(u128::from_str_radix(&digits, 16)?.to_be_bytes()),
        Err(_) => None,
    };
    Ok(Endpoint::open(&session, local, key)?)
}

/// Waits for the next operation that ends, at most for `limit`.
fn complete(
    endpoint: &Endpoint,
    memory: &mut Buffers,
    limit: Option<Duration>,
) -> Result<Completion, Box<dyn Error>> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        if let Some(completion) = endpoint.poll_completion(memory)? {
            return Ok(completion);
        }
        if !endpoint.wait(deadline)? {
            return Err("no answer".into());
        }
    }
}

/// Answers every ping with its own bytes.
fn serve(socket: &str, local: SocketAddr) -> Result<(), Box<dyn Error>> {
    let endpoint = open(socket, local)?;
    let mut memory = Buffers::default();
    println!("serving at {}", endpoint.address());
    let ping = Pattern { source: None, tag: Some((PING, 0)) };
    memory.add(PING, vec![0; BYTES_MAX]);
    loop {
        endpoint.post_recv(&ping, BYTES_MAX as u64, PING)?;
        let received = complete(&endpoint, &mut memory, None)?;
        let Outcome::Received(message) = received.outcome else {
            // Whoever asked has ended before all of it came.
            eprintln!("{:?}", received.outcome);
            continue;
        };
        let mut bytes = memory.take(PING).unwrap_or_default();
        let part = bytes.get(..message.length as usize).unwrap_or_default().to_vec();
        let send = Send { tag: Some(PONG), ..Send::default() };
        endpoint.send(message.source, &send, &[IoSlice::new(&part)], PONG)?;
        memory.add(PONG, part);
        match complete(&endpoint, &mut memory, None)?.outcome {
            Outcome::Sent => {}
            // Whoever asked is gone.
            outcome => eprintln!("{outcome:?}"),
        }
        bytes.fill(0);
        memory.add(PING, bytes);
    }
}

fn ping(socket: &str, to: SocketAddr, count: u32, bytes: usize) -> Result<(), Box<dyn Error>> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let endpoint = open(socket, any.parse()?)?;
    let peer = endpoint.add_peer(to).ok_or("too many peers")?;
    let mut memory = Buffers::default();
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
    memory.add(PING, sent.clone());
    memory.add(PONG, vec![0; bytes]);
    let pong = Pattern { source: Some(peer), tag: Some((PONG, 0)) };
    let send = Send { tag: Some(PING), ..Send::default() };
    let start = Instant::now();
    for _ in 0..count {
        endpoint.post_recv(&pong, bytes as u64, PONG)?;
        endpoint.send(peer, &send, &[IoSlice::new(&sent)], PING)?;
        for _ in 0..2 {
            match complete(&endpoint, &mut memory, Some(ANSWER_WITHIN))?.outcome {
                Outcome::Sent | Outcome::Received(_) => {}
                outcome => return Err(format!("{outcome:?}").into()),
            }
        }
    }
    let took = start.elapsed();
    if memory.take(PONG).as_deref() != Some(&sent[..]) {
        return Err("the answer differs".into());
    }
    let per = took.as_secs_f64() * 1e6 / f64::from(count.max(1));
    println!("{count} round trips of {bytes} bytes, {per:.2} us each");
    Ok(())
}
