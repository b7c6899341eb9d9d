//! The two hosts and the links between them.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{CpuSet, LinkNameSpaceType};
use rustix::time::{ClockId, clock_gettime};

use crate::cpu;
use crate::cubic::Cubic;
use crate::failure::{Explain, Failure, Result};
use crate::outside;
use crate::program::{Program, Task};

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The host of the clients, on the first core.
    A,
    /// The host of the servers, on the second core.
    B,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    pub(crate) fn letter(self) -> char {
        match self {
            Side::A => 'a',
            Side::B => 'b',
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// What a link is set up for. The kernel gets what suits it best in each case, and in both its
/// receive work is done on the receiving host's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Small requests: frames of one MTU, received by a pinned kernel thread (threaded NAPI).
    Requests,
    /// Bulk: frames of up to 64 KiB, received in the soft interrupt of the host's core (RPS).
    Bulk,
    /// Bulk between the kernel and an XDP port: frames of up to 64 KiB, received by a pinned kernel
    /// thread.
    BulkOverXdp,
    /// Small requests to an XDP port in front of the stack: received in the soft interrupt of the
    /// host's core, since a thread would take turns with engine and program. (The kernel's own rates
    /// and times are the same either way.)
    RequestsOverXdp,
    /// What a packet port sends and takes, the kernel's stack being out of it: frames go from one
    /// end's driver into the other end's ring at once, without a receive queue in between. Each
    /// host thereby does the other's share of that work, which is the same.
    Frames,
}

/// A host: a network namespace and a core.
#[derive(Debug)]
pub struct Host {
    namespace: String,
    handle: OwnedFd,
    /// The core that does all work of the host.
    pub core: usize,
}

impl Host {
    /// Name of the network namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// A virtual link between the hosts. The ends are named alike, with the host's letter at the end.
#[derive(Clone, Debug)]
pub struct Link {
    stem: String,
}

impl Link {
    /// The link's interface on host `side`.
    pub fn end(&self, side: Side) -> String {
        format!("{}{}", self.stem, side.letter())
    }
}

/// Two hosts and what joins them.
#[derive(Debug)]
pub struct Lab {
    hosts: [Host; 2],
    home: OwnedFd,
    home_cores: CpuSet,
    scratch: PathBuf,
    links: Mutex<u32>,
    serial: u32,
    /// Locked as long as the lab is there: how others know, who may not see this process.
    _alive: fs::File,
    guard: Child,
}

/// Labs made by this process so far, for unique names.
static LABS: AtomicU32 = AtomicU32::new(0);

const PREFIX: &str = "outboard-lab-";

/// The lock's name in the scratch directory.
const ALIVE: &str = "alive";

/// What the guard runs: it waits for the end of its input, which comes when the lab's process is
/// gone for whatever reason, and then removes what is left of the lab. Devices that were joined
/// outside are given back first: a namespace whose programs are gone lives on with their
/// connections that nobody answers, for minutes.
const GUARD: &str = r#"trap "" INT TERM HUP QUIT
cat >/dev/null
for n in "$1" "$2"; do
  [ -e /run/netns/$n ] || continue
  p=$(ip netns pids $n) && [ -n "$p" ] && kill -9 $p
  [ -z "$OUTBOARD_LAB_LINKS" ] || ip -n $n -o link show |
    sed -n 's/^[0-9]*: \([^:@]*\).* link\/ether \([0-9a-f:]*\) .*/\1 \2/p' |
    while read -r name address; do
      case " $OUTBOARD_LAB_LINKS " in
        *" $address "*) ip -n $n link set "$name" down netns $$ ;;
      esac
    done
  ip netns del $n
done
rm -rf "$3"
"#;

impl Lab {
    /// Makes the two hosts, on the first two cores that this process may use (both on the first
    /// where there is one only).
    ///
    /// # Errors
    /// When not root, when `ip` is missing, or when namespaces cannot be made.
    pub fn new() -> Result<Self> {
        require_root("a laboratory of network namespaces")?;
        require_programs(&["ip", "setsid", "setpriv", "ethtool"])?;
        remove_leftovers();
        let serial = LABS.fetch_add(1, Ordering::Relaxed);
        // Numbers of processes repeat where process namespaces share /run/netns.
        let now = clock_gettime(ClockId::Monotonic);
        let unique = now.tv_sec as u64 ^ (now.tv_nsec as u64) << 20;
        let name = format!("{PREFIX}{}-{serial}-{unique:x}", std::process::id());
        let home = fs::File::open("/proc/thread-self/ns/net")
            .explain("cannot open the network namespace", "mount /proc")?
            .into();
        let home_cores = rustix::thread::sched_getaffinity(None)
            .explain("cannot read the processor affinity", "check the container's seccomp rules")?;
        let scratch = std::env::temp_dir().join(&name);
        let advice = "make TMPDIR writable";
        fs::create_dir(&scratch).explain(format!("cannot create {}", scratch.display()), advice)?;
        let alive =
            fs::File::create(scratch.join(ALIVE)).explain("cannot create a lock", advice)?;
        alive.lock().explain("cannot lock a file", advice)?;
        let names = Side::BOTH.map(|side| format!("{name}-{}", side.letter()));
        let guard = Command::new("setsid")
            .args(["sh", "-c", GUARD, "outboard-lab-guard", &names[0], &names[1]])
            .arg(&scratch)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .explain("cannot start sh", "install a shell")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| home_cores.is_set(core));
        let first = cores.next().unwrap_or_default();
        let [a, b] = names;
        let hosts = [make_host(a, first)?, make_host(b, cores.next().unwrap_or(first))?];
        let links = Mutex::new(0);
        Ok(Self { hosts, home, home_cores, scratch, links, serial, _alive: alive, guard })
    }

    /// The host on `side`.
    pub fn host(&self, side: Side) -> &Host {
        match side {
            Side::A => &self.hosts[0],
            Side::B => &self.hosts[1],
        }
    }

    /// A directory for the lab's files, removed with it.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Joins the hosts by a pair of virtual interfaces, set up for small requests. With
    /// `addresses` (host A's and B's) the kernel gets them with prefix length 24; without, the
    /// interfaces are up and bare, as packet ports need them. Interfaces that are joined outside
    /// of the machine (`outside`) are used first.
    pub fn join(&self, addresses: Option<[Ipv4Addr; 2]>) -> Result<Link> {
        let mut count = self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let link = Link { stem: format!("{}v{}", self.stem(), *count) };
        let outside = outside::links().into_iter().nth(*count as usize);
        *count += 1;
        drop(count);
        let [a, b] = Side::BOTH.map(|side| link.end(side));
        let [host_a, host_b] = [&self.hosts[0].namespace, &self.hosts[1].namespace];
        if let Some([first, second]) = outside {
            outside::give(&first, host_a, &a)?;
            outside::give(&second, host_b, &b)?;
        } else {
            ip(&[
                "link", "add", &a, "netns", host_a, "type", "veth", "peer", "name", &b, "netns",
                host_b,
            ])?;
        }
        for side in Side::BOTH {
            self.host_ip(side, &["link", "set", &link.end(side), "up"])?;
            if let Some(addresses) = addresses {
                let address = addresses[usize::from(side == Side::B)];
                self.host_ip(
                    side,
                    &["addr", "add", &format!("{address}/24"), "dev", &link.end(side)],
                )?;
            } else {
                // Nothing but the engine's own frames on the engine's link.
                let quiet = format!("net.ipv6.conf.{}.disable_ipv6=1", link.end(side));
                self.inside(side, &["sysctl", "-qw", &quiet])?;
            }
        }
        let traffic = if addresses.is_some() { Traffic::Requests } else { Traffic::Frames };
        self.suit(&link, traffic)?;
        Ok(link)
    }

    /// Sets both ends of `link` up for a kind of traffic; see [`Traffic`].
    pub fn suit(&self, link: &Link, traffic: Traffic) -> Result<()> {
        for side in Side::BOTH {
            let interface = link.end(side);
            let [cut, join] = match traffic {
                Traffic::Requests => ["off", "on"],
                Traffic::BulkOverXdp => ["on", "on"],
                Traffic::Bulk | Traffic::RequestsOverXdp | Traffic::Frames => ["on", "off"],
            };
            self.inside(side, &["ethtool", "-K", &interface, "tso", cut, "gso", cut, "gro", join])?;
            match traffic {
                Traffic::Requests | Traffic::BulkOverXdp => {
                    self.thread_receive(side, &interface)?;
                }
                Traffic::Bulk | Traffic::RequestsOverXdp => {
                    self.steer_receive(side, &interface, true)?;
                }
                Traffic::Frames => {}
            }
        }
        Ok(())
    }

    /// Makes interface `interface` of host `side` (the kernel's end of a TAP that an engine has
    /// opened there) the host's own: gives it `address` with prefix length 24, brings it up and
    /// pins its receive work to the host's core.
    pub fn adopt(&self, side: Side, interface: &str, address: Ipv4Addr) -> Result<()> {
        self.host_ip(side, &["addr", "add", &format!("{address}/24"), "dev", interface])?;
        self.host_ip(side, &["link", "set", interface, "up"])?;
        self.pin_receive_threads(side, interface)
    }

    /// Beginning of interface names that no other lab uses at the same time.
    pub fn stem(&self) -> String {
        format!("ob{:x}{}", std::process::id(), (b'g' + (self.serial % 20) as u8) as char)
    }

    /// Starts a program on host `side`, pinned to the host's core.
    pub fn start(&self, side: Side, task: Task) -> Result<Program> {
        let host = self.host(side);
        let affinity = core_set(host.core);
        let asleep = "check that the lab's namespaces still exist (ip netns list)";
        rustix::thread::sched_setaffinity(None, &affinity)
            .explain(format!("cannot run on core {}", host.core), "allow this process that core")?;
        rustix::thread::move_into_link_name_space(
            host.handle.as_fd(),
            Some(LinkNameSpaceType::Network),
        )
        .explain(format!("cannot enter {}", host.namespace), asleep)?;
        let started = task.spawn(&self.scratch);
        rustix::thread::move_into_link_name_space(
            self.home.as_fd(),
            Some(LinkNameSpaceType::Network),
        )
        .explain("cannot return to the original network namespace", asleep)?;
        rustix::thread::sched_setaffinity(None, &self.home_cores)
            .explain("cannot return to the original cores", "allow this process its cores")?;
        started
    }

    /// Runs a short set-up command on host `side`, with that host's /sys, and returns its output.
    pub fn inside(&self, side: Side, command: &[&str]) -> Result<String> {
        let mut words = vec!["netns", "exec", self.host(side).namespace.as_str()];
        words.extend(command);
        ip(&words)
    }

    fn host_ip(&self, side: Side, words: &[&str]) -> Result<String> {
        let mut all = vec!["-n", self.host(side).namespace.as_str()];
        all.extend(words);
        ip(&all)
    }

    /// Receive work of `interface` by a kernel thread on the host's core.
    pub(crate) fn thread_receive(&self, side: Side, interface: &str) -> Result<()> {
        self.steer_receive(side, interface, false)?;
        let threaded = format!("/sys/class/net/{interface}/threaded");
        self.inside(side, &["sh", "-c", &format!("echo 1 > {threaded}")])?;
        self.pin_receive_threads(side, interface)
    }

    /// Pins the kernel threads that receive for `interface`. They are known by name only, so
    /// interfaces of labs that run at the same time are named differently.
    fn pin_receive_threads(&self, side: Side, interface: &str) -> Result<()> {
        let prefix = format!("napi/{interface}-");
        let affinity = core_set(self.host(side).core);
        for (pid, name) in napi_threads() {
            if !name.starts_with(&prefix) {
                continue;
            }
            let pid = rustix::process::Pid::from_raw(pid);
            let advice = "run outside of restricted containers";
            rustix::thread::sched_setaffinity(pid, &affinity)
                .explain(format!("cannot pin {name}"), advice)?;
            // It belongs to no program's scheduling group, so it is raised by itself.
            rustix::process::setpriority_process(pid, -20)
                .explain(format!("cannot raise the priority of {name}"), advice)?;
        }
        Ok(())
    }

    /// Processor time so far of the kernel threads that receive for both ends of `link`.
    pub(crate) fn receive_threads_ns(&self, link: &Link) -> u64 {
        let prefix = format!("napi/{}", link.stem);
        let ours = napi_threads().into_iter().filter(|(_, name)| name.starts_with(&prefix));
        ours.map(|(pid, _)| cpu::process_time(pid).as_nanos() as u64).sum()
    }

    /// Receive work of `interface` in the soft interrupt of the host's core.
    pub(crate) fn steer_receive(&self, side: Side, interface: &str, on: bool) -> Result<()> {
        let mask = if on { 1u64 << self.host(side).core } else { 0 };
        let script = format!(
            "for q in /sys/class/net/{interface}/queues/rx-*; do echo {mask:x} > $q/rps_cpus; done"
        );
        self.inside(side, &["sh", "-c", &script]).map(drop)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Its input ends; it removes namespaces, what still runs in them, and the scratch files.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Fails unless this process is root; `purpose` says what for.
pub fn require_root(purpose: &str) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(
        format!("{purpose} needs root (CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN)"),
        "run it with sudo, or as root in a container started with --privileged",
    ))
}

/// The programs that demo and tests use, as scripts/setup has them, and the Debian package of each.
pub const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("sysctl", "procps"),
    ("setsid", "util-linux"),
    ("setpriv", "util-linux"),
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    ("nginx", "nginx-light"),
    ("wrk", "wrk"),
    ("iperf3", "iperf3"),
    ("sockperf", "sockperf"),
    ("memcached", "memcached"),
    ("curl", "curl"),
    ("python3", "python3"),
    ("ping", "iputils-ping"),
    ("tracepath", "iputils-tracepath"),
    ("traceroute", "traceroute"),
    ("nc", "netcat-openbsd"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("tcpdump", "tcpdump"),
    ("nft", "nftables"),
    ("iptables-legacy", "iptables"),
    ("systemd-analyze", "systemd"),
];

/// What `make bench-port` and `outboard bench emp` compare with, too.
const PEERS: [(&str, &str); 3] =
    [("dpdk-testpmd", "dpdk-dev"), ("mpirun", "openmpi-bin"), ("mpicc", "libopenmpi-dev")];

/// Fails unless every one of `programs` is installed, naming the Debian packages to install.
pub fn require_programs(programs: &[&str]) -> Result<()> {
    let missing: Vec<&str> = programs.iter().copied().filter(|name| find(name).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let known = PROGRAMS.iter().chain(&PEERS).filter(|(program, _)| missing.contains(program));
    let packages: Vec<&str> = known.map(|(_, package)| *package).collect();
    Err(Failure::new(
        format!("not installed: {}", missing.join(", ")),
        format!("install with: apt-get install {}", packages.join(" ")),
    ))
}

/// Where `program` is installed; the superuser's directories are searched too.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn make_host(namespace: String, core: usize) -> Result<Host> {
    ip(&["netns", "add", &namespace])?;
    let path = format!("/run/netns/{namespace}");
    let handle = fs::File::open(&path).explain(format!("cannot open {path}"), "mount /run")?.into();
    ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
    use_cubic(&namespace)?;
    Ok(Host { namespace, handle, core })
}

/// The same congestion control on both hosts, whatever the machine's default is.
fn use_cubic(namespace: &str) -> Result<()> {
    let choose = || {
        let cubic = "net.ipv4.tcp_congestion_control=cubic";
        ip(&["netns", "exec", namespace, "sysctl", "-qw", cubic]).map(drop)
    };
    if choose().is_ok() {
        return Ok(());
    }
    let advice = "load the kernel module tcp_cubic (modprobe tcp_cubic)";
    let mut cubic = Cubic::default();
    cubic.allow().explain("cannot allow CUBIC", advice)?;
    choose()
}

fn core_set(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

fn napi_threads() -> Vec<(i32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let named = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with("napi/").then_some((pid, name))
    };
    entries.flatten().filter_map(named).collect()
}

/// Runs `ip` and returns what it printed.
pub(crate) fn ip(words: &[&str]) -> Result<String> {
    let advice = "run the command by hand; a namespace needs CONFIG_NET_NS and a link CONFIG_VETH";
    let output = Command::new("ip")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .explain("cannot run ip", "install the package iproute2")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("`ip {}` failed: {}", words.join(" "), said.trim()), advice))
}

/// Removes labs whose process is dead and whose guard did not get to it.
fn remove_leftovers() {
    let Ok(entries) = fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((lab, _)) = name.rsplit_once('-').filter(|(lab, _)| lab.starts_with(PREFIX))
        else {
            continue;
        };
        let alive = fs::File::open(std::env::temp_dir().join(lab).join(ALIVE));
        if alive.is_ok_and(|alive| alive.try_lock_shared().is_err()) {
            continue;
        }
        // Both names as arguments of the same script, with nothing to wait for.
        let _ = Command::new("sh")
            .args(["-c", GUARD, "outboard-lab-guard", &name, &name, "/nonexistent"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `make setup` installs all that a laboratory asks for; ethtool was missing there.
    #[test]
    fn setup_installs_what_a_lab_requires() {
        let setup = include_str!("../../../scripts/setup");
        for (program, package) in PROGRAMS.iter().chain(&PEERS) {
            let line = format!("{program} {package}");
            let is_listed = setup.lines().any(|text| text.trim_end_matches('"').ends_with(&line));
            assert!(is_listed, "{line} is missing in scripts/setup");
        }
    }
}
