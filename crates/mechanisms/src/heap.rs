//! The library's heap in several processes of one experiment: who joins it, and what it says, as
//! [`Trouble`].

#![allow(unsafe_code, reason = "joins the heap in a forked child")]

use tontine::heap::HeapError;
use tontine::heap::shared::Heap;
use tontine_host::trouble::{Result, Trouble};

/// The heap, in a forked child of who made it, as a member of its own.
///
/// # Errors
/// Failed, where it cannot be had.
pub fn rejoined(heap: &Heap) -> Result<Heap> {
    // SAFETY: all members are processes of one experiment, by this library; none of them has
    // another descriptor of the file, nor closes the one that it inherited.
    unsafe { heap.rejoin() }.map_err(refused)
}

/// What the heap said.
#[cold]
pub fn refused(error: HeapError) -> Trouble {
    Trouble::fail(format!("the shared heap: {error}"))
}

/// Looks after the dead, and then at all of it, when nobody should have a block any more.
///
/// # Errors
/// Failed, where something is wrong, or a block is not free.
pub fn must_be_free(heap: &Heap) -> Result<()> {
    heap.recover_and_trim().map_err(refused)?;
    let report = heap.check().map_err(refused)?;
    match (report.faults.first(), report.in_use()) {
        (None, 0) => Ok(()),
        (Some(fault), _) => Err(Trouble::fail(format!("the shared heap: {fault}"))),
        (None, bytes) => Err(Trouble::fail(format!(
            "the shared heap: expected every block to be free at the end, found {bytes} bytes \
             that are not"
        ))),
    }
}
