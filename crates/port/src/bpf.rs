//! The kernel's BPF, as far as ports need it: maps, programs and links by bpf(2), and a small
//! assembler ([`asm`]) in which the programs are written. Neither a compiler nor kernel headers
//! are needed, at build time or later.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) mod asm;

use asm::Instruction;

// Commands of `enum bpf_cmd` (linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const LINK_CREATE: libc::c_int = 28;

/// The verifier's messages: enough for a program of a few hundred instructions.
const LOG_BYTES: usize = 1 << 20;

/// Name of maps and programs in `bpftool`.
const NAME: &[u8; 8] = b"outboard";

/// Distinguished from the map type itself by a bit of our own.
const MAPPED: u32 = 1 << 16;

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    /// An array that can be mapped.
    MappedArray = 2 | MAPPED,
    LruHash = 9,
    LpmTrie = 11,
    XskMap = 17,
}

impl MapKind {
    fn flags(self) -> u32 {
        const NO_PREALLOC: u32 = 1;
        const MMAPABLE: u32 = 1 << 10;
        match self {
            MapKind::LpmTrie => NO_PREALLOC,
            MapKind::MappedArray => MMAPABLE,
            _ => 0,
        }
    }
}

/// A map: keys to values, both of fixed sizes, shared with the program.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// A new, empty map.
    pub(crate) fn create(
        kind: MapKind,
        key_bytes: usize,
        value_bytes: usize,
        entries: u32,
    ) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            flags: u32,
            inner_map_fd: u32,
            numa_node: u32,
            name: [u8; 16],
        }
        let attributes = Attributes {
            kind: kind as u32 & !MAPPED,
            key_size: key_bytes as u32,
            value_size: value_bytes as u32,
            max_entries: entries,
            flags: kind.flags(),
            inner_map_fd: 0,
            numa_node: 0,
            name: name(),
        };
        let fd = new_descriptor(bpf(MAP_CREATE, &attributes)?);
        Ok(Self { fd, key_bytes, value_bytes })
    }

    /// A map created elsewhere with these sizes.
    pub(crate) fn from_fd(fd: OwnedFd, key_bytes: usize, value_bytes: usize) -> Self {
        Self { fd, key_bytes, value_bytes }
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    fn element(&self, key: &[u8], value: u64) -> Element {
        assert_eq!(key.len(), self.key_bytes, "a key is of its map's size");
        let map_fd = self.fd.as_raw_fd() as u32;
        Element { map_fd, padding: 0, key: address(key.as_ptr()), value, flags: 0 }
    }

    /// Sets the value of a key.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes, "a value is of its map's size");
        bpf(MAP_UPDATE, &self.element(key, address(value.as_ptr()))).map(drop)
    }

    /// Reads the value of a key; false when it is not there.
    pub(crate) fn read(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        assert_eq!(value.len(), self.value_bytes, "a value is of its map's size");
        found(bpf(MAP_LOOKUP, &self.element(key, address(value.as_mut_ptr()))))
    }

    /// Removes a key; false when it was not there.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<bool> {
        found(bpf(MAP_DELETE, &self.element(key, 0)))
    }
}

/// Whether a command found its key.
fn found(result: io::Result<libc::c_long>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(why) if why.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(why) => Err(why),
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `union bpf_attr` for the commands on elements of a map.
#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// At the ingress of an interface, on frames as the kernel's stack sees them.
    TcxIngress,
    /// In the driver, before the kernel's stack; on frames of several buffers, too, if set.
    Xdp {
        /// Without it the kernel keeps such frames away (drivers disable the features that cause
        /// them).
        several_buffers: bool,
    },
}

impl Hook {
    /// `enum bpf_prog_type`, `enum bpf_attach_type` and the flags of loading.
    fn numbers(self) -> (u32, u32, u32) {
        const TYPE_SCHED_CLS: u32 = 3;
        const TYPE_XDP: u32 = 6;
        const ATTACH_XDP: u32 = 37;
        const ATTACH_TCX_INGRESS: u32 = 46;
        const XDP_HAS_FRAGS: u32 = 1 << 5;
        match self {
            Hook::TcxIngress => (TYPE_SCHED_CLS, ATTACH_TCX_INGRESS, 0),
            Hook::Xdp { several_buffers } => {
                (TYPE_XDP, ATTACH_XDP, if several_buffers { XDP_HAS_FRAGS } else { 0 })
            }
        }
    }
}

/// The head of `union bpf_attr` for BPF_PROG_LOAD.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The same for BPF_LINK_CREATE.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative_fd: u32,
    padding: u32,
    expected_revision: u64,
}

/// A program that the kernel has verified.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
    hook: Hook,
}

impl Program {
    /// Loads a program. If the verifier refuses it, the error has the verifier's log.
    pub(crate) fn load(hook: Hook, code: &[Instruction]) -> io::Result<Self> {
        let why = match Self::load_with_log(hook, code, &mut []) {
            Ok(program) => return Ok(program),
            Err(why) => why,
        };
        if !matches!(why.raw_os_error(), Some(libc::EINVAL | libc::EACCES | libc::E2BIG)) {
            return Err(why);
        }
        let mut log = vec![0; LOG_BYTES];
        Self::load_with_log(hook, code, &mut log).map_err(|why| {
            let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
            let said = String::from_utf8_lossy(said);
            let said = said.trim();
            let end: Vec<&str> = said.lines().rev().take(12).collect();
            let end: Vec<&str> = end.into_iter().rev().collect();
            match end.is_empty() {
                true => why,
                false => io::Error::new(why.kind(), format!("{why}: {}", end.join(" | "))),
            }
        })
    }

    fn load_with_log(hook: Hook, code: &[Instruction], log: &mut [u8]) -> io::Result<Self> {
        let license = c"Apache-2.0";
        let (prog_type, attach_type, prog_flags) = hook.numbers();
        let load = ProgLoad {
            prog_type,
            insn_cnt: code.len() as u32,
            insns: address(code.as_ptr()),
            license: address(license.as_ptr()),
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() { 0 } else { address(log.as_mut_ptr()) },
            kern_version: 0,
            prog_flags,
            prog_name: name(),
            prog_ifindex: 0,
            expected_attach_type: attach_type,
        };
        let fd = new_descriptor(bpf(PROG_LOAD, &load)?);
        Ok(Self { fd, hook })
    }

    /// Attaches the program to an interface of this thread's namespace. It stays attached as long
    /// as a descriptor of the link is open. `flags` are those of the hook.
    pub(crate) fn attach(&self, interface_index: u32, flags: u32) -> io::Result<OwnedFd> {
        let (_, attach_type, _) = self.hook.numbers();
        let link = LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            target_ifindex: interface_index,
            attach_type,
            flags,
            relative_fd: 0,
            padding: 0,
            expected_revision: 0,
        };
        bpf(LINK_CREATE, &link).map(new_descriptor)
    }

    /// Runs the program once on a frame and returns its verdict, without effect.
    #[cfg(test)]
    pub(crate) fn run(&self, frame: &[u8]) -> io::Result<u32> {
        let mut run = TestRun::new(self, frame);
        run.start()?;
        Ok(run.retval)
    }

    /// Makes a frame arrive at the first receive queue of an interface of this thread's namespace,
    /// as seen by the program and the targets of its redirects (Linux 5.18).
    pub(crate) fn run_live(&self, frame: &[u8], interface_index: u32) -> io::Result<()> {
        const LIVE_FRAMES: u32 = 1 << 1;
        /// `struct xdp_md`.
        #[repr(C)]
        struct Context {
            data: u32,
            data_end: u32,
            data_meta: u32,
            ingress_ifindex: u32,
            rx_queue_index: u32,
            egress_ifindex: u32,
        }
        let context = Context {
            data: 0,
            data_end: frame.len() as u32,
            data_meta: 0,
            ingress_ifindex: interface_index,
            rx_queue_index: 0,
            egress_ifindex: 0,
        };
        let mut run = TestRun::new(self, frame);
        run.flags = LIVE_FRAMES;
        run.ctx_size_in = mem::size_of::<Context>() as u32;
        run.ctx_in = address(&raw const context);
        run.start()
    }
}

/// The head of `union bpf_attr` for BPF_PROG_TEST_RUN.
#[repr(C)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

impl TestRun {
    fn new(program: &Program, frame: &[u8]) -> Self {
        Self {
            prog_fd: program.fd.as_raw_fd() as u32,
            retval: 0,
            data_size_in: frame.len() as u32,
            data_size_out: 0,
            data_in: address(frame.as_ptr()),
            data_out: 0,
            repeat: 1,
            duration: 0,
            ctx_size_in: 0,
            ctx_size_out: 0,
            ctx_in: 0,
            ctx_out: 0,
            flags: 0,
            cpu: 0,
            batch_size: 0,
            padding: 0,
        }
    }

    /// Frame and context must live until it returns.
    fn start(&mut self) -> io::Result<()> {
        // SAFETY: the attributes are of the command's layout and length; the kernel reads the
        // frame and the context, which live on in the callers, and writes only the attributes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                PROG_TEST_RUN,
                std::ptr::from_mut(self),
                mem::size_of::<Self>(),
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn name() -> [u8; 16] {
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().zip(NAME) {
        *to = *from;
    }
    name
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the attributes are of the command's layout and length; what they point to lives on
    // during the call, is of the length told, and is writable where the command writes.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), mem::size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn new_descriptor(raw: libc::c_long) -> OwnedFd {
    // SAFETY: bpf(2) has just made the descriptor, which is nobody else's.
    unsafe { OwnedFd::from_raw_fd(raw as i32) }
}
