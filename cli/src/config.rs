//! The engine's configuration: a TOML file, flags, or both (a flag wins).
//!
//! ```toml
//! socket = "/run/outboard/engine.sock"
//! core = 1
//! poll = "adaptive"
//! drain = 30
//! relay = true
//! ports = ["tap:ob0,addr=10.0.0.2/24,gw=10.0.0.1"]
//!
//! [messages]
//! encapsulation = "ethernet"
//! port = 26870
//! ethertype = 0x88b5
//!
//! [limits]
//! sessions = 64
//!
//! [deny]
//! ports = ["tcp:22"]
//!
//! [[raw]]
//! users = ["root"]
//! ports = ["ob0"]
//! receive = true
//! send = true
//! take = false
//! spoof = false
//!
//! [[bridge]]
//! from = "ob0"
//! to = "eth1"
//! mode = "copy"
//! filter = "tcp port 80"
//!
//! [[kernel]]
//! name = "ob0-seen"
//! port = "ob0"
//! mode = "mirror"
//!
//! [tcp]
//! timestamps = true
//! mtu_probing = "after-black-hole"
//! syn_cookies = true
//! ecn = "accept"
//! congestion = "cubic"
//! hystart = "rfc9406"
//! receive_initial = 131072
//! receive_max = 6291456
//! send_max = 4194304
//! unsent_low_water = 4294967295
//! fast_open = 1
//! fast_open_pause_s = 0
//! fast_open_key = "00112233-44556677-8899aabb-ccddeeff"
//! tso_segments_min = 2
//! rto_max_ms = 120000
//! user_timeout_option = false
//! user_timeout_max_s = 3600
//! paced = false
//! ```
//!
//! Unknown keys are errors; every error names its line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::config::{
    CongestionKind, EcnMode, Encapsulation, EngineConfig, FastOpenKeys, HyStartKind, Limits,
    MessageSettings, MtuProbing, Poll, TcpSettings,
};
use engine::rules::Rules;
use lab::failure::{Explain, Failure, Result};
use port::PortSpec;
use serde::Deserialize;
use toml::Spanned;

use crate::bridges;
use crate::kernel_interfaces::{self, InterfaceMode, KernelSettings};
use crate::lists;
use crate::raw;
use crate::users::{self, User};

/// An engine's settings, ready to be opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Everything but the ports.
    pub engine: EngineConfig,
    /// The ports, parsed and not yet opened.
    pub ports: Vec<PortSpec>,
    /// Whom the engine runs as once its ports are open; whoever started it when `None`.
    pub user: Option<User>,
    /// End unless confirmed within so long.
    pub confirm: Option<Duration>,
    /// How long connections are waited for when the engine is told to end.
    pub drain: Duration,
    /// Whether other processes than the one that opened a connection may use it.
    pub relay: bool,
    /// Interfaces that the kernel gets beside the ports.
    pub kernel: Vec<KernelSettings>,
}

impl Settings {
    /// The name of the interface by which the kernel uses a port.
    pub fn nic_of(&self, port: usize) -> Option<&str> {
        let is_it = |one: &&KernelSettings| one.port == port && one.mode == InterfaceMode::Nic;
        self.kernel.iter().find(is_it).map(|one| one.name.as_str())
    }
}

/// What `drain` is where nothing is said: as long as service managers usually leave.
const DRAIN_SECONDS: u64 = 30;
/// Longest `drain`: a day.
const DRAIN_SECONDS_MAX: u64 = 86_400;

/// What the command line says; unset values are taken from the file.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// PORTs as written.
    pub ports: Vec<String>,
    /// Core of the worker.
    pub core: Option<usize>,
    /// How the worker waits.
    pub poll: Option<Poll>,
    /// Control socket.
    pub socket: Option<PathBuf>,
    /// Name of the user to run as.
    pub user: Option<String>,
    /// Seconds within which the engine is to be confirmed.
    pub confirm: Option<u64>,
    /// Seconds that connections are waited for at the end.
    pub drain: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    socket: Option<PathBuf>,
    socket_mode: Option<u32>,
    socket_group: Option<String>,
    user: Option<String>,
    confirm: Option<u64>,
    core: Option<usize>,
    poll: Option<PollWord>,
    drain: Option<u64>,
    relay: Option<bool>,
    #[serde(default)]
    ports: Vec<Spanned<String>>,
    #[serde(default)]
    limits: LimitsTable,
    messages: Option<Spanned<MessagesTable>>,
    #[serde(default)]
    allow: lists::Table,
    #[serde(default)]
    deny: lists::Table,
    #[serde(default)]
    raw: Vec<Spanned<raw::RawTable>>,
    #[serde(default)]
    bridge: Vec<bridges::BridgeTable>,
    #[serde(default)]
    kernel: Vec<Spanned<kernel_interfaces::KernelTable>>,
    #[serde(default)]
    tcp: TcpTable,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PollWord {
    Busy,
    Adaptive,
}

/// A table of the file whose keys are the fields of a settings struct.
macro_rules! table {
    ($table:ident for $settings:ident { $($name:ident: $kind:ty,)* }) => {
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $table {
            $($name: Option<$kind>,)*
        }

        impl $table {
            fn apply(&self, settings: &mut $settings) {
                $(if let Some(value) = self.$name {
                    settings.$name = value.into();
                })*
            }
        }
    };
}

table! { MessagesTable for MessageSettings {
    encapsulation: Encapsulation,
    port: u16,
    ethertype: u16,
} }

/// The least EtherType; what is less is a length (IEEE 802.3).
const ETHERTYPE_MIN: u16 = 0x0600;
/// EtherTypes that others need: IPv4, ARP, VLAN tags, IPv6.
const ETHERTYPES_TAKEN: [u16; 5] = [0x0800, 0x0806, 0x8100, 0x88a8, 0x86dd];

impl MessagesTable {
    /// What is wrong with it.
    fn check(&self) -> Result<(), String> {
        if self.port == Some(0) {
            return Err("port is 0; give 1 to 65535, the same on all hosts".into());
        }
        match self.ethertype {
            Some(kind) if kind < ETHERTYPE_MIN || ETHERTYPES_TAKEN.contains(&kind) => Err(format!(
                "ethertype {kind:#06x} is a length or another protocol's; give 0x88b5 or 0x88b6, \
                 which are reserved for local experiments, the same on all hosts"
            )),
            _ => Ok(()),
        }
    }
}

table! { LimitsTable for Limits {
    sessions: u16,
    sessions_per_user: u16,
    control_connections: u16,
    contexts: u16,
    endpoints: u32,
    request_slots: u32,
    stock_slots: u32,
    stock_target: u32,
    send_slots: u32,
    receive_slots: u32,
    buffer_bytes: u32,
    buffers: u32,
    spans: u32,
    stash_connection_bytes: usize,
    stash_total_bytes: usize,
    frames_per_turn: usize,
    doorbells_per_turn: usize,
    requests_per_turn: usize,
    events_per_turn: usize,
    transmits_per_turn: usize,
    lane_idle_ns: u64,
    linger_ns: u64,
    sockets: u32,
    listeners: u32,
    listeners_per_user: u32,
    udp_sockets: u32,
    udp_sockets_per_user: u32,
    neighbors: u32,
    endpoints_per_user: u32,
    memory_per_user: u64,
} }

impl LimitsTable {
    /// Shares of users, and places of control connections, where the file gives only the whole.
    fn divide(&self, limits: &mut Limits) {
        if self.sessions.is_some() {
            if self.sessions_per_user.is_none() {
                limits.sessions_per_user = (limits.sessions / 2).max(1);
            }
            if self.control_connections.is_none() {
                limits.control_connections =
                    limits.sessions.saturating_add(limits.sessions / 4 + 16);
            }
        }
        if self.listeners.is_some() && self.listeners_per_user.is_none() {
            limits.listeners_per_user = (limits.listeners / 2).max(1);
        }
        if self.udp_sockets.is_some() && self.udp_sockets_per_user.is_none() {
            limits.udp_sockets_per_user = (limits.udp_sockets / 2).max(1);
        }
        if self.sockets.is_some() && self.endpoints_per_user.is_none() {
            limits.endpoints_per_user = (limits.sockets / 4 * 3).max(1);
        }
    }
}

table! { TcpTable for TcpSettings {
    timestamps: bool,
    mtu_probing: MtuProbing,
    base_mss: u16,
    sack: bool,
    window_scaling: bool,
    receive_initial: u32,
    receive_max: u32,
    slow_start_after_idle: bool,
    rto_max_ms: u32,
    syn_retries: u8,
    syn_ack_retries: u8,
    syn_cookies: bool,
    ecn: EcnMode,
    congestion: CongestionKind,
    hystart: HyStartKind,
    send_max: u32,
    unsent_low_water: u32,
    fast_open: u32,
    fast_open_pause_s: u32,
    fast_open_key: FastOpenKeys,
    tso_segments_min: u8,
    user_timeout_option: bool,
    user_timeout_max_s: u32,
    paced: bool,
} }

/// Settings from the file at `path`, if any, and `flags`.
///
/// # Errors
/// When the file cannot be read or understood, when a PORT is none, or when there is no port.
pub fn settings(path: Option<&Path>, flags: &Flags) -> Result<Settings> {
    let text = match path {
        None => String::new(),
        Some(path) => std::fs::read_to_string(path)
            .explain(format!("cannot read {}", path.display()), "name a readable text file")?,
    };
    let name = path.map_or_else(|| "flags".into(), |path| path.display().to_string());
    parse(&name, &text, flags)
}

/// Settings from the text of a file called `name`, and `flags`.
///
/// # Errors
/// As [`settings`].
pub fn parse(name: &str, text: &str, flags: &Flags) -> Result<Settings> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        let message = without_types(error.message().trim()).replace('\n', "; ");
        Failure::new(format!("{name}, line {line}: {message}"), "correct the line")
    })?;
    let socket = flags.socket.clone().or(file.socket).unwrap_or_else(default_socket);
    let mut engine = EngineConfig::new(socket);
    let group = file.socket_group.as_deref().map(users::group_number);
    engine.socket_group = group.transpose()?;
    // Who names a group means it and nobody else.
    let of_group = engine.socket_group.map(|_| GROUP_MODE);
    engine.socket_mode = file.socket_mode.or(of_group).unwrap_or(engine.socket_mode);
    if engine.socket_mode > 0o777 {
        return Err(Failure::new(
            format!("{name}: socket_mode is {:o} in octal, more than 777", engine.socket_mode),
            "write it in octal: socket_mode = 0o660",
        ));
    }
    let user = flags.user.as_deref().or(file.user.as_deref()).map(users::user);
    let user = user.transpose()?;
    let at_line = |start, why| {
        Failure::new(format!("{name}, line {}: {why}", line_of(text, start)), "correct the line")
    };
    let mut room = lists::REMOTES_MAX;
    let allow = file.allow.list(&mut room, at_line)?;
    engine.rules = Rules { allow, deny: file.deny.list(&mut room, at_line)? };
    engine.core = flags.core.or(file.core);
    let in_file = file.poll.map(|word| match word {
        PollWord::Busy => Poll::Busy,
        PollWord::Adaptive => Poll::Adaptive,
    });
    engine.poll = flags.poll.or(in_file).unwrap_or_default();
    file.limits.apply(&mut engine.limits);
    file.limits.divide(&mut engine.limits);
    if let Some(messages) = &file.messages {
        let table = messages.get_ref();
        table.check().map_err(|why| at_line(messages.span().start, why))?;
        table.apply(&mut engine.limits.messages);
    }
    engine
        .limits
        .check()
        .map_err(|bad| Failure::new(format!("{name}, [limits]: {bad}"), bad.advice()))?;
    file.tcp.apply(&mut engine.tcp);
    let mut ports = Vec::new();
    for written in &file.ports {
        let parsed = written.get_ref().parse::<PortSpec>();
        ports.push(parsed.map_err(|error| at_line(written.span().start, error.to_string()))?);
    }
    if !flags.ports.is_empty() {
        ports = flags.ports.iter().map(|written| port(written)).collect::<Result<_>>()?;
    }
    if ports.is_empty() {
        return Err(Failure::new(
            "the engine has no port",
            "give it one, e.g. --port tap:ob0,addr=10.0.0.2/24",
        ));
    }
    lists::tell(&engine.rules, &mut ports)?;
    let rule = |of: &Spanned<raw::RawTable>| of.get_ref().rule(of.span().start, &ports, at_line);
    engine.raw = file.raw.iter().map(rule).collect::<Result<_>>()?;
    let bridge = |of: &bridges::BridgeTable| of.rule(&ports, at_line);
    engine.bridges = file.bridge.iter().map(bridge).collect::<Result<_>>()?;
    let kernel = kernel_interfaces::settings(&file.kernel, &ports, at_line)?;
    let elsewhere = ports.iter().filter(|port| port.netns.is_some());
    engine.ports_elsewhere = elsewhere.map(PortSpec::label).collect();
    let confirm = flags.confirm.or(file.confirm);
    if confirm == Some(0) {
        return Err(Failure::new(
            "confirm: within 0 seconds nobody can confirm",
            "give the number of seconds, e.g. 60, or leave it out",
        ));
    }
    let confirm = confirm.map(Duration::from_secs);
    let seconds = flags.drain.or(file.drain).unwrap_or(DRAIN_SECONDS);
    if seconds > DRAIN_SECONDS_MAX {
        return Err(Failure::new(
            format!("drain: {seconds} seconds are more than a day"),
            format!("give 0 (close at once) to {DRAIN_SECONDS_MAX}"),
        ));
    }
    let (relay, drain) = (file.relay.unwrap_or(true), Duration::from_secs(seconds));
    Ok(Settings { engine, ports, user, confirm, drain, relay, kernel })
}

/// A PORT as written on the command line.
///
/// # Errors
/// When it is none.
pub fn port(written: &str) -> Result<PortSpec> {
    written.parse::<PortSpec>().map_err(|error| Failure::whole(error.to_string()))
}

/// A parser's `message` with what it expected in the words of who writes settings.
fn without_types(message: &str) -> String {
    const EXPECTED: [(&str, &str); 6] = [
        ("u8", "a whole number up to 255"),
        ("u16", "a whole number up to 65535"),
        ("u32", "a whole number up to 4294967295"),
        ("u64", "a whole number that is not negative"),
        ("usize", "a whole number that is not negative"),
        ("a boolean", "true or false"),
    ];
    let known = message.rsplit_once(", expected ").and_then(|(found, expected)| {
        let (_, words) = EXPECTED.iter().find(|(kind, _)| *kind == expected)?;
        Some(format!("{found}, expected {words}"))
    });
    known.unwrap_or_else(|| message.to_owned())
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

/// Directory of the system's engine.
pub const OWN_DIRECTORY: &str = "/run/outboard";

/// Permission bits of a socket that has a group, unless said otherwise.
const GROUP_MODE: u32 = 0o660;

/// Name of the socket inside its directory.
const SOCKET_NAME: &str = "engine.sock";

/// Where an engine listens and programs look for one, unless told otherwise: `$OUTBOARD_SOCKET`,
/// `/run/outboard` for root or when an engine is there, otherwise `$XDG_RUNTIME_DIR/outboard`.
pub fn default_socket() -> PathBuf {
    if let Some(path) = std::env::var_os("OUTBOARD_SOCKET").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let shared = Path::new(OWN_DIRECTORY).join(SOCKET_NAME);
    if rustix::process::geteuid().is_root() || shared.exists() {
        return shared;
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(directory) => PathBuf::from(directory).join("outboard").join(SOCKET_NAME),
        None => shared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> String {
        parse("x.toml", text, &Flags::default()).unwrap_err().to_string()
    }

    #[test]
    fn a_mistake_is_told_in_words_and_not_in_types() {
        let text = "core = 1\n[limits]\nsessions = 70000\n";
        let said = failure(text);
        assert!(
            said.contains("line 3: invalid value: integer `70000`, expected a whole"),
            "{said}"
        );
        assert!(failure("core = \"two\"\n").contains("expected a whole number that is not"));
        assert!(failure("[tcp]\nsack = 1\n").contains("expected true or false"));
    }

    #[test]
    fn a_file_gives_all_settings_and_flags_win() {
        let text = "core = 3\npoll = \"busy\"\ndrain = 7\nrelay = false\n\
                    ports = [\"packet:eth1,addr=10.1.0.2/16\"]\n\
                    [limits]\nsessions = 5\n[tcp]\ntimestamps = false\n\
                    mtu_probing = \"always\"\nfast_open_key = \"1-2-3-4\"\n\
                    user_timeout_option = true\nuser_timeout_max_s = 900\n";
        let flags = Flags { core: Some(1), ..Flags::default() };
        let settings = parse("x.toml", text, &flags).expect("parses");
        assert_eq!(settings.engine.core, Some(1));
        assert_eq!(settings.engine.poll, Poll::Busy);
        assert_eq!(settings.drain, Duration::from_secs(7));
        assert!(!settings.relay);
        assert_eq!(settings.engine.limits.sessions, 5);
        assert_eq!(settings.engine.limits.sessions_per_user, 2);
        assert!(!settings.engine.tcp.timestamps);
        assert_eq!(settings.engine.tcp.mtu_probing, MtuProbing::Always);
        assert_eq!(settings.engine.tcp.fast_open_key, "1-2-3-4".parse().ok());
        assert!(settings.engine.tcp.user_timeout_option);
        assert_eq!(settings.engine.tcp.user_timeout_max_s, 900);
        assert_eq!(settings.ports[0].label(), "packet:eth1");
    }

    #[test]
    fn a_rule_for_frames_names_somebody_and_gives_something() {
        let with =
            |text: &str| format!("ports = [\"tap:a,netns=x\", \"packet:b\"]\n[[raw]]\n{text}");
        let good = with("users = [\"root\", \"7\"]\nports = [\"b\"]\nreceive = true\n");
        let settings = parse("x.toml", &good, &Flags::default()).expect("parses");
        let [rule] = settings.engine.raw.as_slice() else { panic!("one rule") };
        assert_eq!(
            (rule.users.as_slice(), rule.ports.as_slice()),
            (&[0, 7][..], &["b".to_owned()][..])
        );
        assert!(rule.rights.receive && !rule.rights.send && !rule.rights.take);
        assert_eq!(settings.engine.ports_elsewhere, ["tap:a"]);
        for (text, said) in [
            ("receive = true\n", "names nobody"),
            ("users = [\"0\"]\n", "allows nothing"),
            ("users = [\"0\"]\nreceive = true\nspoof = true\n", "spoof without send"),
            ("users = [\"0\"]\nreceive = true\nports = [\"c\"]\n", "\"c\""),
            ("users = [\"nobody at all\"]\nreceive = true\n", "nobody at all"),
            ("users = [\"0\"]\nlisten = true\n", "listen"),
        ] {
            let told = failure(&with(text));
            assert!(told.contains(said) && told.contains("line"), "{text}: {told}");
        }
    }

    #[test]
    fn a_bridge_joins_two_ports_that_there_are() {
        let with = |text: &str| {
            format!("ports = [\"tap:a\", \"packet:b\", \"xdp:c\"]\n[[bridge]]\n{text}")
        };
        let good = with("from = \"a\"\nto = \"packet:b\"\nmode = \"take\"\nfilter = \"arp\"\n");
        let settings = parse("x.toml", &good, &Flags::default()).expect("parses");
        let [rule] = settings.engine.bridges.as_slice() else { panic!("one bridge") };
        assert_eq!((rule.from, rule.to, rule.takes), (0, 1, true));
        for (text, said) in [
            ("from = \"a\"\n", "missing field `to`"),
            ("from = \"a\"\nto = \"d\"\n", "\"d\", which the engine does not have; it has tap:a"),
            ("from = \"a\"\nto = \"tap:a\"\n", "to itself"),
            ("from = \"c\"\nto = \"a\"\nmode = \"take\"\n", "shares its interface"),
            ("from = \"a\"\nto = \"b\"\nmode = \"give\"\n", "give"),
            ("from = \"a\"\nto = \"b\"\nfilter = \"tcp prot 9\"\n", "filter"),
        ] {
            let told = failure(&with(text));
            assert!(told.contains(said) && told.contains("line"), "{text}: {told}");
        }
    }

    #[test]
    fn an_interface_of_the_kernels_has_a_name_and_a_port_of_its_own() {
        let with = |text: &str| {
            format!("ports = [\"tap:a\", \"packet:b,addr=10.0.0.1/24\", \"xdp:c\"]\n{text}")
        };
        let table = |name: &str, port: &str, mode: &str| {
            format!("[[kernel]]\nname = \"{name}\"\nport = \"{port}\"\nmode = \"{mode}\"\n")
        };
        let two = table("m", "b", "mirror") + &table("n", "a", "nic");
        let settings = parse("x.toml", &with(&two), &Flags::default()).expect("parses");
        let found: Vec<_> =
            settings.kernel.iter().map(|one| (one.name.as_str(), one.port)).collect();
        assert_eq!(found, [("m", 1), ("n", 0)]);
        for (text, said) in [
            ("[[kernel]]\nport = \"a\"\nmode = \"nic\"\n".to_owned(), "missing field `name`"),
            (table("sixteen-letters-", "a", "nic"), "\"sixteen-letters-\" Linux takes at most 15"),
            (table("", "a", "nic"), "missing"),
            (table("n", "d", "nic"), "\"d\", which the engine does not have; it has tap:a"),
            (table("n", "a", "nic") + &table("n", "b", "mirror"), "twice"),
            (table("n", "a", "nic") + &table("m", "a", "nic"), "tap:a already has n"),
            (table("n", "b", "nic"), "leave addr= out"),
            (table("n", "c", "nic"), "shares its interface"),
            (table("n", "a", "both"), "both"),
        ] {
            let told = failure(&with(&text));
            assert!(told.contains(said) && told.contains("line"), "{text}: {told}");
        }
    }

    #[test]
    fn a_socket_with_a_group_is_its_alone_unless_said_otherwise() {
        let mode = |text: &str| {
            let text = format!("ports = [\"tap:a\"]\n{text}");
            parse("x.toml", &text, &Flags::default()).expect("parses").engine.socket_mode
        };
        assert_eq!(mode(""), 0o666);
        assert_eq!(mode("socket_group = \"root\"\n"), 0o660);
        assert_eq!(mode("socket_group = \"root\"\nsocket_mode = 0o666\n"), 0o666);
        let said = failure("ports = [\"tap:a\"]\nsocket_mode = 660\n");
        assert!(said.contains("1224 in octal") && said.contains("0o660"), "{said}");
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line() {
        let said = failure("core = 1\n\ncolour = 2\n");
        assert!(said.contains("line 3") && said.contains("colour"), "{said}");
        let said = failure("[limits]\nsesions = 2\n");
        assert!(said.contains("line 2") && said.contains("sesions"), "{said}");
    }

    #[test]
    fn a_bad_port_in_the_file_is_an_error_with_its_line() {
        let said = failure("core = 1\nports = [\n  \"tap:a,addr=10.0.0.2/24\",\n  \"tip:b\",\n]\n");
        assert!(said.contains("line 4") && said.contains("tip"), "{said}");
    }

    #[test]
    fn the_lists_say_what_may_be_accelerated() {
        let text = "ports = [\"xdp:eth0\"]\n[allow]\nports = [\"tcp:80\", \"8000-8999\"]\n\
                    users = [\"root\", \"77\"]\n[deny]\nremotes = [\"10.0.0.0/8\"]\n";
        let settings = parse("x.toml", text, &Flags::default()).expect("parses");
        let rules = &settings.engine.rules;
        assert!(rules.admit_port(port::Protocol::Udp, 8001) && rules.admit_user(77));
        assert!(!rules.admit_port(port::Protocol::Udp, 80) && !rules.admit_user(78));
        assert_eq!(settings.ports[0].remotes.len(), 1);
        let said = failure("ports = [\"xdp:eth0\"]\n[deny]\nports = [\n\"1\",\n\"http\",\n]\n");
        assert!(said.contains("line 5") && said.contains("http"), "{said}");
        let said = failure("ports = [\"tap:a\"]\n[deny]\nremotes = [\"10.0.0.0/8\"]\n");
        assert!(said.contains("tap:a") && said.contains("xdp"), "{said}");
    }

    #[test]
    fn more_networks_than_fit_are_an_error_with_the_line_of_the_first_too_many() {
        let networks = |count: usize| "\n\"10.0.0.1\",".repeat(count);
        let text = |denied| {
            format!(
                "ports = [\"xdp:eth0\"]\n[allow]\nremotes = [{}]\n[deny]\nremotes = [{}]\n",
                networks(1000),
                networks(denied)
            )
        };
        assert!(parse("x.toml", &text(24), &Flags::default()).is_ok());
        let said = failure(&text(25));
        assert!(said.contains("line 1030") && said.contains("1024"), "{said}");
    }

    #[test]
    fn a_trial_that_is_over_at_once_is_refused() {
        let said = failure("ports = [\"tap:a\"]\nconfirm = 0\n");
        assert!(said.contains("nobody can confirm"), "{said}");
    }

    #[test]
    fn limits_of_the_stack_and_of_users_have_keys() {
        let text = "ports = [\"tap:a\"]\nconfirm = 60\nuser = \"root\"\n[limits]\nlisteners = 3\n\
                    udp_sockets = 4\nneighbors = 5\nendpoints_per_user = 6\n\
                    memory_per_user = 7340032\nsessions_per_user = 8\n";
        let settings = parse("x.toml", text, &Flags::default()).expect("parses");
        let limits = &settings.engine.limits;
        assert_eq!((limits.listeners, limits.udp_sockets, limits.neighbors), (3, 4, 5));
        assert_eq!((limits.listeners_per_user, limits.udp_sockets_per_user), (1, 2));
        assert_eq!((limits.endpoints_per_user, limits.memory_per_user), (6, 7 << 20));
        assert_eq!(settings.confirm, Some(Duration::from_secs(60)));
        assert_eq!(settings.user.map(|user| user.user), Some(0));
        let flags = Flags { confirm: Some(5), ..Flags::default() };
        let settings = parse("x.toml", text, &flags).expect("parses");
        assert_eq!(settings.confirm, Some(Duration::from_secs(5)), "a flag wins");
    }

    #[test]
    fn a_limit_that_no_engine_can_have_is_refused_with_what_it_may_be() {
        let said = failure("ports = [\"tap:a\"]\n[limits]\nframes_per_turn = 0\n");
        assert!(said.contains("x.toml, [limits]: frames_per_turn is 0; give 1 to"), "{said}");
        let said = failure("ports = [\"tap:a\"]\n[limits]\nbuffer_bytes = 1000\n");
        assert!(said.contains("buffer_bytes") && said.contains("power of two"), "{said}");
    }

    #[test]
    fn messages_have_settings_that_are_checked() {
        let with = |text: &str| format!("ports = [\"tap:a\"]\n[messages]\n{text}");
        let good = with("encapsulation = \"ethernet\"\nport = 7\nethertype = 0x88b6\n");
        let settings = parse("x.toml", &good, &Flags::default()).expect("parses");
        let messages = settings.engine.limits.messages;
        assert_eq!(messages.encapsulation, Encapsulation::Ethernet);
        assert_eq!((messages.port, messages.ethertype), (7, 0x88b6));
        for (text, said) in [
            ("ethertype = 0x0800\n", "0x0800"),
            ("ethertype = 1500\n", "0x05dc"),
            ("port = 0\n", "port is 0"),
            ("encapsulation = \"tcp\"\n", "udp"),
        ] {
            let told = failure(&with(text));
            assert!(told.contains(said) && told.contains("line"), "{text}: {told}");
        }
    }

    #[test]
    fn an_engine_without_ports_is_refused() {
        assert!(failure("core = 1\n").contains("no port"));
    }
}
