//! The system calls that the ways make, in words, for the explanations of all who time them:
//! [`FORK`], [`POSIX_SPAWN`].
//!
//! In order, the caller's first and then those of whoever is created, and one name a clause; a
//! clause with "where" tells of calls that are not always made. `told`, in the tests, holds that
//! against a trace.

/// Of a fork whose child leaves at once.
pub const FORK: &str =
    "clone by the C library's fork, wait4; in the child set_robust_list, exit_group";

/// Of a `posix_spawn` of the smallest program.
pub const POSIX_SPAWN: &str = "as glibc does it: mmap of a stack, rt_sigprocmask, clone3 with \
                               CLONE_VM|CLONE_VFORK, munmap, rt_sigprocmask, wait4; in the child \
                               rt_sigprocmask to read the mask, rt_sigaction over a hundred times \
                               (two for each of 60 signals) unless the C library uses \
                               CLONE_CLEAR_SIGHAND instead, rt_sigprocmask to set it, execve, \
                               exit_group of the new program";
