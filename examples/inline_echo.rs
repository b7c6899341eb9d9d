//! Echoes TCP and UDP with the engine inside this program: `inline_echo PORT ADDRESS:PORT`, e.g.
//! `cargo run --example inline_echo tap:ob0,addr=10.0.0.2/24 10.0.0.2:7`.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use outboard_inline::{Inline, PortSpec, Stream};

/// A connection and what it has still to echo.
struct Echo {
    stream: Stream,
    bytes: Vec<u8>,
    sent: usize,
}

impl Echo {
    /// Moves what can be moved; `false`: it is over.
    fn step(&mut self) -> std::io::Result<bool> {
        loop {
            while self.sent < self.bytes.len() {
                self.sent += self.stream.write(&self.bytes[self.sent..])?;
            }
            self.bytes.resize(16 * 1024, 0);
            self.sent = self.bytes.len();
            let len = self.stream.read(&mut self.bytes)?;
            self.bytes.truncate(len);
            self.sent = 0;
            if len == 0 {
                return Ok(false);
            }
        }
    }

    fn goes_on(&mut self) -> bool {
        match self.step() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => {
                eprintln!("{:?}: {error}", self.stream.remote());
                false
            }
            Ok(goes_on) => goes_on,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(local)) = (arguments.next(), arguments.next()) else {
        return Err("usage: inline_echo PORT ADDRESS:PORT".into());
    };
    let local = local.parse()?;
    let inline = Inline::open(&[port.parse::<PortSpec>()?])?;
    let (listener, datagrams) = (inline.listen(local, 128)?, inline.bind(local)?);
    println!("listening at {}", listener.local());
    let (mut echoes, mut bytes) = (Vec::new(), vec![0; 65536]);
    let (mut served, mut told) = ((0, 0), (0, 0));
    loop {
        while let Ok((stream, _)) = listener.accept() {
            echoes.push(Echo { stream, bytes: Vec::new(), sent: 0 });
        }
        let before = echoes.len();
        echoes.retain_mut(Echo::goes_on);
        served.0 += before - echoes.len();
        while let Ok(received) = datagrams.recv_from(&mut bytes) {
            datagrams.send_to(&bytes[..received.len], received.remote)?;
            served.1 += 1;
        }
        // Once a second without anything to do: what has been done.
        if !inline.wait(Some(Instant::now() + Duration::from_secs(1)))? && served != told {
            told = served;
            for name in ["accepts", "datagrams_rx", "datagrams_tx", "tcp_resets_sent"] {
                println!("{name} {}", inline.counter(name).unwrap_or(0));
            }
            println!("served {} connections, {} datagrams", served.0, served.1);
        }
    }
}
