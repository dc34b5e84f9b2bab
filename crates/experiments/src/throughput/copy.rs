//! The floor: a plain copy of each message from one buffer into another.

use std::hint::black_box;

use tontine_host::error::Result;

use super::harness::{self, Batches, StreamPlan};

/// Times the copy on the processor of the calling thread.
pub(super) fn run(plan: &StreamPlan) -> Result<Batches> {
    let source = vec![1_u8; plan.bytes];
    let mut target = vec![2_u8; plan.bytes];
    harness::alone(plan, || {
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
        Ok(())
    })
}
