//! Datagrams sent or received through an xdp port as fast as it goes, with a line of output for
//! each half second: `load PORT send BYTES TO` (bytes of a frame, link address of the receiver) or
//! `load PORT receive`. Runs until it is ended. `make bench-port` compares it with DPDK's testpmd.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use arch::SharedBytes;
use outboard_port::{Claim, Port, PortSpec, RxBurst, TxError, TxMeta, from_fds, open};
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::{Ipv4Header, Protocol};
use wire::udp::UdpHeader;
use wire::{MacAddr, ethernet, ipv4, udp};

/// Frames sent between two flushes, as many as testpmd takes in a burst.
const BURST: usize = 32;
/// Time between two lines of output.
const LINE: Duration = Duration::from_millis(500);

/// What the frames are: datagrams to this address and port, which the receiver claims.
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TARGET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TARGET_PORT: u16 = 9;

const USAGE: &str = "load PORT send BYTES TO, or load PORT receive; e.g. load xdp:veth0 receive";

/// What goes on with a port, a burst at a time: how many frames it was.
type Work = Box<dyn FnMut(&mut dyn Port) -> Result<usize, Box<dyn Error>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [name, what @ ..] = words.as_slice() else { return Err(USAGE.into()) };
    let mut port = from_fds(open(&name.parse::<PortSpec>()?)?)?;
    let mut work = match what {
        ["send", bytes, to] => {
            let to = to.parse().map_err(|why| format!("{to}: {why}"))?;
            sender(port.info().mac, to, bytes.parse()?)?
        }
        ["receive"] => receiver(&mut *port)?,
        _ => return Err(USAGE.into()),
    };
    let begin = Instant::now();
    let (mut line, mut frames) = (begin, 0);
    loop {
        let now = Instant::now();
        port.on_time(now.duration_since(begin).as_nanos() as u64);
        frames += work(&mut *port)?;
        let passed = now.duration_since(line);
        if passed >= LINE {
            println!("frames/s {:.0}", frames as f64 / passed.as_secs_f64());
            (line, frames) = (now, 0);
        }
    }
}

fn sender(own: MacAddr, to: MacAddr, bytes: usize) -> Result<Work, Box<dyn Error>> {
    let (header, payload) = datagram(own, to, bytes)?;
    Ok(Box::new(move |port| {
        let meta = TxMeta { header_bytes: header.len() as u16, ..TxMeta::default() };
        let mut sent = 0;
        for _ in 0..BURST {
            match port.send(&meta, &header, &[SharedBytes::from_slice(&payload)]) {
                Ok(()) => sent += 1,
                Err(TxError::Full) => break,
                Err(why) => return Err(format!("the port does not take frames: {why:?}").into()),
            }
        }
        port.flush();
        Ok(sent)
    }))
}

fn receiver(port: &mut dyn Port) -> Result<Work, Box<dyn Error>> {
    let mtu = port.info().mtu;
    let target = SocketAddr::new(TARGET.into(), TARGET_PORT);
    port.follow(&[target.ip()], mtu)?;
    port.claim(&Claim::Udp(target))?;
    let mut burst = RxBurst::new();
    Ok(Box::new(move |port| {
        port.receive(&mut burst);
        let count = burst.handles.len();
        port.release(&mut burst);
        Ok(count)
    }))
}

/// Headers and payload of a frame of so many bytes.
fn datagram(own: MacAddr, to: MacAddr, bytes: usize) -> Result<(Vec<u8>, Vec<u8>), Box<dyn Error>> {
    let mut header = vec![0; ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN];
    let Some(payload) = bytes.checked_sub(header.len()).map(|bytes| vec![0x5a; bytes]) else {
        return Err(format!("there is no datagram in a frame of {bytes} bytes").into());
    };
    let len = udp::HEADER_LEN + payload.len();
    let link = EthernetHeader { dst: to, src: own, vlan: None, ethertype: EtherType::IPV4 };
    let ip = Ipv4Header { protocol: Protocol::UDP, src: SOURCE, dst: TARGET, ..Default::default() };
    // No checksum: zero in IPv4.
    let ports =
        UdpHeader { src_port: 9, dst_port: TARGET_PORT, len: u16::try_from(len)?, checksum: 0 };
    let (front, rest) = header.split_at_mut(ethernet::HEADER_LEN);
    let (middle, back) = rest.split_at_mut(ipv4::HEADER_LEN);
    link.emit(front)
        .and_then(|_| ip.emit(len, middle))
        .and_then(|_| ports.emit(back))
        .map_err(|_| format!("a frame of {bytes} bytes is too long for IP"))?;
    Ok((header, payload))
}
