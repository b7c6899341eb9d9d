//! What the kernel's settings (`net.ipv4.*`) mean for our stack.

use engine::TcpSettings;
use engine::config::{CongestionKind, EcnMode, HyStartKind, MtuProbing};

/// Settings by name, with dots, and their values as the kernel prints them.
pub type Sysctls = [(String, String)];

/// The name that a parameter of the kernel's module has here: what of HyStart looks for an end of slow
/// start, 1 the trains of acknowledgements and 2 the delay. Who sets it wants the kernel's.
pub const HYSTART_DETECT: &str = "module.tcp_cubic.hystart_detect";

/// Before the names of settings that the kernel does not have: those of the configuration's [tcp].
pub const OWN: &str = "outboard.";

/// Values that our stack always has.
const AS_WE_ARE: &[(&str, &str)] = &[
    ("net.ipv4.tcp_dsack", "1"),
    // RACK and the tail loss probe are all that is left of what 3 and 4 once told apart.
    ("net.ipv4.tcp_early_retrans", "3"),
    ("net.ipv4.tcp_early_retrans", "4"),
    ("net.ipv4.tcp_reordering", "3"),
    ("net.ipv4.tcp_rfc1337", "0"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.tcp_frto", "2"),
    ("net.ipv4.tcp_recovery", "1"),
    ("net.ipv4.tcp_tso_win_divisor", "3"),
    ("net.ipv4.icmp_ratelimit", "1000"),
    ("net.ipv6.icmp.ratelimit", "100"),
];

/// What TCP is set to, and what of the settings means nothing to our stack.
pub fn meaning(sysctls: &Sysctls) -> (TcpSettings, Vec<(String, String)>) {
    // The kernel's default, which ours is not.
    let mut tcp = TcpSettings { mtu_probing: MtuProbing::Off, ..TcpSettings::default() };
    let mut foreign = Vec::new();
    for (name, value) in sysctls {
        if set(&mut tcp, name, value).is_none() {
            foreign.push((name.clone(), value.clone()));
        }
    }
    (tcp, foreign)
}

/// Sets what a setting means; `None` when it means nothing.
fn set(tcp: &mut TcpSettings, name: &str, value: &str) -> Option<()> {
    if AS_WE_ARE.contains(&(name, value)) {
        return Some(());
    }
    let on = value != "0";
    if name == "net.core.default_qdisc" {
        tcp.paced = value == "fq";
        return Some(());
    }
    if name == HYSTART_DETECT {
        tcp.hystart = HyStartKind::Kernel;
        return (value == "3").then_some(());
    }
    if let Some(own) = name.strip_prefix(OWN) {
        match own {
            "user_timeout_option" => tcp.user_timeout_option = on,
            "user_timeout_max_s" => tcp.user_timeout_max_s = value.parse().ok()?,
            _ => return None,
        }
        return Some(());
    }
    match name.strip_prefix("net.ipv4.tcp_")? {
        "timestamps" => tcp.timestamps = on,
        "sack" => tcp.sack = on,
        "fastopen" => tcp.fast_open = value.parse().ok()?,
        "base_mss" => tcp.base_mss = value.parse().ok()?,
        "min_tso_segs" => tcp.tso_segments_min = value.parse().ok()?,
        "fastopen_key" => tcp.fast_open_key = Some(value.parse().ok()?),
        "fastopen_blackhole_timeout_sec" => tcp.fast_open_pause_s = value.parse().ok()?,
        "syncookies" if value != "2" => tcp.syn_cookies = on,
        "window_scaling" => tcp.window_scaling = on,
        "slow_start_after_idle" => tcp.slow_start_after_idle = on,
        "rto_max_ms" => tcp.rto_max_ms = value.parse().ok()?,
        "syn_retries" => tcp.syn_retries = value.parse().ok()?,
        "synack_retries" => tcp.syn_ack_retries = value.parse().ok()?,
        "rmem" => {
            let mut words = value.split(' ').rev();
            tcp.receive_max = words.next()?.parse().ok()?;
            tcp.receive_initial = words.next()?.parse().ok()?;
        }
        "wmem" => tcp.send_max = value.rsplit(' ').next()?.parse().ok()?,
        "notsent_lowat" => tcp.unsent_low_water = value.parse().ok()?,
        "congestion_control" => {
            tcp.congestion = CongestionKind::ALL.into_iter().find(|kind| kind.name() == value)?;
        }
        "ecn" => {
            tcp.ecn = match value {
                "0" => EcnMode::Off,
                "1" => EcnMode::On,
                "2" => EcnMode::Accept,
                _ => return None,
            }
        }
        "mtu_probing" => {
            tcp.mtu_probing = match value {
                "0" => MtuProbing::Off,
                "1" => MtuProbing::AfterBlackHole,
                "2" => MtuProbing::Always,
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(())
}
