//! Deliberately broken heaps, which the explorer must report as wedged, torn and lost.
//!
//! Each is a table of blocks that records the pid of each block's holder and has one fault. Without
//! the fault the table is sound: a block is taken by one exchange, and dead holders are found by
//! their pids.

#![allow(unsafe_code, reason = "a table in shared memory")]

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use tontine_mechanisms::about::Explored;
use tontine_mechanisms::region::SharedRegion;

use super::heap::{Checked, HeapTarget, TargetMember};
use super::{CrashTarget, Operation, Role, TargetKind, refused};
use crate::run_dir::RunDir;

/// Time between two checks of a held lock.
const PAUSE: Duration = Duration::from_micros(100);

const BLOCKS: usize = 16;
const BLOCK: usize = 1 << 10;

/// A table with one fault, or none.
pub(super) struct FaultyTable {
    name: &'static str,
    summary: &'static str,
    fault: TableFault,
}

/// `control-heap-lock`: a member that dies while it holds the lock never releases it.
pub(super) const LOCK: FaultyTable = FaultyTable {
    name: "control-heap-lock",
    summary: "broken on purpose: a heap under a lock word that a dead holder keeps",
    fault: TableFault::KeepsTheLock,
};

/// `control-heap-lost`: no member recovers dead members.
pub(super) const LOST: FaultyTable = FaultyTable {
    name: "control-heap-lost",
    summary: "broken on purpose: a heap in which no member frees the blocks of a dead one",
    fault: TableFault::LeavesTheDead,
};

/// `control-heap-torn`: recovery of a dead member frees the neighbours of its blocks, too.
pub(super) const TORN: FaultyTable = FaultyTable {
    name: "control-heap-torn",
    summary: "broken on purpose: a heap that frees a live member's block along with a dead one's",
    fault: TableFault::FreesNeighbours,
};

/// `control-heap-pairs`: recovery first takes the dead member's blocks and then frees them. One
/// death loses nothing, but a second death during recovery loses the blocks that were taken.
pub(super) const PAIRS: FaultyTable = FaultyTable {
    name: "control-heap-pairs",
    summary: "broken on purpose: a heap in which a death during recovery is not recovered",
    fault: TableFault::TakesFirst,
};

/// `control-heap-sound`: the same table without a fault, which must pass.
pub(super) const SOUND: FaultyTable = FaultyTable {
    name: "control-heap-sound",
    summary: "the heap from which the broken ones are derived: a table of pids",
    fault: TableFault::None,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableFault {
    None,
    KeepsTheLock,
    LeavesTheDead,
    FreesNeighbours,
    TakesFirst,
}

impl CrashTarget for FaultyTable {
    fn facts(&self) -> Explored {
        Explored::of_heap(self.name, self.summary, &[Operation::Allocate])
    }

    fn role(&self) -> Role {
        Role::Control
    }

    fn succession(&self, _: Operation) -> Option<Operation> {
        Some(Operation::Recover)
    }

    fn kind(&self) -> TargetKind<'_> {
        TargetKind::Heap(self)
    }
}

impl HeapTarget for FaultyTable {
    fn small(&self) -> usize {
        BLOCK
    }

    fn filling(&self) -> usize {
        BLOCK
    }

    fn recovers(&self) -> bool {
        true
    }

    fn create(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>> {
        let region = SharedRegion::create(place.location(), 0).map_err(refused)?;
        Ok(Box::new(TableTenant::new(region, self.fault)))
    }

    fn join(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>> {
        let region = SharedRegion::open(place.location(), 0).map_err(refused)?;
        Ok(Box::new(TableTenant::new(region, self.fault)))
    }
}

#[repr(C)]
struct BlockTable {
    /// 1 while a member holds the lock.
    lock: AtomicI32,
    /// The pid of each block's holder; 0 for a free block.
    holders: [AtomicI32; BLOCKS],
    blocks: [[u8; BLOCK]; BLOCKS],
}

/// Holder of a block that is being freed for a dead member.
const TAKEN: i32 = i32::MAX;

struct TableTenant {
    region: SharedRegion<BlockTable>,
    fault: TableFault,
    pid: i32,
    blocks: Vec<usize>,
}

impl TableTenant {
    fn new(region: SharedRegion<BlockTable>, fault: TableFault) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self { region, fault, pid, blocks: Vec::with_capacity(BLOCKS) }
    }

    fn lock(&self) -> &AtomicI32 {
        // SAFETY: the region is mapped and valid if all bytes are zero; the word is only accessed
        // through its atomic.
        unsafe { &(*self.region.at()).lock }
    }

    fn holders(&self) -> &[AtomicI32; BLOCKS] {
        // SAFETY: as above.
        unsafe { &(*self.region.at()).holders }
    }

    fn take(&self) -> Option<usize> {
        let locks = self.fault == TableFault::KeepsTheLock;
        // SYNC control-heap: pairs with the store below.
        while locks && self.lock().swap(1, Ordering::Acquire) != 0 {
            std::thread::sleep(PAUSE);
        }
        let mine = |holder: &AtomicI32| {
            // SYNC control-heap-block: pairs with the stores by which a member frees a block.
            holder.compare_exchange(0, self.pid, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let taken = self.holders().iter().position(mine);
        if locks {
            // SYNC control-heap: pairs with the swap above.
            self.lock().store(0, Ordering::Release);
        }
        taken
    }

    fn give(&self, block: usize) {
        // SYNC control-heap-block: pairs with the exchange in `take`.
        self.holders()[block].store(0, Ordering::Release);
    }
}

impl TargetMember for TableTenant {
    fn allocate(&mut self, bytes: usize) -> io::Result<bool> {
        debug_assert_eq!(bytes, BLOCK);
        let taken = self.take();
        self.blocks.extend(taken);
        Ok(taken.is_some())
    }

    fn bytes(&mut self, at: usize) -> &mut [u8] {
        // SAFETY: if the table is sound, the block belongs to this process alone. The controls test
        // the case of two processes that have the same block; they access the block in turns.
        unsafe { &mut (*self.region.at()).blocks[self.blocks[at]] }
    }

    fn free(&mut self, at: usize) -> io::Result<()> {
        let block = self.blocks.swap_remove(at);
        self.give(block);
        Ok(())
    }

    fn recover(&mut self) -> io::Result<()> {
        if self.fault == TableFault::LeavesTheDead {
            return Ok(());
        }
        let mut taken = Vec::with_capacity(BLOCKS);
        for (block, holder) in self.holders().iter().enumerate() {
            if self.fault == TableFault::TakesFirst && holder.load(Ordering::Relaxed) == TAKEN {
                continue;
            }
            let pid = Pid::from_raw(holder.load(Ordering::Relaxed));
            if pid.is_none_or(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH)) {
                continue;
            }
            if self.fault == TableFault::TakesFirst {
                holder.store(TAKEN, Ordering::Relaxed);
                taken.push(block);
                continue;
            }
            self.give(block);
            if self.fault == TableFault::FreesNeighbours && block > 0 {
                self.give(block - 1);
            }
        }
        taken.into_iter().for_each(|block| self.give(block));
        Ok(())
    }

    fn check(&mut self) -> io::Result<Checked> {
        let held = self.holders().iter().filter(|holder| holder.load(Ordering::Relaxed) != 0);
        Ok(Checked::Sound { in_use: held.count() * BLOCK, committed: 0 })
    }
}
