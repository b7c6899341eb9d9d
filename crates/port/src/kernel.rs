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

/// An interface of the kernel's as it is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInterface {
    /// Its name.
    pub name: String,
    /// Its link address; drawn at random when `None`.
    pub mac: Option<MacAddr>,
    /// Largest IP packet.
    pub mtu: u16,
}

/// A device that was made, and what must be known to run it.
#[derive(Debug)]
pub struct KernelFds {
    device: OwnedFd,
    facts: TapFacts,
}

/// What a `nic` needs beside its device: TCP ports that the kernel reserves for the engine.
#[derive(Debug)]
pub struct ReservedPorts(reserve::Reserved);

/// Makes a device that mirrors a port: the kernel speaks neither ARP nor IPv6 on it. Takes CAP_NET_ADMIN.
///
/// # Errors
/// The name is taken, or the kernel refuses.
pub fn open_mirror(of: &KernelInterface) -> Result<KernelFds, OpenError> {
    open(of, true)
}

/// Makes a device by which the kernel uses a port, and reserves so many TCP ports for connections that
/// the engine opens. Takes CAP_NET_ADMIN.
///
/// # Errors
/// The name is taken, there are not so many ports in a row, or the kernel refuses.
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
