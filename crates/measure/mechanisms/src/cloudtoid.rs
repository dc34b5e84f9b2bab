//! Queues of Cloudtoid Interprocess in shared memory: `cloudtoid`, whose receiver waits in `recv`,
//! and `cloudtoid-spin`, whose receiver polls.
//!
//! The library recovers queues from killed processes by itself, but offers no call that reports a
//! death; so there is no row that asks a liveness API. The files of the queues are in a
//! `QueueDir`, a private directory where temporary files are, as by default. Each queue also has a
//! semaphore in `/dev/shm`. Both ends are opened after the fork, as the library requires.

use std::time::Duration;

use tontine_bench::about::Idling;

use crate::about::{AfterKill, Death, Explored, Listing, Mechanism, RowKind, Twin};
use crate::driver::NAMED_BYTES;
use crate::operation::Operation;

/// Capacity in bytes of a named queue, as in the library's documentation.
const NAMED_CAPACITY: usize = 1 << 16;

const KILLED: Death = Death::LeavesOne { row: "cloudtoid", survivor: AfterKill::Wedged };

pub const WAITING: Mechanism = Mechanism {
    is_peer: true,
    shared_up_to: usize::MAX,
    explored: Some(Explored {
        caveat: "After a death inside send, its recovery takes 10 s. After one inside receive, \
                 it takes 20 s and discards the messages of the first 10 s: as they were sent \
                 after the kill, they count as wedged",
        // A receiver that waits runs every 5 ms, so three times this duration counts. That is
        // longer than two recoveries.
        timeout: Some(Duration::from_secs(8)),
        ..Explored::new(
            "cloudtoid",
            "Cloudtoid Interprocess, a queue in shared memory",
            &[
                Operation::Connect,
                Operation::Send,
                Operation::SendWaking,
                Operation::Receive,
                Operation::Close,
            ],
            // A message is preceded by 8 bytes.
            || (NAMED_CAPACITY / (NAMED_BYTES + 8)) as u32,
        )
    }),
    ..Mechanism::new(
        "cloudtoid",
        KILLED,
        &[
            Listing::new(
                RowKind::RoundTrip,
                "two Cloudtoid Interprocess queues; the receiver waits in recv_timeout",
            )
            .calling(CALLS),
            Listing::new(
                RowKind::Throughput,
                "a Cloudtoid Interprocess queue; the receiver waits in recv_timeout, a sender \
                 yields while the queue is full; processes",
            )
            .calling(CALLS)
            .in_brief(),
            Listing::new(
                RowKind::Survival,
                "two Cloudtoid Interprocess queues, which have no liveness API",
            )
            .calling("futex(FUTEX_WAIT_BITSET) with a timeout of 5 ms"),
        ],
    )
};

pub const POLLING: Mechanism = Mechanism {
    idle: Idling::Spins,
    is_peer: true,
    shared_up_to: usize::MAX,
    twin: Some(Twin::Sleeping("cloudtoid")),
    ..Mechanism::new(
        "cloudtoid-spin",
        KILLED,
        &[
            Listing::new(
                RowKind::RoundTrip,
                "two Cloudtoid Interprocess queues, both processes poll",
            )
            .calling("none to pass a message; both ends poll"),
            Listing::new(
                RowKind::Throughput,
                "a Cloudtoid Interprocess queue; the receiver polls, a sender yields while the \
                 queue is full; processes",
            )
            .calling("none to pass a message; sched_yield while the queue is full"),
        ],
    )
};

const CALLS: &str = "sem_post and sem_timedwait: futex(FUTEX_WAKE) and futex(FUTEX_WAIT_BITSET), \
                     none if a message is present; sched_yield while the queue is full";

#[cfg(feature = "peers")]
pub mod queues;
