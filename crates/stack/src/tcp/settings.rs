//! How TCP behaves towards the network, for all connections of a stack.

use serde::{Deserialize, Serialize};

/// What the kernel has as `net.ipv4.tcp_*`. The defaults are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSettings {
    /// Offers and accepts timestamps (RFC 7323), as `tcp_timestamps`. Without them there is no
    /// protection against wrapped sequence numbers (PAWS), ports in TIME-WAIT are not used again
    /// early, and needless timeouts are told by F-RTO and D-SACK only.
    pub timestamps: bool,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self { timestamps: true }
    }
}
