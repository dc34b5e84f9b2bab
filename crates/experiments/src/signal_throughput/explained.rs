//! The text of `tontine explain signal-throughput`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A signal is a small notification from the kernel, or from another process, that carries \
         only its number: SIGUSR1, SIGINT, SIGKILL. A process can name a function, the handler, \
         that runs when a certain signal arrives, wherever the process is at that moment. It can \
         also block a signal: it then stays pending until it is unblocked.",
        "Standard signals do not queue. The kernel keeps one bit for each: a second SIGUSR1 that \
         arrives while the first is still pending is merged with it and never seen. So a process \
         that sends in a loop sends more than the other receives, and the honest count is that of \
         the handler.",
        "How many signals per second are delivered, and whether several pairs of processes slow \
         each other down, shows how the kernel works: if it handles all signals under one lock or \
         on one processor, each of n pairs gets an nth of what one gets.",
    ],
    steps: &[
        "For each pair two processes are forked, a receiver and a sender, and pinned. With one \
         pair, `cross-core` gives each its own processor, `same-core` one to both. With more \
         (`spread`), processes take the allowed processors in turn, receiver and sender of one \
         pair after another, each round one processor further: every processor gets the same \
         number of processes, and no pair shares one unless there is only one.",
        "Each receiver blocks SIGUSR1, installs a handler that counts, and waits; the senders wait \
         too. When all are ready, all are released at the same time.",
        "The receiver loops over sigsuspend, which unblocks the signal and sleeps in one step, \
         until its handler has counted 1,000; then it exits. The sender loops over kill without a \
         pause until kill fails.",
        "A process that has exited is a zombie until its parent waits for it, and kill to a zombie \
         succeeds. The parent therefore sleeps on pidfds and reaps each receiver immediately; only \
         then does its sender get ESRCH and end.",
        "The number of a reaped process may be given to a new one, which the sender's next signal \
         would hit. Each pair is a process group that the receiver leads; the kernel assigns no \
         number that a group still uses, and the sender is in the group.",
        "The other variants do the same in a virtual Unix inside one process: OSF/1's signal code \
         in user space, with its locks of 1.1 (`parallel`), with everything on a master processor \
         as in 1.0 (`master`), and in three more modes. A receiver there takes 5,000 signals, or \
         20,000 if no pair spans two processors, but stops after 20 ms with those that it got, and \
         no round begins after 50 ms. `off-master` puts the pair on the second processor, away \
         from the master; `apart` puts each of two pairs on its own processor. `--as-published \
         001` spreads the pairs of `master` over all processors but the master.",
        "Rounds are repeated, each with fresh processes, until ten receivers have been timed, but \
         none begins after 200 ms; a short round before them is not counted.",
    ],
    timing: "The receiver reads the clock before its first sigsuspend and after the one that \
             brought the 1,000th signal. 1,000 divided by that time is one sample of `received`; \
             the mean over all receivers stands for the invocation. Creating, pinning and ending \
             the processes is left out. `sent_per_signal` is the sender's count of successful \
             calls, read by the receiver at that last moment, divided by 1,000: 1.0 means that \
             nothing was merged.",
    found: "Source 001 ran this on an Encore Multimax with ten processors (NS32332, about 1.5 MIPS \
            each), under OSF/1 before and after its signal code was made parallel, and drew the \
            result as curves without numbers. Before, throughput per process fell as one divided \
            by the number of pairs: all went through one processor. After, it stayed level up to \
            five pairs, which is ten processes on ten processors, and fell beyond.",
    reading: "Higher is better. While there are two processors for each pair, a kernel that \
              scales keeps the curve flat; beyond, processes take turns, which is another regime \
              and is in the notes of the figure. On one core the figure is mostly the switching \
              between the two; across cores the receiver is often still awake when the next signal \
              arrives, or has to be woken by an interrupt, which is expensive in a virtual \
              machine. Many signals sent for each received mean that the sender is faster than the \
              receiver, not that any figure is better. It does not say how long a single signal \
              takes: see signal-delivery. A plain C program that does the same as one pair was \
              compared with it (docs/evidence/twins.md).",
    calls: &[
        (
            "linux",
            "In the receiver 1,000 times rt_sigsuspend, each ended by one run of the handler, \
             which returns by rt_sigreturn. In the sender, at the same time, kill, over and over.",
        ),
        (
            "uniprocessor, master, coarse, parallel, per-process",
            "None of the machine's: kill and sigsuspend are functions of the virtual Unix, and a \
             sleeping process is a coroutine that has been switched out. If a pair is on two \
             processors, an idle thread sleeps in futex.",
        ),
    ],
};
