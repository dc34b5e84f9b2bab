//! The cells of a short run: [`HEADLINE`].
//!
//! They answer the questions of the verdict: which mechanism to use between processes, whether to
//! spin or to sleep, which mechanism survives a kill, what a liveness check costs, whether to use
//! threads or processes, whether to pad, and which allocator to use. Their numbers of invocations
//! are chosen so that a default run takes less than 150 seconds on two processors, and a quick run
//! less than 60. Most go to the mechanisms that wake a receiver, because the kernel's choice of a
//! processor differs from one invocation to the next.

use tontine_bench::suite::HeadlineCells;

/// The cells that a run without names measures.
pub(crate) const HEADLINE: &[HeadlineCells] = &[
    HeadlineCells {
        experiment: "round-trip",
        variants: &[
            "flag-one-line",
            "flag-two-lines",
            "mailbox-spin",
            "mailbox-default",
            "iceoryx2",
            "rtrb",
            "spinlock-ttas",
            "spinlock-ttas-process",
        ],
        params: CROSS_CORE,
        invocations: [8, 20, 40],
    },
    HeadlineCells {
        experiment: "round-trip",
        variants: &[
            "futex",
            "eventfd",
            "pipe",
            "unix-stream",
            "tcp-loopback",
            "zmq-ipc",
            "mailbox-sleep",
        ],
        params: CROSS_CORE,
        invocations: [8, 16, 40],
    },
    HeadlineCells {
        experiment: "round-trip",
        variants: &["container-unix"],
        params: CROSS_CORE,
        invocations: [1, 2, 6],
    },
    HeadlineCells {
        experiment: "wake-up",
        variants: &["mailbox-sleep"],
        params: CROSS_CORE,
        invocations: [6, 24, 40],
    },
    HeadlineCells {
        experiment: "survival",
        variants: &[
            "mailbox",
            "iceoryx2",
            "iceoryx2-monitored",
            "zmq-ipc",
            "zmq-ipc-monitored",
            "pipe",
            "unix-stream",
            "eventfd",
        ],
        params: &[],
        invocations: [4, 6, 20],
    },
    HeadlineCells {
        experiment: "liveness-check",
        variants: &["load", "life-word", "futex-word", "mutex-trylock", "epoll-socket", "kill-0"],
        params: &[],
        invocations: [6, 32, 40],
    },
    HeadlineCells {
        experiment: "thread-vs-process",
        variants: &["thread", "fork", "posix-spawn"],
        params: &[("parent", "1 MiB"), ("placement", "same-core")],
        invocations: [6, 24, 40],
    },
    HeadlineCells {
        experiment: "false-sharing",
        variants: &["distance"],
        params: CROSS_CORE,
        invocations: [8, 24, 40],
    },
    HeadlineCells {
        experiment: "allocators",
        variants: &["glibc-one-arena", "glibc", "snmalloc"],
        params: &[],
        invocations: [6, 24, 40],
    },
];

const CROSS_CORE: &[(&str, &str)] = &[("placement", "cross-core")];
