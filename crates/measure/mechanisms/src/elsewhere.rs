//! Mechanisms whose ends the round trip opens itself: the lower bound of the hardware, a block that
//! is handed over, and two ends in containers.

use crate::about::{Death, Listing, Mechanism, RowKind};
use tontine_bench::about::Idling;

pub const FLAG_IN_ONE_LINE: Mechanism = flag(
    "flag-one-line",
    &[Listing::new(
        RowKind::RoundTrip,
        "a flag in shared memory, both processes spin: the floor of this hardware",
    )],
);

pub const FLAG_IN_TWO_LINES: Mechanism = flag(
    "flag-two-lines",
    &[Listing::new(
        RowKind::RoundTrip,
        "a flag for each direction, in its own cache line: the floor if each process writes \
         only its own memory",
    )],
);

const fn flag(name: &'static str, rows: &'static [Listing]) -> Mechanism {
    let death = Death::As {
        other: "spinlock-tas-process",
        why: "not killed: a bare word notifies no process; its observer spins on, as in",
    };
    Mechanism { idle: Idling::Spins, ..Mechanism::new(name, death, rows) }
}

pub const HAND_OVER: Mechanism = Mechanism {
    idle: Idling::Spins,
    ..Mechanism::new(
        "hand-over",
        Death::As {
            other: "mailbox",
            why: "not killed here with a block in flight (`tontine-measure crash heap` does \
                  that); the lane is that of",
        },
        &[Listing::new(
            RowKind::RoundTrip,
            "like mailbox-spin, with a block of the shared heap as message: 1 MiB, no copy",
        )],
    )
};

pub const CONTAINER_TCP: Mechanism = Mechanism {
    idle: Idling::Mediated,
    ..Mechanism::new(
        "container-tcp",
        Death::As {
            other: "tcp-loopback",
            why: "not killed between containers; the mechanism inside is that of",
        },
        &[Listing::new(
            RowKind::RoundTrip,
            "TCP with TCP_NODELAY between two containers of a Docker engine, on a network of \
             their own",
        )],
    )
};

pub const CONTAINER_UNIX: Mechanism = Mechanism {
    idle: Idling::Mediated,
    ..Mechanism::new(
        "container-unix",
        Death::As {
            other: "unix-stream",
            why: "not killed between containers; the mechanism inside is that of",
        },
        &[Listing::new(
            RowKind::RoundTrip,
            "a Unix stream socket between two containers of a Docker engine, on a volume that \
             both mount",
        )],
    )
};
