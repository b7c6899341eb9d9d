//! An assembler for the kernel's BPF instructions: one method for each instruction that our
//! programs use, and labels that are resolved at the end.
//!
//! Instructions are those of the kernel's `Documentation/bpf/standardization/instruction-set.rst`.

use std::os::fd::{AsFd, AsRawFd};

/// `struct bpf_insn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register. R0 holds results, R1 to R5 arguments (lost in calls), R6 to R9 survive calls, and
/// FP points to the end of 512 bytes of stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    Fp,
}

/// Bytes moved between a register and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Width {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// Condition of a jump; comparisons are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum If {
    Equal = 0x10,
    Greater = 0x20,
    NotEqual = 0x50,
    Less = 0xa0,
}

/// Functions of the kernel (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    RedirectMap = 51,
    SkRelease = 86,
    SkcLookupTcp = 99,
    XdpBuffLen = 188,
}

/// A place in the program to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const SOURCE_REGISTER: u8 = 0x08;
const ALU_ADD: u8 = 0x00;
const ALU_AND: u8 = 0x50;
const ALU_SHIFT_LEFT: u8 = 0x60;
const ALU_MOVE: u8 = 0xb0;
const ALU_TO_BIG_ENDIAN: u8 = 0xd0 | SOURCE_REGISTER;
const JUMP_ALWAYS: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// In the source field of a 64-bit load: the immediate is a map's descriptor.
const PSEUDO_MAP_FD: u8 = 1;

/// The operands of an instruction: the destination, and the source or what stands in its field.
fn registers(to: Register, from: u8) -> u8 {
    let to = to as u8;
    // The kernel's bit fields: the destination lies in the lower half on little-endian machines.
    if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from }
}

/// A program being written.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Jumps and their targets.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label not yet placed.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label before the next instruction.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    fn push(&mut self, code: u8, registers: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(CLASS_ALU64 | ALU_MOVE | SOURCE_REGISTER, registers(to, from as u8), 0, 0);
    }

    /// `to = value`
    pub(crate) fn set(&mut self, to: Register, value: i32) {
        self.push(CLASS_ALU64 | ALU_MOVE, registers(to, 0), 0, value);
    }

    /// `to += value`
    pub(crate) fn add(&mut self, to: Register, value: i32) {
        self.push(CLASS_ALU64 | ALU_ADD, registers(to, 0), 0, value);
    }

    /// `to += from`
    pub(crate) fn add_register(&mut self, to: Register, from: Register) {
        self.push(CLASS_ALU64 | ALU_ADD | SOURCE_REGISTER, registers(to, from as u8), 0, 0);
    }

    /// `to &= value`
    pub(crate) fn and(&mut self, to: Register, value: i32) {
        self.push(CLASS_ALU64 | ALU_AND, registers(to, 0), 0, value);
    }

    /// `to <<= bits`
    pub(crate) fn shift_left(&mut self, to: Register, bits: i32) {
        self.push(CLASS_ALU64 | ALU_SHIFT_LEFT, registers(to, 0), 0, bits);
    }

    /// A 16-bit number between network and host order.
    pub(crate) fn swap_from_network(&mut self, to: Register) {
        self.push(CLASS_ALU | ALU_TO_BIG_ENDIAN, registers(to, 0), 0, 16);
    }

    /// `to = *(from + offset)`
    pub(crate) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(CLASS_LDX | MODE_MEM | width as u8, registers(to, from as u8), offset, 0);
    }

    /// `*(to + offset) = from`
    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(CLASS_STX | MODE_MEM | width as u8, registers(to, from as u8), offset, 0);
    }

    /// `*(to + offset) = value`
    pub(crate) fn store_value(&mut self, width: Width, to: Register, offset: i16, value: i32) {
        self.push(CLASS_ST | MODE_MEM | width as u8, registers(to, 0), offset, value);
    }

    /// `to = map`
    pub(crate) fn load_map(&mut self, to: Register, map: &impl AsFd) {
        let fd = map.as_fd().as_raw_fd();
        self.push(CLASS_LD | Width::Double as u8, registers(to, PSEUDO_MAP_FD), 0, fd);
        self.code.push(Instruction::default());
    }

    /// Jumps to `label` if the comparison of `left` with `right` is true.
    pub(crate) fn jump(&mut self, when: If, left: Register, right: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(CLASS_JMP | when as u8, registers(left, 0), 0, right);
    }

    /// The same with a register.
    pub(crate) fn jump_register(&mut self, when: If, left: Register, right: Register, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(CLASS_JMP | when as u8 | SOURCE_REGISTER, registers(left, right as u8), 0, 0);
    }

    /// Jumps to `label`.
    pub(crate) fn go(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(CLASS_JMP | JUMP_ALWAYS, registers(Register::R0, 0), 0, 0);
    }

    /// `R0 = helper(R1, R2, R3, R4, R5)`
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CLASS_JMP | CALL, registers(Register::R0, 0), 0, helper as i32);
    }

    /// `return R0`
    pub(crate) fn exit(&mut self) {
        self.push(CLASS_JMP | EXIT, registers(Register::R0, 0), 0, 0);
    }

    /// The program, with its jumps resolved. A label that was never placed, or a jump too far, is
    /// a mistake in the program's source and panics.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].expect("every label is placed");
            let distance = target as i64 - at as i64 - 1;
            self.code[at].offset = i16::try_from(distance).expect("jumps are short");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::Register::*;
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_the_kernels() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.set(R0, 2);
        asm.load(Width::Half, R3, R7, 12);
        asm.store(Width::Word, Fp, -8, R3);
        asm.jump_register(If::Greater, R2, R8, end);
        asm.call(Helper::MapLookup);
        asm.place(end);
        asm.exit();
        let bytes: Vec<u64> = asm
            .finish()
            .iter()
            .map(|one| {
                u64::from(one.code)
                    | u64::from(one.registers) << 8
                    | u64::from(one.offset as u16) << 16
                    | u64::from(one.immediate as u32) << 32
            })
            .collect();
        // As clang and llvm-objdump have them.
        let expected = [
            0x0000_0002_0000_00b7, // r0 = 2
            0x0000_0000_000c_7369, // r3 = *(u16 *)(r7 + 12)
            0x0000_0000_fff8_3a63, // *(u32 *)(r10 - 8) = w3
            0x0000_0000_0001_822d, // if r2 > r8 goto +1
            0x0000_0001_0000_0085, // call 1
            0x0000_0000_0000_0095, // exit
        ];
        assert_eq!(bytes, expected);
    }
}
