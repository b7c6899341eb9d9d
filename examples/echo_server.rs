//! Echoes whatever connects: `echo_server SOCKET ADDRESS:PORT`, e.g.
//! `cargo run --example echo_server /run/outboard/engine.sock 10.0.0.2:7`.

use std::io::{Read, Write};
use std::path::Path;

use outboard_client::Session;
use outboard_client::native::Listener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(local)) = (arguments.next(), arguments.next()) else {
        return Err("usage: echo_server SOCKET ADDRESS:PORT".into());
    };
    let session = Session::attach(Path::new(&socket), "echo_server")?;
    let listener = Listener::bind(&session, local.parse()?)?;
    println!("listening at {}", listener.endpoint().local());
    loop {
        let (mut stream, peer) = listener.accept()?;
        std::thread::spawn(move || {
            let mut bytes = [0; 16 * 1024];
            loop {
                let echoed = match stream.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(len) => stream.write_all(&bytes[..len]),
                    Err(error) => Err(error),
                };
                if let Err(error) = echoed {
                    eprintln!("{peer}: {error}");
                    break;
                }
            }
        });
    }
}
