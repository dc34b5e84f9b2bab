//! What `fork-throughput` is, in words.

use tontine_bench::about::Explanation;
use tontine_host::os::lean;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "fork makes a new process that is a copy of the one that calls it: the same memory, the \
         same open files, at the same place in the program. The memory is not copied at once. \
         Parent and child share the pages until one of them writes (copy on write); what is \
         copied is the description of the memory: the mappings and the page tables of pages that \
         were written. So a fork costs more the more memory the parent has touched.",
        "Much of the kernel takes part: the table of processes, the memory manager, the scheduler \
         that places the child. If several processes fork at once, they meet at its locks. How \
         many forks a second each completes, beside others, shows how far they hinder each other.",
    ],
    steps: &[
        lean::IN_WORDS,
        "So many processes are forked and wait; when all are there, all are let go at once.",
        "Each calls fork 50 times as fast as it can. Nobody is pinned: the scheduler places the \
         children where it wants.",
        "Each child asks the kernel to kill it with its parent, then sleeps on a futex word until \
         every process has done its last fork. So no exit and no wait disturb the forks.",
        "Then the children are let go and exit; each process waits for its 50, and exits.",
        "The other variants do the same in a virtual Unix inside one process, on as many \
         processors as there are. A virtual fork copies no address space: the child runs another \
         closure in the same memory. Their figures beside one another say what locks cost; beside \
         `linux` they compare different things.",
        "The round is repeated ten times with fresh processes, after one round that is not \
         counted. Before anything, the limits of processes and memory are asked for room; where \
         there is none the cell is skipped.",
    ],
    timing: "Each process reads the clock before its first fork and after its last has returned. \
             50 divided by that time is one sample; the mean over all processes and rounds stands \
             for the invocation. What the children do until they sleep runs at the same time, \
             beside the parent where there is a free processor and instead of it where there is \
             none. Their exit and the waiting are not in it.",
    found: "Source 001 ran this on an Encore Multimax with ten processors (NS32332, about 1.5 \
            MIPS each), with one to seven processes, under OSF/1 before and after its process \
            management was made parallel, and drew the result as curves without numbers. The \
            newer kernel was faster, by less than it was for signals: a fork depends much on the \
            memory manager, which was another one in each kernel. The source holds these figures \
            for its least useful, and takes from a single process that the new locks cost \
            nothing.",
    reading: "Higher is better. Level means that processes do not hinder each other. Here each \
              child needs a moment of a processor too, before it sleeps, so two processors are \
              not enough for two processes that fork; more processes than processors are noted \
              beside the figure. The size of the forking process matters: here it is a small one, \
              in which little memory was touched (see thread-vs-process for large ones). A plain \
              C program that does the same is timed beside one process by `cargo xtask twins`.",
    calls: &[
        (
            "linux",
            "In each parent 50 times getpid and clone (the C library's fork). In each child \
             set_robust_list (the C library's), prctl (PR_SET_PDEATHSIG), getppid, and futex, in \
             which it sleeps.",
        ),
        (
            "others",
            "None of the machine's inside of what is timed, but mmap and madvise where there is no \
             stack to use again: fork is a function of the virtual Unix.",
        ),
    ],
};
