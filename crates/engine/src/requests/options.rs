//! Options of endpoints, from numbers and to numbers.

use rustix::io::Errno;
use shm::request::OptionName;
use stack::api::{CongestionKind, PathMtuDiscovery, TcpOptions};

use crate::endpoint::Datagram;
use crate::room::Room;

/// Applies an option of a connection or a listener.
pub(super) fn apply(
    options: &mut TcpOptions,
    option: OptionName,
    value: u64,
    receive_limit: u32,
) -> Result<(), Errno> {
    if !option.admits(value) {
        let unknown = option == OptionName::Congestion;
        return Err(if unknown { Errno::NOENT } else { Errno::INVAL });
    }
    // Admitted values fit their field.
    let number = value as u32;
    match option {
        OptionName::Nodelay => options.nodelay = number != 0,
        OptionName::Cork => options.cork = number != 0,
        // It concerns only the current state of the connection, which the stack handles.
        OptionName::Quickack => {}
        OptionName::Keepalive => options.keepalive = number != 0,
        OptionName::Keepidle => options.keepidle_s = number,
        OptionName::Keepintvl => options.keepintvl_s = number,
        OptionName::Keepcnt => options.keepcnt = number,
        OptionName::UserTimeout => options.user_timeout_ms = number,
        OptionName::RetransmitTimeoutMax => options.rto_max_ms = number,
        OptionName::Maxseg => options.maxseg = number as u16,
        OptionName::Linger => options.linger_s = number.checked_sub(1),
        // The lowest two bits are ECN's, which TCP sets itself, as in the kernel.
        OptionName::Tos => options.tos = number as u8 & !3,
        OptionName::Ttl => {
            options.ttl = u8::try_from(number).ok().filter(|ttl| *ttl != 0);
        }
        OptionName::TrafficClass => {
            options.traffic_class = u8::try_from(number).unwrap_or(0) & !3;
        }
        OptionName::HopLimit => options.hop_limit = u8::try_from(number).ok(),
        OptionName::ReceiveLimit => {
            options.recv_limit = receive_limit;
            options.recv_tunes = false;
        }
        OptionName::Congestion => {
            let kind = CongestionKind::ALL.get(number as usize);
            options.congestion = *kind.ok_or(Errno::NOENT)?;
        }
        OptionName::MaxPacingRate => {
            options.max_pacing_rate = if number == u32::MAX { u64::MAX } else { number.into() };
        }
        OptionName::MtuDiscover => options.pmtu = discovery(number),
        // As in current kernels; older ones used the default for larger values.
        OptionName::Linger2 => {
            let seconds = number.cast_signed().max(-1);
            options.linger2_s = seconds.min(FIN_TIMEOUT_S_MAX);
        }
        OptionName::SynRetries => options.syn_retries = number as u8,
        OptionName::WindowClamp => options.window_clamp = number.max(WINDOW_CLAMP_MIN),
        OptionName::DeferAccept => {
            options.defer_accept = timeouts_within(number.cast_signed());
        }
        OptionName::FastOpen => options.fast_open_queue = number,
        OptionName::FastOpenNoCookie => options.fast_open_no_cookie = number != 0,
        OptionName::ReceiveLowWater => options.recv_low_water = number.max(1),
        OptionName::UnsentLowWater => options.unsent_low_water = number,
        OptionName::Backlog
        | OptionName::Outlives
        | OptionName::PathMtu
        | OptionName::SentEnd
        | OptionName::AckedEnd
        | OptionName::SendEdge
        | OptionName::ModelRate
        | OptionName::ModelState
        | OptionName::ReceiveStamps
        | OptionName::ReceiveErrors
        | OptionName::ReceiveErrors6
        | OptionName::NoCheck6Receive
        | OptionName::AllGroups
        | OptionName::AllGroups6
        | OptionName::ReceiveCoalesced => return Err(Errno::OPNOTSUPP),
    }
    Ok(())
}

/// The meaning of a value of IP_MTU_DISCOVER.
fn discovery(number: u32) -> PathMtuDiscovery {
    match number {
        1 | 2 => PathMtuDiscovery::Want,
        3 | 4 => PathMtuDiscovery::Probe,
        _ => PathMtuDiscovery::Dont,
    }
}

/// Applies an option of a UDP socket. Options that each datagram carries are the client's own.
pub(super) fn apply_to_datagrams(
    datagram: &mut Datagram,
    option: OptionName,
    value: u64,
) -> Result<(), Errno> {
    if !option.admits(value) {
        return Err(Errno::INVAL);
    }
    let is_on = value != 0;
    let options = &mut datagram.options;
    match option {
        OptionName::ReceiveErrors => options.report_errors = is_on,
        OptionName::ReceiveErrors6 => options.report_errors6 = is_on,
        OptionName::NoCheck6Receive => options.no_check6 = is_on,
        OptionName::MtuDiscover => options.pmtu = discovery(value as u32),
        OptionName::ReceiveCoalesced => datagram.takes_coalesced = is_on,
        OptionName::ReceiveStamps => datagram.is_stamped = is_on,
        OptionName::ReceiveLimit => match &mut datagram.room {
            Some(room) => room.set_limit(value),
            room => *room = Some(Room::new(value)),
        },
        OptionName::AllGroups => options.only_joined = !is_on,
        OptionName::AllGroups6 => options.only_joined6 = !is_on,
        _ => return Err(Errno::NOPROTOOPT),
    }
    Ok(())
}

/// TCP_FIN_TIMEOUT_MAX, seconds.
const FIN_TIMEOUT_S_MAX: i32 = 120;
/// SOCK_MIN_RCVBUF / 2, bytes.
const WINDOW_CLAMP_MIN: u32 = 1152;

/// The retransmission timeouts of a SYN-ACK: the first is a second, each further one doubles, up to
/// two minutes.
fn timeouts() -> impl Iterator<Item = i32> {
    (0..255u32).map(|doublings| 1 << doublings.min(7)).map(|seconds: i32| seconds.min(120))
}

/// The number of timeouts within `seconds` (the kernel's secs_to_retrans).
fn timeouts_within(seconds: i32) -> u8 {
    if seconds <= 0 {
        return 0;
    }
    let ends = timeouts().scan(0i32, |passed, timeout| {
        *passed += timeout;
        Some(*passed)
    });
    1 + ends.take_while(|&end| seconds > end).count().min(254) as u8
}

/// The end of this many timeouts, in seconds.
fn timeouts_end(count: u8) -> i32 {
    timeouts().take(count.into()).sum()
}

/// The value that getsockopt returns.
pub(super) fn value(options: &TcpOptions, option: OptionName) -> Result<u64, Errno> {
    Ok(match option {
        OptionName::Nodelay => u64::from(options.nodelay),
        OptionName::Cork => u64::from(options.cork),
        OptionName::Keepalive => u64::from(options.keepalive),
        OptionName::Keepidle => u64::from(options.keepidle_s),
        OptionName::Keepintvl => u64::from(options.keepintvl_s),
        OptionName::Keepcnt => u64::from(options.keepcnt),
        OptionName::UserTimeout => u64::from(options.user_timeout_ms),
        OptionName::RetransmitTimeoutMax => u64::from(options.rto_max_ms),
        OptionName::Maxseg => u64::from(options.maxseg),
        OptionName::Linger => options.linger_s.map_or(0, |seconds| u64::from(seconds) + 1),
        OptionName::Tos => u64::from(options.tos),
        OptionName::Ttl => u64::from(options.ttl.unwrap_or(stack::route::HOPS)),
        OptionName::TrafficClass => options.traffic_class.into(),
        OptionName::HopLimit => u64::from(options.hop_limit.unwrap_or(stack::route::HOPS)),
        OptionName::ReceiveLimit => u64::from(options.recv_limit),
        OptionName::Congestion => options.congestion as u64,
        OptionName::MaxPacingRate => options.max_pacing_rate.min(u32::MAX.into()),
        OptionName::MtuDiscover => match options.pmtu {
            PathMtuDiscovery::Dont => 0,
            PathMtuDiscovery::Want => 1,
            PathMtuDiscovery::Probe => 3,
        },
        OptionName::Linger2 => match options.linger2_s {
            0 => 60,
            seconds => u64::from(seconds.cast_unsigned()),
        },
        OptionName::SynRetries => match options.syn_retries {
            0 => 6,
            most => u64::from(most),
        },
        OptionName::WindowClamp => u64::from(options.window_limit()),
        OptionName::DeferAccept => u64::from(timeouts_end(options.defer_accept).cast_unsigned()),
        OptionName::FastOpen => u64::from(options.fast_open_queue),
        OptionName::FastOpenNoCookie => u64::from(options.fast_open_no_cookie),
        OptionName::ReceiveLowWater => u64::from(options.recv_low_water),
        OptionName::UnsentLowWater => u64::from(options.unsent_low_water),
        OptionName::Backlog
        | OptionName::Outlives
        | OptionName::PathMtu
        | OptionName::SentEnd
        | OptionName::AckedEnd
        | OptionName::SendEdge
        | OptionName::ModelRate
        | OptionName::ModelState
        | OptionName::ReceiveStamps
        | OptionName::Quickack
        | OptionName::ReceiveErrors
        | OptionName::ReceiveErrors6
        | OptionName::NoCheck6Receive
        | OptionName::AllGroups
        | OptionName::AllGroups6
        | OptionName::ReceiveCoalesced => return Err(Errno::OPNOTSUPP),
    })
}
