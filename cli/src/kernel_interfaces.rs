//! `[[kernel]]` of the configuration: interfaces that the kernel gets beside the engine's ports.

use std::sync::Arc;

use engine::config::PortSetup;
use engine::service::mirror::MirrorRule;
use lab::failure::{Failure, Result};
use port::PortSpec;
use port::kernel::{KernelInterface, Mirror, NicPort, open_mirror, open_nic};
use port::spec::{PortKind, check_interface_name};
use serde::Deserialize;
use toml::Spanned;

use crate::bridges::find_port;

/// One of the tables, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelTable {
    name: Spanned<String>,
    port: Spanned<String>,
    mode: InterfaceMode,
}

/// What the kernel has an interface for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceMode {
    /// To see what the port receives and sends.
    Mirror,
    /// To use the port together with the engine.
    Nic,
}

/// An interface as it is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSettings {
    /// Its name.
    pub name: String,
    /// The number of its port.
    pub port: usize,
    /// What it is for.
    pub mode: InterfaceMode,
}

/// What the tables say of an engine with these ports; `fail` makes a failure of what is wrong at a place
/// of the file.
///
/// # Errors
/// A name that is none or is given twice, a port that there is not, a second `nic` of a port, or a port
/// that cannot have one.
pub fn settings(
    tables: &[Spanned<KernelTable>],
    ports: &[PortSpec],
    fail: impl Fn(usize, String) -> Failure,
) -> Result<Vec<KernelSettings>> {
    let mut all: Vec<KernelSettings> = Vec::with_capacity(tables.len());
    for table in tables {
        let KernelTable { name, port, mode } = table.get_ref();
        let at = name.span().start;
        check_interface_name(name.get_ref())
            .map_err(|why| fail(at, format!("[[kernel]] name {:?} {why}", name.get_ref())))?;
        if all.iter().any(|one| one.name == *name.get_ref()) {
            let why =
                format!("[[kernel]] uses the name {:?} twice: choose another", name.get_ref());
            return Err(fail(at, why));
        }
        let number = find_port("[[kernel]]", port, ports, &fail)?;
        if let (InterfaceMode::Nic, Some(spec)) = (mode, ports.get(number)) {
            check_nic(spec, &all, number).map_err(|why| {
                fail(port.span().start, format!("[[kernel]] mode = \"nic\": {why}"))
            })?;
        }
        all.push(KernelSettings { name: name.get_ref().clone(), port: number, mode: *mode });
    }
    Ok(all)
}

fn check_nic(
    spec: &PortSpec,
    others: &[KernelSettings],
    number: usize,
) -> std::result::Result<(), String> {
    let label = spec.label();
    let is_second = |one: &KernelSettings| one.port == number && one.mode == InterfaceMode::Nic;
    if let Some(first) = others.iter().find(|one| is_second(one)) {
        return Err(format!("{label} already has {}: remove one of the two", first.name));
    }
    if spec.kind == PortKind::Xdp {
        return Err(format!(
            "{label} already shares its interface with the kernel: remove this table"
        ));
    }
    if let Some(own) = spec.addresses.first() {
        return Err(format!(
            "{label} has addr={}/{}, but its addresses are those of the kernel's interface: leave \
             addr= out and add it to the interface (ip addr add)",
            own.address, own.prefix
        ));
    }
    if spec.gateway.is_some() || spec.gateway_v6.is_some() {
        return Err(format!(
            "{label} has gw=, but its routes are the kernel's: remove gw= and use ip route add"
        ));
    }
    Ok(())
}

/// Makes the interfaces of `all` beside the ports that are open; the mirrors among them.
///
/// # Errors
/// What the kernel refuses, in a sentence.
pub fn open(
    all: &[KernelSettings],
    specs: &[PortSpec],
    ports: &mut Vec<PortSetup>,
) -> Result<Vec<MirrorRule>> {
    let fail = |error: port::OpenError| Failure::whole(error.to_string());
    let mut mirrors = Vec::new();
    let opened = std::mem::take(ports);
    for (number, (setup, spec)) in opened.into_iter().zip(specs).enumerate() {
        let mut port = setup.port;
        for one in all.iter().filter(|one| one.port == number) {
            let info = port.info();
            let (name, mtu) = (one.name.clone(), info.mtu);
            match one.mode {
                InterfaceMode::Mirror => {
                    let fds =
                        open_mirror(&KernelInterface { name, mac: None, mtu }).map_err(fail)?;
                    let device = Arc::new(Mirror::new(fds).map_err(fail)?);
                    mirrors.push(MirrorRule { port: number, name: one.name.clone(), device });
                }
                InterfaceMode::Nic => {
                    let of = KernelInterface { name, mac: Some(info.mac), mtu };
                    let (fds, reserved) = open_nic(&of, spec.connect_ports).map_err(fail)?;
                    port = Box::new(NicPort::new(port, fds, reserved).map_err(fail)?);
                }
            }
        }
        ports.push(PortSetup { port, ..setup });
    }
    Ok(mirrors)
}
