//! The text of `tontine explain wake-up`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A process that waits for a message sleeps: it has blocked in the kernel, and its \
         processor runs other processes or idles. The message wakes it. The kernel marks the \
         process as runnable and sends an interrupt to its processor; the processor leaves its \
         idle state, the scheduler picks the process, and the call that waited returns.",
        "How long this takes depends on how deep an idle state the processor has reached \
         meanwhile. In the first microseconds it may still be polling for work. Later it halts; \
         later still it switches off its clock and gives up its caches, and each deeper state \
         takes longer to leave. If a virtual machine's processor halts, the hypervisor may give it \
         to another machine, and must then bring it back. `round-trip` sends its messages one \
         right after the other, so that no receiver sleeps long: a service that gets ten requests \
         per second sees other figures. Here the pause between two messages varies.",
    ],
    steps: &[
        "Fork the receiver; pin sender and receiver, each to its processor. Before that, bracket \
         the offset between the two processors' counters.",
        "The receiver waits in the mechanism's own blocking call, stamps when the call has \
         returned, and writes a receipt into shared memory. It sends no reply.",
        "The sender spins on the clock for the pause, stamps, sends one message, and spins until \
         it sees the receipt. It never sleeps, so that no figure contains its own wake-up. On one \
         processor, where the receiver can run only when the sender yields, the sender calls \
         sched_yield between its polls.",
        "All pauses in one invocation, from 1 µs (`pause_us` 1) to 10 ms, the shortest first, \
         after 50 messages of warm-up. Before that, `mailbox-sleep` tries which of its two kinds \
         of fence is faster here.",
    ],
    timing: "From the sender's stamp before its send to the receiver's stamp after its wait, one \
             way, by the fenced time-stamp counter. The stamps are from two processors: the middle \
             of the band within which their offset lies is subtracted, and the band is in the \
             notes. Nothing is clamped at 0. The loop is closed: the pause begins when the receipt \
             of the last message is seen, about 0.1 µs after the receiver's stamp. There is no \
             fixed rate, so a late message delays the next and is counted once.",
    found: "No source measured it; source 004 sends its messages without a pause.",
    reading: "Compare the cells of one mechanism with each other: the processor and the scheduler, \
              not the mechanism, cause what grows with the pause, and it often outweighs all \
              differences between mechanisms. After a pause of 1 µs the receiver may be on its way \
              to sleep and find the message before it gets there: two modes, and a figure that \
              jumps between them. If the median is steady and p99 is not, check the idle states \
              and the governor in `tontine doctor`. A busy neighbour on the receiver's processor \
              keeps it awake and makes long pauses cheap. There are few messages after the longest \
              pauses: 3 to 7 per invocation.",
    calls: &[
        ("futex", "futex(FUTEX_WAKE) by the sender, the end of futex(FUTEX_WAIT) by the receiver"),
        (
            "condvar",
            "the sender's futex(FUTEX_WAKE); the end of the receiver's futex wait; more of both if \
             they contend for the mutex",
        ),
        (
            "semaphore-process",
            "the sender's futex(FUTEX_WAKE), the end of the receiver's futex wait",
        ),
        ("eventfd, pipe, unix-stream, unix-seqpacket, tcp-loopback", "write; the end of read"),
        ("posix-mq", "mq_timedsend; the end of mq_timedreceive"),
        ("signal", "tgkill; the end of rt_sigtimedwait"),
        (
            "zmq-ipc",
            "between the application and the library's own thread at each end sendto, poll and \
             recvfrom on a pair of sockets; between the two threads epoll_ctl, sendto, \
             epoll_wait and recvfrom: two more threads are woken",
        ),
        (
            "mailbox-sleep",
            "sendto of one byte to the doorbell; the end of the receiver's epoll_pwait; after \
             every fourth wait one recvmmsg that empties the doorbell (before Linux 6.16 recvmsg, \
             two calls per ring and one more)",
        ),
        ("all, on one processor", "sched_yield by the sender as well"),
    ],
};
