//! The table of the ways to check: [`WAYS`].
//!
//! Two experiments use the whole table: `liveness-check` checks in a loop, `queue-with-check`
//! inside every send. Each experiment has its own description of a check.
//!
//! Neighbours: [`super::check`] maps a method's name to its type, [`super::monitored`] registers
//! the process by the method's [`Means`].

use tontine_bench::suite::Variant;

use super::monitored::Means;

/// One method of checking.
pub struct CheckMethod {
    /// The method's name, in both experiments.
    pub name: &'static str,
    /// Means by which the process must register.
    pub means: Means,
    /// `true` if each check is a system call. `mutex-trylock` and the words only access memory.
    pub enters_kernel: bool,
    /// Description of the check in a loop.
    alone: &'static str,
    /// Description of the check before each message.
    in_send: &'static str,
}

/// All methods, in the order in which they are listed.
pub static WAYS: [CheckMethod; 15] = [
    CheckMethod {
        name: "dummy",
        means: Means::Pid,
        enters_kernel: false,
        alone: "the empty loop",
        in_send: "no check: the plain queue",
    },
    CheckMethod {
        name: "load",
        means: Means::Pid,
        enters_kernel: false,
        alone: "one load of a word that is not tested",
        in_send: "a load of a word that is not tested",
    },
    CheckMethod {
        name: "futex-word",
        means: Means::Mutex,
        enters_kernel: false,
        alone: "one load of a robust mutex's lock word, which the kernel marks",
        in_send: "a load and test of the receiver's robust lock word",
    },
    CheckMethod {
        name: "life-word",
        means: Means::Life,
        enters_kernel: false,
        alone: "the library's Watch::is_alive, one load of the life that the process passed",
        in_send: "the library's check of the receiver's life",
    },
    CheckMethod {
        name: "own-robust-list",
        means: Means::OwnList,
        enters_kernel: false,
        alone: "one load of a word in the robust list of a bare clone thread",
        in_send: "a load and test of a word that a bare clone thread of the receiver holds",
    },
    CheckMethod {
        name: "lock-cmpxchg",
        means: Means::Mutex,
        enters_kernel: false,
        alone: "the atomic instruction inside trylock, alone, on the lock word",
        in_send: "a bare atomic compare-and-swap on the lock word",
    },
    CheckMethod {
        name: "mutex-trylock",
        means: Means::Mutex,
        enters_kernel: false,
        alone: "pthread_mutex_trylock on the robust mutex",
        in_send: "a pthread_mutex_trylock of the receiver's mutex",
    },
    CheckMethod {
        name: "epoll-empty",
        means: Means::Pid,
        enters_kernel: true,
        alone: "epoll_wait on a set without descriptors",
        in_send: "an epoll_wait on a set without descriptors",
    },
    CheckMethod {
        name: "epoll-socket",
        means: Means::Line,
        enters_kernel: true,
        alone: "epoll_wait for the hang-up of a SOCK_SEQPACKET connection",
        in_send: "an epoll_wait for the hang-up of a connection to the receiver",
    },
    CheckMethod {
        name: "poll-socket",
        means: Means::Line,
        enters_kernel: true,
        alone: "poll for the hang-up of the connection",
        in_send: "a poll for the hang-up of the connection",
    },
    CheckMethod {
        name: "select-socket",
        means: Means::Line,
        enters_kernel: true,
        alone: "select on the connection",
        in_send: "a select on the connection",
    },
    CheckMethod {
        name: "kill-0",
        means: Means::Pid,
        enters_kernel: true,
        alone: "kill(pid, 0)",
        in_send: "a kill(pid, 0) to the receiver",
    },
    CheckMethod {
        name: "pidfd-signal-0",
        means: Means::Pidfd,
        enters_kernel: true,
        alone: "pidfd_send_signal of signal 0, by a descriptor that the process passed",
        in_send: "a signal 0 to the receiver by its descriptor",
    },
    CheckMethod {
        name: "procfs-faccessat",
        means: Means::Procfs,
        enters_kernel: true,
        alone: "faccessat of stat in the process's own /proc directory, passed as a descriptor",
        in_send: "a faccessat of stat in the receiver's /proc directory",
    },
    CheckMethod {
        name: "polling-thread",
        means: Means::Procfs,
        enters_kernel: false,
        alone: "a load of a flag; a thread checks procfs every millisecond",
        in_send: "a load of a flag; a third thread checks procfs every millisecond",
    },
];

/// The methods as variants of `liveness-check`.
pub const ALONE: [Variant; WAYS.len()] = variants(false);
/// The methods as variants of `queue-with-check`.
pub const IN_SEND: [Variant; WAYS.len()] = variants(true);

/// Returns the method with that name.
pub fn find(name: &str) -> Option<&'static CheckMethod> {
    WAYS.iter().find(|way| way.name == name)
}

const fn variants(in_send: bool) -> [Variant; WAYS.len()] {
    let mut all = [Variant { name: "", summary: "" }; WAYS.len()];
    let mut at = 0;
    while at < all.len() {
        let way = &WAYS[at];
        all[at].name = way.name;
        all[at].summary = if in_send { way.in_send } else { way.alone };
        at += 1;
    }
    all
}
