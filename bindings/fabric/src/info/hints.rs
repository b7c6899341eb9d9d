//! A program's hints, and whether the provider satisfies them.

use std::ffi::CStr;
use std::net::SocketAddr;

use super::address::from_raw;
use super::answer;
use crate::NAME;
use crate::abi::constants::*;
use crate::abi::info::{DomainAttr, EpAttr, Info, RxAttr, TxAttr};

/// The first version of the interface whose attributes have all the fields of the layouts here.
const FULL: u32 = version(1, 5);

/// A program's hints, copied; missing ones are `None` or zero.
#[derive(Default)]
pub struct Hints {
    pub caps: u64,
    pub addr_format: u32,
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
    pub tx: Option<TxAttr>,
    pub rx: Option<RxAttr>,
    pub ep: Option<EpAttr>,
    pub domain: Option<DomainAttr>,
    fabric_name: Option<bool>,
    domain_name: Option<bool>,
}

impl Hints {
    /// Copies a program's hints.
    ///
    /// # Safety
    /// `info` is null or hints as libfabric defines them for `version`.
    pub unsafe fn read(info: *const Info, version: u32) -> Self {
        // SAFETY: the caller's promise; each attribute may be missing. Fields that the version does
        // not have are not read.
        unsafe {
            let Some(info) = info.as_ref() else { return Self::default() };
            let is_ours = |name: *const std::ffi::c_char| {
                (!name.is_null()).then(|| CStr::from_ptr(name) == NAME)
            };
            Self {
                caps: info.caps,
                addr_format: info.addr_format,
                source: from_raw(info.src_addr, info.src_addrlen),
                destination: from_raw(info.dest_addr, info.dest_addrlen),
                tx: info.tx_attr.as_ref().copied(),
                rx: info.rx_attr.as_ref().copied(),
                ep: read_ep(info.ep_attr, version),
                domain: read_domain(info.domain_attr, version),
                fabric_name: info.fabric_attr.as_ref().and_then(|attr| is_ours(attr.name)),
                domain_name: info.domain_attr.as_ref().and_then(|attr| is_ours(attr.name)),
            }
        }
    }

    /// Whether the provider satisfies all of them.
    ///
    /// # Errors
    /// A sentence that names what it lacks.
    pub fn check(&self) -> Result<(), String> {
        if self.fabric_name == Some(false) || self.domain_name == Some(false) {
            return Err("the hints request another fabric or domain".into());
        }
        check_caps(self.caps)?;
        if !matches!(
            self.addr_format,
            FI_FORMAT_UNSPEC | FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6
        ) {
            return Err(format!("the hints request addresses of format {}", self.addr_format));
        }
        self.ep.as_ref().map_or(Ok(()), check_ep)?;
        self.tx.as_ref().map_or(Ok(()), check_tx)?;
        self.rx.as_ref().map_or(Ok(()), check_rx)?;
        self.domain.as_ref().map_or(Ok(()), check_domain)
    }
}

/// # Safety
/// `attr` is null or a `struct fi_ep_attr` of `version`.
unsafe fn read_ep(attr: *const EpAttr, version: u32) -> Option<EpAttr> {
    if attr.is_null() {
        return None;
    }
    let zero = EpAttr::zero();
    // SAFETY: the caller's promise; the older layout ends before the keys.
    unsafe {
        if version >= FULL {
            return Some(*attr);
        }
        Some(EpAttr {
            kind: (*attr).kind,
            protocol: (*attr).protocol,
            protocol_version: (*attr).protocol_version,
            max_msg_size: (*attr).max_msg_size,
            msg_prefix_size: (*attr).msg_prefix_size,
            mem_tag_format: (*attr).mem_tag_format,
            tx_ctx_cnt: (*attr).tx_ctx_cnt,
            rx_ctx_cnt: (*attr).rx_ctx_cnt,
            ..zero
        })
    }
}

/// # Safety
/// `attr` is null or a `struct fi_domain_attr` of `version`.
unsafe fn read_domain(attr: *const DomainAttr, version: u32) -> Option<DomainAttr> {
    if attr.is_null() {
        return None;
    }
    let zero = DomainAttr::zero();
    // SAFETY: the caller's promise; the older layout ends after the numbers of contexts.
    unsafe {
        if version >= FULL {
            return Some(*attr);
        }
        Some(DomainAttr {
            threading: (*attr).threading,
            control_progress: (*attr).control_progress,
            data_progress: (*attr).data_progress,
            resource_mgmt: (*attr).resource_mgmt,
            av_type: (*attr).av_type,
            mr_mode: (*attr).mr_mode,
            mr_key_size: (*attr).mr_key_size,
            cq_data_size: (*attr).cq_data_size,
            ..zero
        })
    }
}

fn without(what: &str, asked: u64, had: u64) -> Result<(), String> {
    match asked & !had {
        0 => Ok(()),
        missing => Err(format!("the hints request {what} {missing:#x}, which the provider lacks")),
    }
}

/// Names of capabilities that programs request and the provider lacks, by their bits.
const LACKING: [(u32, &str); 11] = [
    (2, "FI_RMA"),
    (4, "FI_ATOMIC"),
    (5, "FI_MULTICAST"),
    (6, "FI_COLLECTIVE"),
    (20, "FI_TRIGGER"),
    (21, "FI_FENCE"),
    (47, "FI_HMEM"),
    (48, "FI_VARIABLE_MSG"),
    (53, "FI_SHARED_AV"),
    (56, "FI_RMA_EVENT"),
    (58, "FI_NAMED_RX_CTX"),
];

fn check_caps(asked: u64) -> Result<(), String> {
    let missing = asked & !answer::CAPS;
    let named = LACKING.iter().filter(|(bit, _)| missing >> bit & 1 != 0);
    let names: Vec<&str> = named.map(|(_, name)| *name).collect();
    if !names.is_empty() {
        return Err(format!("the hints request {}, which the provider lacks", names.join(", ")));
    }
    without("other capabilities", asked, answer::CAPS)
}

fn at_most(what: &str, asked: usize, had: usize) -> Result<(), String> {
    if asked <= had { Ok(()) } else { Err(format!("{what} of {asked} exceeds {had}")) }
}

fn check_ep(attr: &EpAttr) -> Result<(), String> {
    if !matches!(attr.kind, FI_EP_UNSPEC | FI_EP_RDM) {
        return Err("only endpoints of type FI_EP_RDM are provided".into());
    }
    if !matches!(attr.protocol, FI_PROTO_UNSPEC | PROTOCOL) || attr.protocol_version > 1 {
        return Err("the hints request another protocol".into());
    }
    at_most("a longest message", attr.max_msg_size, answer::MESSAGE_MAX)?;
    at_most("a number of transmit contexts", attr.tx_ctx_cnt, 1)?;
    at_most("a number of receive contexts", attr.rx_ctx_cnt, 1)?;
    check_key_size(attr.auth_key_size)
}

fn check_key_size(size: usize) -> Result<(), String> {
    match size {
        0 | answer::KEY_BYTES => Ok(()),
        _ => Err(format!(
            "a key of {size} bytes is not supported; the provider takes {}",
            answer::KEY_BYTES
        )),
    }
}

fn check_tx(attr: &TxAttr) -> Result<(), String> {
    without("transmit capabilities", attr.caps, answer::TX_CAPS)?;
    without("transmit flags", attr.op_flags, answer::TX_FLAGS)?;
    without("message orders", attr.msg_order, answer::ORDER)?;
    without("completion orders", attr.comp_order, 0)?;
    at_most("an injected size", attr.inject_size, answer::INJECT_MAX)?;
    at_most("a transmit queue", attr.size, answer::OPERATIONS)?;
    at_most("a list", attr.iov_limit, crate::pieces::PIECES_MAX)?;
    at_most("a remote list", attr.rma_iov_limit, 0)
}

fn check_rx(attr: &RxAttr) -> Result<(), String> {
    without("receive capabilities", attr.caps, answer::RX_CAPS)?;
    without("receive flags", attr.op_flags, answer::RX_FLAGS)?;
    without("message orders", attr.msg_order, answer::ORDER)?;
    without("completion orders", attr.comp_order, 0)?;
    at_most("a receive queue", attr.size, answer::OPERATIONS)?;
    at_most("a list", attr.iov_limit, crate::pieces::PIECES_MAX)
}

fn check_domain(attr: &DomainAttr) -> Result<(), String> {
    if !(FI_THREAD_UNSPEC..=FI_THREAD_ENDPOINT).contains(&attr.threading) {
        return Err(format!("the threading model {} is unknown", attr.threading));
    }
    for progress in [attr.control_progress, attr.data_progress] {
        if !matches!(progress, 0 | FI_PROGRESS_MANUAL) {
            return Err(
                "the hints request FI_PROGRESS_AUTO; the provider has manual progress only".into(),
            );
        }
    }
    if !matches!(attr.av_type, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE) {
        return Err(format!("the address vector type {} is unknown", attr.av_type));
    }
    at_most("immediate data", attr.cq_data_size, answer::DATA_BYTES)?;
    at_most("a memory key", attr.mr_key_size, answer::MEMORY_KEY_BYTES)?;
    without("domain capabilities", attr.caps, FI_LOCAL_COMM | FI_REMOTE_COMM)?;
    check_key_size(attr.auth_key_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_that_is_lacking_is_named() {
        let asked = |caps| Hints { caps, ..Hints::default() };
        assert_eq!(asked(FI_MSG | FI_TAGGED | FI_DIRECTED_RECV).check(), Ok(()));
        let refused = asked(FI_MSG | 1 << 2 | 1 << 4).check().expect_err("no remote memory");
        assert!(refused.contains("FI_RMA, FI_ATOMIC"), "{refused}");
        assert!(asked(1 << 8).check().is_err());
    }

    #[test]
    fn what_is_beyond_the_limits_is_refused() {
        let ep = |change: fn(&mut EpAttr)| {
            let mut attr = EpAttr::zero();
            change(&mut attr);
            Hints { ep: Some(attr), ..Hints::default() }.check()
        };
        assert_eq!(ep(|attr| attr.kind = FI_EP_RDM), Ok(()));
        assert!(ep(|attr| attr.kind = 1).is_err(), "FI_EP_MSG");
        assert_eq!(ep(|attr| attr.max_msg_size = answer::MESSAGE_MAX), Ok(()));
        assert!(ep(|attr| attr.max_msg_size = answer::MESSAGE_MAX + 1).is_err());
        assert_eq!(ep(|attr| attr.auth_key_size = 16), Ok(()));
        assert!(ep(|attr| attr.auth_key_size = 17).is_err());
        assert!(ep(|attr| attr.tx_ctx_cnt = usize::MAX).is_err(), "a shared context");
    }
}
