//! packetdrill's arguments, and the kernel settings made by its script.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use script::ours::{Destination, Numbers, Settings, sysctls};

use crate::device::Device;

/// The kernel's settings of TCP and IP.
const FOLDERS: [&str; 2] = ["/proc/sys/net/ipv4", "/proc/sys/net/core"];

/// The key of Fast Open cookies.
const KEY: &str = "net.ipv4.tcp_fastopen_key";
/// The device's default queue.
const QUEUE: &str = "net.core.default_qdisc";
/// The enabled parts of CUBIC's HyStart in the kernel.
const HYSTART: &str = "/sys/module/tcp_cubic/parameters/hystart_detect";
/// Limits of the receive window.
const RECEIVE_BUFFERS: &str = "net.ipv4.tcp_rmem";

/// Data known about the script before it runs.
#[derive(Debug)]
pub struct Surroundings {
    before: BTreeMap<String, String>,
    options: Vec<(String, String)>,
    /// The device segments large frames itself.
    tso: bool,
    /// The device's queue accepts nothing.
    stuck: bool,
    /// The device's queue paces connections.
    paced: bool,
    /// The script's choice of the kernel's HyStart.
    hystart: Option<String>,
    device: Option<Device>,
}

impl Surroundings {
    /// Reads the options, and the settings before the script's commands change them.
    pub fn new() -> Self {
        let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let arguments: Vec<String> = arguments
            .split(|byte| *byte == 0)
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect();
        let mut options = Vec::new();
        if let Some(script) = arguments.iter().rfind(|argument| argument.ends_with(".pkt")) {
            let text = std::fs::read_to_string(script).unwrap_or_default();
            options.extend(text.lines().filter_map(option));
        }
        // Options on the command line come last and take precedence, as in packetdrill.
        options.extend(arguments.iter().filter_map(|argument| option(argument)));
        // Like the device that packetdrill creates for the kernel.
        let mut new = Self {
            before: kernel_settings(),
            options,
            tso: true,
            stuck: false,
            paced: false,
            hystart: None,
            device: None,
        };
        let (prefix, remote) = match new.is_v6() {
            true => ("48", "2001:db8::1"),
            false => ("16", "192.0.2.1"),
        };
        let remote = new.option("remote_ip").unwrap_or(remote).to_owned();
        new.device = Device::prepare(new.local(), prefix, &remote);
        new
    }

    /// A command of the script was run: records its effect on the device, and on parameters of
    /// kernel modules.
    pub fn commanded(&mut self, text: &str) {
        for words in text.lines().flat_map(|line| line.split(';')).map(words) {
            match *words.as_slice() {
                ["ethtool", "-K", _, ref features @ ..] => {
                    for pair in features.as_chunks().0 {
                        match *pair {
                            ["tso" | "gso", "off"] => self.tso = false,
                            ["tso", "on"] => self.tso = true,
                            _ => (),
                        }
                    }
                }
                ["tc", "qdisc", "add" | "replace", ref queue @ ..] => {
                    self.stuck = queue.ends_with(&["limit", "0"]);
                    self.paced = queue.contains(&"fq");
                }
                ["echo", value, ">", HYSTART] => self.hystart = Some(value.to_owned()),
                _ => (),
            }
        }
    }

    /// Whether a command makes the kernel forget its cached metrics.
    pub fn forgets_servers(&self, text: &str) -> bool {
        text.lines().any(|line| matches!(*words(line), ["ip", "tcp_metrics", "flush", ..]))
    }

    /// Whether the device segments large frames itself.
    pub fn has_tso(&self) -> bool {
        self.tso
    }

    /// Payload of the segments that a larger packet of the script consists of.
    pub fn segment_bytes(&self) -> Option<u16> {
        self.option("mss").and_then(|text| text.parse().ok())
    }

    /// Whether the device accepts no packet at all.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// The settings changed so far by the script's commands.
    pub fn changed_settings(&self) -> Vec<(String, String)> {
        kernel_settings()
            .into_iter()
            // A key of zeros may have been set or not; no script can expect the random one. Buffer
            // sizes differ between kernels.
            .filter(|(name, value)| {
                [KEY, RECEIVE_BUFFERS].contains(&name.as_str())
                    || self.before.get(name) != Some(value)
            })
            .chain(self.paced.then(|| (QUEUE.to_owned(), "fq".to_owned())))
            .chain(self.hystart.clone().map(|value| (sysctls::HYSTART_DETECT.to_owned(), value)))
            .collect()
    }

    /// The routes through the device with metrics.
    pub fn routes(&self) -> Vec<Destination> {
        self.device.as_ref().map(Device::routes).unwrap_or_default()
    }

    fn is_v6(&self) -> bool {
        self.option("ip_version") == Some("ipv6")
    }

    fn local(&self) -> IpAddr {
        let said = self.option("local_ip").and_then(|text| text.parse().ok());
        said.unwrap_or_else(|| match self.is_v6() {
            true => [0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1].into(),
            false => [192, 168, 0, 1].into(),
        })
    }

    fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().rfind(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The settings of the host; settings without meaning for our stack are reported on standard
    /// error.
    pub fn settings(&self) -> Settings {
        let mut changed = self.changed_settings();
        for (name, value) in sysctls::meaning(&changed).1 {
            eprintln!("outboard: setting {name}={value} has no meaning for the stack");
            changed.retain(|(known, _)| *known != name);
        }
        let usual_mtu = 1500;
        Settings {
            mtu: self.option("mtu").and_then(|text| text.parse().ok()).unwrap_or(usual_mtu),
            sysctls: changed,
            // All destinations are on-link, so no gateway is needed.
            addresses: vec![(self.local(), 0)],
            numbers: Numbers::Real,
            // Like the device that packetdrill creates for the kernel; if commands switch it off,
            // large frames are segmented behind the stack.
            tso: true,
            routes: self.routes(),
        }
    }
}

/// The words of a command.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// `--name=value`, as packetdrill's options are written.
fn option(text: &str) -> Option<(String, String)> {
    let (name, value) = text.trim().strip_prefix("--")?.split_once('=')?;
    let value = value.split_whitespace().next().unwrap_or_default();
    Some((name.to_owned(), value.to_owned()))
}

/// The settings of this network namespace, by their dotted names.
fn kernel_settings() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for folder in FOLDERS {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            if let Some((name, value)) = setting(&entry.path()) {
                all.insert(name, value);
            }
        }
    }
    all
}

fn setting(path: &Path) -> Option<(String, String)> {
    // Some are write-only, or are directories.
    let value = std::fs::read_to_string(path).ok()?;
    let name = path.strip_prefix("/proc/sys").ok()?.to_str()?.replace('/', ".");
    Some((name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
}
