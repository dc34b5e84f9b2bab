//! The text of `tontine explain thread-vs-process`: [`EXPLANATION`].

use tontine_bench::about::Explanation;
use tontine_host::os::fork_trim;
use tontine_mechanisms::creation::calls;

/// Explanation of `thread-vs-process`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A thread is a second path through the same program: it shares all memory and all open \
         files with the one that made it. A process is a program with its own memory. Linux \
         creates both by the same system call, clone3 (or the older clone), and the flags say what \
         the new one shares with its creator: a thread shares almost everything, a forked process \
         nothing.",
        "What is not shared must be copied. A fork does not copy the memory itself, but it copies \
         the page tables, 8 bytes for each page of 4 KiB, and marks every page read-only, so that \
         the first write to it by either makes a copy then (copy-on-write). The larger the parent, \
         the longer its fork. vfork copies nothing: the child borrows the parent's memory, and the \
         parent sleeps until the child has ended or called exec. posix_spawn does \
         that and runs a program, which is the purpose of most forks.",
        "A thread needs a stack and thread-local storage instead. The C library maps a stack at \
         the first pthread_create and keeps it for the next thread when its thread has ended.",
    ],
    steps: &[
        "The process pins itself to one processor (same-core), which its threads and children \
         inherit; in the cells marked unpinned the scheduler chooses.",
        fork_trim::IN_WORDS,
        "It maps 1 MiB or 1 GiB of private memory, forbids large pages there and writes every \
         page. 1 GiB has 262,144 pages of 4 KiB, whose page tables take 2 MiB. The memory of the \
         process itself, small by now, is in addition to that.",
        "It creates once without timing: that fills the C library's cache of stacks.",
        "Then, until its time or its count is used up, and at least three times: it creates a \
         thread or a process that exits immediately, and waits for its end.",
        "After the timing, in the cells of thread and fork with 1 MiB on one processor, one \
         pthread_create and one fork of the C library are traced with ptrace in fresh child \
         processes, and the trace is in the notes of the figure. Traced calls are never timed.",
    ],
    timing: "One stamp before the creation, one after the wait has returned; each pair is a sample \
             (create_join). The wait is inside: pthread_join, waitpid, or for clone3-thread a \
             futex wait for the word that the kernel clears. Touching the memory is left out, and \
             so are the faults of a parent that writes to its pages after a fork. posix-spawn runs \
             the smallest possible program, an ELF header and one exit without a loader; a typical \
             program adds the time of its own start.",
    found: "Source 003 (lecture notes, no machine named) has no times. It shows by strace what the \
            C library does. pthread_create of a function that does nothing: mmap and mprotect of a \
            stack of 8 MiB and a guard page, getrandom and brk (the first malloc of that process), \
            all signals blocked, clone3 with CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, \
            CLONE_THREAD, CLONE_SYSVSEM, CLONE_SETTLS, CLONE_PARENT_SETTID and \
            CLONE_CHILD_CLEARTID, and with exit_signal 0, signals unblocked again. fork: clone \
            with CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, wait4, and a SIGCHLD whose \
            si_code is CLD_EXITED and whose si_status is 0. The notes of thread and fork say what \
            was traced here.",
    reading: "Lower is better. thread, vfork and posix-spawn should hardly depend on the parent's \
              memory; fork and clone3 grow with it. The distance between clone3 and fork is what \
              the C library adds (its locks and handlers), between clone3-thread and thread its \
              stack, its thread-local storage and its two changes of the signal mask. Unpinned, \
              the new one often starts on another processor that has to be woken first, which in a \
              virtual machine can cost more than the creation. The figures do not show what a \
              thread or a process costs that does some work, least of all the copies of the pages \
              that a parent writes to after its fork.",
    calls: &[
        (
            "thread",
            "rt_sigprocmask, clone3, rt_sigprocmask; futex in the join if the thread has not ended \
             yet; in the thread rseq, set_robust_list, rt_sigprocmask twice (it unblocks signals, \
             and blocks them again before its end), madvise, exit. The stack comes from the cache: \
             no mmap",
        ),
        ("fork", calls::FORK),
        ("vfork", "vfork (on aarch64 clone with its flags), wait4; in the child exit_group"),
        ("posix-spawn", calls::POSIX_SPAWN),
        ("clone3, clone3-vfork", "clone3, wait4; in the child exit_group"),
        ("clone3-thread", "clone3; futex if the thread has not ended yet; in the thread exit"),
    ],
};
