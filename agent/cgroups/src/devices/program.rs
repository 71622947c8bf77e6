//! Assembles a [`DeviceFilter`] as a BPF program, which the kernel runs at each `open` and `mknod` of a
//! device. The program uses seven instructions. This module is pure; `bpf` loads the result.
//!
//! The program, for each major number in the filter:
//!
//! ```text
//!   if the device is no character device: allow
//!   if its major is M:
//!     if minors are listed as denied: deny if its minor is one of them, else allow
//!     if minors are listed as allowed: allow if its minor is one of them, else deny
//!   allow
//! ```
//!
//! Registers, sizes and codes are those of RFC 9669; the context is the kernel's `struct bpf_cgroup_dev_ctx`.
//! The program calls nothing and never jumps back, so the kernel's verifier accepts it.

use super::{ClosedMinors, DeviceFilter};

/// Register that holds the address of the context when the program starts.
const CONTEXT: u8 = 1;
/// Register of the program's return value.
const ANSWER: u8 = 0;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// Offsets in `struct bpf_cgroup_dev_ctx`: a word with the access in its upper half and the device type in
/// its lower half, then the major and minor numbers.
const CONTEXT_ACCESS: i16 = 0;
const CONTEXT_MAJOR: i16 = 4;
const CONTEXT_MINOR: i16 = 8;
/// Mask of the device type: `BPF_DEVCG_DEV_CHAR` is 2, a block device 1.
const KIND_MASK: i32 = 0xffff;
const CHARACTER_DEVICE: i32 = 2;

/// Return values: the kernel allows the access, or answers EPERM.
const ALLOW: i32 = 1;
const DENY: i32 = 0;

/// Instruction codes: class, size or operation, and source.
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x54;
const MOVE: u8 = 0xb4;
const JUMP_IF_EQUAL: u8 = 0x16;
const JUMP_IF_NOT_EQUAL: u8 = 0x56;
const EXIT: u8 = 0x95;

/// One instruction, laid out as the kernel expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination register in the lower half, source register in the upper half.
    registers: u8,
    /// Bytes for a load; number of instructions from the next one for a jump.
    offset: i16,
    operand: i32,
}

impl Instruction {
    const fn new(code: u8, to: u8, from: u8, offset: i16, operand: i32) -> Self {
        Self {
            code,
            registers: to | from << 4,
            offset,
            operand,
        }
    }

    const fn load(to: u8, offset: i16) -> Self {
        Self::new(LOAD_WORD, to, CONTEXT, offset, 0)
    }
}

/// Instructions that return a value.
const fn answer(value: i32) -> [Instruction; 2] {
    [
        Instruction::new(MOVE, ANSWER, 0, 0, value),
        Instruction::new(EXIT, 0, 0, 0, 0),
    ]
}

/// The whole program of a filter.
pub(super) fn assemble(filter: &DeviceFilter) -> Vec<Instruction> {
    let mut program = vec![
        Instruction::load(KIND, CONTEXT_ACCESS),
        Instruction::new(AND, KIND, 0, 0, KIND_MASK),
        Instruction::new(JUMP_IF_EQUAL, KIND, 0, 2, CHARACTER_DEVICE),
    ];
    program.extend(answer(ALLOW));
    program.extend([
        Instruction::load(MAJOR, CONTEXT_MAJOR),
        Instruction::load(MINOR, CONTEXT_MINOR),
    ]);
    for (major, closed) in filter.majors() {
        let block = block(closed);
        let past = jump(block.len());
        // Jumps compare the lower halves of registers, so the bits of the number count and not its sign.
        let major = major.cast_signed();
        program.push(Instruction::new(JUMP_IF_NOT_EQUAL, MAJOR, 0, past, major));
        program.extend(block);
    }
    program.extend(answer(ALLOW));
    program
}

/// Instructions for one major number: the listed minors jump over the return of all other minors.
fn block(closed: &ClosedMinors) -> Vec<Instruction> {
    let (listed, others, of_listed) = match closed {
        ClosedMinors::Only(minors) => (minors, ALLOW, DENY),
        ClosedMinors::AllBut(minors) => (minors, DENY, ALLOW),
    };
    let others = answer(others);
    let count = listed.len();
    let tests = listed.iter().enumerate().map(|(place, minor)| {
        let over = jump(count - place - 1 + others.len());
        Instruction::new(JUMP_IF_EQUAL, MINOR, 0, over, minor.cast_signed())
    });
    // The kernel rejects a program with unreachable instructions.
    let of_listed = Some(answer(of_listed)).filter(|_| count > 0);
    tests
        .chain(others)
        .chain(of_listed.into_iter().flatten())
        .collect()
}

fn jump(instructions: usize) -> i16 {
    i16::try_from(instructions)
        .expect("a fence names at most MAX_NAMED_DEVICES, and a few of its own")
}

#[cfg(test)]
pub(super) mod machine {
    //! An interpreter of the instructions that the program uses, written independently of the assembler.

    use super::*;

    /// Whether every instruction is reachable; the kernel rejects a program otherwise.
    pub(crate) fn is_all_reachable(program: &[Instruction]) -> bool {
        let mut reached = vec![false; program.len()];
        reached[0] = true;
        // Jumps go forward only, so one pass is enough.
        for (at, instruction) in program.iter().enumerate() {
            if !reached[at] {
                return false;
            }
            if instruction.code == EXIT {
                continue;
            }
            reached[at + 1] = true;
            if matches!(instruction.code, JUMP_IF_EQUAL | JUMP_IF_NOT_EQUAL) {
                reached[at + 1 + usize::try_from(instruction.offset).unwrap()] = true;
            }
        }
        true
    }

    /// Return value of the program for a context of device type, major and minor. Panics on what the kernel
    /// would reject.
    pub(crate) fn run(program: &[Instruction], kind: u32, major: u32, minor: u32) -> bool {
        let context = [0x0006_0000 | kind, major, minor];
        let mut registers = [0u32; 11];
        let mut at = 0;
        for _ in 0..=program.len() {
            let instruction = program[at];
            let to = usize::from(instruction.registers & 0xf);
            let operand = instruction.operand.cast_unsigned();
            at += 1;
            let over = usize::try_from(instruction.offset);
            match instruction.code {
                0x61 => registers[to] = context[over.unwrap() / 4],
                0x54 => registers[to] &= operand,
                0xb4 => registers[to] = operand,
                0x16 if registers[to] == operand => at += over.unwrap(),
                0x56 if registers[to] != operand => at += over.unwrap(),
                0x16 | 0x56 => {}
                0x95 => return registers[0] == 1,
                other => panic!("no such instruction: {other:#x}"),
            }
        }
        panic!("it does not end");
    }
}
