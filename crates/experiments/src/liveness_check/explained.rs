//! What `liveness-check` is, for somebody who meets it for the first time.

use tontine_bench::about::Explanation;

/// The explanation of `liveness-check`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "Whoever writes into a queue in shared memory should know that somebody will read it. \
         The queue itself cannot tell: memory does not change when its reader dies. So the writer \
         asks before each message whether the reader is alive, and what that question costs is \
         added to every message.",
        "There are many ways to ask. kill(pid, 0) sends no signal and only says whether there is \
         such a process; but numbers are used again, and a dead process that nobody has reaped \
         still counts. A descriptor names one process for good. And a robust mutex, held for life \
         by the process that is watched, is marked by the kernel itself when that process dies: \
         then one look at memory is enough.",
        "A cheap answer is worth little if it is wrong. So beside the price stands what each way \
         says of events that are really brought about: exit, exec, a zombie, a number used again.",
    ],
    steps: &[
        "A process is started that registers in the way that the variant needs, and then idles.",
        "The check is made in a loop that counts in a register; the same loop without a check, \
         and with a bare load, takes turns with it in the same process.",
        "The ratio to the empty loop is taken in pairs of neighbouring batches.",
        "Then the events are brought about one by one, and each way is asked. An answer that \
         differs from the truth is a wrong one, and is shown as such.",
    ],
    timing: "A sample is the mean of a batch: 1,000 checks where each enters the kernel, some ten \
             thousands where it only reads memory, between two reads of the time stamp counter. \
             The loop is part of the figure, as in the source; it is not subtracted, because \
             below a nanosecond the parts of a loop overlap.",
    found: "Source 002, on a Thinkpad X220 (Intel i5-2520M), Linux 4.19, seconds for ten million \
            loops and the ratio to the empty one: dummy 0.04 s (1.0), load 0.04 s (1.0), mutex \
            0.14 s (3.5), epoll on an empty set 1.28 s (32.0), kill 1.78 s (44.5), procfs 8.19 s \
            (204.8).",
    reading: "Look at the matrix of what was tried first, at the price second: the cheapest way \
              that was never wrong is the one to take. Ways that enter the kernel cost more where \
              mitigations make system calls dear. The watched process idles: a word that it \
              shares a cache line with would cost more if it wrote there.",
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
