//! The text of `tontine explain round-trip`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `round-trip`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "Two processes that work together exchange messages now and then: a job, a result. One \
         machine has a dozen mechanisms for that. All of them must answer the same two questions: \
         how does the message get into memory that the receiver can read, and how does the \
         receiver learn that it is there?",
        "The second question decides the cost. A receiver that spins reads a word in shared \
         memory over and over: it sees the message as soon as the cache line arrives, after some \
         tens of nanoseconds, but it keeps a processor busy while nothing happens. A receiver that \
         sleeps gives up its processor: the sender must then enter the kernel to wake it, the \
         kernel must choose a processor and switch to it, which takes microseconds.",
        "This experiment sends one message there and one back, and reports half of that time: the \
         one-way latency.",
    ],
    steps: &[
        "Two ends are created, in one process (two threads) or in two (by fork), connected by the \
         mechanism, and pinned to the two processors that `placement` names.",
        "Warm-up: a tenth as many rounds as will be timed, at most 10,000, run first and are not \
         counted.",
        "In each round the first end sends a minimal message and waits; the second waits for it \
         and sends one back. `hot` pacing means that the next round starts immediately.",
        "In `hand-over` the message is a block of 1 MiB of `tontine::heap::shared`, of which a \
         parcel of 24 bytes crosses the mailbox. Each end writes a number into the block before it \
         hands it over, and the other end checks that number; if it is wrong, the row fails. At \
         the end the block must be free and the heap consistent.",
        "All samples of the invocation are summarised; half of a round is `one_way`.",
    ],
    timing: "The processor's time stamp counter is read between two rounds, so that the \
             differences add up to the time of the whole loop; starting processes, connecting and \
             warming up are left out. If the other end sleeps, every round is stamped. If both \
             spin, a stamp would cost a third of a round: there every hundredth round is stamped, \
             and in addition a tenth as many single rounds, as `one_way_single`.",
    found: "Source 004, on an Apple M2 under macOS, a million rounds each, lower and upper bound \
            of the mean in nanoseconds one way: spinlock 113.45 to 113.61, better spinlock 88.16 \
            to 88.24, semaphore 1,261.93 to 1,262.03, ZeroMQ within a process 8,866 to 8,871, \
            ZeroMQ between processes 28,163 to 28,173, Docker containers 17,779 to 17,784. Its \
            intervals treat consecutive rounds as independent and are therefore far too narrow.",
    reading: "Compare with `flag-one-line`, the floor of this hardware: one word, both ends \
              spinning. No mechanism between two processors can be faster. If each end may write \
              only its own memory, as in the mailbox, the floor is `flag-two-lines`. Compare only \
              rows of the same placement. Two sleeping ends on one processor can be faster than \
              on two, because no other processor must be woken. `mailbox-default` polls only \
              while that pays: on two processors it is as fast as `mailbox-spin`, on one most of \
              its waits sleep at once. A wake-up after a pause costs \
              much more than these hot ones. The difference between `hand-over` and \
              `mailbox-spin` is the cost of a message that is a block of any size; the cost of a \
              copy would grow with the bytes. In virtual machines every wake-up of an idle \
              processor costs more.",
    calls: &[
        (
            "flag-one-line, flag-two-lines, spinlock-tas, spinlock-ttas, spinlock-tas-process, \
             spinlock-ttas-process, rtrb",
            "none: both ends only read and write memory",
        ),
        ("iceoryx2", "none to pass a message; both ends poll"),
        (
            "mailbox-spin, hand-over",
            "none to pass a message; one epoll_pwait per some hundred polls, for new senders",
        ),
        (
            "semaphore, semaphore-process",
            "sem_post: futex(FUTEX_WAKE) if a thread waits; sem_wait: futex(FUTEX_WAIT) if the \
             count is zero",
        ),
        ("futex", "futex(FUTEX_WAKE) to send, futex(FUTEX_WAIT) to wait"),
        (
            "condvar",
            "pthread_cond_signal, pthread_cond_wait and the mutex: futex(FUTEX_WAKE) and \
             futex(FUTEX_WAIT), none if no thread waits",
        ),
        ("eventfd, pipe, unix-stream, unix-seqpacket, tcp-loopback", "write to send, read to wait"),
        ("posix-mq", "mq_timedsend to send, mq_timedreceive to wait"),
        ("signal", "tgkill to send, rt_sigtimedwait to wait"),
        (
            "zmq-inproc, zmq-ipc",
            "poll to wait, sendto and recvfrom on the socket pairs or eventfds by which the \
             library wakes its threads; for ipc also an I/O thread at each end, with epoll_wait",
        ),
        (
            "crossbeam",
            "sched_yield a few times; futex(FUTEX_WAIT), futex(FUTEX_WAKE) if that was in vain",
        ),
        (
            "mailbox-sleep",
            "sendto on the doorbell, once per sleep of the receiver; membarrier and epoll_pwait in \
             a receiver that goes to sleep, and recvmmsg after every fourth sleep (before Linux \
             6.16 recvmsg, two calls per ring and one more)",
        ),
        (
            "mailbox-default",
            "as in mailbox-spin if the message arrives while the end polls, as in mailbox-sleep \
             (with the fences of the sleeper) if it does not",
        ),
        (
            "container-tcp, container-netns",
            "write to send, read to wait, on a TCP socket; each packet crosses two veth pairs and \
             a bridge in the same call. To set it up, container-tcp talks to the engine through \
             its client; container-netns calls unshare, and sends netlink messages",
        ),
        (
            "container-unix",
            "write to send, read to wait, on a Unix socket; the engine's network and firewall are \
             not involved",
        ),
    ],
};
