//! The text of `tontine explain liveness-check`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `liveness-check`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A sender that writes into a queue in shared memory should know that it has a receiver. \
         The queue itself does not show it: memory does not change when the receiver dies. So the \
         sender checks before each message whether the receiver is alive, and the cost of that \
         check is added to every message.",
        "There are many ways to check. kill(pid, 0) sends no signal and only reports whether such \
         a process exists; but numbers are reused, and a dead process that has not been reaped \
         still counts. A descriptor names one process permanently. And a robust mutex, held by the \
         watched process while it lives, is marked by the kernel itself when that process \
         dies: then one load from memory is enough.",
        "A cheap answer is worth little if it is wrong. So the report shows next to the cost what \
         each way answers after events that really happen: exit, exec, a zombie, a reused number.",
    ],
    steps: &[
        "A process is started that registers as the variant needs, and then idles.",
        "The check runs in a loop that counts in a register; the same loop without a check, and \
         with a bare load, alternates with it in the same process.",
        "The ratio to the empty loop is taken in pairs of neighbouring batches.",
        "Then the events are caused one by one, and each way is tried. An answer that differs from \
         the truth is shown as wrong.",
    ],
    timing: "A sample is the mean of a batch: 1,000 checks if each enters the kernel, some ten \
             thousands if it only reads memory, between two reads of the time stamp counter. The \
             loop is part of the figure, as in the source; it is not subtracted, because below a \
             nanosecond the parts of a loop overlap.",
    found: "Source 002, on a Thinkpad X220 (Intel i5-2520M), Linux 4.19, seconds for ten million \
            loops and the ratio to the empty one: dummy 0.04 s (1.0), load 0.04 s (1.0), mutex \
            0.14 s (3.5), epoll on an empty set 1.28 s (32.0), kill 1.78 s (44.5), procfs 8.19 s \
            (204.8).",
    reading: "Read the matrix of tried events first, the costs second: take the cheapest way that \
              was never wrong. Ways that enter the kernel cost more if mitigations make system \
              calls expensive. The watched process idles: a word that it shares a cache line with \
              would cost more if it wrote there.",
    calls: &[
        (
            "dummy, load, futex-word, life-word, own-robust-list, lock-cmpxchg, mutex-trylock",
            "none",
        ),
        ("epoll-empty, epoll-socket", "epoll_wait with a timeout of zero"),
        ("poll-socket", "poll with a timeout of zero"),
        ("select-socket", "pselect6, by select, with a timeout of zero"),
        ("kill-0", "kill with signal 0"),
        ("pidfd-signal-0", "pidfd_send_signal with signal 0"),
        ("procfs-faccessat", "faccessat"),
        (
            "polling-thread",
            "none in the thread that is timed; faccessat every millisecond in another",
        ),
    ],
};
