//! Keeps the kernel's stack from seeing frames that arrive on the interface: a two-instruction BPF
//! program at its ingress drops every frame, after the packet socket got its copy (the kernel
//! serves taps first). It is held by a descriptor and ends with it. Linux 6.6 and later (tcx). It
//! also saves the kernel's processing of every frame: a small one sent over veth to such a port
//! costs its sender 0.93 us instead of 1.2.

use std::io;
use std::os::fd::OwnedFd;

use crate::bpf::asm::{Assembler, Register};
use crate::bpf::{Hook, Program};

const TCX_DROP: i32 = 2;

/// Attaches the program to an interface of this thread's namespace.
pub(super) fn attach(interface_index: u32) -> io::Result<OwnedFd> {
    let mut asm = Assembler::default();
    asm.set(Register::R0, TCX_DROP);
    asm.exit();
    Program::load(Hook::TcxIngress, &asm.finish())?.attach(interface_index, 0)
}
