//! Two threads of a child that run the same operation at the same time: [`together`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tontine_bench::machine::topology::Placement;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin;
use tontine_host::os::shared::SharedMapping;

use crate::signal_delivery::patience::{describe, has_ended};

/// Number of operations in a batch.
pub(super) const BATCH: usize = 100;
/// Maximum number of batches of one thread.
pub(super) const MOST: usize = 512;
/// Polling interval of the parent.
const LOOK: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_secs(5);
/// Status of a child that could not set itself up.
const NO_SET_UP: i32 = 5;

/// Number of wrong operations in each batch of each thread.
type Wrong = [[AtomicU32; MOST]; 2];

/// Runs `batches` batches of `operation` in two threads at the same time. The arguments of the
/// operation are the thread's number, 0 or 1, and the operation's number; it returns `true` if the
/// result was right. Returns the number of wrong operations per batch, first those of the first
/// thread, then those of the second. The child calls `finish` last.
///
/// # Errors
/// Returns `Skipped` if the system refuses a process, and `Failed` if the child dies or takes too
/// long.
pub(super) fn together(
    placement: Placement,
    batches: usize,
    operation: impl Fn(usize, usize) -> bool + Sync,
    finish: impl FnOnce(),
) -> Result<Vec<u32>> {
    let batches = batches.min(MOST);
    let wrong = SharedMapping::<Wrong>::anonymous()?;
    let begun = SharedMapping::<AtomicU32>::anonymous()?;
    let mut child = Child::fork(|| {
        let one = |side: usize, processor: usize| {
            let pinned = pin::pin_to(processor).is_ok();
            begun.fetch_add(1, Ordering::Relaxed);
            while begun.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            for batch in 0..batches {
                let numbers = batch * BATCH..(batch + 1) * BATCH;
                let count = numbers.filter(|&number| !operation(side, number)).count();
                wrong[side][batch].store(count as u32, Ordering::Relaxed);
            }
            pinned
        };
        let both = std::thread::scope(|scope| {
            let other = std::thread::Builder::new().spawn_scoped(scope, || one(1, placement.there));
            let Ok(other) = other else { return false };
            let first = one(0, placement.here);
            other.join().unwrap_or(false) && first
        });
        finish();
        if both { 0 } else { NO_SET_UP }
    })?;
    let since = Instant::now();
    while !has_ended(&child) {
        if since.elapsed() > PATIENCE {
            return Err(MeasureError::fail(format!(
                "expected two threads to finish their work within {PATIENCE:?}: is the machine \
                 overloaded?"
            )));
        }
        std::thread::sleep(LOOK);
    }
    let ended = describe(child.wait()?);
    if ended != "exited with status 0" {
        return Err(MeasureError::fail(format!(
            "expected the child to finish its work, but it {ended}"
        )));
    }
    let of_one = |side: &[AtomicU32; MOST]| -> Vec<u32> {
        side[..batches].iter().map(|count| count.load(Ordering::Relaxed)).collect()
    };
    Ok(wrong.iter().flat_map(of_one).collect())
}
