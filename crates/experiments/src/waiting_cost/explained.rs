//! The text of `tontine explain waiting-cost`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A receiver that polls shared memory sees a message within some tens of nanoseconds, but \
         uses a processor while it waits. A receiver that sleeps uses none, but the way into the \
         kernel and back, and the wake-up by the sender, take microseconds, of which the receiver \
         pays a part in processor time.",
        "A mailbox can combine both: a receiver polls for a moment, and sleeps if no message has \
         arrived by then. If messages are rarer than that, each costs the polling in vain and the \
         sleep. By default the receiver therefore polls only while that pays, and otherwise in one \
         of 128 waits. This experiment shows the price in processor time; `round-trip` and \
         `wake-up` show the latency.",
    ],
    steps: &[
        "Fork the sender, which connects to the receiver's mailbox, and pin the receiver to the \
         first allowed processor and the sender to the last one. Both ends have the variant's wait \
         strategy, and otherwise default options.",
        "The sender is silent. The receiver calls `recv_timeout` with a timeout of 1 ms, again and \
         again: `empty_wait` is the processor time of one such call.",
        "The sender sends a message of 8 bytes every millisecond, unless the message before has \
         not been acknowledged, and sleeps in between. The receiver calls `recv_timeout` with a \
         timeout of 5 s: `per_message` is the processor time from one message to the next. `busy` \
         is its share of the millisecond.",
        "150 waits and 150 messages before that are warm-up and not counted.",
    ],
    timing: "CLOCK_THREAD_CPUTIME_ID of the receiver's thread, read between two calls, so that the \
             differences add up to the processor time of the whole loop. A reading is a system \
             call; the notes say how long it takes. Connecting is left out.",
    found: "",
    reading: "Lower is better. The line over `spin_us` should rise by as much as the polling is \
              longer, and `mailbox-sleep` is its beginning; `mailbox-default` should be close to \
              `mailbox-sleep`. A receiver that gets one message per \
              millisecond uses `busy` of a processor; if messages are rarer, the share falls in \
              proportion. Time that other threads lose because a receiver that goes to sleep \
              interrupts their processors (membarrier) is not in the figures, nor is the time of \
              the interrupt that wakes an idle processor. In a virtual machine the time contains \
              what the hypervisor adds to each sleep and each timer. A machine that is busy in \
              other ways makes the figures larger, because the receiver finds colder caches.",
    calls: &[(
        "mailbox-default, mailbox-sleep, mailbox-spin-then-sleep",
        "membarrier and epoll_pwait in each wait that sleeps, after the polling if any; one more \
         epoll_pwait in a wait that ends by its timeout; recvmmsg after every fourth message \
         (before Linux 6.16 recvmsg, two calls per message and one more); clock_gettime between \
         two calls",
    )],
};
