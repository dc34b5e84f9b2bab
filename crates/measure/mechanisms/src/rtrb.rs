//! rtrb's rings between threads, on which both ends spin: `rtrb`.

use crate::about::{Between, Death, Listing, Mechanism, RowKind};
use tontine_bench::about::Idling;

pub const MECHANISM: Mechanism = Mechanism {
    idle: Idling::Spins,
    between: Between::Threads,
    is_peer: true,
    ..Mechanism::new(
        "rtrb",
        Death::TakesBoth,
        &[
            Listing::new(RowKind::RoundTrip, "two rtrb rings, both threads spin"),
            Listing::new(
                RowKind::Throughput,
                "an rtrb ring of words, of bytes for larger messages; both threads spin",
            ),
        ],
    )
};

#[cfg(feature = "peers")]
pub mod rings;
