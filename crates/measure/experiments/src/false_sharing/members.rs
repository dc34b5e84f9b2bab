//! Two counters in a shared heap: two processes allocate eight bytes each, one right after the
//! other, and increment them at the same time ([`at_once`]).

#![allow(unsafe_code, reason = "joins the heap in a forked child, and counts in its blocks")]

use std::sync::atomic::{AtomicU64, Ordering};

use tontine::heap::HeapError;
use tontine::heap::shared::{Block, Heap};

use super::counters::{LINE, PaddedWord, increment};
use crate::prelude::*;

/// Size of each counter in bytes, and of the heap.
const BYTES: usize = size_of::<u64>();
const HEAP: usize = 1 << 20;

#[repr(C)]
struct MemberFlags {
    /// Offset of the child's block, once it is allocated; never 0.
    place: PaddedWord,
    /// Number of passes begun by the parent, then number ended by the child.
    begun: PaddedWord,
    ended: PaddedWord,
    counted: PaddedWord,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for MemberFlags {}

/// Counts in both processes at once, `times` times in each pass, and calls `between` before each
/// pass. Returns, for each pass, the ns until both processes have finished.
pub(super) fn at_once(
    on: Placement,
    times: usize,
    passes: usize,
    clock: Clock,
    mut between: impl FnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    let heap = Heap::create(HEAP).map_err(refused)?;
    let mut block = heap.alloc(BYTES).map_err(refused)?;
    let (signals, words) = (SharedMapping::<MemberFlags>::anonymous()?, ChildError::new()?);
    let other = Child::fork(|| words.status(count(&heap, on.there, times as u64, &signals)))?;
    let wait = |done: &dyn Fn() -> bool| {
        let waited = spin_until(&[PeerHandle::Child(other.pid())], true, done);
        waited.map_err(|error| words.heard().unwrap_or(error))
    };
    wait(&|| signals.place.get() != 0)?;
    let lines = [block.offset(), signals.place.get()].map(|at| at / LINE as u64);
    ensure!(lines[0] != lines[1], "two members of the shared heap have blocks in one line");
    let counter = counter(&mut block);
    let mut all = Vec::with_capacity(passes);
    for pass in 1..=passes as u64 {
        between()?;
        let _pinned = Pinned::to(on.here)?;
        let from = clock.start();
        signals.begun.set(pass);
        increment(counter, times as u64);
        wait(&|| signals.ended.get() == pass)?;
        all.push(clock.ns_between(from, clock.stop()));
        let counted = [counter.load(Ordering::Relaxed), signals.counted.get()];
        ensure!(
            counted == [pass * times as u64; 2],
            "expected {} increments of each counter, found {counted:?}",
            pass * times as u64
        );
    }
    Ok(all)
}

/// Body of the child: counts whenever a pass begins, until it is killed.
fn count(heap: &Heap, processor: usize, times: u64, signals: &MemberFlags) -> Result<()> {
    pin::pin_to(processor)?;
    // SAFETY: both members run this file's code; the child has no other descriptor of the heap and
    // closes none.
    let heap = unsafe { heap.rejoin() }.map_err(refused)?;
    let mut block = heap.alloc(BYTES).map_err(refused)?;
    signals.place.set(block.offset());
    let counter = counter(&mut block);
    for pass in 1.. {
        spin_until(&[PeerHandle::Parent], true, || signals.begun.get() >= pass)?;
        increment(counter, times);
        signals.counted.set(counter.load(Ordering::Relaxed));
        signals.ended.set(pass);
    }
    Ok(())
}

fn counter<'b>(block: &'b mut Block<'_>) -> &'b AtomicU64 {
    block.fill(0);
    // SAFETY: the word has eight bytes, is aligned to 64, and only the borrower of the block
    // accesses it.
    unsafe { AtomicU64::from_ptr(block.as_mut_ptr().cast()) }
}

fn refused(error: HeapError) -> MeasureError {
    MeasureError::fail(format!("the shared heap: {error}"))
}
