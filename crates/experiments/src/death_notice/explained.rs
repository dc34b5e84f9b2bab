//! What `death-notice` is, for somebody who meets it for the first time.

use tontine_bench::about::Explanation;

/// The explanation of `death-notice`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "When a process dies, somebody usually has to know: to take over its work, to free what \
         it held, to start it anew. The kernel tells in many ways, and not all at the same point \
         of a death. A dying process first leaves its threads' robust locks marked, then gives \
         back its memory, then closes its descriptors, then becomes a zombie and sends SIGCHLD, \
         and is gone when its parent has reaped it.",
        "So mechanisms differ in when they can tell at all, and besides in how the news arrives: \
         somebody who spins sees a mark at once, somebody who sleeps must be woken.",
    ],
    steps: &[
        "For each sample a fresh process is made that registers in the way that the variant \
         needs, and idles on a processor of its own.",
        "It is killed with SIGKILL, or it exits by itself; `cause` says which.",
        "We wait for the notice, spinning or blocked; `waiting` says which. The same thread that \
         ends it waits for it.",
        "Ways that say alive until the dead process is reaped get a thread that reaps at once.",
    ],
    timing: "From just before the call that kills, or from the dying process's own last stamp \
             before its exit, to the moment when the mechanism has told, by the time stamp \
             counter. Where two processors' counters are compared, the band of their offset is \
             noted beside the figure. Making the process is left out.",
    found: "",
    reading: "The dying process is small. One with gigabytes of memory takes longer to die, and \
              whatever tells after its memory is given back tells later by as much. Where we \
              block, our own processor falls idle meanwhile, and waking it is part of the figure: \
              in a virtual machine a large part. `polling-thread` cannot be faster than its \
              period of a millisecond.",
    calls: &[
        ("all, where the cause is SIGKILL", "pidfd_send_signal, at the beginning"),
        ("futex-word, own-robust-list, life-word", "none: they read a word that the kernel marks"),
        ("mailbox-send", "none until the library has to look at the end of a reader"),
        ("robust-futex-wait", "futex(FUTEX_WAIT), in pthread_mutex_lock"),
        ("hang-up-poll, pidfd-poll, mailbox-pidfd-poll", "poll"),
        ("hang-up-epoll", "epoll_wait"),
        ("sigchld", "rt_sigtimedwait"),
        ("wait4", "wait4"),
        ("pipe-eof", "read"),
        (
            "mailbox",
            "a wait in epoll_pwait or poll, and then the calls by which a sender makes sure",
        ),
        ("kill-0", "kill, over and over; wait4 in the reaping thread"),
        ("pidfd-signal-0", "pidfd_send_signal, over and over; wait4 in the reaping thread"),
        ("procfs-faccessat", "faccessat, over and over; wait4 in the reaping thread"),
        (
            "polling-thread",
            "none in the thread that spins; faccessat and a sleep in the one that asks",
        ),
    ],
};
