//! Two threads of a child that run the same operation at the same time: [`together`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::prelude::*;

pub(super) const BATCH: usize = 100;
const MOST: usize = 512;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `batches` batches of `operation` in two threads at the same time. The arguments of the
/// operation are the thread's number, 0 or 1, and the operation's number; it returns `true` if the
/// result was right. Returns the number of wrong operations per batch, first those of the first
/// thread, then those of the second. The child calls `finish` last.
pub(super) fn together(
    placement: Placement,
    batches: usize,
    operation: impl Fn(usize, usize) -> bool + Sync,
    finish: impl FnOnce(),
) -> Result<Vec<u32>> {
    let batches = batches.min(MOST);
    let wrong = SharedMapping::<[[AtomicU32; MOST]; 2]>::anonymous()?;
    let errors = ChildError::new()?;
    let work = |side: usize, ()| {
        for batch in 0..batches {
            let numbers = batch * BATCH..(batch + 1) * BATCH;
            let count = numbers.filter(|&number| !operation(side, number)).count();
            wrong[side][batch].store(count as u32, Ordering::Relaxed);
        }
        Ok(())
    };
    let mut child = Child::fork(|| {
        let pin = |side: usize| pin::pin_to([placement.here, placement.there][side]);
        let done = threads::together(2, pin, work);
        finish();
        errors.status(done.map(drop))
    })?;
    if !ends_within(child.pid(), TIMEOUT)? {
        bail!(
            "expected two threads to finish their work within {TIMEOUT:?}: is the machine \
             overloaded?"
        );
    }
    child.expect_success("the child").map_err(|ours| errors.heard().unwrap_or(ours))?;
    let of_one = |side: &[AtomicU32; MOST]| -> Vec<u32> {
        side[..batches].iter().map(|count| count.load(Ordering::Relaxed)).collect()
    };
    Ok(wrong.iter().flat_map(of_one).collect())
}
