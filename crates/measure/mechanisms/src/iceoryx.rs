//! iceoryx2 publish-subscribe between two processes, both of which poll: `iceoryx2`, which asks no
//! liveness API, and `iceoryx2-monitored`, which also checks the node list, as the FAQ and the
//! example `health_monitoring` of iceoryx2 do for crashes.
//!
//! If the two ends are forked, their services are in a `ServiceDir`: a private root directory and a
//! prefix in `/dev/shm`, named after their creator and removed with it. The directories of killed
//! processes are removed at the next start. A node is created in the process that uses it.

use std::time::Duration;

use crate::about::{AfterKill, Death, Explored, Listing, Mechanism, RowKind};
#[cfg(feature = "peers")]
use crate::driver::NAMED_BYTES;
use crate::operation::Operation;
use tontine_bench::about::Idling;

/// Capacity of a named subscriber's buffer in messages, which exceeds the number that any script
/// sends.
const NAMED_DEPTH: usize = 16;

/// Interval between two checks of the node list. The daemon of iceoryx2's example
/// `health_monitoring` checks it every 100 ms.
#[cfg(feature = "peers")]
const NODE_CHECK: Duration = Duration::from_millis(10);

pub struct Iceoryx;

pub struct MonitoredIceoryx;

pub const PLAIN: Mechanism = Mechanism {
    idle: Idling::Spins,
    is_peer: true,
    shared_up_to: usize::MAX,
    explored: Some(Explored {
        caveat: "A later subscriber does not get the messages that an earlier one did not \
                 read",
        // iceoryx2 waits a second for an object that another process has begun to create.
        timeout: Some(Duration::from_secs(5)),
        ..Explored::new(
            "iceoryx2",
            "iceoryx2, publish-subscribe, both ends polling",
            &[Operation::Connect, Operation::Send, Operation::Receive, Operation::Close],
            || NAMED_DEPTH as u32,
        )
    }),
    ..Mechanism::new(
        "iceoryx2",
        Death::LeavesOne { row: "iceoryx2", survivor: AfterKill::Wedged },
        &[
            Listing::new(RowKind::RoundTrip, "iceoryx2 publish-subscribe, both processes poll"),
            Listing::new(
                RowKind::Throughput,
                "iceoryx2 publish-subscribe that waits for space, all processes poll",
            ),
            Listing::new(
                RowKind::Survival,
                "iceoryx2 publish-subscribe, both ends poll; asks no liveness API",
            ),
        ],
    )
};

pub const MONITORED: Mechanism = Mechanism {
    idle: Idling::Spins,
    is_peer: true,
    ..Mechanism::new(
        "iceoryx2-monitored",
        Death::LeavesOne { row: "iceoryx2-monitored", survivor: AfterKill::Notified },
        &[Listing::new(
            RowKind::Survival,
            "the same; while it waits, checks the node list every 10 ms and removes dead nodes",
        )
        .calling("in Node::list: those of the node list's directory, and fcntl(F_GETLK)")],
    )
};

#[cfg(feature = "peers")]
mod services;
