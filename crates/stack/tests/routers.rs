//! What routers say, and hosts that stop being one.

mod net;

use std::net::IpAddr;

use net::v6::*;
use net::{Host, INTERFACE, MS, Net, SECOND, expect_drop, small};
use outboard_stack::api::*;
use outboard_stack::drops::DropReason;
use wire::MacAddr;
use wire::ipv4::Protocol;
use wire::ipv6::{ALL_NODES, Ipv6Header};
use wire::ndp::{NdpMessage, PrefixInformation, RouterAdvertisement};

/// Where a frame has its hop limit.
const HOP_LIMIT_AT: usize = 14 + 7;

//= https://www.rfc-editor.org/rfc/rfc4861#section-6.1.2
//= type=test
//# A node MUST silently discard any received Router Advertisement messages that do not satisfy all
//# of the following validity checks:
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# the link-layer address SHOULD be recorded in the Neighbor Cache entry for the router
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# If the MTU option is present, hosts SHOULD copy the option's value into LinkMTU
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.5
//= type=test
//# Creation of global addresses as described in this section SHOULD be locally configurable.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# If the received Cur Hop Limit value is non-zero, the host SHOULD set its CurHopLimit variable to
//# the received value.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# The RetransTimer variable SHOULD be copied from the Retrans Timer field, if the received value is
//# non-zero.
#[test]
fn routers_give_addresses_routes_an_mtu_a_hop_limit_and_times() {
    let mut net = Net::v6(1, 1500, false);
    net.hosts[0] = Host::with_ipv6(1, 1500, false, small(), Ipv6Mode::Automatic);
    net.run_for(3 * SECOND);
    let solicits = |line: &String| line.contains("icmp6 router solicitation");
    assert!(net.transcript.iter().any(solicits), "{:?}", net.transcript);
    let prefix = PrefixInformation {
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_s: 3600,
        preferred_s: 1800,
        prefix: "2001:db8::".parse().unwrap(),
    };
    let said = RouterAdvertisement {
        hop_limit: 17,
        lifetime_s: 1800,
        retransmit_ms: 250,
        source: Some(ROUTER_MAC),
        mtu: Some(1400),
        prefixes: [prefix].into_iter().collect(),
        ..RouterAdvertisement::default()
    };
    let said = NdpMessage::RouterAdvertisement(said);
    let mut ip = header(&net, 0, Protocol::ICMPV6);
    (ip.dst, ip.hop_limit) = (ALL_NODES, 255);
    let frame = ndp(&net, 0, ip, &said);
    expect_drop(&mut net, &frame, DropReason::NdpInvalid);
    ip.src = ROUTER;
    let frame = ndp(&net, 0, Ipv6Header { hop_limit: 254, ..ip }, &said);
    expect_drop(&mut net, &frame, DropReason::NdpInvalid);
    let generation = net.hosts[0].stack.interface_generation();
    let frame = ndp(&net, 0, ip, &said);
    receive(&mut net, 0, &frame);
    assert_ne!(net.hosts[0].stack.interface_generation(), generation);
    net.run_for(2 * SECOND);
    let routes = net.hosts[0].stack.routes();
    let way = routes.lookup("2001:db8:9::1".parse().unwrap()).expect("a router");
    assert_eq!((way.next_hop, way.mtu), (ROUTER.into(), 1400));
    assert_eq!(way.source, "2001:db8::ff:fe00:1".parse::<IpAddr>().unwrap());
    assert!(routes.leads_v6(INTERFACE));
    let near = routes.lookup("2001:db8::7".parse().unwrap()).expect("on the link");
    assert_eq!(near.next_hop, "2001:db8::7".parse::<IpAddr>().unwrap());
    // What nobody asks for another hop limit is sent with the router's.
    let from = bind(&mut net, 0, 10);
    let remote = Some("[2001:db8:9::1]:9".parse().unwrap());
    for (ttl, hops) in [(None, 17), (Some(9), 9)] {
        let send = UdpSend { remote, ttl, payload_len: 1, ..UdpSend::default() };
        let frames =
            net.hosts[0].datagram_as(net.now, from, &send, b"x").expect("the way is known");
        assert_eq!(frames[0][HOP_LIMIT_AT], hops);
    }
    // And a neighbour is asked for in its time.
    let started = net.now;
    let nobody = Some("[2001:db8::7]:9".parse().unwrap());
    assert_eq!(net.datagram(0, from, nobody, b"x"), Err(RequestError::HostUnreachable));
    assert!((700 * MS..SECOND).contains(&(net.now.0 - started.0)), "three times 250 ms");
    // Host 1 takes nothing from routers.
    let frame = self::ndp(&net, 1, ip, &said);
    receive(&mut net, 1, &frame);
    assert_eq!(net.hosts[1].stack.counters().dropped(DropReason::NdpNotForUs), 1);
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
//= type=test
//# - The IsRouter flag in the cache entry MUST be set based on the Router flag in the received
//# advertisement.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
//= type=test
//# In those cases where the IsRouter flag changes from TRUE to FALSE as a result of this update,
//# the node MUST remove that router from the Default Router List and update the Destination Cache
//# entries for all destinations using that neighbor as a router as specified in Section 7.3.3.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
//= type=test
//# a node MUST compare the Router flag field in all received Neighbor Advertisement messages
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
//= type=test
//# When a node detects that a neighbor has changed from being a router to being a host, the node
//# MUST remove that router from the Default Router List and update the Destination Cache as
//# described in Section 6.3.5.
#[test]
fn a_neighbour_that_says_it_is_no_router_is_none() {
    let mut net = Net::v6(1, 1500, false);
    net.hosts[0] = Host::with_ipv6(1, 1500, false, small(), Ipv6Mode::Automatic);
    net.run_for(3 * SECOND);
    let mut ip = header(&net, 0, Protocol::ICMPV6);
    (ip.src, ip.dst, ip.hop_limit) = (ROUTER, ALL_NODES, 255);
    let said = RouterAdvertisement {
        lifetime_s: 1800,
        source: Some(ROUTER_MAC),
        ..RouterAdvertisement::default()
    };
    let said = ndp(&net, 0, ip, &NdpMessage::RouterAdvertisement(said));
    let far = "2001:db8:9::1".parse().unwrap();
    for (router, leads) in [(true, true), (false, false)] {
        receive(&mut net, 0, &said);
        let told = NdpMessage::NeighborAdvertisement {
            router,
            solicited: false,
            overrides: true,
            target: ROUTER,
            link_address: Some(MacAddr([2, 0, 0, 0, 0, u8::from(router) + 7])),
        };
        let told = ndp(&net, 0, ip, &told);
        receive(&mut net, 0, &told);
        assert_eq!(net.hosts[0].stack.routes().lookup(far).is_some(), leads);
    }
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.2
//= type=test
//# In other words, if the L flag is not set a host MUST NOT conclude that an address derived from the
//# prefix is off-link.
//= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.2
//= type=test
//# That is, it MUST NOT update a previous indication that the address is on-link.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
//= type=test
//# Note, however, that a Prefix Information option with the on-link flag set to zero conveys no
//# information concerning on-link determination and MUST NOT be interpreted to mean that addresses
//# covered by the prefix are off-link.
#[test]
fn an_address_made_of_a_prefix_does_not_put_it_on_the_link() {
    let mut net = automatic();
    let said = |on_link, valid_s| RouterAdvertisement {
        lifetime_s: 1800,
        source: Some(ROUTER_MAC),
        prefixes: [PrefixInformation {
            prefix_len: 64,
            on_link,
            autonomous: valid_s > 0,
            valid_s,
            preferred_s: valid_s,
            prefix: "2001:db8::".parse().unwrap(),
        }]
        .into_iter()
        .collect(),
        ..RouterAdvertisement::default()
    };
    let other = "2001:db8::7".parse().unwrap();
    // Nothing is said of the link, then that it is on it, nothing, and that it is not any more.
    let steps = [(false, 3600, false), (true, 3600, true), (false, 3600, true), (true, 0, false)];
    for (on_link, valid_s, is_near) in steps {
        advertised(&mut net, ROUTER, said(on_link, valid_s));
        net.run_for(2 * SECOND);
        let way = net.hosts[0].stack.routes().lookup(other).expect("a router");
        let next_hop = if is_near { other } else { ROUTER.into() };
        assert_eq!(way.next_hop, next_hop, "on link: {on_link} for {valid_s} s");
        assert_eq!(way.source, "2001:db8::ff:fe00:1".parse::<IpAddr>().unwrap());
    }
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
//= type=test
//# a node MUST compare the Router flag field in all received Neighbor Advertisement messages
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
//= type=test
//# Otherwise, the received advertisement should be ignored and MUST NOT update the cache.
#[test]
fn a_router_that_stops_being_one_is_believed_also_where_it_says_nothing_else() {
    let far = "2001:db8:9::1".parse().unwrap();
    let other = MacAddr([2, 0, 0, 0, 0, 0xfd]);
    // Its own address as it is known; somebody else's, which is not to override; that it is to.
    for (mac, overrides, leads) in [
        (ROUTER_MAC, true, false),
        (ROUTER_MAC, false, false),
        (other, false, true),
        (other, true, false),
    ] {
        let mut net = automatic();
        let said = RouterAdvertisement {
            lifetime_s: 1800,
            source: Some(ROUTER_MAC),
            ..RouterAdvertisement::default()
        };
        advertised(&mut net, ROUTER, said);
        assert!(net.hosts[0].stack.routes().lookup(far).is_some());
        let told = NdpMessage::NeighborAdvertisement {
            router: false,
            solicited: false,
            overrides,
            target: ROUTER,
            link_address: Some(mac),
        };
        let mut ip = header(&net, 0, Protocol::ICMPV6);
        (ip.src, ip.dst, ip.hop_limit) = (ROUTER, ALL_NODES, 255);
        let told = ndp(&net, 0, ip, &told);
        receive(&mut net, 0, &told);
        let is_led = net.hosts[0].stack.routes().lookup(far).is_some();
        assert_eq!(is_led, leads, "{mac}, overrides: {overrides}");
    }
}
