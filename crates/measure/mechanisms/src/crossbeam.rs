//! Crossbeam's channels between threads: `crossbeam`. A receiver that finds no message sleeps.
//!
//! A round trip uses bounded channels. A stream uses an unbounded channel, which would fill all
//! memory if the sender were faster than the receiver, so senders stay within a window. The window
//! is far larger than the capacity of a bounded queue.

use crate::about::{Between, Death, Listing, Mechanism, RowKind};
use tontine_bench::about::Idling;

pub struct Crossbeam;

pub const MECHANISM: Mechanism = Mechanism {
    idle: Idling::Mediated,
    between: Between::Threads,
    is_peer: true,
    shared_up_to: usize::MAX,
    ..Mechanism::new(
        "crossbeam",
        Death::TakesBoth,
        &[
            Listing::new(RowKind::RoundTrip, "two bounded crossbeam channels; two threads"),
            Listing::new(
                RowKind::Throughput,
                "an unbounded crossbeam channel, each message a box; threads",
            ),
        ],
    )
};

#[cfg(feature = "peers")]
mod channels;
