//! The check of a whole heap: [`check`], and its result, [`HeapReport`], which prints as a map.
//!
//! The check reads everything and writes nothing. The result is exact while no member uses the
//! heap. Otherwise it is a snapshot, in which a block that is changing hands may look invalid.

use std::collections::BTreeMap;
use std::fmt;

use super::block::Now;
use super::canary;
use super::class::SizeClass;
use super::core::Core;
use super::handle::Parcel;
use super::layout::{GRANULE, GRANULES, MEMBERS, SLAB};
use super::word::{BlockState, BlockWord, MemberState, MemberWord, SlabState, SlabWord};
use crate::sync::Ordering;

/// Maximum number of faults in a report; the others are counted.
const MOST_FAULTS: usize = 1000;

/// A fault that [`Heap::check`](super::Heap::check) has found: a violated invariant of the heap.
/// See [`HeapReport`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapFault {
    /// The invariant that is violated:
    ///
    /// - 0: no canary is overwritten.
    /// - 1: each byte of a slab is in exactly one state: free, in a block, in flight, or without
    ///   memory.
    /// - 2: blocks in flight and parcels match one to one.
    /// - 3: each holder is alive, or is being recovered.
    /// - 4: each block that a thread considers free is free.
    /// - 5: no generation decreases.
    /// - 6: no cache line has two owners.
    /// - 7: a slab has memory if and only if the table says so.
    pub invariant: u8,
    /// Offset in bytes, from the heap's first byte.
    pub offset: u64,
    /// The expected value, the value that was found, and the process that holds the block.
    pub what: String,
}

impl fmt::Display for HeapFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at offset {:#x}: {} (invariant {})", self.offset, self.what, self.invariant)
    }
}

/// The use of a slab, in a [`SlabMap`]. See [`HeapReport`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlabStatus {
    /// The slab has no memory.
    Empty,
    /// The slab's memory is being allocated.
    Claimed,
    /// The slab has blocks of this size in bytes.
    Blocks(usize),
    /// The slab is part of a block that begins this number of slabs before it, or 0 if that block
    /// does not exist.
    Part(usize),
    /// The slab's memory is being returned to the kernel.
    Punching,
    /// The slab's entry in the table is corrupted.
    Corrupted,
}

/// A slab of a [`HeapReport`]: its use, and its bytes by state. See [`HeapReport`] for an
/// example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabMap {
    /// Offset of the slab's first byte, from the heap's first byte.
    pub offset: u64,
    /// The use of the slab.
    pub status: SlabStatus,
    /// Process id of the member that allocates from the slab, or `None` if no member does.
    pub owner: Option<u32>,
    /// Number of free bytes.
    pub free: usize,
    /// Number of bytes in blocks that a process holds, by process id.
    pub allocated: BTreeMap<u32, usize>,
    /// Number of the `allocated` bytes in blocks that only a handle names
    /// ([`Block::into_handle`](super::Block::into_handle)).
    pub parked: usize,
    /// Number of the `allocated` bytes in published blocks.
    pub published: usize,
    /// Number of bytes in blocks in flight.
    pub in_flight: usize,
    /// Number of bytes after the last block, too few for a further block.
    pub rest: usize,
    /// Offset and generation of each block.
    generations: Vec<(u64, u64)>,
}

/// The result of [`Heap::check`](super::Heap::check): all slabs, and all faults. Its
/// [`fmt::Display`] prints a map with one line per run of similar slabs, and then the faults.
///
/// # Examples
/// ```
/// use tontine::heap::shared::{Heap, SlabStatus};
///
/// let heap = Heap::create(1 << 20)?;
/// let block = heap.alloc(100)?;
/// let report = heap.check()?;
/// assert!(report.faults.is_empty());
/// assert_eq!(report.slabs[0].status, SlabStatus::Blocks(128));
/// assert_eq!(report.slabs[0].allocated[&std::process::id()], 128);
/// print!("{report}");
/// # drop(block);
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapReport {
    /// All slabs, in order.
    pub slabs: Vec<SlabMap>,
    /// The faults, limited to the first thousand.
    pub faults: Vec<HeapFault>,
    /// Number of faults beyond the first thousand.
    pub more_faults: usize,
    /// Offset and generation of each block in flight.
    in_flight: Vec<(u64, u64)>,
}

impl HeapReport {
    /// Returns the number of bytes in blocks that are held or in flight, each with the size of its
    /// class.
    pub fn in_use(&self) -> usize {
        let allocated = self.slabs.iter().flat_map(|slab| slab.allocated.values());
        let in_flight = self.slabs.iter().map(|slab| &slab.in_flight);
        // In a corrupted heap, each slab may claim that its block contains all slabs after it.
        allocated.chain(in_flight).fold(0, |sum: usize, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the number of bytes of all slabs that have memory.
    pub fn committed(&self) -> usize {
        self.slabs.iter().filter(|slab| slab.status != SlabStatus::Empty).count() * SLAB
    }

    /// Adds a fault for each block in flight that no parcel names, and for each block that two
    /// parcels name: invariant 2 of [`HeapFault`]. `parcels` must contain every parcel that will
    /// still be read, from every queue of every member.
    #[must_use]
    pub fn with_parcels(mut self, parcels: impl IntoIterator<Item = Parcel>) -> Self {
        let mut expected: Vec<_> = parcels.into_iter().map(Parcel::names).collect();
        expected.sort_unstable();
        for pair in expected.windows(2).filter(|pair| pair[0] == pair[1]) {
            self.blame(2, pair[0].0, "two parcels name this block".into());
        }
        let mut found = self.in_flight.clone();
        found.sort_unstable();
        for (offset, generation) in found.iter().filter(|block| !expected.contains(block)) {
            let what = format!("in flight, generation {generation}, but in no parcel");
            self.blame(2, *offset, what);
        }
        self
    }

    /// Adds a fault for each block whose generation is smaller than in an earlier report:
    /// invariant 5 of [`HeapFault`].
    #[must_use]
    pub fn with_earlier(mut self, earlier: &Self) -> Self {
        let before: BTreeMap<u64, u64> =
            earlier.slabs.iter().flat_map(|slab| slab.generations.iter().copied()).collect();
        let mut fell = Vec::new();
        for (offset, generation) in self.slabs.iter().flat_map(|slab| &slab.generations) {
            if before.get(offset).is_some_and(|before| before > generation) {
                fell.push((
                    *offset,
                    format!("generation {generation}, earlier {}", before[offset]),
                ));
            }
        }
        for (offset, what) in fell {
            self.blame(5, offset, what);
        }
        self
    }

    fn blame(&mut self, invariant: u8, offset: u64, what: String) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(HeapFault { invariant, offset, what });
        } else {
            self.more_faults += 1;
        }
    }
}

/// Prints the map, one line per run of similar slabs, and then the faults.
impl fmt::Display for HeapReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        while let Some(slab) = self.slabs.get(at) {
            let alike = self.slabs[at..].iter().take_while(|other| other.is_like(slab)).count();
            let until = slab.offset + (alike * SLAB) as u64;
            write!(out, "{:#012x}-{until:#012x}  {:>4}  {}", slab.offset, alike, slab.status)?;
            slab.describe(out)?;
            writeln!(out)?;
            at += alike;
        }
        for fault in &self.faults {
            writeln!(out, "fault {fault}")?;
        }
        if self.more_faults > 0 {
            writeln!(out, "and {} more faults", self.more_faults)?;
        }
        Ok(())
    }
}

impl fmt::Display for SlabStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => out.write_str("empty"),
            Self::Claimed => out.write_str("being allocated"),
            Self::Blocks(bytes) => write!(out, "blocks of {bytes}"),
            Self::Part(0) => out.write_str("part of nothing"),
            Self::Part(_) => out.write_str("part of the block before"),
            Self::Punching => out.write_str("being returned"),
            Self::Corrupted => out.write_str("corrupted"),
        }
    }
}

impl SlabMap {
    fn is_like(&self, other: &Self) -> bool {
        let like = |slab: &Self| (slab.status, slab.owner, slab.free, slab.in_flight);
        let part = |slab: &Self| matches!(slab.status, SlabStatus::Part(part) if part > 0);
        (like(self) == like(other) && self.allocated == other.allocated)
            || (part(self) && part(other) && self.owner == other.owner)
    }

    fn describe(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pid) = self.owner {
            write!(out, ", allocated by pid {pid}")?;
        }
        if matches!(self.status, SlabStatus::Blocks(_)) {
            write!(out, ": {} bytes free", self.free)?;
            for (pid, bytes) in &self.allocated {
                write!(out, ", {bytes} held by pid {pid}")?;
            }
            if self.in_flight > 0 {
                write!(out, ", {} in flight", self.in_flight)?;
            }
        }
        Ok(())
    }
}

/// Checks the whole heap. `known` lists the blocks that the calling thread's arena considers free.
pub(super) fn check(core: &Core, known: Vec<(usize, Vec<usize>)>) -> HeapReport {
    let slabs = core.space.geometry().slabs();
    let (faults, in_flight) = (Vec::new(), Vec::new());
    let report = HeapReport { slabs: Vec::new(), faults, more_faults: 0, in_flight };
    let mut check = HeapWalk { core, report };
    for slab in 0..slabs {
        let map = check.slab(slab);
        check.report.slabs.push(map);
    }
    for (slab, blocks) in known {
        check.known(slab, &blocks);
    }
    check.report
}

struct HeapWalk<'a> {
    core: &'a Core,
    report: HeapReport,
}

impl HeapWalk<'_> {
    fn slab(&mut self, slab: usize) -> SlabMap {
        let core = self.core;
        let offset = core.space.geometry().block(slab * GRANULES) as u64;
        // SYNC slab: pairs with the stores by the slab's arena.
        let owner = SlabWord(core.space.slab(slab).owner.load(Ordering::Acquire));
        let status = match owner.state() {
            SlabState::Empty => SlabStatus::Empty,
            SlabState::Claimed => SlabStatus::Claimed,
            SlabState::Punching => SlabStatus::Punching,
            SlabState::Owned => core
                .class(slab)
                .map_or(SlabStatus::Corrupted, |class| SlabStatus::Blocks(class.bytes())),
            SlabState::Span if core.belongs(slab, owner.part()) => SlabStatus::Part(owner.part()),
            SlabState::Span => SlabStatus::Part(0),
            SlabState::Rubbish => SlabStatus::Corrupted,
        };
        let mut map = SlabMap {
            offset,
            status,
            owner: None,
            free: 0,
            allocated: BTreeMap::new(),
            parked: 0,
            published: 0,
            in_flight: 0,
            rest: 0,
            generations: Vec::new(),
        };
        match status {
            SlabStatus::Corrupted => {
                let class = core.space.slab(slab).class.load(Ordering::Relaxed);
                let what = format!("a slab's entry is corrupted: {:#x}, class {class:#x}", owner.0);
                self.report.blame(1, offset, what);
            }
            SlabStatus::Part(0) => {
                self.report.blame(
                    6,
                    offset,
                    "a slab is part of a block that does not exist".into(),
                );
            }
            _ => {}
        }
        if status != SlabStatus::Empty && status != SlabStatus::Corrupted {
            map.owner = self.arena_owner(offset, owner.arena());
        }
        if let (SlabStatus::Blocks(_), Some(class)) = (status, core.class(slab)) {
            self.blocks(slab, class, &mut map);
        }
        self.memory(slab, offset, status);
        map
    }

    /// Returns the process id of the member that owns a slab's arena.
    fn arena_owner(&mut self, offset: u64, arena: usize) -> Option<u32> {
        let owner = self.core.owner_of_arena(arena);
        if owner.is_none() {
            let what = format!("a slab belongs to arena {arena}, which no member owns");
            self.report.blame(1, offset, what);
        }
        owner.map(|slot| self.core.pid_of(slot))
    }

    /// Checks each word of a slab (invariants 1 and 3), and the parts of a large block (6).
    fn blocks(&mut self, slab: usize, class: SizeClass, map: &mut SlabMap) {
        let core = self.core;
        let first = slab * GRANULES;
        let at = |granule: usize| core.space.geometry().block(granule) as u64;
        for granule in 0..GRANULES {
            // SYNC truth: pairs with the stores by the block's holder.
            let found = BlockWord(core.space.word(first + granule).load(Ordering::Acquire));
            let now = Now { core, found };
            if !class.begins_at(granule) {
                if found.state() != BlockState::Free {
                    let what = format!("inside a block, but {now}");
                    self.report.blame(1, at(first + granule), what);
                }
                continue;
            }
            map.generations.push((at(first + granule), found.generation()));
            let bytes = class.bytes();
            match found.state() {
                BlockState::Free => map.free += bytes,
                BlockState::Allocated | BlockState::Parked | BlockState::Published => {
                    *map.allocated.entry(core.pid_of(found.holder())).or_default() += bytes;
                    match found.state() {
                        BlockState::Parked => map.parked += bytes,
                        BlockState::Published => map.published += bytes,
                        _ => {}
                    }
                }
                BlockState::InFlight => {
                    map.in_flight += bytes;
                    self.report.in_flight.push((at(first + granule), found.generation()));
                }
                BlockState::Rubbish => {
                    let what = format!("a block is {now}");
                    self.report.blame(1, at(first + granule), what);
                }
            }
            if !matches!(found.state(), BlockState::Free | BlockState::Rubbish) {
                self.holder(at(first + granule), &now, found.holder());
                if core.canaries
                    && let Err(error) = canary::look(core, first + granule, None)
                {
                    self.report.blame(0, at(first + granule), error.to_string());
                }
            }
        }
        if let SizeClass::Small(_) = class {
            map.rest = SLAB - class.blocks() * class.bytes();
        }
        for part in 1..class.slabs() {
            let owner = SlabWord(core.space.slab(slab + part).owner.load(Ordering::Acquire));
            if (owner.state(), owner.part()) != (SlabState::Span, part) {
                let what =
                    format!("part {part} of a block of {} slabs belongs to another", class.slabs());
                self.report.blame(6, at(first + part * GRANULES), what);
                // The class is probably wrong. One fault is enough, because in a corrupted heap
                // each slab may claim all the others.
                break;
            }
        }
    }

    /// Checks invariant 3: the holder is alive, or is being recovered.
    fn holder(&mut self, offset: u64, now: &Now<'_>, holder: usize) {
        let state = (holder < MEMBERS).then(|| {
            // SYNC member: pairs with the stores by the slot's holder.
            MemberWord(self.core.space.member(holder).word.load(Ordering::Acquire)).state()
        });
        if !matches!(state, Some(MemberState::Alive | MemberState::Recovering)) {
            let what = format!("a block is {now}, but slot {holder} has no member");
            self.report.blame(3, offset, what);
        }
    }

    /// Checks invariant 7: the slab has memory if and only if its entry says so.
    fn memory(&mut self, slab: usize, offset: u64, status: SlabStatus) {
        let Some(bytes) = self.core.space.backed(slab) else { return };
        let wrong = match status {
            SlabStatus::Empty => bytes > 0,
            SlabStatus::Blocks(_) | SlabStatus::Part(_) => bytes < SLAB,
            _ => false,
        };
        if wrong {
            let what = format!("a slab is {status}, but has {bytes} bytes of memory");
            self.report.blame(7, offset, what);
        }
    }

    /// Checks invariant 4: the blocks that the calling thread considers free are free.
    fn known(&mut self, slab: usize, blocks: &[usize]) {
        for granule in blocks.iter().map(|granule| slab * GRANULES + granule) {
            let found = BlockWord(self.core.space.word(granule).load(Ordering::Acquire));
            if found.state() != BlockState::Free {
                let offset = self.core.space.geometry().block(granule) as u64;
                let now = Now { core: self.core, found };
                let what = format!("believed to be free by this thread, but {now}");
                self.report.blame(4, offset, what);
            }
        }
    }
}

impl Core {
    /// Returns the process id of the slot's present or last member, or 0 if it never had a member.
    pub(super) fn pid_of(&self, slot: usize) -> u32 {
        let pid = (slot < MEMBERS).then(|| self.space.member(slot).pid.load(Ordering::Relaxed));
        pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
    }

    /// Returns the process id of a block's holder.
    pub(super) fn holder_of(&self, granule: usize) -> u32 {
        self.pid_of(BlockWord(self.space.word(granule).load(Ordering::Relaxed)).holder())
    }
}

const _: () = assert!(GRANULE == 64, "a cache line has one block, and so one owner");
