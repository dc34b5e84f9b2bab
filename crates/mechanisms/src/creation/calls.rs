//! The system calls of each way to create a task, in words: [`FORK`], [`POSIX_SPAWN`]. The
//! explanations of the experiments that time them contain these texts.
//!
//! The calls are in order, first the caller's and then the new task's, with one name per clause. A
//! clause with "if" or "unless" names calls that are not always made. `told`, in the tests,
//! compares this text with a trace.

/// Calls of a fork whose child exits immediately.
pub const FORK: &str =
    "clone by the C library's fork, wait4; in the child set_robust_list, exit_group";

/// Calls of a `posix_spawn` of the smallest program.
pub const POSIX_SPAWN: &str = "as glibc does it: mmap of a stack, rt_sigprocmask, clone3 with \
                               CLONE_VM|CLONE_VFORK, munmap, rt_sigprocmask, wait4; in the child \
                               rt_sigprocmask to read the mask, rt_sigaction over a hundred times \
                               (two for each of 60 signals) unless the C library uses \
                               CLONE_CLEAR_SIGHAND instead, rt_sigprocmask to set it, execve, \
                               exit_group of the new program";
