//! What `throughput` is, for somebody who meets it for the first time.

use tontine_bench::about::Explanation;

/// The explanation of `throughput`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "How long one message takes and how many get through in a second are two questions. A \
         sender that need not wait for an answer sends the next message while the first is still \
         under way, and a receiver that finds ten messages takes them all for one wake-up. So a \
         mechanism whose round trip is slow may still stream well.",
        "Small messages show what each message costs: a system call, a lock, a wake-up. Large \
         ones show what each byte costs: how often it is copied. A pipe copies twice, into the \
         kernel and out of it; shared memory can do with one copy, or none where a message is \
         made and read in place.",
    ],
    steps: &[
        "A receiver and as many senders as `senders` says are started, in processes or, where \
         the variant says so, in threads, each pinned to a processor as far as there are enough.",
        "Each sender numbers and labels its messages of `size` bytes and sends them as fast as \
         the mechanism takes them.",
        "The receiver warms up, fixes a batch that takes about a quarter of a millisecond, and \
         then takes messages and stamps batches until its time is spent. It looks at every label: \
         a message lost, doubled or torn makes the row fail.",
        "Only then the senders are told to stop: what is timed is a stream that was running \
         before and goes on after.",
    ],
    timing: "Each sample is the mean of a batch, from the receiver's stamp after one batch to its \
             stamp after the next, with the time stamp counter. Connecting, warming up and the \
             last messages are left out. `rate` and `bandwidth` are the same figure over all \
             messages of an invocation.",
    found: "",
    reading: "`memcpy` is the floor of large messages: one plain copy on one processor, nobody \
              notified. Zero copy beats it, because it copies nothing. With more senders than \
              processors some take turns: the row says so. The caches matter: messages that fit \
              into them stream faster than main memory would let them. Nothing is said of how \
              long one message is under way.",
    calls: &[
        ("memcpy", "none"),
        ("pipe, unix-stream, tcp-loopback", "write by the sender, read by the receiver"),
        ("unix-seqpacket", "write and read, one packet each"),
        ("posix-mq", "mq_timedsend and mq_timedreceive"),
        (
            "zmq-inproc, zmq-ipc",
            "few a message, because the library gathers: poll, sendto and recvfrom on the pairs \
             by which it wakes its threads; for ipc besides epoll_wait in I/O threads",
        ),
        ("crossbeam", "sched_yield and futex, only where the receiver has run dry"),
        ("rtrb", "none: both ends spin"),
        ("iceoryx2", "none to pass a message; sched_yield while an end polls in vain"),
        (
            "mailbox, mailbox-zero-copy",
            "none while both are busy; sendto, epoll_pwait, recvfrom and membarrier where one has \
             spun in vain for 20 µs and sleeps",
        ),
    ],
};
