//! How TCP behaves towards the network, for all connections of a stack.

use serde::{Deserialize, Serialize};

/// What the kernel has as `net.ipv4.tcp_*`. The defaults are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSettings {
    /// Offers and accepts timestamps (RFC 7323), as `tcp_timestamps`. Without them there is no
    /// protection against wrapped sequence numbers (PAWS), ports in TIME-WAIT are not used again
    /// early, and needless timeouts are told by F-RTO and D-SACK only.
    pub timestamps: bool,
    /// When the path MTU is searched for without help from routers, as `tcp_mtu_probing`; the one
    /// default that is not the kernel's, which has it off.
    pub mtu_probing: MtuProbing,
}

/// When the path MTU is searched for by probes (RFC 8899).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MtuProbing {
    /// Never.
    Off,
    /// Once three timeouts in a row let suspect that large packets vanish.
    #[default]
    AfterBlackHole,
    /// From the beginning of each connection.
    Always,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self { timestamps: true, mtu_probing: MtuProbing::default() }
    }
}
