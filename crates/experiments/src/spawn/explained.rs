//! The text of `tontine explain spawn`: [`EXPLANATION`].

use tontine_bench::about::Explanation;
use tontine_host::os::fork_trim;
use tontine_mechanisms::creation::calls;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "Unix creates a process by copying one: fork gives the child a copy of the parent's memory \
         (page by page, at the first write), its open files and its place in the program. Usually \
         the child then calls exec, which throws the copy away and loads another program. When it \
         exits, the kernel keeps its status until the parent waits for it.",
        "Copying a description of memory that is thrown away at once is a waste, and it grows with \
         the parent. vfork leaves it out: the child borrows the parent's memory and the parent \
         sleeps until the child has called exec or _exit. posix_spawn is the safe form of that: \
         one call that creates a process and runs a file; glibc does it with a clone that \
         shares memory.",
        "Below all of them is clone, and its newer form clone3, whose flags say what is shared and \
         what is copied. The same call with other flags creates threads.",
    ],
    steps: &[
        fork_trim::IN_WORDS,
        "The process that measures pins itself to one processor, and its children with it \
         (`same-core`), or lets the scheduler place them (`unpinned`).",
        "It creates a process that exits immediately, and waits for it, repeatedly, one after \
         another, never two at a time. A tenth as many before that are warm-up and not counted.",
        "fork: the C library's fork; the child calls _exit. clone3: the bare call without a flag, \
         which copies what fork copies, without what the C library does around it; the child calls \
         _exit. vfork: clone with CLONE_VM and CLONE_VFORK, the two flags that make a vfork, on a \
         separate stack of the child.",
        "posix-spawn: the only one that runs a program: an ELF file of 185 bytes (188 on \
         aarch64), written into memory when the measurement starts: one page, no dynamic linker, \
         three instructions, which exit. So the figure contains exec itself and not the start of a \
         large program: /bin/true takes several times as long, nearly all of it in the dynamic \
         linker.",
    ],
    timing: "The clock is read before the process is created and after waitpid has returned its \
             status: each sample is one process, created, ended and reaped. The median stands for \
             the invocation.",
    found: "",
    reading: "Lower is better. fork and clone3 grow with the memory that the parent has touched; \
              vfork and posix-spawn hardly do. The parent is a small process here, so the distance \
              between them is the smallest possible (see thread-vs-process for a large one). On \
              one core no other processor has to be woken; unpinned, the child may run in parallel \
              with the parent, or its processor may have to be woken first, which is expensive in \
              a virtual machine. posix-spawn does more than the others, an exec: compare it with \
              fork and an exec, not with fork alone. In glibc its child reads the action of each \
              of 60 signals and sets it again, over a hundred calls before the exec. Plain C \
              programs that do the same were compared with it (docs/evidence/twins.md).",
    calls: &[
        ("fork", calls::FORK),
        ("vfork", "clone with CLONE_VM|CLONE_VFORK and SIGCHLD, wait4; in the child exit_group"),
        ("posix-spawn", calls::POSIX_SPAWN),
        ("clone3", "clone3 without flags and with SIGCHLD, wait4; in the child exit_group"),
    ],
};
