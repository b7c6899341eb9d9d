//! Constants of `rdma/fabric.h`, `fi_domain.h`, `fi_endpoint.h`, `fi_eq.h` and `fi_errno.h`.

/// A version as libfabric packs it.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

macro_rules! bits {
    ($($name:ident = $bit:literal),* $(,)?) => {
        $(pub const $name: u64 = 1 << $bit;)*
        /// For the comparison with the headers.
        #[cfg(test)]
        pub const BITS: &[(&str, u64)] = &[$((stringify!($name), $name)),*];
    };
}

bits! {
    FI_MSG = 1, FI_TAGGED = 3,
    FI_RECV = 10, FI_SEND = 11,
    FI_MULTI_RECV = 16, FI_REMOTE_CQ_DATA = 17, FI_MORE = 18, FI_PEEK = 19, FI_FENCE = 21,
    FI_COMPLETION = 24, FI_INJECT = 25, FI_INJECT_COMPLETE = 26, FI_TRANSMIT_COMPLETE = 27,
    FI_DELIVERY_COMPLETE = 28,
    FI_LOCAL_COMM = 51, FI_REMOTE_COMM = 52, FI_PROV_ATTR_ONLY = 54, FI_NUMERICHOST = 55,
    FI_SOURCE = 57, FI_DIRECTED_RECV = 59,
    FI_CLAIM = 59, FI_DISCARD = 58, FI_SELECTIVE_COMPLETION = 59, FI_SYNC_ERR = 58,
    FI_EVENT = 24,
    FI_ORDER_SAS = 8,
}

/// Provider-specific (the high bit): the message protocol of docs/spec/message.md.
pub const PROTOCOL: u32 = 1 << 31 | 0x88B5;

macro_rules! numbers {
    ($($kind:ty { $($name:ident = $value:expr),* $(,)? })*) => {
        $($(pub const $name: $kind = $value;)*)*
        /// For the comparison with the headers.
        #[cfg(test)]
        pub const NUMBERS: &[(&str, u64)] = &[$($((stringify!($name), $name as u64)),*),*];
    };
}

numbers! {
    u64 {
        FI_ADDR_UNSPEC = u64::MAX,
        FI_ADDR_NOTAVAIL = u64::MAX,
    }
    u32 {
        FI_FORMAT_UNSPEC = 0,
        FI_SOCKADDR = 1,
        FI_SOCKADDR_IN = 2,
        FI_SOCKADDR_IN6 = 3,
        FI_PROTO_UNSPEC = 0,
        FI_AV_COMPLETE = 5,
    }
    i32 {
        FI_AV_UNSPEC = 0,
        FI_AV_MAP = 1,
        FI_AV_TABLE = 2,
        FI_MR_BASIC = 1,
        FI_MR_SCALABLE = 2,
        FI_PROGRESS_MANUAL = 2,
        FI_THREAD_UNSPEC = 0,
        FI_THREAD_SAFE = 1,
        FI_THREAD_ENDPOINT = 5,
        FI_RM_ENABLED = 2,
        FI_EP_UNSPEC = 0,
        FI_EP_RDM = 3,
        FI_GETOPSFLAG = 2,
        FI_SETOPSFLAG = 3,
        FI_GETWAIT = 5,
        FI_ENABLE = 6,
        FI_GETWAITOBJ = 16,
        FI_OPT_ENDPOINT = 0,
        FI_OPT_MIN_MULTI_RECV = 0,
        FI_OPT_CM_DATA_SIZE = 1,
        FI_WAIT_NONE = 0,
        FI_WAIT_UNSPEC = 1,
        FI_WAIT_SET = 2,
        FI_WAIT_FD = 3,
        FI_WAIT_YIELD = 5,
        FI_CQ_FORMAT_UNSPEC = 0,
        FI_CQ_FORMAT_CONTEXT = 1,
        FI_CQ_FORMAT_MSG = 2,
        FI_CQ_FORMAT_DATA = 3,
        FI_CQ_FORMAT_TAGGED = 4,
    }
    usize {
        FI_CLASS_FABRIC = 1,
        FI_CLASS_DOMAIN = 2,
        FI_CLASS_EP = 3,
        FI_CLASS_AV = 11,
        FI_CLASS_MR = 12,
        FI_CLASS_EQ = 13,
        FI_CLASS_CQ = 14,
        FI_CLASS_CNTR = 15,
        FI_CLASS_WAIT = 16,
        FI_CLASS_POLL = 17,
    }
}

/// Any tag format; not in the public headers.
pub const FI_TAG_GENERIC: u64 = 0xAAAA_AAAA_AAAA_AAAA;

macro_rules! errors {
    ($($name:ident = $value:expr),* $(,)?) => {
        $(pub const $name: i32 = $value;)*
        /// For the comparison with the headers.
        #[cfg(test)]
        pub const ERRORS: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

errors! {
    FI_EAGAIN = libc::EAGAIN, FI_ENOMEM = libc::ENOMEM, FI_EBUSY = libc::EBUSY,
    FI_EINVAL = libc::EINVAL, FI_ENOSYS = libc::ENOSYS, FI_ENOENT = libc::ENOENT,
    FI_ENODATA = libc::ENODATA, FI_EMSGSIZE = libc::EMSGSIZE,
    FI_ENOPROTOOPT = libc::ENOPROTOOPT, FI_EADDRNOTAVAIL = libc::EADDRNOTAVAIL,
    FI_ECANCELED = libc::ECANCELED, FI_ETIMEDOUT = libc::ETIMEDOUT,
    FI_ETOOSMALL = 257, FI_EOPBADSTATE = 258, FI_EAVAIL = 259, FI_EBADFLAGS = 260,
    FI_ENOEQ = 261, FI_EDOMAIN = 262, FI_ENOCQ = 263, FI_ETRUNC = 265, FI_ENOKEY = 266,
    FI_ENOAV = 267,
}
