//! What `signal-delivery` is, for somebody who meets it for the first time.

use tontine_bench::about::Explanation;

/// The explanation of `signal-delivery`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A signal interrupts a process from outside. `kill` asks the kernel to send one. But when \
         `kill` has returned, has the signal arrived? It is natural to think so, and no manual \
         promises it: the call only marks the signal as pending for the receiver. If that runs on \
         another processor, the kernel there must first be interrupted, and until it looks, the \
         receiver goes on as if nothing had happened.",
        "The source asked how often, and by how much, a child outlives the return of the `kill` \
         that ends it. Besides we ask how long it takes until a handler's first instruction runs, \
         in a receiver that spins and in one that sleeps; and, where no handler runs, until a \
         thread has the signal as a value in its hand.",
    ],
    steps: &[
        "The receiver is a child on another processor. As published, it does nothing but write \
         its time stamp counter into shared memory, in a loop; a fresh one for every signal.",
        "The sender waits for the first stamp, reads its own counter, sends the signal, and reads \
         its counter when the call has returned.",
        "It reaps the child and looks at its last stamp: later than its own, and the child still \
         ran after `kill` had returned.",
        "`one-clock` compares no two counters: the parent watches in memory whether the stamp \
         still changes, and reads only its own.",
        "The `handler` variants keep one child, which stamps its counter as the first thing in a \
         handler for SIGUSR1.",
        "The `value` variants keep a child whose second thread takes SIGUSR1: tontine::signal's, \
         one that does nothing but sigwait, and one that iterates over signal-hook's signals. It \
         stamps first thing; the next signal is sent when it is seen asleep. `value-tontine` has a \
         child of each way and sends to them in turn, for the ratios.",
    ],
    timing: "The time stamp counter, bare as in the source, around the call that sends. `send` is \
             the time of that call, `receive` from before it to the child's last stamp, or to the \
             handler's. `parent_after` is the share of signals whose `kill` returned after the \
             child's last stamp; `child_after_by` and `parent_after_by` say by how much. Two \
             counters may differ: the band of their offset is measured and noted, and shares are \
             to be read with it. A tie counts for the child.",
    found: "Source 000, on an Ubuntu machine with Skylake processors, a million signals: in 80 % \
            of them the child lasts longer than the return of `kill`, by 40 cycles on average, by \
            nearly 1,200 at most; the same with SIGKILL.",
    reading: "A share near one half or below does not contradict the source: it depends on how \
              long the way out of `kill` is, and how an interrupt reaches another processor, which \
              a hypervisor makes slower. What it shows is that the order is not fixed. A \
              difference of 40 cycles lies within the offset of two counters; `one-clock` does \
              not depend on it. The ratios of `value-tontine` are of medians of one invocation, so \
              that whatever slows the machine slows both sides. signal-hook's \
              handler runs in the thread that iterates, because the main thread blocks the signal \
              here; where both leave it unblocked, the kernel takes the main thread, and two are \
              woken instead of one.",
    calls: &[
        ("as-published, one-clock, handler-spinning, handler-sleeping, value-…", "kill"),
        ("pidfd", "pidfd_send_signal"),
        ("tgkill", "tgkill"),
        (
            "handler-sleeping, in the receiver",
            "rt_sigsuspend, from which the signal wakes it before its handler runs",
        ),
        ("value-tontine, value-sigwait, in the receiver", "rt_sigtimedwait"),
        (
            "value-signal-hook, in the receiver",
            "in the handler a write to a socket, rt_sigreturn; in the thread that reads it, recv",
        ),
    ],
};
