//! Counts the frames that a port of the engine's receives and sends, by EtherType: `frame_counter
//! SOCKET PORT [SECONDS [ETHERTYPE]]`. Prints a line for each EtherType whenever a second has brought
//! frames. Frames of ETHERTYPE, say 88b5, it takes: nobody else gets them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use outboard_client::Session;
use outboard_client::raw::{FrameFlags, Raw, RawSpec, RingSizes};

#[derive(Default)]
struct Count {
    received: u64,
    sent: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(port)) = (arguments.next(), arguments.next()) else {
        return Err("usage: frame_counter SOCKET PORT [SECONDS [ETHERTYPE]]".into());
    };
    let seconds = arguments.next().map(|text| text.parse()).transpose()?;
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let session = Session::attach(Path::new(&socket), "frame_counter")?;
    // One that does not send needs no ring to the engine.
    let sizes = RingSizes { down: 0, ..RingSizes::DEFAULT };
    let spec = RawSpec::port(&port).rings(sizes);
    let spec = match arguments.next() {
        Some(kind) => spec.take().ethertype(u16::from_str_radix(&kind, 16)?),
        None => spec.sent(true),
    };
    let raw = Raw::open(&session, spec)?;
    println!("counting at {}", raw.ports()[0].name);
    let (mut rx, _) = raw.split();
    let mut counts: BTreeMap<u16, Count> = BTreeMap::new();
    while end.is_none_or(|end| Instant::now() < end) {
        let second = Instant::now() + Duration::from_secs(1);
        let until = end.map_or(second, |end| end.min(second));
        let mut any = false;
        while rx.wait(Some(until))? {
            for frame in rx.burst()? {
                any = true;
                let mut header = [0; 14];
                frame.bytes.copy_to(&mut header);
                let count = counts.entry(u16::from_be_bytes([header[12], header[13]])).or_default();
                let is_sent = frame.flags.contains(FrameFlags::SENT);
                if is_sent { count.sent += 1 } else { count.received += 1 }
            }
            if Instant::now() >= until {
                break;
            }
        }
        if any {
            for (ethertype, Count { received, sent }) in &counts {
                println!("{ethertype:#06x} received {received}, sent {sent}, lost {}", rx.lost());
            }
        }
    }
    Ok(())
}
