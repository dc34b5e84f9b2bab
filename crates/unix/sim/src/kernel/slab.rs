//! The slots of processes: [`SlotTable`], which creates slots on demand (§5). Once created, a slot
//! keeps its address and holds processes until the system ends. A reference to a slot is therefore
//! always valid, but the process in it may change.

use std::sync::OnceLock;

use super::proc::{Proc, ProcState};

/// Base-2 logarithm of the number of slots that are created together. The number is small in a
/// system that can have only a few processes.
const CHUNK: u32 = 8;
const SMALL_CHUNK: u32 = 2;
/// The highest process number of a small system.
const SMALL: usize = 1 << 10;

/// All slots, by number.
pub(super) struct SlotTable {
    chunks: Box<[OnceLock<Box<[Proc]>>]>,
    /// Base-2 logarithm of the number of slots in a chunk.
    chunk: u32,
    /// Creates the state of an empty slot.
    blank: Box<dyn Fn() -> ProcState + Send + Sync>,
}

impl SlotTable {
    /// Creates a table for at most as many concurrent processes as there are numbers.
    pub(super) fn new(
        numbers: usize,
        blank: impl Fn() -> ProcState + Send + Sync + 'static,
    ) -> Self {
        let chunk = if numbers <= SMALL { SMALL_CHUNK } else { CHUNK };
        let chunks = numbers.div_ceil(1 << chunk);
        let chunks = std::iter::repeat_with(OnceLock::new).take(chunks).collect();
        Self { chunks, chunk, blank: Box::new(blank) }
    }

    /// Returns the slot with this number. It is created, with its neighbours, on first use.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Proc {
        let (chunk, at) = (slot as usize >> self.chunk, slot as usize & ((1 << self.chunk) - 1));
        match self.chunks[chunk].get() {
            Some(made) => &made[at],
            None => &self.make(chunk)[at],
        }
    }

    #[cold]
    fn make(&self, chunk: usize) -> &[Proc] {
        let first = (chunk << self.chunk) as u32;
        let slots = first..first + (1 << self.chunk);
        let make = || slots.map(|slot| Proc::new(slot, (self.blank)())).collect();
        self.chunks[chunk].get_or_init(make)
    }

    /// Returns all slots that were created, of a table that no other thread can access.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Proc> {
        self.chunks.iter_mut().map_while(OnceLock::get_mut).flatten()
    }

    /// Returns all slots that were created.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Proc> {
        self.chunks.iter().map_while(OnceLock::get).flatten()
    }
}
