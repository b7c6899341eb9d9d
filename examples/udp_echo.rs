//! Sends every datagram back: `udp_echo SOCKET ADDRESS:PORT`.

use std::path::Path;

use outboard_client::Session;
use outboard_client::native::Datagram;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(local)) = (arguments.next(), arguments.next()) else {
        return Err("usage: udp_echo SOCKET ADDRESS:PORT".into());
    };
    let session = Session::attach(Path::new(&socket), "udp_echo")?;
    let datagrams = Datagram::bind(&session, local.parse()?)?;
    let mut bytes = vec![0; 65_536];
    loop {
        let received = datagrams.recv_from(&mut bytes)?;
        let own = Some(received.local.ip());
        datagrams.send_from(&bytes[..received.len], received.remote, own)?;
    }
}
