//! Where processes live: [`Slab`], which makes slots on demand (§5). A slot, once made, stays where
//! it is and is a process or waits to be one again until the system ends; so a reference to it is
//! never wild, only perhaps to another tenant.

use std::sync::OnceLock;

use super::proc::{Proc, ProcState};

const CHUNK: usize = 256;
const CHUNKS: usize = 1 << 14;

/// All slots, by number.
pub(super) struct Slab {
    chunks: Box<[OnceLock<Box<[Proc]>>]>,
    /// What an empty slot holds.
    blank: Box<dyn Fn() -> ProcState + Send + Sync>,
}

impl Slab {
    pub(super) fn new(blank: impl Fn() -> ProcState + Send + Sync + 'static) -> Self {
        let chunks = std::iter::repeat_with(OnceLock::new).take(CHUNKS).collect();
        Self { chunks, blank: Box::new(blank) }
    }

    /// The slot with this number, made with its neighbours when it is first asked for.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Proc {
        let (chunk, at) = (slot as usize / CHUNK, slot as usize % CHUNK);
        match self.chunks[chunk].get() {
            Some(made) => &made[at],
            None => &self.make(chunk)[at],
        }
    }

    #[cold]
    fn make(&self, chunk: usize) -> &[Proc] {
        let first = (chunk * CHUNK) as u32;
        let slots = first..first + CHUNK as u32;
        let make = || slots.map(|slot| Proc::new(slot, (self.blank)())).collect();
        self.chunks[chunk].get_or_init(make)
    }

    /// All slots that were made, of a slab that nobody else can know of.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Proc> {
        self.chunks.iter_mut().map_while(OnceLock::get_mut).flatten()
    }

    /// All slots that were made.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Proc> {
        self.chunks.iter().map_while(OnceLock::get).flatten()
    }
}
