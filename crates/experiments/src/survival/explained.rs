//! What `survival` is, for somebody who meets it for the first time.

use tontine_bench::about::Explanation;

/// The explanation of `survival`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A process can end at any instruction: by kill -9, by the kernel when memory runs out, by \
         a bug. Whatever it was doing is left as it stands at that moment. If it held a lock, the \
         lock stays locked; if it was about to wake somebody, nobody is woken.",
        "Some mechanisms are kept by the kernel, which closes a dead process's descriptors and so \
         tells whoever holds the other end. Others are mere memory, of which the kernel knows \
         nothing: the survivor waits for good. This experiment kills, and counts.",
        "Three things can go wrong. The survivor is wedged: it blocks or spins and never notices. \
         A message is torn: it arrives with parts that were never sent so. Or a message is lost: \
         its send had returned, the mechanism had taken charge of it, and it never arrives.",
    ],
    steps: &[
        "Two fresh processes are joined by the mechanism and pass numbered messages to and fro. \
         Everybody else closes their ends, so that nothing but the mechanism can tell.",
        "One of the two, chosen at random, is killed with SIGKILL at a random moment.",
        "The survivor has 200 ms to notice. Nobody helps it: no timer, no question about the \
         other. If it has not noticed by then it counts as wedged.",
        "Both have written down, in memory that outlives them, what they sent and received: from \
         that the referee says what was torn and what was lost.",
    ],
    timing: "`notice` runs from just before the kill to the survivor's stamp when its mechanism \
             has told it, for those that noticed, by the time stamp counter. The shares are not \
             timed: each is a count of kills.",
    found: "",
    reading: "A share of 0 after some hundreds of kills does not prove that it cannot happen: a \
              window of a few nanoseconds is seldom hit by chance. `tontine crash` kills at every \
              instruction instead. `lost` is near 100 % for all mechanisms that keep mail out of \
              the sender's reach, because unread mail goes with its reader; `lost_with_sender` \
              counts only what a dead sender had sent. Mechanisms between threads are not \
              here: a kill takes both.",
    calls: &[
        (
            "all",
            "in `notice`: kill, the kernel's work on the dying process, and \
             whatever call the survivor blocks in",
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
