//! The text of `tontine explain builds`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "make reads a file of rules, finds out which files are older than what they are made of, \
         and runs a command for each: here the C compiler, once a source file, and once more to \
         link. Each command is a new process, most of them start others (the compiler's driver \
         runs the compiler proper, the assembler and the linker), and all of them open, read, \
         write and close files. A build is therefore a piece of ordinary work that leans on much \
         of the kernel at once: making and ending processes, memory for each, the file system.",
        "Several builds that share no file should not disturb each other if each has a \
         processor. If they do, something is shared after all: a lock inside the kernel, the disk, \
         the memory bus, the cache, or a core that is two hardware threads. The curve over the \
         number of simultaneous builds shows it.",
    ],
    steps: &[
        "Find make and cc and compile a program of two lines; without them the row is skipped with \
         the reason. This also loads the compiler into memory.",
        "Write the same generated program, about 10,000 lines of C in 13 files with a makefile, \
         into as many sibling folders of one temporary folder as there are builds. The sources are \
         then in the page cache, and are not read from a disk.",
        "Start one make -j1 in each folder, all at the same moment, with MAKEFLAGS and its \
         relatives cleared, so that no outer make decides how many commands run at once. One build \
         never runs two compilers at a time.",
        "Wait for all to end. Run each program that was built: all must print the same checksum. \
         Remove the folder.",
        "The other variants have no make: a virtual Unix inside one process forks the processes of \
         a build that was traced once, in the same order, and each makes the same calls and uses \
         its processor in between. On real processors they compute for a part of the time only \
         (`computing`), except in a full run, so they compare with each other and not with \
         `linux`.",
    ],
    timing: "Elapsed time of each make by the monotonic clock, as /bin/time gives it: from just \
             before its process is created until it has been waited for. The invocation's figure \
             is the mean over its builds. Writing the sources, the first small compilation and the \
             check afterwards are outside. An invocation takes seconds, so there are few: the row \
             says how many, and its interval is that of the mean.",
    found: "Source 001 compared two OSF/1 kernels on an Encore Multimax with ten processors \
            (NS32332, about 1.5 MIPS each) and one SCSI disk, with one to eight builds of roughly \
            10,000 lines of C in sibling directories. It gives a curve without numbers. Its \
            authors say that most of the time has nothing to do with what they changed, so that \
            the parallel kernel gains less here than elsewhere; and that its times climb faster at \
            the right end, for which they blame the load of the one disk rather than contention \
            inside the kernel.",
    reading: "A good curve stays flat up to the number of processors. Beyond it, builds take \
              turns, and the time must grow in proportion: twice as many builds as processors take \
              twice as long. A rise before that is the cost of sharing. Most of the time is the \
              compiler's own and depends on its version and on the processor: compare levels with \
              each other, not machines by one level. A temporary folder on a slow or a remote file \
              system (the note names it) shows in every level.",
    calls: &[
        (
            "linux",
            "for each of about 40 processes per build: clone or vfork, execve, mmap, mprotect and \
             brk as the programs are loaded and grow, wait4, exit_group; for files openat, read, \
             write, close, newfstatat, access, unlink of temporary ones; pidfd_open and poll by \
             the measuring process, which sleeps meanwhile",
        ),
        (
            "uniprocessor, master, coarse, parallel, per-process",
            "None of the machine's: the virtual Unix's fork, exec, wait, exit, sigaction, \
             sigprocmask, pipe, read and write, as often as a traced real one; the time between \
             the calls counts as computing",
        ),
    ],
};
