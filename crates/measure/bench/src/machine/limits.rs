//! Resource limits and permissions of this process.

use rustix::process::{Resource, geteuid, getrlimit};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LimitFacts {
    /// Maximum number of open descriptors (`RLIMIT_NOFILE`).
    pub open_files: Option<Limit>,
    /// Maximum number of processes and threads of this user (`RLIMIT_NPROC`). Root is exempt.
    pub processes: Option<Limit>,
    /// Maximum number of bytes locked into memory (`RLIMIT_MEMLOCK`).
    pub locked_bytes: Option<Limit>,
    /// Maximum size of a main thread's stack in bytes (`RLIMIT_STACK`).
    pub stack_bytes: Option<Limit>,
    /// Maximum number of signals queued for this user (`RLIMIT_SIGPENDING`).
    pub pending_signals: Option<Limit>,
    /// Maximum number of bytes in POSIX message queues (`RLIMIT_MSGQUEUE`).
    pub message_queue_bytes: Option<Limit>,
    /// Highest real-time priority (`RLIMIT_RTPRIO`).
    pub real_time_priority: Option<Limit>,
    /// Maximum size of the address space in bytes (`RLIMIT_AS`).
    pub address_space_bytes: Option<Limit>,
    /// `true` if this process runs as root.
    pub root: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Limit {
    pub soft: Option<u64>,
    /// Maximum to which this process may raise it.
    pub hard: Option<u64>,
}

impl LimitFacts {
    pub fn look() -> Self {
        let limit = |resource| {
            let limit = getrlimit(resource);
            Some(Limit { soft: limit.current, hard: limit.maximum })
        };
        Self {
            open_files: limit(Resource::Nofile),
            processes: limit(Resource::Nproc),
            locked_bytes: limit(Resource::Memlock),
            stack_bytes: limit(Resource::Stack),
            pending_signals: limit(Resource::Sigpending),
            message_queue_bytes: limit(Resource::Msgqueue),
            real_time_priority: limit(Resource::Rtprio),
            address_space_bytes: limit(Resource::As),
            root: Some(geteuid().is_root()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_agree_with_proc_self_limits() {
        let text = std::fs::read_to_string("/proc/self/limits").expect("limits");
        let line = text
            .lines()
            .find(|line| line.starts_with("Max open files"))
            .expect("a line on open files");
        let soft = line.split_whitespace().nth(3).expect("a soft limit").parse().ok();
        assert_eq!(LimitFacts::look().open_files.expect("limit").soft, soft);
    }
}
