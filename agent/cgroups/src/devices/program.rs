//! A [`DeviceFilter`] as a program for the kernel's machine, which runs it at each `open` and `mknod` of a device: an assembler
//! of the seven instructions that this takes. Pure; `bpf` hands the bytes over.
//!
//! The program, for each major that the fence names:
//!
//! ```text
//!   if the device is no character device: allow
//!   if its major is not M: on to the next major
//!     if its minor is one of those listed: the contrary of
//!     deny (all but those listed are closed) or allow (only those listed are)
//!   allow
//! ```
//!
//! Registers, sizes and codes are those of the instruction set (RFC 9669); what the program is given is the kernel's
//! `struct bpf_cgroup_dev_ctx`. It calls nothing and never jumps back, so the kernel's verifier has nothing to doubt.

use super::{Closed, DeviceFilter};

/// Where the address of the context is when the program begins.
const CONTEXT: u8 = 1;
/// What the program answers in.
const ANSWER: u8 = 0;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// Offsets in `struct bpf_cgroup_dev_ctx`: the access in the upper half of a word and the kind in the lower, the numbers.
const CONTEXT_ACCESS: i16 = 0;
const CONTEXT_MAJOR: i16 = 4;
const CONTEXT_MINOR: i16 = 8;
/// The lower half: `BPF_DEVCG_DEV_CHAR` is 2 there, a block device 1.
const KIND_MASK: i32 = 0xffff;
const CHARACTER_DEVICE: i32 = 2;

/// The kernel lets the access happen, or answers EPERM.
const ALLOW: i32 = 1;
const DENY: i32 = 0;

/// Codes: class, size or operation, and source.
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x54;
const MOVE: u8 = 0xb4;
const JUMP_IF_EQUAL: u8 = 0x16;
const JUMP_IF_NOT_EQUAL: u8 = 0x56;
const EXIT: u8 = 0x95;

/// One instruction, as the kernel lays it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// The register written to in the lower half, the one read from in the upper.
    registers: u8,
    /// Of a load, in bytes; of a jump, in instructions, counted from the next one.
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

/// Ends with an answer.
const fn answer(value: i32) -> [Instruction; 2] {
    [
        Instruction::new(MOVE, ANSWER, 0, 0, value),
        Instruction::new(EXIT, 0, 0, 0, 0),
    ]
}

/// The whole program.
pub(super) fn assemble(fence: &DeviceFilter) -> Vec<Instruction> {
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
    for (major, closed) in fence.majors() {
        let block = block(closed);
        let past = jump(block.len());
        // Jumps compare the lower halves of registers: the operand is the number's bits, whatever its sign.
        let major = major.cast_signed();
        program.push(Instruction::new(JUMP_IF_NOT_EQUAL, MAJOR, 0, past, major));
        program.extend(block);
    }
    program.extend(answer(ALLOW));
    program
}

/// What is answered of one major: the listed minors jump over the answer that all others get.
fn block(closed: &Closed) -> Vec<Instruction> {
    let (listed, others, of_listed) = match closed {
        Closed::Only(minors) => (minors, ALLOW, DENY),
        Closed::AllBut(minors) => (minors, DENY, ALLOW),
    };
    let others = answer(others);
    let count = listed.len();
    let tests = listed.iter().enumerate().map(|(place, minor)| {
        let over = jump(count - place - 1 + others.len());
        Instruction::new(JUMP_IF_EQUAL, MINOR, 0, over, minor.cast_signed())
    });
    // The kernel refuses a program with a part that nothing leads to.
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
    //! The machine, as far as the program uses it: an independent reading of the same bytes.

    use super::*;

    /// Whether something leads to every instruction; the kernel refuses a program of which that is not true.
    pub(crate) fn is_all_reachable(program: &[Instruction]) -> bool {
        let mut reached = vec![false; program.len()];
        reached[0] = true;
        // Jumps lead forward only, so one look in order is enough.
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

    /// What the program answers, for a context of kind, major and minor. Panics on what the kernel would refuse.
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
