//! A learning bridge between ports of the engine: `learning_bridge SOCKET PORT PORT...`.

use std::collections::HashMap;
use std::path::Path;

use outboard_client::Session;
use outboard_client::raw::{Meta, Raw, RawSender, RawSpec};

/// Stations that are remembered.
const STATIONS_MAX: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("usage: learning_bridge SOCKET PORT PORT...")?;
    let names: Vec<String> = arguments.collect();
    let session = Session::attach(Path::new(&socket), "learning_bridge")?;
    let spec = RawSpec::ports(names.iter().map(String::as_str)).meta(true);
    let raw = Raw::open(&session, spec)?;
    let ports = raw.ports().len();
    println!("bridging {ports} ports");
    let (mut rx, mut tx) = raw.split();
    let mut stations: HashMap<[u8; 6], usize> = HashMap::new();
    loop {
        rx.wait(None)?;
        for frame in rx.burst()? {
            let bytes = frame.to_vec();
            let (Some(to), Some(from)) = (mac(&bytes, 0), mac(&bytes, 6)) else { continue };
            if stations.len() < STATIONS_MAX || stations.contains_key(&from) {
                stations.insert(from, frame.port);
            }
            // What is left to do to the frame is done by the port that it leaves by.
            let meta = frame.meta.filter(|meta| meta.checksum_start != 0);
            match stations.get(&to) {
                Some(port) if *port == frame.port => {}
                Some(port) => send(&mut tx, &bytes, *port, meta.as_ref())?,
                None => {
                    for port in (0..ports).filter(|port| *port != frame.port) {
                        send(&mut tx, &bytes, port, meta.as_ref())?;
                    }
                }
            }
        }
        tx.commit()?;
    }
}

fn mac(frame: &[u8], at: usize) -> Option<[u8; 6]> {
    frame.get(at..at + 6)?.try_into().ok()
}

fn send(
    tx: &mut RawSender,
    bytes: &[u8],
    port: usize,
    meta: Option<&Meta>,
) -> Result<(), Box<dyn std::error::Error>> {
    // The other ports go on meanwhile; what came and finds no room is counted.
    while !tx.has_room(bytes.len()) {
        tx.wait_room(bytes.len(), None)?;
    }
    tx.reserve_with(bytes.len(), port, meta)?.copy_from(bytes);
    Ok(())
}
