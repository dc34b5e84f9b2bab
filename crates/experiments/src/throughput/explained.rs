//! The text of `tontine explain throughput`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `throughput`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "Latency of one message and number of messages per second are two questions. A sender that \
         need not wait for a reply sends the next message while the first is still in flight, and \
         a receiver that finds ten messages takes them all at one wake-up. So a mechanism with a \
         slow round trip may still stream well.",
        "Small messages show what each message costs: a system call, a lock, a wake-up. Large ones \
         show what each byte costs: how often it is copied. A pipe copies twice, into the kernel \
         and out of it; shared memory needs one copy, or none if a message is built and read in \
         place.",
    ],
    steps: &[
        "A receiver and as many senders as `senders` says are started, in processes or, if the \
         variant says so, in threads, each pinned to a processor as far as there are enough.",
        "Each sender numbers and labels its messages of `size` bytes and sends them as fast as \
         the mechanism takes them.",
        "The receiver warms up, fixes a batch that takes about a quarter of a millisecond, and \
         then takes messages and stamps batches until its time is spent. It checks every label: if \
         a message is lost, duplicated or torn, the row fails.",
        "Only then are the senders told to stop: the timed stream was running before and still \
         runs after.",
    ],
    timing: "Each sample is the mean of a batch, from the receiver's stamp after one batch to its \
             stamp after the next, with the time stamp counter. Connecting, warming up and the \
             last messages are left out. `rate` and `bandwidth` are the same figure over all \
             messages of an invocation.",
    found: "",
    reading: "`memcpy` is the floor of large messages: one plain copy on one processor, without a \
              notification. Zero copy beats it, because it copies nothing. If there are more \
              senders than processors, some take turns; the row says so. The caches matter: \
              messages that fit into them stream faster than main memory would allow. The figures \
              do not show the latency of one message.",
    calls: &[
        ("memcpy", "none"),
        ("pipe, unix-stream, tcp-loopback", "write by the sender, read by the receiver"),
        ("unix-seqpacket", "write and read, one packet each"),
        ("posix-mq", "mq_timedsend and mq_timedreceive"),
        (
            "zmq-inproc, zmq-ipc",
            "few per message, because the library batches: poll, sendto and recvfrom on the pairs \
             by which it wakes its threads; for ipc also epoll_wait in I/O threads",
        ),
        ("crossbeam", "sched_yield and futex, only if the receiver finds no message"),
        ("rtrb", "none: both ends spin"),
        ("iceoryx2", "none to pass a message; sched_yield while an end polls in vain"),
        (
            "mailbox, mailbox-zero-copy",
            "none while both are busy; sendto, epoll_pwait, recvmmsg (before Linux 6.16 recvmsg) \
             and membarrier if one has polled in vain and sleeps",
        ),
    ],
};
