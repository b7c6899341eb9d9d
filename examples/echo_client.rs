//! Sends bytes to an echo server and checks what comes back:
//! `echo_client SOCKET ADDRESS:PORT [BYTES [COUNT]]`.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use outboard_client::native::Stream;
use outboard_client::{ConnectOptions, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, remote, numbers @ ..] = arguments.as_slice() else {
        return Err("usage: echo_client SOCKET ADDRESS:PORT [BYTES [COUNT]]".into());
    };
    let number = |at: usize, otherwise| numbers.get(at).map_or(Ok(otherwise), |n| n.parse());
    let (bytes, count) = (number(0, 64)?, number(1, 10_000)?);
    let session = Session::attach(Path::new(socket), "echo_client")?;
    let options = ConnectOptions { nodelay: true, ..ConnectOptions::default() };
    let mut stream = Stream::connect_with(&session, remote.parse()?, &options, None)?;
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 31) as u8).collect();
    let mut received = vec![0; bytes];
    let start = Instant::now();
    for round in 0..count {
        stream.write_all(&sent)?;
        stream.read_exact(&mut received)?;
        if received != sent {
            return Err(format!("round {round} brought something else").into());
        }
    }
    let each = start.elapsed() / u32::try_from(count.max(1))?;
    println!("{count} round trips of {bytes} bytes, {each:?} each");
    Ok(())
}
