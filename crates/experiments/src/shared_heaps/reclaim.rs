//! Recovery of a dead process's blocks: [`reclaim`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tontine::heap::shared::Heap;
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::deadline;
use tontine_host::os::room;
use tontine_host::os::shared::SharedMapping;
use tontine_host::peer::{ChildError, PeerHandle};
use tontine_mechanisms::heap::{refused, rejoined};

use super::worker_processes::{LOOK, PATIENCE};

/// Size of each block in bytes.
const SIZE: usize = 64;
/// Additional size of the heap in bytes: its control words and free space.
const BESIDES: usize = 16 << 20;

/// Times of the recovery, in ns.
#[derive(Debug)]
pub(super) struct Took {
    /// Time to prove the end of the process and to free all blocks.
    pub(super) reclaimed: f64,
    /// Time to return the memory of the blocks to the kernel afterwards.
    pub(super) given_back: f64,
}

/// Times the recovery after a process has allocated `blocks` blocks and was killed. The calling
/// process recovers the blocks.
pub(super) fn reclaim(blocks: usize) -> Result<Took> {
    let bytes = blocks * SIZE + BESIDES;
    room::for_memory(2 * bytes as u64)?;
    let heap = Heap::create(bytes).map_err(refused)?;
    let clock = Clock::calibrated();
    let (words, had) = (ChildError::new()?, SharedMapping::<AtomicU64>::anonymous()?);
    let mut child = Child::fork(|| {
        let Err(trouble) = hold(&heap, blocks, &had);
        words.say(&trouble);
        1
    })?;
    let began = Instant::now();
    // SYNC heaps-held: pairs with `hold`.
    while had.load(Ordering::Acquire) == 0 {
        words.heard().map_or(Ok(()), Err)?;
        PeerHandle::Child(child.pid()).check()?;
        if began.elapsed() > deadline::within(PATIENCE) {
            return Err(MeasureError::fail(format!("{blocks} blocks were not allocated in time")));
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    let from = clock.start();
    let recovery = heap.recover().map_err(refused)?;
    let reclaimed = clock.ns_between(from, clock.stop());
    let in_use = heap.check().map_err(refused)?.in_use();
    let from = clock.start();
    heap.recover_and_trim().map_err(refused)?;
    let given_back = clock.ns_between(from, clock.stop());
    let committed = heap.check().map_err(refused)?.committed();
    if committed > 0 {
        return Err(MeasureError::fail(format!(
            "expected all memory to be given back, found {committed} bytes committed"
        )));
    }
    if (recovery.members, recovery.blocks, in_use) == (1, blocks, 0) {
        return Ok(Took { reclaimed, given_back });
    }
    Err(MeasureError::fail(format!(
        "expected {blocks} blocks of one dead member to be free, found {recovery:?}, and {in_use} \
         bytes in use"
    )))
}

/// Runs the victim: allocates the blocks, reports it, and waits to be killed.
fn hold(heap: &Heap, blocks: usize, had: &AtomicU64) -> Result<std::convert::Infallible> {
    let heap = rejoined(heap)?;
    let mut held = Vec::with_capacity(blocks);
    for number in 0..blocks {
        let mut block = heap.alloc(SIZE).map_err(refused)?;
        block[..8].copy_from_slice(&number.to_le_bytes());
        held.push(block);
    }
    // SYNC heaps-held: pairs with the load in `reclaim`.
    had.store(1, Ordering::Release);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn all_memory_of_a_dead_process_is_reclaimed() {
        in_a_process_of_its_own(|| match reclaim(10_000) {
            Ok(took) if took.reclaimed > 0.0 && took.given_back > 0.0 => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}
