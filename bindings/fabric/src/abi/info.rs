//! `struct fi_info` and its attributes.

use std::ffi::{c_char, c_void};
use std::ptr;

/// `struct fi_tx_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

/// `struct fi_rx_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// `struct fi_ep_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EpAttr {
    pub kind: i32,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    /// Since version 1.5 of the interface, as is all that follows.
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

/// `struct fi_domain_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DomainAttr {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: i32,
    pub control_progress: i32,
    pub data_progress: i32,
    pub resource_mgmt: i32,
    pub av_type: i32,
    pub mr_mode: i32,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    /// Since version 1.5 of the interface, as is all that follows.
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricAttr {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

/// `struct fi_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut c_void,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut c_void,
}

/// `struct fi_av_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AvAttr {
    pub kind: i32,
    pub rx_ctx_bits: i32,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// `struct fi_cq_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: i32,
    pub wait_obj: i32,
    pub signaling_vector: i32,
    pub wait_cond: i32,
    pub wait_set: *mut c_void,
}

/// `struct fi_eq_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EqAttr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: i32,
    pub signaling_vector: i32,
    pub wait_set: *mut c_void,
}

/// `struct fi_cntr_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CntrAttr {
    pub events: i32,
    pub wait_obj: i32,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

/// `struct fi_wait_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WaitAttr {
    pub wait_obj: i32,
    pub flags: u64,
}

/// `struct fi_mr_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MrAttr {
    pub mr_iov: *const super::Iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: i32,
    pub device: u64,
}

impl EpAttr {
    /// All fields zero.
    pub const fn zero() -> Self {
        Self {
            kind: 0,
            protocol: 0,
            protocol_version: 0,
            max_msg_size: 0,
            msg_prefix_size: 0,
            max_order_raw_size: 0,
            max_order_war_size: 0,
            max_order_waw_size: 0,
            mem_tag_format: 0,
            tx_ctx_cnt: 0,
            rx_ctx_cnt: 0,
            auth_key_size: 0,
            auth_key: ptr::null_mut(),
        }
    }
}

impl DomainAttr {
    /// All fields zero.
    pub const fn zero() -> Self {
        Self {
            domain: ptr::null_mut(),
            name: ptr::null_mut(),
            threading: 0,
            control_progress: 0,
            data_progress: 0,
            resource_mgmt: 0,
            av_type: 0,
            mr_mode: 0,
            mr_key_size: 0,
            cq_data_size: 0,
            cq_cnt: 0,
            ep_cnt: 0,
            tx_ctx_cnt: 0,
            rx_ctx_cnt: 0,
            max_ep_tx_ctx: 0,
            max_ep_rx_ctx: 0,
            max_ep_stx_ctx: 0,
            max_ep_srx_ctx: 0,
            cntr_cnt: 0,
            mr_iov_limit: 0,
            caps: 0,
            mode: 0,
            auth_key: ptr::null_mut(),
            auth_key_size: 0,
            max_err_data: 0,
            mr_cnt: 0,
            tclass: 0,
        }
    }
}
