//! The library's shared heap in several processes of one experiment. Its errors become
//! [`MeasureError`].

#![allow(unsafe_code, reason = "joins the heap in a forked child")]

use tontine::heap::HeapError;
use tontine::heap::shared::Heap;
use tontine_host::error::{MeasureError, Result};

/// Joins the heap in a forked child of its creator.
///
/// # Errors
/// Failed, if the child cannot join.
pub fn rejoined(heap: &Heap) -> Result<Heap> {
    // SAFETY: all members are processes of one experiment, by this library; none of them has
    // another descriptor of the file, nor closes the one that it inherited.
    unsafe { heap.rejoin() }.map_err(refused)
}

/// Returns the trouble of a heap's error.
#[cold]
pub fn refused(error: HeapError) -> MeasureError {
    MeasureError::fail(format!("the shared heap: {error}"))
}

/// Recovers dead members, then checks the heap, in which no process should hold a block any more.
///
/// # Errors
/// Failed, if the check finds a fault, or a block is not free.
pub fn must_be_free(heap: &Heap) -> Result<()> {
    heap.recover_and_trim().map_err(refused)?;
    let report = heap.check().map_err(refused)?;
    match (report.faults.first(), report.in_use()) {
        (None, 0) => Ok(()),
        (Some(fault), _) => Err(MeasureError::fail(format!("the shared heap: {fault}"))),
        (None, bytes) => Err(MeasureError::fail(format!(
            "the shared heap: expected every block to be free at the end, found {bytes} bytes \
             that are not"
        ))),
    }
}
