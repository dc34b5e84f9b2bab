//! Recovery of a dead process's blocks: [`reclaim`].

use std::sync::atomic::{AtomicU64, Ordering};

use tontine::heap::shared::Heap;
use tontine_mechanisms::heap::{refused, rejoined};

use super::run::poll_until;
use crate::prelude::*;

const SIZE: usize = 64;
/// Additional size of the heap in bytes: its control words and free space.
const EXTRA: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct RecoveryTimes {
    /// Time to prove the end of the process and to free all blocks.
    pub(super) reclaimed: f64,
    /// Time to return the memory of the blocks to the kernel afterwards.
    pub(super) given_back: f64,
}

/// Times the recovery after a process has allocated `blocks` blocks and was killed. The calling
/// process recovers the blocks.
pub(super) fn reclaim(blocks: usize) -> Result<RecoveryTimes> {
    let bytes = blocks * SIZE + EXTRA;
    capacity::for_memory(2 * bytes as u64)?;
    let heap = Heap::create(bytes).map_err(refused)?;
    let clock = Clock::calibrated();
    let held = SharedMapping::<AtomicU64>::anonymous()?;
    let mut victim = ReportingChild::fork(|| hold(&heap, blocks, &held))?;
    poll_until("the blocks were not allocated in time", || {
        victim.check()?;
        // SYNC heaps-held: pairs with `hold`.
        Ok(held.load(Ordering::Acquire) != 0)
    })?;
    victim.child.kill()?;
    let from = clock.start();
    let recovery = heap.recover().map_err(refused)?;
    let reclaimed = clock.ns_between(from, clock.stop());
    let in_use = heap.check().map_err(refused)?.in_use();
    let from = clock.start();
    heap.recover_and_trim().map_err(refused)?;
    let given_back = clock.ns_between(from, clock.stop());
    let committed = heap.check().map_err(refused)?.committed();
    if committed > 0 {
        bail!("expected all memory to be given back, found {committed} bytes committed");
    }
    if (recovery.members, recovery.blocks, in_use) == (1, blocks, 0) {
        return Ok(RecoveryTimes { reclaimed, given_back });
    }
    Err(MeasureError::fail(format!(
        "expected {blocks} blocks of one dead member to be free, found {recovery:?}, and {in_use} \
         bytes in use"
    )))
}

/// Runs the victim: allocates the blocks, reports it, and waits to be killed.
fn hold(heap: &Heap, blocks: usize, holds: &AtomicU64) -> Result<()> {
    let heap = rejoined(heap)?;
    let mut held = Vec::with_capacity(blocks);
    for number in 0..blocks {
        let mut block = heap.alloc(SIZE).map_err(refused)?;
        block[..8].copy_from_slice(&number.to_le_bytes());
        held.push(block);
    }
    // SYNC heaps-held: pairs with the load in `reclaim`.
    holds.store(1, Ordering::Release);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memory_of_a_dead_process_is_reclaimed() {
        in_a_process_of_its_own(|| {
            let times = reclaim(10_000).expect("times");
            assert!(times.reclaimed > 0.0 && times.given_back > 0.0, "{times:?}");
        });
    }
}
