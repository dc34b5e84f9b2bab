//! Blocks that all members may read while one holds them: [`Published`], [`Heap::read`].
//!
//! A reader copies the block with atomic loads, and loads the block word before and after the copy.
//! A copy therefore holds the contents of one generation only. The writer stores whole words. To
//! make a larger change, it publishes a new block, stores one word that refers to the new block,
//! and withdraws the old block. Readers that still have the old handle receive
//! [`HeapError::Stale`].

#![allow(unsafe_code, reason = "words of a block are shared atomics")]

use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::ops::Range;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use super::block::Block;
use super::core::Core;
use super::core::EmptySlabPolicy;
use super::handle::Handle;
use super::layout::{GRANULE, GRANULES, MEMBERS};
use super::local;
use super::word::{BlockState, BlockWord, MemberState, MemberWord, truth};
use super::{Heap, canary};
use crate::heap::{HeapError, Result};
use crate::sync::{AtomicU64, Ordering, fence};

/// Maximum number of checks whether the holder of a role is alive.
const LOOKS: usize = 200;
/// Interval between two of these checks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A block that all members may read by its handle, and that this process may change word by word.
///
/// [`Block::publish`] returns it. Dropping it frees the block, and its handle becomes stale.
///
/// # Examples
/// ```
/// use tontine::heap::HeapError;
/// use tontine::heap::shared::Heap;
///
/// let heap = Heap::create(1 << 20)?;
/// let mut block = heap.alloc(16)?;
/// block.fill(0);
/// let published = block.publish().map_err(|(error, _)| error)?;
/// heap.set_root(Some(published.handle()))?;
///
/// // In any member:
/// let handle = heap.root()?.expect("a block was published");
/// let mut bytes = [0xff; 16];
/// assert_eq!(heap.read(handle, &mut bytes)?, 16);
/// published.store(1, 7);
/// assert_eq!(heap.load(handle, 1)?, 7);
///
/// // In the writer again:
/// drop(published.withdraw());
/// assert!(matches!(heap.read(handle, &mut bytes), Err(HeapError::Stale { .. })));
/// # Ok::<(), HeapError>(())
/// ```
#[derive(Debug)]
pub struct Published<'heap> {
    core: &'heap Core,
    granule: usize,
    generation: u64,
    len: usize,
}

impl<'heap> Block<'heap> {
    /// Publishes the block. All members may then read it by its handle, and no process changes it
    /// except with [`Published::store`].
    ///
    /// # Errors
    /// Each error is returned with the block, which this process still holds.
    ///
    /// - [`HeapError::Overrun`] if the block was written beyond its end (heap with canaries).
    /// - [`HeapError::Forked`] in a forked child.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let published = heap.alloc_zeroed(64)?.publish().map_err(|(error, _)| error)?;
    /// assert_eq!(published.words(), 8);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
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
    /// Returns the handle by which members read the block, with [`Heap::read`] and [`Heap::load`].
    pub fn handle(&self) -> Handle {
        let offset = self.core.space.geometry().block(self.granule) as u64;
        Handle { offset, generation: self.generation }
    }

    /// Returns the number of whole 8-byte words in the block.
    pub fn words(&self) -> usize {
        self.len / size_of::<u64>()
    }

    /// Returns the 8-byte word with index `at`.
    ///
    /// # Panics
    /// Panics if `at` is not below [`Published::words`], or in a forked child.
    pub fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Stores the 8-byte word with index `at`. Readers load the old or the new word. A reader that
    /// loads the new word sees everything that this process stored before that word.
    ///
    /// # Panics
    /// Panics if `at` is not below [`Published::words`], or in a forked child.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let published = heap.alloc_zeroed(64)?.publish().map_err(|(error, _)| error)?;
    /// published.store(7, 42);
    /// assert_eq!(heap.load(published.handle(), 7)?, 42);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn store(&self, at: usize, word: u64) {
        // SYNC published: pairs with the loads in `Heap::load` and `Published::load`.
        self.word(at).store(word, Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words(), "word {at} of a block of {} words", self.words());
        assert!(!self.core.space.is_forked(), "{}", HeapError::Forked);
        // SAFETY: the word is within the block, which this process holds; it is aligned, and shared
        // only through atomics.
        unsafe { self.core.word_of(self.granule, at) }
    }

    /// Withdraws the block from its readers, and returns it. The handle becomes stale. A reader
    /// that is copying the block discards the copy.
    ///
    /// # Panics
    /// Panics in a forked child.
    ///
    /// # Examples
    /// ```
    /// # use tontine::heap::shared::Heap;
    /// let heap = Heap::create(1 << 20)?;
    /// let published = heap.alloc(64)?.publish().map_err(|(error, _)| error)?;
    /// let handle = published.handle();
    /// let mut block = published.withdraw();
    /// block.fill(1); // no member reads it any more
    /// assert!(heap.read(handle, &mut [0; 8]).is_err());
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
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
            // The block is withdrawn first, because the next holder writes into it.
            let word = self.core.space.word(self.granule);
            truth::withdraw(word, self.core.slot(), self.generation);
            self.core.free(self.granule);
        }
    }
}

impl Heap {
    /// Copies the first bytes of a published block into `into`. Returns the number of bytes copied,
    /// which is the smaller of the two lengths.
    ///
    /// Unless the heap has canaries, the block has the full length of its size class. The copy
    /// holds contents that the block had while the handle was valid. If the holder stores words
    /// during the copy, each word of the copy is the old or the new word.
    ///
    /// # Errors
    /// - [`HeapError::Stale`] if the block is no longer published.
    /// - [`HeapError::InvalidHandle`] if no block begins, or no longer begins, at the handle's
    ///   offset. The memory of its slab may have been returned.
    /// - [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let published = heap.alloc_zeroed(64)?.publish().map_err(|(error, _)| error)?;
    /// let mut bytes = [1; 64];
    /// assert_eq!(heap.read(published.handle(), &mut bytes)?, 64);
    /// assert_eq!(bytes, [0; 64]);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn read(&self, handle: Handle, into: &mut [u8]) -> Result<usize> {
        let (granule, len) = self.published(handle)?;
        let len = len.min(into.len());
        // SAFETY: the bytes are within the block, whose length `published` returned.
        unsafe { self.core.copy(granule, &mut into[..len]) };
        self.still_published(handle, granule, 0..len)?;
        Ok(len)
    }

    /// Returns the 8-byte word with index `at` of a published block. The caller then sees
    /// everything that the holder stored before that word. See [`Published`] for an example.
    ///
    /// # Errors
    /// [`HeapError::Stale`], [`HeapError::InvalidHandle`] and [`HeapError::Forked`], as for
    /// [`Heap::read`].
    ///
    /// # Panics
    /// Panics if the block has no word with that index.
    pub fn load(&self, handle: Handle, at: usize) -> Result<u64> {
        let (granule, len) = self.published(handle)?;
        assert!(at < len / size_of::<u64>(), "word {at} of a block of {len} bytes");
        // SAFETY: the word is within the length that `published` returned, aligned, and atomic.
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

    /// Returns an error if the block was not published throughout a read of these bytes.
    fn still_published(&self, handle: Handle, granule: usize, bytes: Range<usize>) -> Result<()> {
        // SYNC withdrawn: pairs with the fence in `truth::withdraw`, and with the exchanges and
        // stores by which a member that writes into the block obtains it.
        fence(Ordering::Acquire);
        let found = self.core.expect_published(handle, granule);
        if found.is_err() {
            let slab = |byte: usize| (granule + byte / GRANULE) / GRANULES;
            (slab(bytes.start)..=slab(bytes.end.max(1) - 1))
                .for_each(|slab| self.punch_again(slab));
        }
        found
    }

    /// Returns a slab's memory to the kernel once more, after a read of a block that no longer
    /// existed. If the slab's memory had been returned before the read, the kernel has allocated
    /// new pages for the reader.
    fn punch_again(&self, slab: usize) {
        if slab >= self.core.space.geometry().slabs() {
            return;
        }
        // While the memory is being returned, the order of the return and the read is unknown.
        for _ in 0..LOOKS {
            if !self.core.is_punching(slab) {
                break;
            }
            yield_now();
        }
        if self.core.is_empty(slab) {
            // If this thread cannot have an arena, or the call fails, the pages stay allocated
            // until the slab is used.
            let _ = local::with(&self.core, |arena| self.core.empty_again(arena.index(), slab));
        }
    }

    /// Sets the heap's root: the handle of the published block from which members find all others.
    /// `None` clears it.
    ///
    /// Only one member at a time may call this function. Use a role to ensure this: the member that
    /// holds the role sets the root ([`Heap::take_over_role`]).
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let table = heap.alloc_zeroed(64)?.publish().map_err(|(error, _)| error)?;
    /// heap.set_root(Some(table.handle()))?;
    /// assert_eq!(heap.root()?, Some(table.handle()));
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn set_root(&self, root: Option<Handle>) -> Result<()> {
        self.here()?;
        let header = self.core.space.header();
        let handle = root.unwrap_or(Handle { offset: 0, generation: 0 });
        let next = header.roots.load(Ordering::Relaxed).wrapping_add(1);
        // The other entry is not in use, so if the process is killed here, nothing has changed.
        let entry = &header.root[next as usize % 2];
        entry[0].store(handle.offset, Ordering::Relaxed);
        entry[1].store(handle.generation, Ordering::Relaxed);
        // SYNC root: pairs with the loads in `root`.
        header.roots.store(next, Ordering::Release);
        Ok(())
    }

    /// Returns the handle that the last [`Heap::set_root`] has set, or `None` if no root is set.
    /// The block may have been withdrawn since; the handle is then stale.
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    pub fn root(&self) -> Result<Option<Handle>> {
        self.here()?;
        let header = self.core.space.header();
        loop {
            // SYNC root: pairs with the store in `set_root`.
            let before = header.roots.load(Ordering::Acquire);
            let [offset, generation] =
                [0, 1].map(|at| header.root[before as usize % 2][at].load(Ordering::Acquire));
            // `set_root` writes the next root into the other entry, and only the root after that
            // into this entry. If `roots` has not changed, this entry therefore has not changed
            // either.
            if header.roots.load(Ordering::Relaxed) == before {
                return Ok((offset != 0).then_some(Handle { offset, generation }));
            }
        }
    }

    /// Takes a role, a number that the program has given to a task. If a member that had the role
    /// has ended, returns the blocks that it had published. Readers are not affected: their handles
    /// stay valid.
    ///
    /// After the call, the blocks that this process publishes outlive it, and pass to the next
    /// process that takes the role. If this process dies during the call, the next process receives
    /// the remaining blocks and the blocks that this process has taken.
    ///
    /// # Errors
    /// - [`HeapError::RoleTaken`] if a live member has the role. The call returns this error only
    ///   after 200 ms, because a member that recovers dead members holds their locks for a moment.
    /// - [`HeapError::System`] if a lock call fails.
    /// - [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// use std::num::NonZeroU32;
    /// use tontine::heap::shared::Heap;
    ///
    /// const WRITER: NonZeroU32 = NonZeroU32::new(1).unwrap();
    /// let heap = Heap::create(1 << 20)?;
    /// let inherited = heap.take_over_role(WRITER)?;
    /// assert!(inherited.is_empty()); // there was no writer before this process
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn take_over_role(&self, role: NonZeroU32) -> Result<Vec<Published<'_>>> {
        self.here()?;
        self.core.take_over_role(role)
    }
}

impl Core {
    /// Returns a word of a block.
    ///
    /// # Safety
    /// The word is within the block.
    unsafe fn word_of(&self, granule: usize, at: usize) -> &AtomicU64 {
        // SAFETY: the caller ensures that the word is within the block; blocks are aligned to 64.
        unsafe { self.space.block(granule).cast::<AtomicU64>().add(at).as_ref() }
    }

    /// Copies a block's first bytes.
    ///
    /// # Safety
    /// The block has at least as many bytes as `into`.
    unsafe fn copy(&self, granule: usize, into: &mut [u8]) {
        for (at, bytes) in into.chunks_mut(size_of::<u64>()).enumerate() {
            // SAFETY: the caller ensures that the word is within the block. The word is aligned and
            // accessed only through atomics.
            let word = unsafe { self.word_of(granule, at) }.load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]);
        }
    }

    fn expect_published(&self, handle: Handle, granule: usize) -> Result<()> {
        // SYNC truth: pairs with the store in `publish`.
        let found = BlockWord(self.space.word(granule).load(Ordering::Acquire));
        if found.state() == BlockState::Published && found.generation() == handle.generation {
            return Ok(());
        }
        Err(self.stale(handle.offset, handle.generation, found))
    }

    fn take_over_role(&self, role: NonZeroU32) -> Result<Vec<Published<'_>>> {
        let mut looks = 0;
        loop {
            let desk = self.desk();
            // Only one process at a time takes a role. Otherwise, two processes that both find the
            // role free would both take it.
            let answer = match self.space.try_lock_roles()? {
                true => {
                    let answer = self.succeed_alone(role);
                    self.space.unlock_roles()?;
                    answer
                }
                false => Err(HeapError::RoleTaken { role, pid: 0 }),
            };
            match answer {
                // A member that recovers dead members holds their locks for a moment too.
                Err(HeapError::RoleTaken { .. }) if looks < LOOKS => looks += 1,
                answer => return answer,
            }
            drop(desk);
            sleep(BETWEEN_LOOKS);
        }
    }

    fn succeed_alone(&self, role: NonZeroU32) -> Result<Vec<Published<'_>>> {
        let dead = self.dead_in_role(role)?;
        // The role is stored first. If this process dies later, the next process that takes the
        // role receives the blocks that this process has taken.
        // SYNC role: pairs with the load in `Core::take_blocks`.
        self.space.member(self.slot()).role.store(role.get().into(), Ordering::Release);
        let taken = self.take_published(&dead);
        for slot in dead {
            self.space.member(slot).role.store(0, Ordering::Relaxed);
            // If the recovery fails, another member recovers the slot later. This process holds the
            // blocks that it has taken.
            let _ = self.recover(slot, None, EmptySlabPolicy::GivenBack);
            let _ = self.space.unlock_member(slot);
        }
        Ok(taken)
    }

    /// Returns the slots of the dead members that had the role, after acquiring their record locks.
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

    /// Takes over the blocks that these members have published.
    fn take_published(&self, dead: &[usize]) -> Vec<Published<'_>> {
        let mut taken = Vec::new();
        for (granule, class) in self.all_blocks() {
            let word = self.space.word(granule);
            let found = BlockWord(word.load(Ordering::Relaxed));
            if found.state() != BlockState::Published || !dead.contains(&found.holder()) {
                continue;
            }
            let generation = found.generation();
            let ours = BlockWord::published(self.slot(), generation);
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
        // SYNC member: pairs with the stores by the slot's holder, and by its recoverer.
        let word = self.space.member(slot).word.load(Ordering::Acquire);
        MemberWord(word).state() == MemberState::Free
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, heap, sound};
    use super::super::{Heap, layout::SLAB};
    use super::*;

    /// Regression: a reader loaded the block word, and read the bytes after the slab's memory had
    /// been returned. The kernel allocated new pages, which then belonged to no slab.
    #[test]
    fn late_reader_leaves_no_memory_in_returned_slab() {
        for len in [64, 30_000, 3 * SLAB] {
            let heap = heap(MIB);
            let published = heap.alloc(len).expect("space").publish().expect("sound");
            let handle = published.handle();
            let late = |read: &dyn Fn(&Heap, usize)| {
                let (granule, _) = heap.published(handle).expect("it is published");
                drop(published);
                heap.recover_and_trim().expect("all memory is returned");
                assert_eq!(sound(&heap).committed(), 0);
                read(&heap, granule);
                let error = heap.still_published(handle, granule, 0..len).expect_err("stale");
                assert!(matches!(error, HeapError::Stale { .. }), "{error}");
            };
            late(&|heap, granule| {
                let mut bytes = vec![1; len];
                // SAFETY: the bytes are within the mapping, where the block was.
                unsafe { heap.core.copy(granule, &mut bytes) };
                assert!(bytes.iter().all(|byte| *byte == 0), "a hole");
            });
            assert_eq!(sound(&heap).committed(), 0);
            let slabs = 0..heap.core.space.geometry().slabs();
            assert!(slabs.filter_map(|slab| heap.core.space.backed(slab)).all(|bytes| bytes == 0));
        }
    }
}
