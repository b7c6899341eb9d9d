//! Interfaces that the kernel gets beside the engine's ports, each a TAP device of the engine's: one on
//! which it sees what a port receives and sends ([`Mirror`]), or one by which it uses the port together
//! with the engine ([`NicPort`]).

mod claims;
mod deliver;
mod fragments;
mod mirror;
mod nic;

use std::os::fd::OwnedFd;

use wire::MacAddr;

use crate::open::OpenError;
use crate::tap::{self, TapFacts};
use crate::xdp::reserve;

pub use mirror::{Mirror, MirrorWait};
pub use nic::NicPort;

/// Parameters of a kernel interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInterface {
    /// Its name.
    pub name: String,
    /// Its link address; drawn at random when `None`.
    pub mac: Option<MacAddr>,
    /// Largest IP packet.
    pub mtu: u16,
}

/// A created device, and its properties.
#[derive(Debug)]
pub struct KernelFds {
    device: OwnedFd,
    facts: TapFacts,
}

/// What a `nic` needs besides its device: TCP ports reserved for the engine in the kernel.
#[derive(Debug)]
pub struct ReservedPorts(reserve::Reserved);

/// Creates a device that mirrors a port: the kernel uses neither ARP nor IPv6 on it. Needs
/// CAP_NET_ADMIN.
///
/// # Errors
/// If the name is in use, or the kernel refuses.
pub fn open_mirror(of: &KernelInterface) -> Result<KernelFds, OpenError> {
    open(of, true)
}

/// Creates a device by which the kernel uses a port, and reserves so many TCP ports for outgoing
/// connections of the engine. Needs CAP_NET_ADMIN.
///
/// # Errors
/// If the name is in use, there are not so many consecutive ports, or the kernel refuses.
pub fn open_nic(
    of: &KernelInterface,
    connect_ports: u16,
) -> Result<(KernelFds, ReservedPorts), OpenError> {
    let fds = open(of, false)?;
    let reserved = reserve::block(connect_ports).map_err(|why| {
        OpenError::system(&label(of), "reserve TCP ports", "CAP_NET_BIND_SERVICE", &why)
    })?;
    Ok((fds, ReservedPorts(reserved)))
}

fn label(of: &KernelInterface) -> String {
    format!("the kernel interface {}", of.name)
}

fn open(of: &KernelInterface, is_silent: bool) -> Result<KernelFds, OpenError> {
    let (device, facts) = tap::open_for_kernel(of, &label(of), is_silent)?;
    Ok(KernelFds { device, facts })
}
