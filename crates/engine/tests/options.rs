//! Values of options: the engine refuses what the kernel refuses, asked side by side.

mod common;

use common::{Net, small};
use outboard_engine::ss::SeenSocket;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use shm::request::{OptionName, Reply, Request};
use stack::api::SocketKind;
use std::time::Duration;

const VALUES: [u32; 18] = [
    0,
    1,
    2,
    87,
    88,
    127,
    128,
    255,
    256,
    536,
    32_767,
    32_768,
    65_535,
    65_536,
    i32::MAX as u32,
    i32::MAX as u32 + 1,
    u32::MAX - 1,
    u32::MAX,
];

#[test]
fn values_are_taken_or_refused_as_the_kernel_does() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, _) = net.connected(&a, &b, listener, 80);
    let kernel = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    for value in VALUES {
        let seconds = Duration::from_secs(value.into());
        let expected = [
            (OptionName::Ttl, sockopt::set_ip_ttl(&kernel, value)),
            (OptionName::Keepcnt, sockopt::set_tcp_keepcnt(&kernel, value)),
            (OptionName::Keepidle, sockopt::set_tcp_keepidle(&kernel, seconds)),
            (OptionName::Keepintvl, sockopt::set_tcp_keepintvl(&kernel, seconds)),
            (OptionName::UserTimeout, sockopt::set_tcp_user_timeout(&kernel, value)),
            (OptionName::Maxseg, maxseg(value)),
        ];
        for (option, kernels) in expected {
            let request = Request::SetOption { endpoint: near, option, value: value.into() };
            let ours = net.ask(false, &a, request);
            let as_kernel = match kernels {
                Ok(()) => Reply::Done,
                Err(error) => Reply::Failed { errno: error.raw_os_error().unsigned_abs() },
            };
            assert_eq!(ours, as_kernel, "{option:?} = {value}");
        }
    }
    let request = Request::SetOption { endpoint: near, option: OptionName::Congestion, value: 4 };
    let unknown = Reply::Failed { errno: Errno::NOENT.raw_os_error().unsigned_abs() };
    assert_eq!(net.ask(false, &a, request), unknown);
}

/// do_tcp_setsockopt in net/ipv4/tcp.c; rustix has no name for it.
fn maxseg(value: u32) -> Result<(), Errno> {
    if value == 0 || (88..=32_767).contains(&value) { Ok(()) } else { Err(Errno::INVAL) }
}

#[test]
fn a_listener_listens_with_another_backlog_from_then_on() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, _) = net.connected(&a, &b, listener, 80);
    let backlog = |net: &Net| {
        let mut place = Some(0);
        while let Some(from) = place {
            let (seen, next) = net.b.worker.sockets_from(from);
            for one in seen {
                if let SeenSocket::Stack(stack::SocketInfo::Tcp(_, info)) = one.socket
                    && info.kind == SocketKind::Listener
                {
                    return Some(info.send_queue);
                }
            }
            place = next;
        }
        None
    };
    assert_eq!(backlog(&net), Some(1024));
    let most = stack::Limits::default().accept_queue;
    for (value, shows) in [(7, 7), (0, 0), (u64::from(u32::MAX), most.into())] {
        let set = |endpoint| Request::SetOption { endpoint, option: OptionName::Backlog, value };
        assert_eq!(net.ask(true, &b, set(listener)), Reply::Done);
        assert_eq!(backlog(&net), Some(shows));
        let refused = Reply::Failed { errno: Errno::OPNOTSUPP.raw_os_error().unsigned_abs() };
        assert_eq!(net.ask(false, &a, set(near)), refused, "a connection has none");
    }
}

#[test]
fn a_default_time_to_live_is_asked_for_with_minus_one() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, _) = net.connected(&a, &b, listener, 80);
    for (value, shows) in [(7, 7), (u64::from(u32::MAX), 64)] {
        let set = Request::SetOption { endpoint: near, option: OptionName::Ttl, value };
        assert_eq!(net.ask(false, &a, set), Reply::Done);
        let get = Request::Option { endpoint: near, option: OptionName::Ttl };
        assert_eq!(net.ask(false, &a, get), Reply::Value(shows));
    }
}
