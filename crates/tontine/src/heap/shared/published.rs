//! Blocks that others may read while they are somebody's: [`Published`], [`Heap::read`].
//!
//! Who reads copies by atomic words, and looks at the truth word before and behind: what it gets is
//! what the block held, of one generation. Who writes stores whole words. A larger change is a new
//! block, and one word that leads to it; the old one is withdrawn, and readers that still had its
//! handle are told so.

#![allow(unsafe_code, reason = "words of a block are shared atomics")]

use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::ops::Range;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use super::block::{Block, Handle};
use super::core::Core;
use super::layout::{GRANULE, GRANULES, MEMBERS};
use super::local;
use super::recover::Whole;
use super::word::{MemberState, MemberWord, State, Truth, truth};
use super::{Heap, canary};
use crate::heap::{HeapError, Result};
use crate::sync::{AtomicU64, Ordering, fence};

/// How often, and how far apart, one looks whether whoever has a role lives.
const LOOKS: usize = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A block that every member may read, by its handle. Dropped, it is free, and the handle stale.
#[derive(Debug)]
pub struct Published<'heap> {
    core: &'heap Core,
    granule: usize,
    generation: u64,
    len: usize,
}

impl<'heap> Block<'heap> {
    /// Lets every member read the block, and nobody change it but by [`Published::store`].
    ///
    /// # Errors
    /// With the block: [`HeapError::Overrun`], [`HeapError::Forked`].
    pub fn publish(self) -> Result<Published<'heap>, (HeapError, Self)> {
        let (core, granule, len) = (self.core(), self.granule(), self.bytes());
        if core.space.is_forked() {
            return Err((HeapError::Forked, self));
        }
        if let Err(error) = self.check_canary() {
            return Err((error, self));
        }
        let _ = ManuallyDrop::new(self);
        let word = core.space.word(granule);
        let generation = truth::publish(word, core.slot(), truth::generation(word));
        Ok(Published { core, granule, generation, len })
    }
}

impl<'heap> Published<'heap> {
    /// What others read it by.
    pub fn handle(&self) -> Handle {
        let offset = self.core.space.geometry().block(self.granule) as u64;
        Handle { offset, generation: self.generation }
    }

    /// How many whole words of eight bytes it has.
    pub fn words(&self) -> usize {
        self.len / size_of::<u64>()
    }

    /// The word at this place.
    ///
    /// # Panics
    /// There is no such word, or this is a forked child.
    pub fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Changes one word: readers see the old one or the new one, and with the new one all that was
    /// written before.
    ///
    /// # Panics
    /// There is no such word, or this is a forked child.
    pub fn store(&self, at: usize, word: u64) {
        // SYNC published: pairs with the loads in `Heap::load` and `Published::load`.
        self.word(at).store(word, Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words(), "word {at} of a block of {} words", self.words());
        assert!(!self.core.space.is_forked(), "{}", HeapError::Forked);
        // SAFETY: within the block, which is this process's; aligned; shared by atomics only.
        unsafe { self.core.word_of(self.granule, at) }
    }

    /// Takes the block back from its readers: the handle is stale from now on. One that reads just
    /// now throws away what it has read.
    ///
    /// # Panics
    /// In a forked child.
    pub fn withdraw(self) -> Block<'heap> {
        assert!(!self.core.space.is_forked(), "{}", HeapError::Forked);
        let this = ManuallyDrop::new(self);
        let word = this.core.space.word(this.granule);
        truth::withdraw(word, this.core.slot(), this.generation);
        Block::new(this.core, this.granule, this.len)
    }
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        if !self.core.space.is_forked() {
            // Readers first: whoever gets it next writes into it.
            let word = self.core.space.word(self.granule);
            truth::withdraw(word, self.core.slot(), self.generation);
            self.core.free(self.granule);
        }
    }
}

impl Heap {
    /// Copies a published block's first bytes, at most as many as `into` has; how many.
    ///
    /// What is copied is what the block held while its handle was good. Words that are stored
    /// meanwhile are old or new, each for itself.
    ///
    /// # Errors
    /// [`HeapError::Stale`]: it is not published any more. [`HeapError::InvalidHandle`]: no block begins there,
    /// or none any more, for its slab has been given back.
    /// [`HeapError::Forked`].
    pub fn read(&self, handle: Handle, into: &mut [u8]) -> Result<usize> {
        let (granule, len) = self.published(handle)?;
        let len = len.min(into.len());
        // SAFETY: within the block, as `published` has it.
        unsafe { self.core.copy(granule, &mut into[..len]) };
        self.still_published(handle, granule, 0..len)?;
        Ok(len)
    }

    /// One word of a published block; with it all is seen that was written before it was stored.
    ///
    /// # Errors
    /// As [`Heap::read`].
    ///
    /// # Panics
    /// The block has no such word.
    pub fn load(&self, handle: Handle, at: usize) -> Result<u64> {
        let (granule, len) = self.published(handle)?;
        assert!(at < len / size_of::<u64>(), "word {at} of a block of {len} bytes");
        // SAFETY: within the block, as `published` has it; aligned; atomics only.
        // SYNC published: pairs with the store in `Published::store`.
        let word = unsafe { self.core.word_of(granule, at) }.load(Ordering::Acquire);
        self.still_published(handle, granule, at * size_of::<u64>()..(at + 1) * size_of::<u64>())?;
        Ok(word)
    }

    fn published(&self, handle: Handle) -> Result<(usize, usize)> {
        self.here()?;
        let (granule, len) = self.core.find(handle.offset)?;
        self.core.expect_published(handle, granule)?;
        Ok((granule, len))
    }

    /// Of these bytes of the block, which have just been read.
    fn still_published(&self, handle: Handle, granule: usize, bytes: Range<usize>) -> Result<()> {
        // SYNC withdrawn: pairs with the fence in `truth::withdraw`, and with the exchanges and
        // stores by which a block gets to somebody who writes into it.
        fence(Ordering::Acquire);
        let found = self.core.expect_published(handle, granule);
        if found.is_err() {
            let slab = |byte: usize| (granule + byte / GRANULE) / GRANULES;
            (slab(bytes.start)..=slab(bytes.end.max(1) - 1))
                .for_each(|slab| self.punch_again(slab));
        }
        found
    }

    /// Where a block was read when it was not there any more, its slab's memory may have been given
    /// back already: the kernel fetches new memory for whoever reads. It is given back once more.
    fn punch_again(&self, slab: usize) {
        if slab >= self.core.space.geometry().slabs() {
            return;
        }
        // Of one that is being given back, it is not known whether we came first.
        for _ in 0..LOOKS {
            if !self.core.is_punching(slab) {
                break;
            }
            yield_now();
        }
        if self.core.is_empty(slab) {
            // Without an arena, or a hole, it stays until the slab is used.
            let _ = local::with(&self.core, |arena| self.core.empty_again(arena.index(), slab));
        }
    }

    /// Names a published block as the one from which all others are found, or none. One member at a
    /// time does so: whoever has the role of writing it.
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn set_root(&self, root: Option<Handle>) -> Result<()> {
        self.here()?;
        let header = self.core.space.header();
        let handle = root.unwrap_or(Handle { offset: 0, generation: 0 });
        let next = header.roots.load(Ordering::Relaxed).wrapping_add(1);
        // The entry that is not in use: whoever dies over it has changed nothing.
        let entry = &header.root[next as usize % 2];
        entry[0].store(handle.offset, Ordering::Relaxed);
        entry[1].store(handle.generation, Ordering::Relaxed);
        // SYNC root: pairs with the loads in `root`.
        header.roots.store(next, Ordering::Release);
        Ok(())
    }

    /// The block that was named last.
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn root(&self) -> Result<Option<Handle>> {
        self.here()?;
        let header = self.core.space.header();
        loop {
            // SYNC root: pairs with the store in `set_root`.
            let before = header.roots.load(Ordering::Acquire);
            let [offset, generation] =
                [0, 1].map(|at| header.root[before as usize % 2][at].load(Ordering::Acquire));
            // The next one is written into the other entry; once it is named, another into this.
            if header.roots.load(Ordering::Relaxed) == before {
                return Ok((offset != 0).then_some(Handle { offset, generation }));
            }
        }
    }

    /// From now on this process's published blocks outlive it, for whoever takes this role next.
    ///
    /// Takes over, by their handles, what a member that had the role and has ended had published:
    /// readers notice nothing. If this process dies over it, the next one gets the rest, and what
    /// this one has taken.
    ///
    /// # Errors
    /// [`HeapError::RoleTaken`]: a living member has it. [`HeapError::System`], [`HeapError::Forked`].
    pub fn take_over_role(&self, role: NonZeroU32) -> Result<Vec<Published<'_>>> {
        self.here()?;
        self.core.take_over_role(role)
    }
}

impl Core {
    /// A word of a block.
    ///
    /// # Safety
    /// It lies within the block.
    unsafe fn word_of(&self, granule: usize, at: usize) -> &AtomicU64 {
        // SAFETY: the caller's promise; blocks are aligned to 64.
        unsafe { self.space.block(granule).cast::<AtomicU64>().add(at).as_ref() }
    }

    /// Copies a block's first bytes.
    ///
    /// # Safety
    /// They lie within the block.
    unsafe fn copy(&self, granule: usize, into: &mut [u8]) {
        for (at, bytes) in into.chunks_mut(size_of::<u64>()).enumerate() {
            // SAFETY: the caller's promise; aligned; atomics only.
            let word = unsafe { self.word_of(granule, at) }.load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]);
        }
    }

    fn expect_published(&self, handle: Handle, granule: usize) -> Result<()> {
        // SYNC truth: pairs with the store in `publish`.
        let found = Truth(self.space.word(granule).load(Ordering::Acquire));
        if found.state() == State::Published && found.generation() == handle.generation {
            return Ok(());
        }
        Err(self.stale(handle.offset, handle.generation, found))
    }

    fn take_over_role(&self, role: NonZeroU32) -> Result<Vec<Published<'_>>> {
        let mut looks = 0;
        loop {
            let desk = self.desk();
            // One at a time: of two that find nobody in a role, both would take it.
            let answer = match self.space.try_lock_roles()? {
                true => {
                    let answer = self.succeed_alone(role);
                    self.space.unlock_roles()?;
                    answer
                }
                false => Err(HeapError::RoleTaken { role, pid: 0 }),
            };
            match answer {
                // Somebody who looks after the dead has their locks for a moment, too.
                Err(HeapError::RoleTaken { .. }) if looks < LOOKS => looks += 1,
                answer => return answer,
            }
            drop(desk);
            sleep(BETWEEN_LOOKS);
        }
    }

    fn succeed_alone(&self, role: NonZeroU32) -> Result<Vec<Published<'_>>> {
        let dead = self.dead_in_role(role)?;
        // First: whoever dies from here on leaves what it has taken to the next one.
        // SYNC role: pairs with the load in `Core::take_blocks`.
        self.space.member(self.slot()).role.store(role.get().into(), Ordering::Release);
        let taken = self.take_published(&dead);
        for slot in dead {
            self.space.member(slot).role.store(0, Ordering::Relaxed);
            // What cannot be done now is left to whoever looks after the dead: what was taken is
            // this process's.
            let _ = self.recover(slot, None, Whole::GivenBack);
            let _ = self.space.unlock_member(slot);
        }
        Ok(taken)
    }

    /// Members that had the role: this process has acquired their record locks.
    fn dead_in_role(&self, role: NonZeroU32) -> Result<Vec<usize>> {
        let mut dead = Vec::new();
        for slot in (0..MEMBERS).filter(|slot| *slot != self.slot()) {
            let found = self.space.member(slot).role.load(Ordering::Relaxed);
            if found != u64::from(role.get()) || self.is_free_slot(slot) {
                continue;
            }
            match self.space.try_lock_member(slot) {
                Ok(true) => dead.push(slot),
                refused => {
                    dead.into_iter().try_for_each(|slot| self.space.unlock_member(slot))?;
                    refused?;
                    return Err(HeapError::RoleTaken { role, pid: self.pid_of(slot) });
                }
            }
        }
        Ok(dead)
    }

    /// What these members have published becomes this process's.
    fn take_published(&self, dead: &[usize]) -> Vec<Published<'_>> {
        let mut taken = Vec::new();
        for (granule, class) in self.all_blocks() {
            let word = self.space.word(granule);
            let found = Truth(word.load(Ordering::Relaxed));
            if found.state() != State::Published || !dead.contains(&found.holder()) {
                continue;
            }
            let generation = found.generation();
            let ours = Truth::published(self.slot(), generation);
            // SYNC truth: pairs with the store in `publish`.
            let exchanged =
                word.compare_exchange(found.0, ours.0, Ordering::AcqRel, Ordering::Relaxed);
            if exchanged.is_ok() {
                let most = class.bytes() - self.behind();
                let len = if self.canaries { canary::len(self, granule) } else { most };
                taken.push(Published { core: self, granule, generation, len });
            }
        }
        taken
    }

    fn is_free_slot(&self, slot: usize) -> bool {
        // SYNC member: pairs with the stores of its holder, and of who recovers it.
        let word = self.space.member(slot).word.load(Ordering::Acquire);
        MemberWord(word).state() == MemberState::Free
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, heap, sound};
    use super::super::{Heap, layout::SLAB};
    use super::*;

    /// A reader that came from its first look to the bytes when the block's slab had been given
    /// back had the kernel fetch its pages anew, which then were nobody's.
    #[test]
    fn a_late_reader_leaves_no_memory() {
        for len in [64, 30_000, 3 * SLAB] {
            let heap = heap(MIB);
            let published = heap.alloc(len).expect("room").publish().expect("sound");
            let handle = published.handle();
            let late = |read: &dyn Fn(&Heap, usize)| {
                let (granule, _) = heap.published(handle).expect("it is published");
                drop(published);
                heap.recover_and_trim().expect("all is given back");
                assert_eq!(sound(&heap).committed(), 0);
                read(&heap, granule);
                let error = heap.still_published(handle, granule, 0..len).expect_err("stale");
                assert!(matches!(error, HeapError::Stale { .. }), "{error}");
            };
            late(&|heap, granule| {
                let mut bytes = vec![1; len];
                // SAFETY: within the mapping, where the block was.
                unsafe { heap.core.copy(granule, &mut bytes) };
                assert!(bytes.iter().all(|byte| *byte == 0), "a hole");
            });
            assert_eq!(sound(&heap).committed(), 0);
            let slabs = 0..heap.core.space.geometry().slabs();
            assert!(slabs.filter_map(|slab| heap.core.space.backed(slab)).all(|bytes| bytes == 0));
        }
    }
}
