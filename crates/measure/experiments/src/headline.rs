//! The cells of a short run: [`HEADLINE`].
//!
//! They answer the questions of the verdict: which mechanism to use between processes, whether to
//! spin or to sleep, which mechanism survives a kill, what a liveness check costs, whether to use
//! threads or processes, whether to pad, and which allocator to use. Their numbers of invocations
//! are chosen so that a default run takes less than 150 seconds on two processors, and a quick run
//! less than 60. Most go to the mechanisms that wake a receiver, because the kernel's choice of a
//! processor differs from one invocation to the next.

use tontine_bench::suite::HeadlineCells;

pub(crate) const HEADLINE: &[HeadlineCells] = &[
    cells(
        "round-trip",
        &[
            "flag-one-line",
            "flag-two-lines",
            "mailbox-spin",
            "mailbox-default",
            "iceoryx2",
            "rtrb",
            "spinlock-ttas",
            "spinlock-ttas-process",
        ],
        CROSS_CORE,
        [8, 20, 40],
    ),
    cells(
        "round-trip",
        &["futex", "eventfd", "pipe", "unix-stream", "tcp-loopback", "zmq-ipc", "mailbox-sleep"],
        CROSS_CORE,
        [8, 16, 40],
    ),
    cells("round-trip", &["container-unix"], CROSS_CORE, [1, 2, 6]),
    cells("wake-up", &["mailbox-sleep"], CROSS_CORE, [6, 24, 40]),
    cells(
        "survival",
        &[
            "mailbox",
            "iceoryx2",
            "iceoryx2-monitored",
            "zmq-ipc",
            "zmq-ipc-monitored",
            "pipe",
            "unix-stream",
            "eventfd",
        ],
        &[],
        [4, 6, 20],
    ),
    cells(
        "liveness-check",
        &["load", "life-word", "futex-word", "mutex-trylock", "epoll-socket", "kill-0"],
        &[],
        [6, 32, 40],
    ),
    cells("thread-vs-process", &["thread", "fork", "posix-spawn"], SMALL_PARENT, [6, 24, 40]),
    cells("false-sharing", &["distance"], CROSS_CORE, [8, 24, 40]),
    cells("allocators", &["glibc-one-arena", "glibc", "snmalloc"], &[], [6, 24, 40]),
];

const fn cells(
    experiment: &'static str,
    variants: &'static [&'static str],
    params: &'static [(&'static str, &'static str)],
    invocations: [usize; 3],
) -> HeadlineCells {
    HeadlineCells { experiment, variants, params, invocations }
}

const CROSS_CORE: &[(&str, &str)] = &[("placement", "cross-core")];
const SMALL_PARENT: &[(&str, &str)] = &[("parent", "1 MiB"), ("placement", "same-core")];
