//! The text of `tontine explain survival`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `survival`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A process can end at any instruction: by kill -9, by the kernel when memory runs out, by \
         a bug. Its work is left unfinished. If it held a lock, the lock stays locked; \
         if it was about to wake another process, that process is not woken.",
        "Some mechanisms belong to the kernel, which closes a dead process's descriptors and so \
         notifies the holder of the other end. Others are plain memory, of which the kernel knows \
         nothing: the survivor waits indefinitely. This experiment kills processes, and counts the \
         outcomes.",
        "Three things can go wrong. The survivor is wedged: it blocks or spins and never notices. \
         A message is torn: it arrives with contents that were never sent. Or a message is lost: \
         its send had returned successfully, and it never arrives.",
    ],
    steps: &[
        "Two fresh processes are connected by the mechanism and pass numbered messages back and \
         forth. All other processes close their copies of the ends, so that only the mechanism can \
         notify.",
        "One of the two, chosen at random, is killed with SIGKILL at a random moment.",
        "The survivor has 200 ms to notice. In most rows it has no help: no timer, and no check \
         whether the other is alive. If it has not noticed by then, it counts as wedged.",
        "In a row whose name ends with -monitored, the mechanism is used as its documentation \
         recommends for crashes: the survivor also asks a liveness API, when it has waited for 10 \
         ms or when the library reports an event. The row without -monitored asks none.",
        "Both have logged, in memory that outlives them, what they sent and received: from these \
         logs the referee decides what was torn and what was lost.",
    ],
    timing: "`notice` runs from just before the kill to the survivor's stamp when its mechanism \
             has notified it, for those that noticed, by the time stamp counter. The shares are \
             not timed: each is a count of kills.",
    found: "",
    reading: "A share of 0 after some hundreds of kills does not prove that it cannot happen: \
              chance seldom hits a window of a few nanoseconds. `tontine crash` kills at every \
              instruction instead. `lost` is near 100 % for all mechanisms that keep messages out \
              of the sender's reach, because unread messages vanish with their receiver; \
              `lost_with_sender` counts only messages of a dead sender. Mechanisms between threads \
              are left out: a kill ends both. Compare a mechanism with its -monitored row: the \
              first shows what the queue alone reports, the second what a program gets that \
              follows the documentation. Neither notices a process that is alive but hangs.",
    calls: &[
        (
            "all",
            "in `notice`: kill, the kernel's work on the dying process, and the call in which the \
             survivor blocks",
        ),
        ("pipe, unix-stream, unix-seqpacket, tcp-loopback, eventfd", "read or write"),
        ("futex, semaphore-process, condvar", "futex(FUTEX_WAIT)"),
        ("posix-mq", "mq_timedsend or mq_timedreceive"),
        ("signal", "rt_sigtimedwait"),
        ("zmq-ipc", "poll, by the socket"),
        ("mailbox", "epoll_pwait"),
        ("spinlock-tas-process, spinlock-ttas-process, iceoryx2", "none: the survivor spins"),
    ],
};
