//! The text of `tontine explain fork-throughput`: [`EXPLANATION`].

use tontine_bench::about::Explanation;
use tontine_host::os::fork_trim;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "fork creates a new process that is a copy of the one that calls it: the same memory, the \
         same open files, at the same place in the program. The memory is not copied at once. \
         Parent and child share the pages until one of them writes (copy on write); only the \
         description of the memory is copied: the mappings and the page tables of pages that were \
         written. So a fork costs more the more memory the parent has touched.",
        "Much of the kernel takes part: the table of processes, the memory manager, the scheduler \
         that places the child. If several processes fork at once, they contend for its locks. How \
         many forks per second each completes, next to others, shows how far they hinder each \
         other.",
    ],
    steps: &[
        fork_trim::IN_WORDS,
        "As many processes as `processes` says are forked and wait; when all are ready, all are \
         released at once.",
        "Each calls fork 50 times as fast as it can. No process is pinned: the scheduler places \
         the children.",
        "Each child asks the kernel to kill it with its parent, then sleeps on a futex word until \
         every process has done its last fork. So no exit and no wait disturbs the forks.",
        "Then the children are released and exit; each process waits for its 50, and exits.",
        "The other variants do the same in a virtual Unix inside one process, on as many \
         processors as there are. A virtual fork copies no address space: the child runs another \
         closure in the same memory. Their figures compared with each other show what locks cost; \
         compared with `linux` they measure different things.",
        "The round is repeated ten times with fresh processes, after one round that is not \
         counted. Before that, the limits of processes and memory are checked; if they do not \
         suffice, the cell is skipped.",
    ],
    timing: "Each process reads the clock before its first fork and after its last has returned. \
             50 divided by that time is one sample; the mean over all processes and rounds stands \
             for the invocation. The work of the children until they sleep runs at the same time, \
             in parallel with the parent if a processor is free, and otherwise instead of it. \
             Their exit and the waiting are left out.",
    found: "Source 001 ran this on an Encore Multimax with ten processors (NS32332, about 1.5 MIPS \
            each), with one to seven processes, under OSF/1 before and after its process \
            management was made parallel, and drew the result as curves without numbers. The newer \
            kernel was faster, by less than it was for signals: a fork depends much on the memory \
            manager, which was another one in each kernel. The source calls these figures its \
            least useful, and concludes from a single process that the new locks cost nothing.",
    reading: "Higher is better. A flat curve means that processes do not hinder each other. Here \
              each child needs a moment of a processor too, before it sleeps, so two processors \
              are not enough for two processes that fork; more processes than processors are noted \
              with the figure. The size of the forking process matters: here it is small and has \
              touched little memory (see thread-vs-process for large ones). A plain C program that \
              does the same as one process was compared with it (docs/evidence/twins.md).",
    calls: &[
        (
            "linux",
            "In each parent 50 times getpid and clone (the C library's fork). In each child \
             set_robust_list (the C library's), prctl (PR_SET_PDEATHSIG), getppid, and futex, in \
             which it sleeps.",
        ),
        (
            "others",
            "None of the machine's within what is timed, except mmap and madvise if there is no \
             stack to reuse: fork is a function of the virtual Unix.",
        ),
    ],
};
