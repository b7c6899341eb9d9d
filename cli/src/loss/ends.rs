//! The two programs of a whole transfer, which know the bytes that are to come by heart. They use
//! nothing but the C library's sockets, so that they run on an engine like any other program.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use lab::failure::{Explain, Failure, Result};
use sim::pattern;

/// What is written or read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Names the stream that is sent.
const STREAM: u64 = 0x6c6f_7373;

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum End {
    /// Connects and sends.
    Send,
    /// Listens and compares.
    Receive,
}

impl End {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

/// Plays one end of a transfer of so many bytes.
///
/// # Errors
/// When the connection fails, or other bytes arrive than were sent.
pub fn play(end: End, address: SocketAddr, bytes: u64) -> Result<()> {
    match end {
        End::Send => send(address, bytes),
        End::Receive => receive(address, bytes),
    }
}

fn send(address: SocketAddr, bytes: u64) -> Result<()> {
    let retry = "see what became of the receiver";
    let mut stream =
        TcpStream::connect(address).explain(format!("cannot connect to {address}"), retry)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes {
        let len = PIECE_BYTES.min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
        pattern::fill(STREAM, at, &mut piece[..len]);
        stream.write_all(&piece[..len]).explain(format!("cannot send after {at} bytes"), retry)?;
        at += len as u64;
    }
    stream.shutdown(Shutdown::Write).explain("cannot end the stream", retry)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).explain("no answer", retry)?;
    match <[u8; 8]>::try_from(answer.as_slice()).map(u64::from_be_bytes) {
        Ok(arrived) if arrived == bytes => Ok(()),
        _ => Err(Failure::new(format!("the receiver does not confirm {bytes} bytes"), retry)),
    }
}

fn receive(address: SocketAddr, bytes: u64) -> Result<()> {
    let retry = "see what became of the sender";
    let listener =
        TcpListener::bind(address).explain(format!("cannot listen on {address}"), retry)?;
    let (mut stream, _) = listener.accept().explain("nobody came", retry)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let got =
            stream.read(&mut piece).explain(format!("cannot receive after {at} bytes"), retry)?;
        if got == 0 {
            break;
        }
        if let Some(wrong) = pattern::first_difference(STREAM, at, &piece[..got]) {
            return Err(Failure::new(
                format!("byte {wrong} is not the one that was sent"),
                "report this",
            ));
        }
        at += got as u64;
    }
    if at != bytes {
        return Err(Failure::new(format!("{at} bytes arrived of {bytes}"), "report this"));
    }
    stream.write_all(&at.to_be_bytes()).explain("cannot answer", retry)?;
    tell!("{at} bytes arrived, each as it was sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_compared_and_confirmed() {
        let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = probe.local_addr().expect("bound");
        drop(probe);
        let receiver = std::thread::spawn(move || receive(address, 300_000));
        let sent = loop {
            match send(address, 300_000) {
                Err(failure) if failure.cause().contains("cannot connect") => {
                    assert!(!receiver.is_finished(), "it listens");
                    std::thread::yield_now();
                }
                sent => break sent,
            }
        };
        assert_eq!((sent, receiver.join().expect("no panic")), (Ok(()), Ok(())));
    }
}
