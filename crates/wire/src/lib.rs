//! Bytes to headers and back. `no_std`, no `unsafe`, no allocation.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

/// An Ethernet address.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct MacAddr(pub [u8; 6]);
