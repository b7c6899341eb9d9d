//! What is written is read as it was.

use super::*;

#[test]
fn every_request_survives_its_encoding() {
    let remote = "192.0.2.1:80".parse().unwrap();
    let options = ConnectOptions {
        nodelay: true,
        keepalive: false,
        maxseg: 1460,
        tos: 0x10,
        ttl: 63,
        receive_limit: 1 << 20,
        user_timeout_ms: 5000,
        congestion: Some(3),
        fast_open: true,
        fast_open_no_cookie: false,
        signed: true,
    };
    let key_bytes = std::array::from_fn(|at| at as u8);
    let key = |network: &str| KeyPart {
        network: network.parse().unwrap(),
        prefix: 24,
        at: 32,
        key_bytes: 80,
        bytes: key_bytes,
    };
    let mut requests = vec![
        Request::Connect { remote, token: 7, options },
        Request::Connect { remote: "[2001:db8::1]:443".parse().unwrap(), token: 0, options },
        Request::Accept { listener: 3 },
        Request::Close { endpoint: 4 },
        Request::Abort { endpoint: u32::MAX },
        Request::StopReceiving { endpoint: 5 },
        Request::Info { endpoint: 6 },
        Request::Progress { endpoint: 7 },
        Request::Rates { endpoint: 7 },
        Request::Counts { endpoint: 7 },
        Request::ConnectDatagram { endpoint: 7, remote: Some(remote) },
        Request::ConnectDatagram { endpoint: 7, remote: None },
        Request::SetFastOpenKeys { endpoint: 7, primary: 1 << 100 | 5, backup: None },
        Request::SetFastOpenKeys { endpoint: 7, primary: 6, backup: Some(u128::MAX - 1) },
        Request::SetKey { endpoint: 8, part: key("10.0.0.0") },
        Request::SetKey { endpoint: NEXT_ENDPOINT, part: key("2001:db8::") },
        Request::TakeStamp { endpoint: 8 },
        Request::Arrival { endpoint: 8, end: 1 << 40 },
        Request::SetGroup { endpoint: 7, interface: 2, group: remote.ip(), excludes: None },
    ];
    for group in ["239.1.2.3", "ff05::7"].map(|group| group.parse::<IpAddr>().unwrap()) {
        for is_named in [true, false] {
            let (endpoint, interface, source) = (u32::MAX, 255, group);
            let excludes = Some(is_named);
            requests.push(Request::SetGroup { endpoint, interface, group, excludes });
            requests.push(Request::NameSource { endpoint, interface, group, source, is_named });
        }
    }
    for &option in OptionName::ALL {
        requests.push(Request::SetOption { endpoint: 8, option, value: u64::MAX });
        requests.push(Request::Option { endpoint: 8, option });
    }
    for request in requests {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
}

#[test]
fn every_reply_survives_its_encoding() {
    let addresses = Addresses {
        local: "10.0.0.2:6379".parse().unwrap(),
        remote: "10.0.0.1:50000".parse().unwrap(),
    };
    let progress = ConnectionProgress {
        busy_us: 1 << 40,
        window_limited_us: 2,
        received_bytes: 3 << 40,
        delivered: 4,
        resent_bytes: 5,
        last_received_ms: 6,
        last_sent_ms: 7,
        min_rtt_us: 8,
        reordering: 9,
        reorderings: 10,
        probes: 11,
        backoff: 12,
    };
    let counts = ConnectionCounts {
        received: 1,
        received_data: 2,
        sent: 3,
        sent_data: 4,
        duplicates: 5,
        out_of_order: 6,
        marked: 7,
        timeouts: 8,
        timeout_series: 9,
        timeouts_ms: 10,
        buffer_limited_us: u64::MAX,
    };
    let rates = ConnectionRates {
        pacing: u64::MAX,
        delivery: 1 << 40,
        resent_bytes: 1,
        unsent_bytes: 2,
        receive_rtt_us: 3,
        receive_space_bytes: 4,
        receive_limit_bytes: 5,
        last_acked_ms: 6,
        app_limited: true,
        delays_acks: false,
    };
    let info = ConnectionInfo {
        state: 1,
        retransmits: 2,
        srtt_us: 3,
        rttvar_us: 4,
        rto_us: 5,
        cwnd_bytes: 6,
        ssthresh_bytes: u32::MAX,
        mss_bytes: 1448,
        scales: 0x77,
        unacked_bytes: 8,
        retransmitted: 9,
        send_window_bytes: 10,
        receive_window_bytes: 11,
        agreed: 7 | 32,
        recovery: 4,
        path_mtu_bytes: 1500,
        receive_mss_bytes: 1448,
        advertised_mss_bytes: 1460,
        sacked_bytes: 12,
        lost_bytes: u32::MAX,
    };
    for reply in [
        Reply::Done,
        Reply::Failed { errno: 11 },
        Reply::Endpoint { endpoint: 9, addresses },
        Reply::Value(1 << 40),
        Reply::Info(info),
        Reply::Stamp(Stamp { kind: 4, end: 1 << 33, at_ns: u64::MAX }),
        Reply::Progress(progress),
        Reply::Rates(rates),
        Reply::Counts(counts),
    ] {
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
    assert_eq!(Reply::decode(&Words { kind: 99, ..Words::default() }), None);
}
