//! The text of `tontine explain death-notice`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `death-notice`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "When a process dies, another process usually has to know: to take over its work, to free \
         what it held, to start it again. The kernel notifies in many ways, and not all of them at \
         the same point of a death. A dying process first leaves its threads' robust locks marked, \
         then releases its memory, then closes its descriptors, then becomes a zombie and sends \
         SIGCHLD, and disappears when its parent has reaped it.",
        "So mechanisms differ in when they can notify at all, and also in how the notice arrives: \
         a process that spins sees a mark immediately, a process that sleeps must be woken.",
    ],
    steps: &[
        "For each sample a fresh process is created that registers as the variant needs, and idles \
         on a processor of its own.",
        "It is killed with SIGKILL, or it exits by itself; `cause` says which.",
        "The watcher waits for the notice, spinning or blocked; `waiting` says which. The thread \
         that ends the process is the one that waits.",
        "Variants that report a process as alive until it is reaped get a thread that reaps at \
         once.",
    ],
    timing: "From just before the call that kills, or from the dying process's own last stamp \
             before its exit, to the moment when the mechanism has notified, by the time stamp \
             counter. Where two processors' counters are compared, the band of their offset is in \
             the notes of the figure. Creating the process is left out.",
    found: "",
    reading: "The dying process is small. One with gigabytes of memory takes longer to die, and a \
              mechanism that notifies after its memory is released is later by as much. If the \
              watcher blocks, its processor falls idle meanwhile, and waking it is part of the \
              figure, and a large part of it in a virtual machine. `polling-thread` cannot be \
              faster than its period of a millisecond.",
    calls: &[
        ("all, where the cause is SIGKILL", "pidfd_send_signal, at the beginning"),
        ("futex-word, own-robust-list, life-word", "none: they read a word that the kernel marks"),
        ("mailbox-send", "none until the library has to check the end of a receiver"),
        ("robust-futex-wait", "futex(FUTEX_WAIT), in pthread_mutex_lock"),
        ("hang-up-poll, pidfd-poll, mailbox-pidfd-poll", "poll"),
        ("hang-up-epoll", "epoll_wait"),
        ("sigchld", "rt_sigtimedwait"),
        ("wait4", "wait4"),
        ("pipe-eof", "read"),
        (
            "mailbox",
            "a wait in epoll_pwait or poll, and then the calls by which a sender confirms the \
             death",
        ),
        ("kill-0", "kill, over and over; wait4 in the reaping thread"),
        ("pidfd-signal-0", "pidfd_send_signal, over and over; wait4 in the reaping thread"),
        ("procfs-faccessat", "faccessat, over and over; wait4 in the reaping thread"),
        (
            "polling-thread",
            "none in the thread that spins; faccessat and a sleep in the one that checks",
        ),
    ],
};
