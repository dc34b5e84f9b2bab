//! The table of the methods of checking: [`ALL`]. `liveness-check` checks in a loop, the `checked`
//! variants of `throughput` inside every send.
//!
//! [`with_check!`](crate::with_check) maps a method's name to its type, [`super::monitored`]
//! registers the process by the method's [`Means`].

use super::monitored::Means;

pub(crate) struct CheckMethod {
    pub(crate) name: &'static str,
    pub(crate) means: Means,
    /// `true` if each check is a system call. `mutex-trylock` and the words only access memory.
    pub(crate) enters_kernel: bool,
}

const fn memory(name: &'static str, means: Means) -> CheckMethod {
    CheckMethod { name, means, enters_kernel: false }
}

const fn kernel(name: &'static str, means: Means) -> CheckMethod {
    CheckMethod { name, means, enters_kernel: true }
}

/// All methods, in the order in which the card lists them.
pub(crate) static ALL: [CheckMethod; 15] = [
    memory("dummy", Means::Pid),
    memory("load", Means::Pid),
    memory("futex-word", Means::Mutex),
    memory("life-word", Means::Life),
    memory("own-robust-list", Means::OwnList),
    memory("lock-cmpxchg", Means::Mutex),
    memory("mutex-trylock", Means::Mutex),
    kernel("epoll-empty", Means::Pid),
    kernel("epoll-socket", Means::Line),
    kernel("poll-socket", Means::Line),
    kernel("select-socket", Means::Line),
    kernel("kill-0", Means::Pid),
    kernel("pidfd-signal-0", Means::Pidfd),
    kernel("procfs-faccessat", Means::Procfs),
    memory("polling-thread", Means::Procfs),
];

pub(crate) fn find(name: &str) -> Option<&'static CheckMethod> {
    ALL.iter().find(|method| method.name == name)
}
