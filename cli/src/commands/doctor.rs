//! `outboard doctor`: what this machine offers and lacks, and what to do about it.

use std::fs;
use std::path::Path;

use lab::observer::Observer;
use port::Protocol;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Resource;
use serde::Serialize;
use shm::control::SocketInfo;

use crate::firewall::{Firewall, listed};
use crate::{config, users};

use super::{mpi, run};

mod interfaces;

/// How a check turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Good,
    /// Works, but worse than it could.
    Fair,
    /// Something will not work.
    Lacking,
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
struct Check {
    subject: String,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn good(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self { subject: subject.into(), verdict: Verdict::Good, found: found.into(), advice: None }
    }

    fn fair(
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { subject: subject.into(), verdict: Verdict::Fair, found: found.into(), advice }
    }

    fn lacking(
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { subject: subject.into(), verdict: Verdict::Lacking, found: found.into(), advice }
    }
}

/// Prints all checks.
pub fn doctor(json: bool) {
    let mut checks = vec![kernel(), cores()];
    checks.extend(capabilities());
    let (engine, accelerated) = engine();
    checks.extend([tap(), packet(), guard(), xdp(), namespaces(), relay(), files(), memory()]);
    checks.push(huge_pages());
    checks.extend(interfaces::checks());
    checks.push(routing());
    checks.extend(firewall(&accelerated));
    checks.extend(service());
    checks.extend([library(), provider(), programs()]);
    checks.extend(engine);
    if json {
        tell!("{}", serde_json::to_string_pretty(&checks).unwrap_or_default());
        return;
    }
    for check in &checks {
        let mark = match check.verdict {
            Verdict::Good => "good",
            Verdict::Fair => "fair",
            Verdict::Lacking => "LACKS",
        };
        tell!("{mark:<6} {:<23} {}", check.subject, check.found);
        if let Some(advice) = &check.advice {
            tell!("{:30} -> {advice}", "");
        }
    }
}

fn kernel() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim().to_string();
    match version(&release) {
        // SO_NETNS_COOKIE, by which the engine checks whose port it is, came with 5.14.
        Some(version) if version >= (5, 14) => Check::good("kernel", release),
        _ => Check::lacking("kernel", release, "use Linux 5.14 or newer"),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn cores() -> Check {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let isolated = isolated.trim();
    let found = match isolated {
        "" => format!("{count}, none isolated"),
        _ => format!("{count}, isolated: {isolated}"),
    };
    match (count, isolated) {
        (1, _) => Check::fair("cores", found, "engine and programs will share it; two are better"),
        (_, "") if count > 2 => Check::fair(
            "cores",
            found,
            "for the steadiest latency keep others off the engine's core (isolcpus=N, or cpuset)",
        ),
        _ => Check::good("cores", found),
    }
}

/// Capabilities that a port needs: name, bit and what for.
const CAPABILITIES: [(&str, u32, &str); 3] = [
    ("CAP_NET_ADMIN", 12, "TAP and xdp ports"),
    ("CAP_NET_RAW", 13, "packet and xdp ports"),
    ("CAP_SYS_ADMIN", 21, "netns=, connections of children and the demo"),
];

/// Bits of the capabilities held.
fn effective() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn capabilities() -> Vec<Check> {
    let effective = effective();
    CAPABILITIES
        .map(|(name, bit, purpose)| {
            if effective & (1 << bit) != 0 {
                Check::good(name, format!("held, for {purpose}"))
            } else {
                let advice =
                    "run the engine as root, or give it the capability (setcap, --cap-add)";
                Check::lacking(name, format!("not held; needed for {purpose}"), advice)
            }
        })
        .to_vec()
}

fn tap() -> Check {
    let path = "/dev/net/tun";
    match fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Check::good("TAP", format!("{path} opens")),
        Err(error) => Check::lacking(
            "TAP",
            format!("{path}: {error}"),
            "modprobe tun; for a container: --device /dev/net/tun",
        ),
    }
}

fn packet() -> Check {
    let flags = SocketFlags::CLOEXEC;
    match rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None) {
        Ok(_) => Check::good("AF_PACKET", "sockets open"),
        Err(error) => {
            let advice = "run as root or with CAP_NET_RAW; the kernel needs CONFIG_PACKET";
            Check::lacking("AF_PACKET", error.to_string(), advice)
        }
    }
}

/// What a packet port needs to keep the kernel's stack off its interface.
fn guard() -> Check {
    const SUBJECT: &str = "packet guard (tcx)";
    const WITHOUT: &str = "packet ports work without it but cost more CPU, because the kernel \
     processes every frame too";
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_BPF: u32 = 39;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if version(release.trim()).is_none_or(|version| version < (6, 6)) {
        return Check::fair(SUBJECT, "not in this kernel; Linux 6.6 has it", WITHOUT);
    }
    if effective() & (1 << CAP_BPF | 1 << CAP_SYS_ADMIN) == 0 {
        let advice = format!("run the engine as root or with CAP_BPF; {WITHOUT}");
        return Check::fair(SUBJECT, "needs CAP_BPF, which is not held", advice);
    }
    Check::good(SUBJECT, "can be attached")
}

/// What a port on the kernel's own interface needs.
fn xdp() -> Check {
    const SUBJECT: &str = "AF_XDP";
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    /// To load programs, and to let them compute with pointers.
    const BOTH: u64 = 1 << CAP_PERFMON | 1 << CAP_BPF;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = version(release.trim()).unwrap_or_default();
    if version < (6, 1) {
        let advice = "use Linux 6.1 or newer for xdp ports";
        return Check::lacking(SUBJECT, "too old in this kernel", advice);
    }
    let flags = SocketFlags::CLOEXEC;
    match rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None) {
        Err(error) => {
            let advice = "run as root or with CAP_NET_RAW; the kernel needs CONFIG_XDP_SOCKETS";
            Check::lacking(SUBJECT, error.to_string(), advice)
        }
        Ok(_) if effective() & (1 << CAP_SYS_ADMIN) == 0 && effective() & BOTH != BOTH => {
            let advice = "run the engine as root or with both; xdp ports load a BPF program";
            Check::lacking(SUBJECT, "needs CAP_BPF and CAP_PERFMON, which are not held", advice)
        }
        Ok(_) if version < (6, 6) => Check::fair(
            SUBJECT,
            "sockets open; frames of one buffer only, so the MTU must be 3,822 or less",
            "Linux 6.6 supports longer frames, and generic mode on veth",
        ),
        Ok(_) => Check::good(
            SUBJECT,
            "sockets open; the port reports at its start what its driver \
             supports",
        ),
    }
}

fn namespaces() -> Check {
    if !Path::new("/proc/self/ns/net").exists() {
        let advice = "use a kernel with CONFIG_NET_NS; the demo and the tests need it";
        return Check::lacking("network namespaces", "not in this kernel", advice);
    }
    match rustix::process::geteuid().is_root() {
        true => Check::good("network namespaces", "there"),
        false => Check::fair("network namespaces", "there", "the demo and the tests need root"),
    }
}

/// What connections need that children use, or other programs.
fn relay() -> Check {
    const SUBJECT: &str = "connections of children";
    // The thread's own namespace ends with it.
    match std::thread::spawn(port::netns::enter_everywhere).join() {
        Ok(Ok(())) => Check::good(SUBJECT, "the engine's relay can have a network namespace"),
        Ok(Err(error)) => Check::fair(
            SUBJECT,
            format!("no network namespace for the engine's relay: {error}"),
            "run the engine as root or with CAP_SYS_ADMIN and CAP_NET_ADMIN; without it, servers whose \
             children serve connections are left to the kernel",
        ),
        Err(_) => Check::fair(SUBJECT, "the attempt at a network namespace failed", "report this"),
    }
}

/// Descriptors that a busy server needs: one for each connection.
const FILES_WANTED: u64 = 20_000;

fn files() -> Check {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let shown = |limit: Option<u64>| limit.map_or_else(|| "unlimited".into(), |n| n.to_string());
    let found = format!("{} now, at most {}", shown(limit.current), shown(limit.maximum));
    if limit.maximum.is_none_or(|most| most >= FILES_WANTED) {
        return Check::good("open files", found);
    }
    let advice =
        "each connection of a program takes one number; raise the hard limit (limits.conf)";
    Check::fair("open files", found, advice)
}

/// Memory that an xdp port locks for each receive queue.
const LOCKED_PER_QUEUE: u64 = 24 << 20;

fn memory() -> Check {
    const SUBJECT: &str = "locked memory";
    const CAP_IPC_LOCK: u32 = 14;
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    let found = limit.map_or_else(|| "unlimited".into(), |bytes| format!("{} KiB", bytes >> 10));
    if effective() & (1 << CAP_IPC_LOCK) != 0 {
        return Check::good(SUBJECT, format!("limit {found}, which CAP_IPC_LOCK sets aside"));
    }
    match limit {
        Some(bytes) if bytes < LOCKED_PER_QUEUE => Check::lacking(
            SUBJECT,
            format!("limit {found}; an xdp port locks {} MiB a queue", LOCKED_PER_QUEUE >> 20),
            "raise it (ulimit -l, LimitMEMLOCK=infinity), or give the engine CAP_IPC_LOCK",
        ),
        _ => Check::good(SUBJECT, format!("limit {found}")),
    }
}

fn huge_pages() -> Check {
    Check::good("huge pages", "not needed")
}

/// Routing rules, which an xdp port's engine does not follow.
fn routing() -> Check {
    const SUBJECT: &str = "routing rules";
    match engine::kernel::Kernel::open().map(|kernel| kernel.has_rules()) {
        Ok(false) => Check::good(SUBJECT, "only the default three"),
        Ok(true) => Check::fair(
            SUBJECT,
            "more than the default three (ip rule): an engine on a shared interface follows only \
             the main table, and accelerates no new sockets while there are others",
            "remove them (ip rule del), or give the engine a separate interface",
        ),
        Err(error) => Check::fair(
            SUBJECT,
            format!("the kernel does not list them: {error}"),
            "check them (ip rule): an engine on a shared interface follows only the main table",
        ),
    }
}

/// Rules of the kernel's firewall, which accelerated traffic does not pass.
fn firewall(accelerated: &[SocketInfo]) -> Vec<Check> {
    firewall_checks(&Firewall::read(), accelerated)
}

fn firewall_checks(firewall: &Firewall, accelerated: &[SocketInfo]) -> Vec<Check> {
    const SUBJECT: &str = "kernel's firewall";
    let advice = "put ports that must be filtered under [deny], or filter before this machine";
    let mut checks = Vec::new();
    for socket in accelerated.iter().filter(|socket| socket.remote.is_none()) {
        let protocol = match socket.protocol.as_str() {
            "tcp" => Protocol::Tcp,
            _ => Protocol::Udp,
        };
        let concerning = firewall.concerning(protocol, socket.local.port());
        if !concerning.is_empty() {
            checks.push(Check::fair(
                format!("firewall, {} port {}", socket.protocol, socket.local.port()),
                format!("is accelerated and bypasses: {}", listed(&concerning)),
                advice,
            ));
        }
    }
    checks.push(match &firewall.rules[..] {
        [] => Check::good(SUBJECT, "no rules found"),
        rules => Check::fair(
            SUBJECT,
            format!(
                "{} that accelerated traffic bypasses: {}",
                if let [_] = rules {
                    "one rule".to_owned()
                } else {
                    format!("{} rules", rules.len())
                },
                listed(&rules.iter().collect::<Vec<_>>())
            ),
            advice,
        ),
    });
    let translating = firewall.translating();
    if !translating.is_empty() {
        checks.push(Check::fair(
            "address translation",
            format!(
                "assigns this machine's ports to others, and replies to a port of an xdp port's \
                 engine go to the engine: {}",
                listed(&translating)
            ),
            "restrict it to other ports (masquerade to :1024-19999)",
        ));
    }
    for sentence in &firewall.unseen {
        let advice = "install it, or check the rules by other means";
        checks.push(Check::fair(SUBJECT, sentence.clone(), advice));
    }
    if firewall.tracked > 0 {
        checks.push(Check::fair(
            "conntrack",
            format!("tracks {} connections; accelerated ones are not tracked", firewall.tracked),
            "rules that match connection state do not see accelerated connections",
        ));
    }
    checks
}

/// What a service needs.
fn service() -> Vec<Check> {
    let mut checks = vec![match Path::new("/run/systemd/system").is_dir() {
        true => Check::good("systemd", "runs; dist/outboard.service is its unit"),
        false => Check::good("systemd", "not running here; start the engine by other means"),
    }];
    checks.push(match (users::user("outboard"), users::group_number("outboard")) {
        (Ok(_), Ok(_)) => Check::good("user outboard", "there, with its group"),
        _ => Check::fair(
            "user outboard",
            "not there",
            "for a system service: systemd-sysusers after make install, or useradd --system",
        ),
    });
    checks
}

fn library() -> Check {
    match run::library() {
        Ok(path) => Check::good("preload library", path.display().to_string()),
        Err(failure) => {
            Check::lacking("preload library", failure.cause(), "build everything: make build")
        }
    }
}

/// What MPI programs need on every host: without it a rank ends the job.
fn provider() -> Check {
    const SUBJECT: &str = "libfabric provider";
    match mpi::provider() {
        Err(failure) => Check::fair(SUBJECT, failure.cause(), "build everything: make build"),
        Ok(path) if lab::find("mpirun").is_none() => Check::fair(
            SUBJECT,
            format!("{}; mpirun is not installed", path.display()),
            "for MPI programs install openmpi-bin on every host",
        ),
        Ok(path) => Check::good(SUBJECT, path.display().to_string()),
    }
}

fn programs() -> Check {
    let programs: Vec<&str> = lab::PROGRAMS.iter().map(|(program, _)| *program).collect();
    match lab::require_programs(&programs) {
        Ok(()) => Check::good("demo and test tools", "all installed"),
        Err(failure) => {
            let advice = "make demo and make test install them on Debian and Ubuntu";
            Check::fair("demo and test tools", failure.cause(), advice)
        }
    }
}

/// The engine that answers at the usual place, and its sockets.
fn engine() -> (Vec<Check>, Vec<SocketInfo>) {
    let socket = config::default_socket();
    let mut observer = match Observer::connect(&socket) {
        Ok(observer) => observer,
        Err(failure) => {
            let advice = "start one: outboard engine --port PORT";
            return (vec![Check::fair("engine", failure.cause(), advice)], Vec::new());
        }
    };
    let mut checks = vec![Check::good("engine", format!("answers at {}", socket.display()))];
    if let Ok(stats) = observer.stats() {
        checks.push(core_of_engine(stats.counter("ways_given")));
    }
    (checks, observer.sockets().unwrap_or_default())
}

fn core_of_engine(ways_given: u64) -> Check {
    const SUBJECT: &str = "engine's core";
    match ways_given {
        0 => Check::good(SUBJECT, "not shared so far"),
        times => Check::fair(
            SUBJECT,
            format!("shared: the worker yielded to programs {times} times"),
            "pin programs to other cores (taskset, AllowedCPUs=), or the engine (core = N)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc-v769"), Some((6, 18)));
        assert_eq!(version("5.4-rc1"), Some((5, 4)));
        assert!(version("5.4") < Some((5, 14)));
        assert_eq!(version("odd"), None);
    }

    #[test]
    fn a_firewall_without_rules_is_good_and_what_cannot_be_seen_is_told() {
        let checks = firewall_checks(&Firewall::default(), &[]);
        assert_eq!(checks.iter().map(|check| check.verdict).collect::<Vec<_>>(), [Verdict::Good]);
        let blind = Firewall {
            unseen: vec!["nft is not installed".into()],
            tracked: 3,
            ..Firewall::default()
        };
        let checks = firewall_checks(&blind, &[]);
        assert!(checks[1].found.contains("nft") && checks[2].found.contains("3 connections"));
    }

    #[test]
    fn an_engine_that_shares_its_core_is_told_of() {
        assert_eq!(core_of_engine(0).verdict, Verdict::Good);
        assert!(core_of_engine(7).found.contains("7 times"));
    }

    #[test]
    fn whatever_is_not_good_comes_with_advice() {
        let mut checks = vec![kernel(), cores(), tap(), packet(), namespaces(), files(), library()];
        checks.extend([guard(), xdp(), relay(), memory(), huge_pages(), routing()]);
        checks.extend(capabilities());
        checks.extend(interfaces::checks());
        checks.extend(firewall(&[]));
        checks.extend(service());
        for check in checks {
            assert_eq!(check.advice.is_none(), check.verdict == Verdict::Good, "{check:?}");
        }
    }
}
