//! Models of the lane: loom runs each model in every interleaving, and lets every load return every
//! value that the language's memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tontine --lib --release models`
//!
//! [`ring`] checks that messages arrive, [`sleep`] that no end sleeps while the condition it waits
//! for holds. LaneWriter, LaneReader and position are the library's own, on a
//! [`ModelRegion`](super::region::model::ModelRegion); a model's chunk is smaller than the smallest
//! real chunk (2⁸ bytes, with a ring of 128). Threads do not wait for each other: a thread without
//! work ends, and the rest is checked when the other thread has ended. Each model also runs with an
//! [`InjectedFault`], and must then fail.

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
