//! From PORTs as a user writes them to ports that a worker takes.

use std::net::Ipv6Addr;

use engine::{Cidr, Destination, Limits, PortSetup, TcpSettings};
use port::PortSpec;
use port::spec::{Ipv6, PortKind};
use stack::api::{Ipv6Mode, Metrics};

use crate::errors::OpenError;

/// Settings of an inline engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Bounds of everything; those of users and sessions mean nothing here.
    pub limits: Limits,
    /// How TCP behaves.
    pub tcp: TcpSettings,
}

/// Opens a port.
pub(crate) fn open_port(spec: &PortSpec) -> Result<PortSetup, OpenError> {
    // Before anything is opened: an xdp port changes its interface.
    if spec.kind == PortKind::Xdp {
        return Err(OpenError::Shared(spec.label()));
    }
    if spec.addresses.is_empty() {
        return Err(OpenError::NoAddress(spec.label()));
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
        port: port::from_fds(port::open(spec)?)?,
        addresses: addresses.collect(),
        gateway: spec.gateway,
        routes: default_v6.into_iter().collect(),
        ipv6: match spec.ipv6 {
            Ipv6::Auto => Ipv6Mode::Automatic,
            Ipv6::Static => Ipv6Mode::Static,
            Ipv6::Off => Ipv6Mode::Off,
        },
    })
}

/// Whether a port may be run by a program: it has addresses, which are its own.
pub(crate) fn check(setup: &PortSetup) -> Result<(), OpenError> {
    let info = setup.port.info();
    if info.shared.is_some() {
        return Err(OpenError::Shared(info.name.clone()));
    }
    if setup.addresses.is_empty() {
        return Err(OpenError::NoAddress(info.name.clone()));
    }
    Ok(())
}
