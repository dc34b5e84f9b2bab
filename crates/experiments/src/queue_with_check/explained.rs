//! The text of `tontine explain queue-with-check`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `queue-with-check`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "The cost of a liveness check is a figure in nanoseconds. Its effect on a program is \
         a different figure: a queue in shared memory passes a message in a few nanoseconds, so a \
         check that takes a hundred makes it many times slower, while one that takes a third of a \
         nanosecond may vanish among other work.",
        "This experiment puts each check of `liveness-check` where it would be used: inside \
         `send`, before every message.",
    ],
    steps: &[
        "A plain ring of 4,096 slots of eight bytes is shared by two processes on two processors. \
         The receiver drains it and is the watched process.",
        "The sender sends a batch of messages, checking before each whether the receiver is alive, \
         and then one without checks; batches of both kinds alternate.",
        "A batch ends when the receiver has taken its last message.",
        "The quotient of neighbouring batches is the ratio: how much of the queue's speed the \
         check leaves.",
    ],
    timing: "From before the first send of a batch to the moment when its last message is taken, \
             by the time stamp counter; 20,000 messages per batch if the check only reads memory, \
             5,000 if it enters the kernel. Starting and registering are left out.",
    found: "Source 002 reports that kill(pid, 0) before each message cut the throughput of its own \
            queue by about half, on a Thinkpad X220; it gives no other figure for a queue.",
    reading: "The higher the better; `dummy` is the queue without a check. The ring is as fast as \
              two processors can be, which makes every check look expensive: a queue that does \
              more per message loses a smaller part. Both ends spin, so two processors are needed.",
    calls: &[
        (
            "dummy, load, futex-word, life-word, own-robust-list, lock-cmpxchg, mutex-trylock",
            "none",
        ),
        ("epoll-empty, epoll-socket", "epoll_wait before each message"),
        ("poll-socket", "poll before each message"),
        ("select-socket", "pselect6, by select, before each message"),
        ("kill-0", "kill before each message"),
        ("pidfd-signal-0", "pidfd_send_signal before each message"),
        ("procfs-faccessat", "faccessat before each message"),
        ("polling-thread", "none in the sender; faccessat every millisecond in a third thread"),
    ],
};
