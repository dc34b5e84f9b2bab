//! Stacks for fibers: [`StackPool`] lends a [`FiberStack`] and takes it back.
//!
//! Many stacks share one mapping, a slab, which has no huge pages and a guard below each stack.
//! Linux 6.13 and later installs guards without splitting the mapping; earlier versions need one
//! mapping per guard, and the number of mappings is bounded. The pool lends the most recently used
//! stack first. The memory of free stacks beyond a bound is returned to the system. When the pool
//! is dropped, it unmaps the slabs whose stacks are all free; a slab with an abandoned stack stays
//! mapped permanently.
//!
//! `task.rs` defines the code that runs on a stack, `overflow.rs` the handling of a guard hit.
#![allow(unsafe_code, reason = "maps memory and guarantees that it can be used as a stack")]

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corosensei::stack::StackPointer;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// Number of bytes below a stack that fault: more than the largest frame that C code skips without
/// a probe, and a multiple of the page size (up to 64 KiB on AArch64).
const GUARD: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 16 << 10 };
/// Number of stacks in the first slab and in the largest slab; each slab has twice as many stacks
/// as the previous one.
const FIRST_SLAB: usize = 16;
const LAST_SLAB: usize = 1024;
/// Maximum number of free stacks that keep their memory.
const WARM: usize = 512;
/// Maximum number of stacks whose guards are mappings: each such stack takes two of a process's
/// 65,530 mappings.
const MAPPED_GUARDS: usize = 30_000;

/// An owned stack. It is intentionally leaked if it is dropped rather than passed to
/// [`StackPool::give`].
#[derive(Debug)]
pub(super) struct FiberStack {
    /// The lowest address of the guard.
    limit: NonZeroUsize,
    /// The address after the highest one.
    base: NonZeroUsize,
    slab: u32,
}

// SAFETY: `limit` is the start of a guard of `GUARD` bytes that faults. At least
// `corosensei::stack::MIN_STACK_SIZE` bytes follow the guard, up to `base`, which is page-aligned.
// The mapping outlives every stack that is not in the pool.
unsafe impl corosensei::stack::Stack for FiberStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

impl FiberStack {
    /// Returns the start and end of the guard below the stack.
    pub(super) fn guard(&self) -> (usize, usize) {
        (self.limit.get(), self.limit.get() + GUARD)
    }
}

/// The reason why no stack is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StackError {
    /// The pool has lent its maximum number of stacks.
    #[error("all {limit} stacks are in use: raise the limit, or start fewer at a time")]
    Limit {
        /// The maximum number of stacks.
        limit: usize,
    },
    /// Guards need mappings on this kernel, and Linux bounds the number of mappings.
    #[error(
        "{limit} stacks are in use, and before Linux 6.13 each takes two of a process's 65,530 \
         mappings (vm.max_map_count): start fewer at a time, or use a later kernel"
    )]
    Guards {
        /// The maximum number of stacks.
        limit: usize,
    },
    /// The kernel refused memory.
    #[error("the kernel refused memory for a slab of stacks: {0}")]
    Memory(rustix::io::Errno),
}

/// The number of stacks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StackCounts {
    /// Number of stacks lent to fibers that have not ended.
    pub(crate) live: usize,
    /// Number of free stacks.
    pub(crate) pooled: usize,
    /// Number of stacks that were abandoned with their contents. They are never reused.
    pub(crate) abandoned: usize,
}

/// A pool that lends stacks of one size.
#[derive(Debug)]
pub(super) struct StackPool {
    /// Number of usable bytes per stack.
    size: usize,
    limit: usize,
    abandoned: AtomicUsize,
    free: Mutex<FreeStacks>,
}

#[derive(Debug)]
struct FreeStacks {
    slabs: Vec<StackSlab>,
    /// Stacks that were used before and are still resident; the most recently used stack is at the
    /// end.
    warm: Vec<FiberStack>,
    /// Stacks that were never used, or that have no memory.
    cold: Vec<FiberStack>,
    /// Number of stacks in all slabs.
    total: usize,
    /// `true` if a guard needs no mapping; unknown before the first guard.
    light_guards: Option<bool>,
    /// Maximum number of stacks if each guard needs a mapping.
    heavy_guards: usize,
}

#[derive(Debug)]
struct StackSlab {
    start: usize,
    length: usize,
    stacks: usize,
}

impl StackPool {
    /// Creates a pool without stacks, for up to `limit` stacks of `size` usable bytes each (rounded
    /// up to whole pages).
    pub(super) fn new(size: usize, limit: usize) -> Self {
        let page = rustix::param::page_size();
        let size = size.max(4 * page).next_multiple_of(page);
        let (abandoned, free) = (AtomicUsize::new(0), Mutex::new(FreeStacks::new()));
        Self { size, limit, abandoned, free }
    }

    /// Moves up to `count` stacks, at least one, into `into`. Fails if no stack is free and none
    /// can be created.
    pub(super) fn lend(&self, into: &mut Vec<FiberStack>, count: usize) -> Result<(), StackError> {
        let mut free = self.lock();
        if free.is_empty() {
            let stacks = free.next_slab(self.limit)?;
            free.grow(self.size, stacks)?;
        }
        for _ in 0..count {
            let Some(stack) = free.take() else { break };
            into.push(stack);
        }
        Ok(())
    }

    /// Lends one stack, and exceeds the limit if necessary. Fails if no stack is free and the
    /// kernel refuses memory.
    pub(super) fn lend_beyond(&self) -> Result<FiberStack, StackError> {
        let mut free = self.lock();
        if free.is_empty() {
            free.grow(self.size, 1)?;
        }
        Ok(free.take().expect("a slab has a stack"))
    }

    /// Takes back stacks on which nothing runs.
    pub(super) fn give(&self, stacks: impl Iterator<Item = FiberStack>) {
        let mut free = self.lock();
        let mut stacks = stacks;
        let space = WARM.saturating_sub(free.warm.len());
        free.warm.extend(stacks.by_ref().take(space));
        let from = free.cold.len();
        free.cold.extend(stacks);
        // One call returns the memory of adjacent stacks. It leaves their guards in place.
        let cold = &mut free.cold[from..];
        cold.sort_unstable_by_key(|stack| stack.limit);
        for neighbours in cold.chunk_by(|one, next| one.base == next.limit) {
            if let (Some(first), Some(last)) = (neighbours.first(), neighbours.last()) {
                let start = first.limit.get() + GUARD;
                let length = last.base.get() - start;
                // SAFETY: all bytes from the first stack to the last belong to these stacks, which
                // are owned here and hold no live data. A refusal by the kernel only costs memory.
                let _ = unsafe {
                    let start = ptr::with_exposed_provenance_mut(start);
                    rustix::mm::madvise(start, length, Advice::LinuxDontNeed)
                };
            }
        }
    }

    /// Counts `stacks` stacks as abandoned. They are never reused.
    pub(super) fn abandon(&self, stacks: usize) {
        self.abandoned.fetch_add(stacks, Ordering::Relaxed);
    }

    /// Returns the number of stacks in each state, given the number of `live` ones; stacks that
    /// workers cache count as pooled.
    pub(super) fn counts(&self, live: usize) -> StackCounts {
        let total = self.lock().total;
        let abandoned = self.abandoned.load(Ordering::Relaxed);
        StackCounts { live, abandoned, pooled: total.saturating_sub(live + abandoned) }
    }

    fn lock(&self) -> MutexGuard<'_, FreeStacks> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FreeStacks {
    fn new() -> Self {
        Self {
            slabs: Vec::new(),
            warm: Vec::new(),
            cold: Vec::new(),
            total: 0,
            light_guards: None,
            heavy_guards: MAPPED_GUARDS,
        }
    }

    fn is_empty(&self) -> bool {
        self.warm.is_empty() && self.cold.is_empty()
    }

    fn take(&mut self) -> Option<FiberStack> {
        self.warm.pop().or_else(|| self.cold.pop())
    }

    /// Returns the number of stacks in the next slab, within `limit`.
    fn next_slab(&self, limit: usize) -> Result<usize, StackError> {
        let cap = match self.light_guards {
            Some(false) => limit.min(self.heavy_guards),
            _ => limit,
        };
        let wanted = (FIRST_SLAB << self.slabs.len().min(8)).min(LAST_SLAB);
        let stacks = wanted.min(cap.saturating_sub(self.total));
        if stacks == 0 && cap < limit {
            return Err(StackError::Guards { limit: cap });
        }
        if stacks == 0 {
            return Err(StackError::Limit { limit });
        }
        Ok(stacks)
    }

    /// Maps another slab, whose stacks are all free.
    fn grow(&mut self, size: usize, stacks: usize) -> Result<(), StackError> {
        let stride = size + GUARD;
        let length = stacks * stride;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: this is a new mapping, whose address the kernel chooses.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), length, protection, flags)
        };
        let start = start.map_err(StackError::Memory)?.expose_provenance();
        let slab = StackSlab { start, length, stacks };
        // SAFETY: the bytes belong to the slab, and no code uses them yet. The slab also works if
        // the kernel refuses the advice.
        let _ = unsafe {
            let start = ptr::with_exposed_provenance_mut(start);
            rustix::mm::madvise(start, length, Advice::LinuxNoHugepage)
        };
        let number = u32::try_from(self.slabs.len()).expect("there are fewer slabs than stacks");
        for index in 0..stacks {
            if let Err(error) = self.guard(start + index * stride) {
                slab.unmap();
                return Err(StackError::Memory(error));
            }
        }
        // The lowest stack is lent first.
        self.cold.extend((0..stacks).rev().map(|index| {
            let limit = start + index * stride;
            let at = |address| NonZeroUsize::new(address).expect("no mapping lies at 0");
            FiberStack { limit: at(limit), base: at(limit + stride), slab: number }
        }));
        self.total += stacks;
        self.slabs.push(slab);
        Ok(())
    }

    /// Makes the `GUARD` bytes from `start` fault. The slab is under construction.
    fn guard(&mut self, start: usize) -> rustix::io::Result<()> {
        let start: *mut c_void = ptr::with_exposed_provenance_mut(start);
        if self.light_guards != Some(false) {
            /// `MADV_GUARD_INSTALL` of Linux 6.13.
            const INSTALL: libc::c_int = 102;
            // SAFETY: the bytes belong to a slab that no code uses yet.
            let light = unsafe { libc::madvise(start, GUARD, INSTALL) } == 0;
            if light || self.light_guards.is_some() {
                self.light_guards = Some(true);
                return if light { Ok(()) } else { Err(rustix::io::Errno::NOMEM) };
            }
            self.light_guards = Some(false);
        }
        // SAFETY: as above.
        unsafe { rustix::mm::mprotect(start, GUARD, MprotectFlags::empty()) }
    }
}

impl StackSlab {
    fn unmap(&self) {
        // SAFETY: `grow` made the mapping, and none of its stacks has an owner. If the kernel
        // refuses, the mapping is leaked.
        let _ = unsafe {
            rustix::mm::munmap(ptr::with_exposed_provenance_mut(self.start), self.length)
        };
    }
}

impl Drop for StackPool {
    fn drop(&mut self) {
        let free = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut back = vec![0; free.slabs.len()];
        for stack in free.warm.iter().chain(&free.cold) {
            back[stack.slab as usize] += 1;
        }
        for (slab, back) in free.slabs.iter().zip(back) {
            if slab.stacks == back {
                slab.unmap();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn mapped_guards_limit_error_names_max_map_count() {
        let pool = StackPool::new(16 << 10, usize::MAX);
        pool.lock().light_guards = Some(false);
        pool.lock().heavy_guards = 100;
        let mut stacks = Vec::new();
        let error = loop {
            if let Err(error) = pool.lend(&mut stacks, 1024) {
                break error;
            }
        };
        assert_eq!(error, StackError::Guards { limit: 100 });
        assert_eq!(stacks.len(), 100);
        assert!(error.to_string().contains("max_map_count"));
        pool.give(stacks.into_iter());
        assert_eq!(pool.counts(0).pooled, 100);
    }

    #[test]
    fn last_returned_stack_is_reused_first() {
        let pool = StackPool::new(16 << 10, 100);
        let mut stacks = Vec::new();
        pool.lend(&mut stacks, 3).expect("memory is available");
        let last = stacks[2].base;
        pool.give(stacks.into_iter());
        let mut again = Vec::new();
        pool.lend(&mut again, 1).expect("a stack is free");
        assert_eq!(again[0].base, last);
        pool.give(again.into_iter());
    }

    #[test]
    fn free_stacks_above_bound_release_memory() {
        let pool = StackPool::new(16 << 10, usize::MAX);
        let mut stacks = Vec::new();
        while stacks.len() < WARM + 8 {
            pool.lend(&mut stacks, 64).expect("memory is available");
        }
        let last =
            ptr::with_exposed_provenance_mut::<u8>(stacks.last().expect("a stack").base.get());
        // SAFETY: this is the highest byte of a stack that is owned here.
        unsafe { last.sub(1).write(7) };
        pool.give(stacks.into_iter());
        // SAFETY: the byte is mapped until the pool is dropped, and no other code writes to it.
        assert_eq!(unsafe { last.sub(1).read() }, 0);
        // Returning the memory of adjacent stacks in one call does not remove the guards between
        // them.
        let (_reader, writer) = rustix::pipe::pipe().expect("a pipe");
        for stack in pool.lock().cold.iter() {
            let guard = ptr::with_exposed_provenance::<u8>(stack.limit.get());
            // SAFETY: the kernel checks the byte, and returns an error because it cannot read it.
            let refused = unsafe { libc::write(writer.as_raw_fd(), guard.cast(), 1) };
            let why = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((refused, why), (-1, Some(libc::EFAULT)));
        }
    }
}
