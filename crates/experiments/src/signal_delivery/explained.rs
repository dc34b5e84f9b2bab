//! The text of `tontine explain signal-delivery`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `signal-delivery`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A signal interrupts a process from outside. `kill` asks the kernel to send one. But when \
         `kill` has returned, has the signal arrived? Many assume so, and no manual promises it: \
         the call only marks the signal as pending for the receiver. If the receiver runs on \
         another processor, the kernel there must first be interrupted, and until it checks, the \
         receiver continues as if nothing had happened.",
        "The source asked how often, and by how much, a child outlives the return of the `kill` \
         that ends it. This experiment also asks how long it takes until a handler's first \
         instruction runs, in a receiver that spins and in one that sleeps; and, without a \
         handler, until a thread has received the signal as a value.",
    ],
    steps: &[
        "The receiver is a child on another processor. As published, it only writes its time stamp \
         counter into shared memory, in a loop; each signal gets a fresh child.",
        "The sender waits for the first stamp, reads its own counter, sends the signal, and reads \
         its counter when the call has returned.",
        "It reaps the child and reads its last stamp: if that is later than its own, the child \
         still ran after `kill` had returned.",
        "`one-clock` does not compare two counters: the parent watches in memory whether the stamp \
         still changes, and reads only its own counter.",
        "The `handler` variants keep one child, which stamps its counter as the first thing in a \
         handler for SIGUSR1.",
        "The `value` variants keep a child whose second thread takes SIGUSR1: tontine::signal's, \
         one that only calls sigwait, and one that iterates over signal-hook's signals. It stamps \
         first; the next signal is sent when the thread is seen asleep. `value-tontine` has a \
         child of each kind and sends to them in turn, for the ratios.",
    ],
    timing: "The time stamp counter, bare as in the source, around the call that sends. `send` is \
             the time of that call, `receive` from before it to the child's last stamp, or to the \
             handler's. `parent_after` is the share of signals whose `kill` returned after the \
             child's last stamp; `child_after_by` and `parent_after_by` say by how much. Two \
             counters may differ: the band of their offset is measured and noted; read the shares \
             together with it. A tie counts for the child.",
    found: "Source 000, on an Ubuntu machine with Skylake processors, a million signals: in 80 % \
            of them the child outlives the return of `kill`, by 40 cycles on average, by nearly \
            1,200 at most; the same with SIGKILL.",
    reading: "A share near one half or below does not contradict the source: it depends on how \
              long the way out of `kill` is, and how an interrupt reaches another processor, which \
              a hypervisor makes slower. The result is that the order is not fixed. A difference \
              of 40 cycles is within the offset of two counters; `one-clock` does not depend on \
              it. The ratios of `value-tontine` compare medians of one invocation, so that a slow \
              machine slows both sides. signal-hook's handler runs in the thread that iterates, \
              because the main thread blocks the signal here; if both leave it unblocked, the \
              kernel takes the main thread, and two are woken instead of one.",
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
