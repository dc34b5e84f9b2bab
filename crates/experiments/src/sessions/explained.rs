//! The text of `tontine explain sessions`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A session begins with a login and ends with a logout: a set of processes with one leader, \
         mostly a shell, and one controlling terminal. Signals from the keyboard go to the \
         session's foreground group; when the terminal hangs up, the session gets SIGHUP. Today \
         the terminal is seldom a device. A pseudo-terminal (pty) is a pair of character devices: \
         a program such as an ssh server or a terminal window holds one side, and what it writes \
         there, the session reads like typed input.",
        "A user at work starts many short programs: list, copy, search, sort, compare. Nearly all \
         of that is the kernel's work: fork, exec, pipes, files, signals, exit and wait, and the \
         terminal. How much slower it becomes when other users do the same depends on the whole \
         system. A pseudo-user is a script that does such work without pauses, so it loads a \
         machine far more than a person.",
    ],
    steps: &[
        "Find the utilities of the machine and write the script for them. A step whose utility is \
         missing is left out, and a note says so; if too few exist, the row is skipped.",
        "Give each session its own home, with the same text of 2,000 lines in it, in one \
         temporary folder.",
        "pty: for each session open a pty, make a new session with it as controlling terminal, and \
         start the script there. login: make a private view of the system in which a copy of \
         /etc/passwd has a temporary user for each session, with the script as login shell; start \
         a real sshd there on a loopback port; log in with a real ssh client for each. The real \
         /etc/passwd is never written. This needs root and OpenSSH; otherwise the row is skipped.",
        "Start the sessions one after the other, 10 ms apart, and read all that they print. In \
         each iteration the script copies, lists, counts, searches, edits, sorts, compares, packs \
         and unpacks the text, makes, links and removes files, opens its terminal, runs subshells, \
         pipelines and background jobs, and checks the results. There is no pause between \
         commands.",
        "Each session must end with status 0 and its last line; otherwise the row fails with the \
         last output. Remove the folder.",
        "The other variants are a virtual Unix inside one process, which repeats a session that \
         was traced once: the same processes in the same order, the same calls, and computing in \
         between, on real processors for a part of the time only (`computing`) except in a full \
         run. Cells with eight builds in parallel with the sessions are the source's load for its \
         statistics of locks.",
    ],
    timing: "Elapsed time by the monotonic clock, divided by the iterations. pty: from just before \
             the session's first process is created until it has been waited for, as /bin/time \
             gives it. login: from the script's first line to its last as the client sees them, \
             which leaves out the cryptography of the login. The invocation's figure is the mean \
             over its sessions. Reading what sessions print costs a little of the same processors.",
    found: "Source 001 ran such a script on two OSF/1 kernels on an Encore Multimax with ten \
            processors (NS32332, about 1.5 MIPS each), for pseudo-users with entries in \
            /etc/passwd who logged in from another machine, each session started after a delay by \
            its order. It gives a curve of the elapsed time of an iteration over the number of \
            sessions, without numbers. Its authors call these figures less well ordered than their \
            others, because the sessions meet in different phases and the network was on, and \
            read from them only that the parallel kernel is faster by a noticeable factor \
            throughout; the shapes are alike.",
    reading: "A good curve stays flat up to the number of processors and then grows in proportion. \
              Because of the delays the first session runs alone at its start and the last one at \
              its end, so the mean is a little better than that of sessions which always overlap; \
              a level may even be faster than the one before it. A note says for how much of the \
              time all were at work: the smaller that is, the less the level means. A session is \
              more than one process at a time in its pipelines, so two sessions can fill more than \
              two processors. login adds what sshd and ssh do for each line that is printed, \
              encryption included; compare it with pty, level by level. Figures of machines with \
              other utilities are other scripts: the note names what was left out.",
    calls: &[
        (
            "pty",
            "of the session: setsid, ioctl(TIOCSCTTY), then some hundreds of processes an \
             iteration with clone or vfork, execve, mmap, openat, read, write, pipe2, dup2, \
             fcntl, wait4, kill, rt_sigaction, exit_group, and for files newfstatat, mkdir, link, \
             symlink, rename, unlink, chmod, getdents64; of the measuring process: poll and read \
             of the pty's master side",
        ),
        (
            "login",
            "the same, and of sshd and ssh for each piece of output: poll or ppoll, read and write \
             of the pty, of pipes and of a TCP socket over loopback",
        ),
        (
            "uniprocessor, master, coarse, parallel, per-process",
            "None of the machine's: the virtual Unix's fork, exec, wait, exit, sigaction, \
             sigprocmask, pipe, read and write, as often as a traced real one; the time between \
             the calls counts as computing",
        ),
    ],
};
