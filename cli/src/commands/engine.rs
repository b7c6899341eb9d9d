//! `outboard engine` and `outboard check-config`: settings become a running engine.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use engine::config::PortSetup;
use engine::privileges;
use engine::trial::Trial;
use engine::{Accelerated, Cidr, Destination, Engine, Ipv6Mode, Limits, Metrics, StopHandle};
use lab::failure::{Explain, Failure, Result};
use port::memif::MemifRole;
use port::spec::PortKind;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, getpid, getrlimit, kill_process, setrlimit,
};
use rustix::thread::{CapabilitySet, configure_capability_in_ambient_set};
use shm::layout::Layout;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::config::{self, Flags, Settings};
use crate::firewall::Firewall;
use crate::kernel_interfaces;
use crate::privileges::reduce;
use crate::relay;
use crate::systemd;

/// Runs an engine in the foreground until it is told to stop, or until process `owner` ends.
///
/// # Errors
/// When settings, ports or socket are not usable, or when the engine ends by a fault of its own.
pub fn engine(file: Option<&Path>, flags: &Flags, owner: Option<i32>) -> Result<ExitCode> {
    show_messages();
    let mut settings = config::settings(file, flags)?;
    // What cannot be is said before anything is opened.
    find_memory(&settings)?;
    engine::check_core(settings.engine.core)
        .map_err(|error| Failure::new(error.to_string(), "see `outboard doctor`"))?;
    raise_descriptors(&settings);
    make_directory(&settings)?;
    let mut ports = Vec::new();
    for spec in &settings.ports {
        ports.push(open(spec)?);
    }
    settings.engine.mirrors =
        kernel_interfaces::open(&settings.kernel, &settings.ports, &mut ports)?;
    warn_of_default_routes(&settings);
    let summary = summary(&settings);
    let shares = ports.iter().any(|setup| setup.port.info().shared.is_some());
    let wanted = if shares { privileges::CONTROL | FIREWALL } else { CapabilitySet::empty() };
    // Before there are fewer privileges: it needs a network namespace.
    settings.engine.relay = settings.relay.then(|| start_relay(&settings)).flatten();
    reduce(settings.user, settings.engine.socket_group, wanted)?;
    let drain = settings.drain;
    let trial = settings.confirm.map(|limit| (limit, Arc::new(Trial::default())));
    settings.engine.trial = trial.as_ref().map(|(_, trial)| Arc::clone(trial));
    if shares {
        let (tell, hear) = std::sync::mpsc::sync_channel(ACCELERATED_MAX);
        settings.engine.accelerated = Some(tell);
        warn_of_firewall(hear)?;
    }
    let engine = Engine::start(settings.engine, ports)
        .map_err(|error| Failure::new(error.to_string(), "see `outboard doctor`"))?;
    // What this thread still has, its others have taken what they need of.
    privileges::keep(CapabilitySet::empty())
        .explain("cannot give up capabilities", "report this")?;
    end_on_signals(engine.stop_handle(), drain)?;
    if let Some(owner) = owner {
        end_with(owner, engine.stop_handle(), drain)?;
    }
    let said = match &trial {
        Some((limit, trial)) => {
            Some(end_unless_confirmed(*limit, Arc::clone(trial), engine.stop_handle())?)
        }
        None => None,
    };
    // Whoever started the engine may have closed these by now: it serves all the same.
    let _ = write!(std::io::stderr(), "{summary}");
    let _ = writeln!(std::io::stdout(), "{}", lab::READY);
    systemd::notify("READY=1");
    engine.join().map_err(|reason| {
        Failure::new(format!("the engine ended: {reason}"), "its messages are above")
    })?;
    if !trial.is_some_and(|(_, trial)| trial.is_over()) {
        return Ok(ExitCode::SUCCESS);
    }
    // Why it ended is worth a moment, if there is somebody to read it.
    if let Some(said) = said {
        let _ = said.recv_timeout(GRACE);
    }
    Ok(ExitCode::from(UNCONFIRMED))
}

/// Writes a sentence to standard error, which may be gone: then there is nobody to tell.
fn say(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "outboard: {sentence}");
}

/// Starts the relay, or says what programs lack without it: the engine serves all others.
fn start_relay(settings: &Settings) -> Option<Arc<OwnedFd>> {
    match relay::start(settings.user, settings.engine.socket_group) {
        Ok(end) => Some(end),
        Err(reason) => {
            say(&format!(
                "child processes cannot use connections of their parents, and connections cannot \
                 be passed: {reason}"
            ));
            None
        }
    }
}

/// What the programs that list the firewall's rules need.
const FIREWALL: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Sockets that may wait for a look at the firewall's rules.
const ACCELERATED_MAX: usize = 4096;

/// How long what was read of the rules is good for.
const RULES_AGE: Duration = Duration::from_secs(10);

/// Sentences about the firewall: a program that listens at every port is not to fill the log.
const SENTENCES_MAX: usize = 64;

/// Says which rules translate addresses, and which rules of the firewall concern a port, once, when
/// it is first accelerated.
fn warn_of_firewall(heard: Receiver<Accelerated>) -> Result<()> {
    spawn("firewall", move || {
        for capability in FIREWALL.iter() {
            // Without them the programs say what they lack.
            let _ = configure_capability_in_ambient_set(capability, true);
        }
        let own_ports = "the ports that the engine connects from";
        if let Some(sentence) = Firewall::read().translation(own_ports) {
            say(&sentence);
        }
        let mut seen = BTreeSet::new();
        let mut read: Option<(Instant, Firewall)> = None;
        let mut said = BTreeSet::new();
        let mut is_tracking_said = false;
        for Accelerated { protocol, local } in heard {
            if !seen.insert((protocol, local.port())) {
                continue;
            }
            let (_, firewall) = match read.take() {
                Some((at, firewall)) if at.elapsed() < RULES_AGE => read.insert((at, firewall)),
                _ => read.insert((Instant::now(), Firewall::read())),
            };
            let unseen = firewall.unseen.iter().cloned();
            for sentence in firewall.warning(protocol, local.port()).into_iter().chain(unseen) {
                if said.len() < SENTENCES_MAX && said.insert(sentence.clone()) {
                    say(&sentence);
                }
            }
            if firewall.tracked > 0 && !is_tracking_said {
                is_tracking_said = true;
                say(
                    "connections are tracked here (conntrack); accelerated ones are not, so rules \
                 that match connection state do not see them",
                );
            }
            if said.len() >= SENTENCES_MAX {
                say(
                    "firewall rules concern further accelerated ports, which are no longer listed; \
                     `outboard doctor` shows the rules",
                );
                // Whoever accelerates goes on without being heard.
                return;
            }
        }
    })
}

/// Exit status of an engine that nobody has confirmed.
pub const UNCONFIRMED: u8 = 3;

/// How long an engine that was not confirmed may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// Ends the engine when nobody has confirmed it in time, also one that hangs: what it had is the
/// kernel's again as soon as the process is gone. Ending needs nothing of standard error, which
/// may hang on the connection that the engine has cut: what is said is said beside it. The receiver
/// hears when it has been.
fn end_unless_confirmed(
    limit: Duration,
    trial: Arc<Trial>,
    stop: StopHandle,
) -> Result<Receiver<()>> {
    let seconds = limit.as_secs();
    let (tell, said) = channel();
    spawn("trial", move || {
        if trial.wait(limit) {
            return;
        }
        stop.stop();
        let saying = move || {
            say(&format!(
                "nobody has confirmed the engine within {seconds} seconds: it ends, and its ports \
                 and listeners are the kernel's again; start it with a longer --confirm, or \
                 without, if all was well"
            ));
            let _ = tell.send(());
        };
        // Without these threads the engine ends all the same.
        let _ = spawn("trial-word", saying);
        let _ = spawn("trial-end", || {
            // exit() writes what is left for standard output, which may wait for ever.
            std::thread::sleep(GRACE * 2);
            let _ = kill_process(getpid(), Signal::KILL);
        });
        std::thread::sleep(GRACE);
        std::process::exit(i32::from(UNCONFIRMED));
    })?;
    say(&format!(
        "on trial: run `outboard confirm` within {seconds} seconds, or the engine ends and \
         everything reverts to the kernel"
    ));
    Ok(said)
}

/// Whether there is room for the engine's tables: where there is none, the allocator would end the
/// process in the middle of the start.
fn find_memory(settings: &Settings) -> Result<()> {
    let wanted = settings.engine.limits.bytes_at_start();
    let room = usize::try_from(wanted).ok().filter(|bytes| {
        let mut probe: Vec<u8> = Vec::new();
        probe.try_reserve_exact(*bytes).is_ok()
    });
    room.map(drop).ok_or_else(|| {
        Failure::new(
            format!(
                "an engine with these limits needs {} MiB of address space, and this process may \
                 not use that much",
                wanted >> 20
            ),
            "raise the limit (ulimit -v, LimitAS), or lower `sockets` under [limits]",
        )
    })
}

/// Sees to it that the socket has a directory in which the engine's user may make and remove it.
fn make_directory(settings: &Settings) -> Result<()> {
    let Some(directory) = settings.engine.socket.parent() else { return Ok(()) };
    let shown = directory.display();
    let made = !directory.exists() && !directory.as_os_str().is_empty();
    if made {
        std::fs::create_dir_all(directory)
            .explain(format!("cannot create {shown}"), "choose another --socket")?;
    }
    if let Some(user) = settings.user
        && (made || directory == Path::new(config::OWN_DIRECTORY))
    {
        std::os::unix::fs::chown(directory, Some(user.user), Some(user.group)).explain(
            format!("cannot give {shown} to the engine's user"),
            "start the engine as root, or choose another --socket",
        )?;
    }
    Ok(())
}

/// Says so when a port is the machine's way to the world and a mistake would not undo itself.
fn warn_of_default_routes(settings: &Settings) {
    let routes = routes();
    for port in settings.ports.iter().filter(|port| port.kind == PortKind::Xdp) {
        if settings.confirm.is_none() && carries_default_route(&routes, &port.name) {
            say(&format!(
                "{} carries this machine's default route: if that is your only access to the \
                 machine, start the engine with --confirm 60 and run `outboard confirm` if you \
                 still have access",
                port.name
            ));
        }
    }
}

/// The kernel's routes of both IP versions, as its files in /proc have them.
pub(super) fn routes() -> String {
    let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    ["route", "ipv6_route"].map(|name| read(name).unwrap_or_default()).concat()
}

/// Whether `routes` lead anywhere through an interface.
pub(super) fn carries_default_route(routes: &str, interface: &str) -> bool {
    const ANY: &str = "00000000000000000000000000000000";
    routes.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            // Interface, destination, gateway, flags, three counts, mask.
            [name, "00000000", _, _, _, _, _, "00000000", ..] => name == interface,
            // Destination, source, gateway, metric, two counts, flags, interface.
            [ANY, "00", _, _, _, _, _, _, _, name] => name == interface,
            _ => false,
        }
    })
}

/// Lets the engine's warnings (a client that broke the contract, say) appear on standard error;
/// `OUTBOARD_LOG=info` shows more.
fn show_messages() {
    let mut filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing::level_filters::LevelFilter::WARN.into())
        .with_env_var("OUTBOARD_LOG")
        .from_env_lossy();
    // How far the end is, whatever else is shown.
    if let Ok(progress) = "progress=info".parse() {
        filter = filter.add_directive(progress);
    }
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Fails only where a subscriber is installed already, which then shows them.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Telling standard error that it cannot be written to would panic.
        .log_internal_errors(false)
        .with_ansi(terminal)
        .with_target(false)
        .try_init();
}

/// Lets the engine open as many descriptors as it is allowed to, and says when that is too few for
/// the sessions that its limits promise.
fn raise_descriptors(settings: &Settings) {
    let limits = &settings.engine.limits;
    let mut limit = getrlimit(Resource::Nofile);
    let soft = limit.current;
    limit.current = limit.maximum;
    let allowed = match setrlimit(Resource::Nofile, limit) {
        Ok(()) => limit.maximum,
        Err(_) => soft,
    };
    let wanted = all_descriptors(settings);
    if let Some(allowed) = allowed
        && allowed < wanted
    {
        say(&format!(
            "{} sessions may need {wanted} open files, but the engine is limited to {allowed}: \
             programs beyond that are refused; raise the hard limit (ulimit -Hn, LimitNOFILE) or \
             lower `sessions` under [limits]",
            limits.sessions
        ));
    }
}

/// Descriptors of an engine whose limits are all met: for each session its control connection, its
/// region and two wake-ups for each context; for observers a connection and a file.
fn descriptors(limits: &engine::Limits) -> u64 {
    const PORTS_AND_OWN: u64 = 64;
    let session = 2 + 2 * u64::from(limits.contexts);
    let sessions = u64::from(limits.sessions);
    let observers = u64::from(limits.control_connections).saturating_sub(sessions);
    sessions * session + 2 * observers + PORTS_AND_OWN
}

/// Descriptors that the settings may take in all.
fn all_descriptors(settings: &Settings) -> u64 {
    descriptors(&settings.engine.limits) + reserved_ports(settings)
}

/// Descriptors that hold ports for connects.
fn reserved_ports(settings: &Settings) -> u64 {
    let shared =
        settings.ports.iter().enumerate().filter(|(number, port)| {
            port.kind == PortKind::Xdp || settings.nic_of(*number).is_some()
        });
    let shared = shared.map(|(_, port)| port);
    shared.map(|port| u64::from(port.connect_ports)).sum()
}

fn open(spec: &port::PortSpec) -> Result<PortSetup> {
    let fail = |error: port::OpenError| Failure::whole(error.to_string());
    let fds = port::open(spec).map_err(fail)?;
    if let Some(mode) = &fds.description.mode {
        say(&format!("{}: {mode}", fds.description.label));
    }
    for note in &fds.description.notes {
        say(note);
    }
    let addresses =
        spec.addresses.iter().map(|own| Cidr { address: own.address, prefix: own.prefix });
    let default_v6 = spec.gateway_v6.map(|gateway| Destination {
        network: Ipv6Addr::UNSPECIFIED.into(),
        prefix: 0,
        gateway: Some(gateway),
        metrics: Metrics::default(),
    });
    Ok(PortSetup {
        port: port::from_fds(fds).map_err(fail)?,
        addresses: addresses.collect(),
        gateway: spec.gateway,
        routes: default_v6.into_iter().collect(),
        ipv6: match spec.ipv6 {
            port::spec::Ipv6::Auto => Ipv6Mode::Automatic,
            port::spec::Ipv6::Static => Ipv6Mode::Static,
            port::spec::Ipv6::Off => Ipv6Mode::Off,
        },
    })
}

/// `outboard check-config`: what a file says, or its first mistake.
///
/// # Errors
/// The first mistake.
pub fn check(file: &Path) -> Result<()> {
    let settings = config::settings(Some(file), &Flags::default())?;
    print!("{}", summary(&settings));
    tell!("{} is correct", file.display());
    Ok(())
}

/// Ports, polling and the memory that the limits imply.
fn summary(settings: &Settings) -> String {
    let engine = &settings.engine;
    let mut text = String::new();
    for (number, port) in settings.ports.iter().enumerate() {
        let addresses: Vec<String> =
            port.addresses.iter().map(|own| format!("{}/{}", own.address, own.prefix)).collect();
        let addresses = match port.kind {
            _ if let Some(name) = settings.nic_of(number) => {
                format!("with the addresses of the kernel's interface {name}")
            }
            PortKind::Xdp => "with the kernel's addresses".to_owned(),
            PortKind::Memif if addresses.is_empty() => match port.memif.role {
                MemifRole::Server => "for one memif client".to_owned(),
                MemifRole::Client => "of one memif server".to_owned(),
            },
            _ if addresses.is_empty() => "without addr=: it has no IPv4 address".to_owned(),
            _ => addresses.join(" "),
        };
        text.push_str(&format!("port     {} {addresses}\n", port.label()));
    }
    let core = engine.core.map_or_else(|| "not pinned".into(), |core| format!("core {core}"));
    text.push_str(&format!("worker   {core}, {:?} polling\n", engine.poll).to_lowercase());
    let limits = &engine.limits;
    text.push_str(&memory(limits));
    text.push_str(&format!(
        "users    at most {} sessions each except root, and {} MiB when another one attaches\n",
        limits.sessions_per_user,
        limits.memory_per_user >> 20
    ));
    let (socket, mode) = (engine.socket.display(), engine.socket_mode);
    let group = engine.socket_group.map(|group| format!(", group {group}")).unwrap_or_default();
    text.push_str(&format!("socket   {socket}, mode {mode:o}{group}\n"));
    if let Some(user) = settings.user {
        text.push_str(&format!("user     {}\n", user.user));
    }
    let each = if settings.relay { ", and one for each connection that children use" } else { "" };
    text.push_str(&format!("files    at most {} descriptors{each}\n", all_descriptors(settings)));
    text
}

/// What sessions share with the engine at the most. Pages count once they have been used.
fn memory(limits: &Limits) -> String {
    let buffers = u64::from(limits.buffers) * u64::from(limits.buffer_bytes);
    // Limits that have no layout were refused before.
    let region = Layout::sized(limits.geometry(1)).map_or(0, |it| it.geometry().region_bytes);
    format!(
        "memory   at most {} MiB shared with each of at most {} sessions, {} MiB of it buffers; {} MiB \
         for early data\n",
        region >> 20,
        limits.sessions,
        buffers >> 20,
        limits.stash_total_bytes >> 20
    )
}

/// The first signal lets connections end, the second closes them, the third waits for nothing.
fn end_on_signals(stop: StopHandle, drain: Duration) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .explain("cannot catch signals", "report this")?;
    let waiting = move || {
        for (count, _) in signals.forever().enumerate() {
            match count {
                0 => {
                    stop.drain(drain);
                    systemd::notify("STOPPING=1\nSTATUS=letting connections end");
                }
                1 => stop.close(),
                _ => stop.stop(),
            }
        }
    };
    spawn("signals", waiting)
}

/// Ends the engine when process `owner` does and what it sent is delivered.
fn end_with(owner: i32, stop: StopHandle, drain: Duration) -> Result<()> {
    let missing = || Failure::new(format!("there is no process {owner}"), "name a running one");
    let pid = Pid::from_raw(owner).ok_or_else(missing)?;
    let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|_| missing())?;
    let waiting = move || {
        let mut watched = [PollFd::new(&ended, PollFlags::IN)];
        while matches!(rustix::event::poll(&mut watched, None), Err(rustix::io::Errno::INTR)) {}
        stop.drain(drain);
    };
    spawn("owner", waiting)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map(drop)
        .explain("cannot start a thread", "see the limit of processes (ulimit -u)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_the_whole_region_and_not_its_buffers_alone() {
        let limits = Limits::default();
        // The endpoints' areas and queues are the larger part.
        assert!(memory(&limits).contains(" 64 MiB of it buffers"), "{}", memory(&limits));
        let words: Vec<String> = memory(&limits).split(' ').map(str::to_owned).collect();
        let region: u64 = words.iter().find_map(|word| word.parse().ok()).expect("a number");
        let areas = (u64::from(limits.endpoints) * 20_672) >> 20;
        assert!((areas + 64..areas + 80).contains(&region), "{region} MiB");
    }

    #[test]
    fn the_interface_of_the_default_route_is_known() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
                      eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                      00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                      fe800000000000000000000000000001 00000400 00000001 00000000 00000003     \
                      eth2\n";
        assert!(carries_default_route(routes, "eth0"));
        assert!(!carries_default_route(routes, "eth1"));
        assert!(carries_default_route(routes, "eth2"));
        assert!(!carries_default_route("", "eth0"));
    }

    #[test]
    fn every_session_is_counted_with_all_its_descriptors() {
        let limits = engine::Limits::default();
        let more = engine::Limits { sessions: limits.sessions + 1, ..limits };
        assert_eq!(descriptors(&more) - descriptors(&limits), 2);
        let contexts = engine::Limits { contexts: limits.contexts + 1, ..limits };
        assert_eq!(descriptors(&contexts) - descriptors(&limits), 2 * u64::from(limits.sessions));
    }
}
