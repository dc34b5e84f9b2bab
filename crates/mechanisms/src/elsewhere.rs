//! Mechanisms whose ends the round trip opens itself: the lower bound of the hardware, a block that
//! is handed over, and two ends in containers.

use crate::about::{Asked, Death, Idle, Listing, Mechanism, Need};
use crate::driver::Driver;

/// `flag-one-line`.
pub struct FlagInOneLine;

impl Driver for FlagInOneLine {
    const MECHANISM: Mechanism = flag(
        "flag-one-line",
        &[Listing::new(
            Asked::RoundTrip,
            "a flag in shared memory, both processes spin: the floor of this hardware",
        )],
    );
}

/// `flag-two-lines`.
pub struct FlagInTwoLines;

impl Driver for FlagInTwoLines {
    const MECHANISM: Mechanism = flag(
        "flag-two-lines",
        &[Listing::new(
            Asked::RoundTrip,
            "a flag for each direction, in its own cache line: the floor if each process writes \
             only its own memory",
        )],
    );
}

const fn flag(name: &'static str, rows: &'static [Listing]) -> Mechanism {
    let death = Death::As {
        other: "spinlock-tas-process",
        why: "not killed: a bare word notifies no process; its observer spins on, as in",
    };
    Mechanism { idle: Idle::Spins, ..Mechanism::new(name, death, rows) }
}

/// `hand-over`.
pub struct BlockHandOver;

impl Driver for BlockHandOver {
    const MECHANISM: Mechanism = Mechanism {
        idle: Idle::Spins,
        ..Mechanism::new(
            "hand-over",
            Death::As {
                other: "mailbox",
                why: "not killed here with a block in flight (`tontine crash heap` does that); the \
                      lane is that of",
            },
            &[Listing::new(
                Asked::RoundTrip,
                "like mailbox-spin, with a block of the shared heap as message: 1 MiB, no copy",
            )],
        )
    };
}

/// `container-tcp`.
pub struct ContainerTcp;

impl Driver for ContainerTcp {
    const MECHANISM: Mechanism = Mechanism {
        idle: Idle::Mediated,
        needs: &[Need::Engine],
        ..Mechanism::new(
            "container-tcp",
            Death::As {
                other: "tcp-loopback",
                why: "not killed between containers; the mechanism inside is that of",
            },
            &[Listing::new(
                Asked::RoundTrip,
                "TCP with TCP_NODELAY between two containers of a Docker engine, on a network of \
                 their own",
            )],
        )
    };
}

/// `container-unix`.
pub struct ContainerUnix;

impl Driver for ContainerUnix {
    const MECHANISM: Mechanism = Mechanism {
        idle: Idle::Mediated,
        needs: &[Need::Engine],
        ..Mechanism::new(
            "container-unix",
            Death::As {
                other: "unix-stream",
                why: "not killed between containers; the mechanism inside is that of",
            },
            &[Listing::new(
                Asked::RoundTrip,
                "a Unix stream socket between two containers of a Docker engine, on a volume that \
                 both mount",
            )],
        )
    };
}

/// `container-netns`.
pub struct ContainerNetns;

impl Driver for ContainerNetns {
    const MECHANISM: Mechanism = Mechanism {
        idle: Idle::Mediated,
        needs: &[Need::Namespaces],
        ..Mechanism::new(
            "container-netns",
            Death::As {
                other: "tcp-loopback",
                why: "not killed between namespaces; the mechanism inside is that of",
            },
            &[Listing::new(
                Asked::RoundTrip,
                "TCP with TCP_NODELAY between two processes in namespaces of their own: bridge, \
                 veth, no engine",
            )],
        )
    };
}
