//! The library's shared heap in several processes of one experiment. Errors are converted to
//! [`MeasureError`].

#![allow(unsafe_code, reason = "joins the heap in a forked child")]

use tontine::heap::HeapError;
use tontine::heap::shared::Heap;
use tontine_bench::error::{MeasureError, Result};

/// Joins the heap in a forked child of its creator.
pub fn rejoined(heap: &Heap) -> Result<Heap> {
    // SAFETY: all members are processes of one experiment and use this library; none of them has
    // another descriptor of the file or closes the one that it inherited.
    unsafe { heap.rejoin() }.map_err(refused)
}

#[cold]
pub fn refused(error: HeapError) -> MeasureError {
    MeasureError::fail(format!("the shared heap: {error}"))
}

/// Recovers dead members, then checks that no process holds a block of the heap.
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
