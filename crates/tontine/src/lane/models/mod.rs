//! Models of the lane: loom runs each model in every interleaving, and lets every load return every
//! value that the language's memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tontine --lib --release models`
//!
//! [`order`] checks the order of two senders, [`ring`] that messages arrive. [`sleep`] checks that
//! no end sleeps while the condition that it waits for holds. The models run the library's own
//! LaneWriter, LaneReader and position on
//! a [`ModelRegion`](super::region::models::ModelRegion). A model's chunk has 2⁸ bytes and a ring
//! of 128 bytes, less than the smallest real chunk. Threads do not wait for each other: a thread
//! that has no more work exits, and the remaining records are checked after the other thread has
//! exited. Each model also runs with an [`InjectedFault`], and must then fail.

mod order;
mod ring;
mod sleep;

use crate::sync::weakened::{self, InjectedFault};

/// Runs `body` in every interleaving, with an injected fault.
fn check(fault: InjectedFault, body: impl Fn() + Sync + Send + 'static) {
    loom::model(move || {
        weakened::set(fault);
        body();
        weakened::set(InjectedFault::None);
    });
}
