//! Instructions that may store into shared memory: [`store_of`].
//!
//! Most instructions store nothing there, so the walk need not read the shared memory after them.
//! An unknown instruction counts as a store to any address. Stacks are assumed to be private.

use super::registers::Registers;

/// Maximum length of an instruction in bytes.
pub(super) const LONGEST: usize = 15;

/// Target of an instruction's store, to the extent that its bytes determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreOperand {
    /// No memory, or only the stack.
    Nowhere,
    /// This address.
    At(Operand),
    /// Any address.
    Anywhere,
}

/// An address that is computed from registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operand {
    base: Option<u8>,
    index: Option<(u8, u8)>,
    displacement: i32,
}

impl Operand {
    /// Returns the address, computed from the registers before the instruction.
    pub(super) fn address(self, registers: &Registers) -> u64 {
        let of = |number: u8| registers.general[usize::from(number)];
        let base = self.base.map_or(0, of);
        let index = self.index.map_or(0, |(number, shift)| of(number) << shift);
        base.wrapping_add(index).wrapping_add_signed(self.displacement.into())
    }
}

/// Returns the target of the store of the instruction that begins with these bytes.
pub(super) fn store_of(code: &[u8]) -> StoreOperand {
    read(code).unwrap_or(StoreOperand::Anywhere)
}

/// Decodes an instruction; `None` if it is unknown.
fn read(code: &[u8]) -> Option<StoreOperand> {
    let mut bytes = code.iter().copied();
    let mut byte = bytes.next()?;
    // Operand size, repetition and lock prefixes; segment prefixes are not decoded.
    while matches!(byte, 0x66 | 0xF2 | 0xF3 | 0xF0) {
        byte = bytes.next()?;
    }
    let mut rex = 0;
    if byte & 0xF0 == 0x40 {
        rex = byte;
        byte = bytes.next()?;
    }
    let two = byte == 0x0F;
    let opcode = if two { bytes.next()? } else { byte };
    let operand = |mut bytes: &mut dyn Iterator<Item = u8>| operand(rex, &mut bytes);
    let kind = if two { of_two(opcode) } else { of_one(opcode) };
    match kind {
        OperandKind::Reads => Some(StoreOperand::Nowhere),
        OperandKind::Stores => operand(&mut bytes),
        OperandKind::StoresBut(reading) => {
            let rest: Vec<u8> = bytes.collect();
            let extension = (rest.first()? >> 3) & 7;
            if reading & (1 << extension) != 0 {
                return Some(StoreOperand::Nowhere);
            }
            operand(&mut rest.into_iter())
        }
        OperandKind::String => Some(StoreOperand::At(Operand {
            base: Some(DESTINATION),
            index: None,
            displacement: 0,
        })),
        OperandKind::Unknown => None,
    }
}

/// rdi, the address at which string moves and fills store, one element per step.
const DESTINATION: u8 = 7;

/// Effect of an opcode on its operand in memory.
enum OperandKind {
    Reads,
    Stores,
    /// Stores, except with these opcode extensions, one bit each.
    StoresBut(u8),
    /// Stores at an address that is not in the operand.
    String,
    Unknown,
}

fn of_one(opcode: u8) -> OperandKind {
    match opcode {
        // Arithmetic to memory, to a register, or with a constant; comparisons store nothing.
        0x38..=0x3D => OperandKind::Reads,
        0x00..=0x3D if opcode & 7 < 2 => OperandKind::Stores,
        0x00..=0x3D if opcode & 7 < 6 => OperandKind::Reads,
        0x80 | 0x81 | 0x83 => OperandKind::StoresBut(1 << 7),
        0x86..=0x89 | 0xC0 | 0xC1 | 0xD0..=0xD3 | 0xC6 | 0xC7 => OperandKind::Stores,
        // test, multiplications and divisions into registers only read; not and neg store.
        0xF6 | 0xF7 => OperandKind::StoresBut(!0b1100),
        // Calls, jumps and pushes only read; inc and dec store.
        0xFE | 0xFF => OperandKind::StoresBut(!0b11),
        0xA4 | 0xA5 | 0xAA | 0xAB => OperandKind::String,
        // Stack, sign extension, multiplication, conditional jumps.
        0x50..=0x5F | 0x63 | 0x68..=0x6B | 0x70..=0x7F => OperandKind::Reads,
        // test, moves to registers, lea, exchanges of registers, sign extension.
        0x84 | 0x85 | 0x8A | 0x8B | 0x8D | 0x90..=0x99 | 0xA8 | 0xA9 | 0xB0..=0xBF => {
            OperandKind::Reads
        }
        // Returns, leave, loops, calls and jumps.
        0xC2 | 0xC3 | 0xC9 | 0xE0..=0xE3 | 0xE8 | 0xE9 | 0xEB => OperandKind::Reads,
        _ => OperandKind::Unknown,
    }
}

fn of_two(opcode: u8) -> OperandKind {
    match opcode {
        // Hints, conditional moves and jumps, multiplication, extensions, bits.
        0x18 | 0x1E | 0x1F | 0x40..=0x4F | 0x80..=0x8F | 0xA3 | 0xAF => OperandKind::Reads,
        0xB6..=0xB8 | 0xBC..=0xBF | 0xC8..=0xCF => OperandKind::Reads,
        // Loads of vectors, and operations on them.
        0x10 | 0x12 | 0x14 | 0x15 | 0x16 | 0x28 | 0x2E | 0x2F | 0x51..=0x76 => OperandKind::Reads,
        0x90..=0x9F | 0x11 | 0x13 | 0x17 | 0x29 | 0x2B | 0x7E | 0x7F | 0xD6 | 0xE7 => {
            OperandKind::Stores
        }
        0xA4 | 0xA5 | 0xAB | 0xB0 | 0xB1 | 0xB3 | 0xBB | 0xC0 | 0xC1 => OperandKind::Stores,
        _ => OperandKind::Unknown,
    }
}

/// Decodes ModRM and SIB; a register operand stores nothing in memory.
fn operand(rex: u8, bytes: &mut dyn Iterator<Item = u8>) -> Option<StoreOperand> {
    let extended = |bit: u8, low: u8| low | if rex & bit != 0 { 8 } else { 0 };
    let modrm = bytes.next()?;
    let (mode, low) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(StoreOperand::Nowhere);
    }
    let (mut base, mut index) = (Some(extended(1, low)), None);
    let mut wide = mode == 2;
    if low == 4 {
        let sib = bytes.next()?;
        let number = extended(2, (sib >> 3) & 7);
        index = (number != 4).then_some((number, sib >> 6));
        base = Some(extended(1, sib & 7));
        if mode == 0 && sib & 7 == 5 {
            (base, wide) = (None, true);
        }
    } else if mode == 0 && low == 5 {
        // The operand is relative to the next instruction, whose address is unknown here.
        return None;
    }
    let mut byte = || bytes.next();
    let displacement = if wide {
        i32::from_le_bytes([byte()?, byte()?, byte()?, byte()?])
    } else if mode == 1 {
        i32::from(byte()?.cast_signed())
    } else {
        0
    };
    Some(StoreOperand::At(Operand { base, index, displacement }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_of_distinguishes_stores_from_reads() {
        for (code, what) in [
            (&[0x48, 0x8B, 0x07][..], "mov rax, [rdi]"),
            (&[0x48, 0x39, 0x07], "cmp [rdi], rax"),
            (&[0x80, 0x3F, 0x01], "cmp byte [rdi], 1"),
            (&[0xF6, 0x07, 0x01], "test byte [rdi], 1"),
            (&[0x89, 0xC7], "mov edi, eax"),
            (&[0x0F, 0x84, 0, 0, 0, 0], "je"),
            (&[0xFF, 0xD0], "call rax"),
            (&[0x41, 0x57], "push r15"),
            (&[0xF3, 0x0F, 0x6F, 0x07], "movdqu xmm0, [rdi]"),
        ] {
            assert_eq!(store_of(code), StoreOperand::Nowhere, "{what}");
        }
        for (code, what) in [
            (&[0xC5, 0xFE, 0x7F, 0x07][..], "vmovdqu [rdi], ymm0"),
            (&[0x64, 0x48, 0x89, 0x07], "mov fs:[rdi], rax"),
            (&[0x48, 0x89, 0x05, 0, 0, 0, 0], "mov [rip], rax"),
            (&[0x48], "cut off"),
            (&[], "nothing"),
        ] {
            assert_eq!(store_of(code), StoreOperand::Anywhere, "{what}");
        }
    }

    #[test]
    fn store_address_is_computed_from_registers() {
        let mut registers = Registers::default();
        for (register, number) in registers.general.iter_mut().zip(1..) {
            *register = number * 0x1000;
        }
        for (code, at, what) in [
            (&[0x48, 0x89, 0x07][..], 0x8000, "mov [rdi], rax"),
            (&[0xF0, 0x4D, 0x0F, 0xB1, 0x4E, 0x08], 0xF008, "lock cmpxchg [r14+8], r9"),
            (&[0x48, 0x87, 0x44, 0xD1, 0xF8], 0x1_9FF8, "xchg [rcx+rdx*8-8], rax"),
            (&[0xC6, 0x04, 0x24, 0x00], 0x5000, "mov byte [rsp], 0"),
            (&[0x41, 0xFF, 0x84, 0x24, 0, 1, 0, 0], 0xD100, "inc dword [r12+256]"),
            (&[0xF3, 0x48, 0xA5], 0x8000, "rep movsq"),
            (&[0x0F, 0x94, 0x03], 0x4000, "sete [rbx]"),
            (&[0x89, 0x04, 0xCD, 0x10, 0, 0, 0], 0x1_0010, "mov [rcx*8+16], eax"),
        ] {
            let StoreOperand::At(place) = store_of(code) else { panic!("{what}") };
            assert_eq!(place.address(&registers), at, "{what}");
        }
    }
}
