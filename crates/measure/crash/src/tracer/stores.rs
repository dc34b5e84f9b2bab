//! Instructions that may store into shared memory: [`store_of`].
//!
//! Most instructions store nothing there, so the walk need not read the shared memory after them.
//! An unknown instruction counts as a store to any address.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register, UsedMemory};

use super::registers::Registers;

/// Maximum length of an instruction in bytes.
pub(super) const LONGEST: usize = 15;

/// Maximum number of bytes that one instruction stores at an address.
pub(super) const WIDEST: u64 = 64;

/// Target of an instruction's store, to the extent that its bytes determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreOperand {
    /// No memory.
    Nowhere,
    /// This address.
    At(Operand),
    /// Any address.
    Anywhere,
}

/// An address that is computed from registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operand {
    base: Option<usize>,
    index: Option<(usize, u64)>,
    displacement: u64,
}

impl Operand {
    /// Returns the operand, if general registers determine its address. A step of a repeated string
    /// instruction stores one element, although the instruction has no size.
    fn of(memory: &UsedMemory, is_string: bool) -> Option<Self> {
        // The bases of these segments are not among the general registers.
        let is_flat = !matches!(memory.segment(), Register::FS | Register::GS);
        let is_narrow = (1..=WIDEST as usize).contains(&memory.memory_size().size()) || is_string;
        let number = |register: Register| match register {
            Register::None => Some(None),
            _ => register.is_gpr64().then(|| Some(register.number())),
        };
        let (base, index) = (number(memory.base())?, number(memory.index())?);
        let index = index.map(|number| (number, u64::from(memory.scale())));
        let displacement = memory.displacement();
        (is_flat && is_narrow).then_some(Self { base, index, displacement })
    }

    /// Returns the address, computed from the registers before the instruction.
    pub(super) fn address(self, registers: &Registers) -> u64 {
        let base = self.base.map_or(0, |number| registers.general[number]);
        let index =
            self.index.map_or(0, |(number, scale)| registers.general[number].wrapping_mul(scale));
        base.wrapping_add(index).wrapping_add(self.displacement)
    }
}

/// Returns the target of the store of the instruction that begins with these bytes at `address`.
pub(super) fn store_of(code: &[u8], address: u64) -> StoreOperand {
    let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return StoreOperand::Anywhere;
    }
    let mut factory = InstructionInfoFactory::new();
    let is_store = |memory: &&UsedMemory| {
        use OpAccess::{CondRead, NoMemAccess, None, Read};
        !matches!(memory.access(), CondRead | NoMemAccess | None | Read)
    };
    let mut stores = factory.info(&instruction).used_memory().iter().filter(is_store);
    match (stores.next(), stores.next()) {
        (None, _) => StoreOperand::Nowhere,
        (Some(memory), None) => Operand::of(memory, instruction.is_string_instruction())
            .map_or(StoreOperand::Anywhere, StoreOperand::At),
        (Some(_), Some(_)) => StoreOperand::Anywhere,
    }
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
            (&[0xF3, 0x0F, 0x6F, 0x07], "movdqu xmm0, [rdi]"),
            (&[0x0F, 0xAE, 0xF8], "sfence"),
        ] {
            assert_eq!(store_of(code, 0), StoreOperand::Nowhere, "{what}");
        }
        for (code, what) in [
            (&[0x64, 0x48, 0x89, 0x07][..], "mov fs:[rdi], rax"),
            (&[0x0F, 0xAE, 0x07], "fxsave [rdi]"),
            (&[0x48], "cut off"),
            (&[], "nothing"),
        ] {
            assert_eq!(store_of(code, 0), StoreOperand::Anywhere, "{what}");
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
            (&[0x41, 0x57], 0x4FF8, "push r15"),
            (&[0xC5, 0xFE, 0x7F, 0x07], 0x8000, "vmovdqu [rdi], ymm0"),
            (&[0x66, 0x0F, 0xE7, 0x47, 0x10], 0x8010, "movntdq [rdi+16], xmm0"),
            (&[0x48, 0x0F, 0xC3, 0x07], 0x8000, "movnti [rdi], rax"),
            (&[0x48, 0x89, 0x05, 1, 0, 0, 0], 0x70_0008, "mov [rip+1], rax"),
            (&[0x89, 0x04, 0xCD, 0x10, 0, 0, 0], 0x1_0010, "mov [rcx*8+16], eax"),
        ] {
            let StoreOperand::At(place) = store_of(code, 0x70_0000) else { panic!("{what}") };
            assert_eq!(place.address(&registers), at, "{what}");
        }
    }
}
