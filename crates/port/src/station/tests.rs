use std::net::Ipv4Addr;

use super::*;
use crate::{from_fds, open};

fn station(text: &str) -> Box<dyn Port> {
    from_fds(open(&text.parse().unwrap()).unwrap()).unwrap()
}

fn received(port: &mut dyn Port) -> Vec<Vec<u8>> {
    let mut burst = RxBurst::new();
    port.receive(&mut burst);
    assert!(burst.handles.len() <= RxBurst::CAPACITY);
    let frames = burst.handles.iter().map(|handle| port.frame(*handle).bytes.to_vec()).collect();
    port.release(&mut burst);
    assert!(port.frame(RxHandle(0)).bytes.is_empty());
    frames
}

fn arp_request(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let link =
        EthernetHeader { dst: MacAddr::BROADCAST, src: mac, vlan: None, ethertype: EtherType::ARP };
    let packet = ArpPacket {
        operation: Operation::REQUEST,
        sender_mac: mac,
        sender_ip: sender,
        target_mac: MacAddr::ZERO,
        target_ip: target,
    };
    let mut frame = vec![0; 42];
    let at = link.emit(&mut frame).unwrap();
    packet.emit(&mut frame[at..]).unwrap();
    frame
}

#[test]
fn datagrams_are_whole_numbered_and_of_the_size_asked_for() {
    for size in [54, 60, 61, 1514] {
        let text = format!("gen:g,size={size},from=10.0.0.1:5,to=10.0.0.2:7,mac=02:00:00:00:00:07");
        let mut port = station(&text);
        port.on_time(3_000_007_000);
        for burst in 0..3u32 {
            let frames = received(&mut *port);
            assert_eq!(frames.len(), RxBurst::CAPACITY);
            for (frame, number) in frames.iter().zip(burst * 64..) {
                assert_eq!(frame.len(), size);
                let (link, packet) = wire::ethernet::parse(frame).unwrap();
                assert_eq!((link.dst, link.src), (port.info().mac, STATION));
                let packet = wire::ipv4::parse(packet).unwrap();
                let (src, dst) = (packet.header.src, packet.header.dst);
                let len = packet.payload.len() as u32;
                let pseudo =
                    wire::checksum::Sum::pseudo_v4(src, dst, wire::ipv4::Protocol::UDP, len);
                assert!(pseudo.then(wire::checksum::Sum::of(packet.payload)).is_valid());
                let (header, payload) = wire::udp::parse(packet.payload).unwrap();
                assert_eq!((header.src_port, header.dst_port), (5, 7));
                assert_eq!(payload[..4], number.to_be_bytes());
                assert_eq!(payload[4..12], [0, 0, 0, 3, 0, 0, 0, 7]);
            }
        }
        assert_eq!(port.counters().rx_bytes, 192 * size as u64);
    }
}

#[test]
fn without_addresses_frames_of_the_experimental_ethertype_are_made() {
    let mut port = station("gen:g,size=9014,mtu=9000");
    let frames = received(&mut *port);
    // What fits a core's cache.
    assert_eq!(frames.len(), 29);
    assert!(frames.iter().all(|frame| frame.len() == 9014 && frame[12..14] == [0x88, 0xb5]));
}

#[test]
fn frames_come_at_the_rate_asked_for_and_those_not_fetched_are_counted() {
    // 1,000 bytes on a wire are 8,000 bits: 8 us at 1 Gbit/s.
    let mut port = station("gen:g,size=976,rate=1gbit");
    port.on_time(0);
    let mut first = 0;
    while let frames @ 1.. = received(&mut *port).len() {
        first += frames;
    }
    assert_eq!(first, 125, "a millisecond of them");
    assert_eq!(port.next_deadline(), Some(8_000));
    port.on_time(7_999);
    assert!(received(&mut *port).is_empty());
    port.on_time(8_000);
    assert_eq!(received(&mut *port).len(), 1);
    assert_eq!(port.counters().rx_missed, 0);
    port.on_time(2_008_000);
    assert_eq!(port.counters().rx_missed, 125);
}

#[test]
fn a_rate_below_a_frame_a_millisecond_is_kept_too() {
    let mut port = station("gen:g,rate=8kbit");
    port.on_time(0);
    assert_eq!(received(&mut *port).len(), 1);
    // 84 bytes.
    assert_eq!(port.next_deadline(), Some(84_000_000));
    port.on_time(84_000_000);
    assert_eq!(received(&mut *port).len(), 1);
}

#[test]
fn a_sink_takes_a_millisecond_in_advance_and_is_full_beyond() {
    let mut port = station("sink:s,rate=1gbit");
    let frame = [0xff; 976];
    port.on_time(0);
    for _ in 0..125 {
        assert_eq!(port.send(&TxMeta::default(), &frame, &[]), Ok(()));
    }
    assert_eq!(port.send(&TxMeta::default(), &frame, &[]), Err(TxError::Full));
    assert_eq!(port.next_deadline(), Some(8_000));
    port.on_time(8_000);
    assert_eq!(port.send(&TxMeta::default(), &frame, &[]), Ok(()));
    assert_eq!(port.next_deadline(), None);
    let counters = port.counters();
    assert_eq!((counters.tx_frames, counters.tx_full), (126, 1));
    assert_eq!(counters.tx_bytes, 126 * 976);
    assert!(received(&mut *port).is_empty(), "a sink makes nothing");
}

#[test]
fn arp_requests_for_others_are_answered_and_probes_are_not() {
    let mut port = station("sink:s");
    let (own, other) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
    for (sender, target) in [(own, own), (Ipv4Addr::UNSPECIFIED, own), (own, other)] {
        assert_eq!(port.send(&TxMeta::default(), &arp_request(sender, target), &[]), Ok(()));
    }
    assert_eq!(port.next_deadline(), Some(0));
    let frames = received(&mut *port);
    assert_eq!(frames.len(), 1);
    let (link, packet) = wire::ethernet::parse(&frames[0]).unwrap();
    assert_eq!(link.dst, MacAddr([2, 0, 0, 0, 0, 9]));
    let reply = arp::parse(packet).unwrap();
    assert_eq!(reply.operation, Operation::REPLY);
    assert_eq!((reply.sender_ip, reply.sender_mac), (other, STATION));
    for _ in 0..70 {
        assert_eq!(port.send(&TxMeta::default(), &arp_request(own, other), &[]), Ok(()));
    }
    assert_eq!(received(&mut *port).len(), REPLIES_MAX);
    assert_eq!(port.counters().rx_missed, 6);
}

#[test]
fn frames_that_are_too_long_or_too_short_are_refused_and_counted() {
    let mut port = station("sink:s");
    for len in [0, 13, 1519] {
        let refused = port.send(&TxMeta::default(), &vec![0xff; len], &[]);
        assert_eq!(refused, Err(TxError::Unsendable));
    }
    assert_eq!((port.counters().tx_frames, port.counters().tx_errors), (0, 3));
}
