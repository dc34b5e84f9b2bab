//! Errors of calls on users, limits, priorities and processors.

use tontine_unix::{Errno, PriorityScope, Resource, Result, Rlimit, Sys};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, MISSING, SELF, demote, leader, limit, reaped, sleeper,
};

/// A user without processes.
const NO_USER: PriorityScope = PriorityScope::User(4_000_000_000);
/// The nice value of the lowest priority.
const LOWEST_PRIORITY: i32 = 19;

pub(crate) const ROWS: &[Row] = &[
    // setuid
    refused("setuid(uid)", "another user, without privilege", Errno::EPERM, |sys| {
        demote(sys);
        sys.setuid(54_321)
    })
    .as_root(),
    refused("setuid(uid)", "the privileged user, without privilege", Errno::EPERM, |sys| {
        demote(sys);
        sys.setuid(0)
    })
    .as_root(),
    allowed("setuid(uid)", "the own user, without privilege", |sys| {
        demote(sys);
        sys.setuid(sys.getuid())
    })
    .as_root(),
    refused("setuid(uid)", "an invalid user", Errno::EINVAL, |sys| sys.setuid(u32::MAX)),
    refused("setuid(uid)", "an invalid user, without privilege", Errno::EINVAL, |sys| {
        demote(sys);
        sys.setuid(u32::MAX)
    })
    .as_root(),
    // setrlimit
    refused("setrlimit(limit)", "soft above hard", Errno::EINVAL, |sys| {
        Resource::ALL.iter().try_for_each(|resource| {
            match sys.setrlimit(*resource, Rlimit { soft: 2, hard: 1 }) {
                Err(Errno::EINVAL) => Ok(()),
                other => other,
            }
        })?;
        sys.setrlimit(Resource::Processes, Rlimit { soft: u64::MAX, hard: 1 })
    }),
    refused("setrlimit(limit)", "hard raised without privilege", Errno::EPERM, |sys| {
        limit(sys, Resource::Processes, 50);
        demote(sys);
        sys.setrlimit(Resource::Processes, Rlimit { soft: 50, hard: 51 })
    })
    .as_root(),
    refused("setrlimit(limit)", "hard removed without privilege", Errno::EPERM, |sys| {
        limit(sys, Resource::PendingSignals, 50);
        demote(sys);
        sys.setrlimit(Resource::PendingSignals, Rlimit::INFINITY)
    })
    .as_root(),
    refused("setrlimit(limit)", "both wrong, without privilege", Errno::EINVAL, |sys| {
        limit(sys, Resource::Processes, 50);
        demote(sys);
        sys.setrlimit(Resource::Processes, Rlimit { soft: 70, hard: 60 })
    })
    .as_root(),
    allowed("setrlimit(limit)", "soft raised to hard, without privilege", |sys| {
        sys.setrlimit(Resource::Processes, Rlimit { soft: 40, hard: 50 })?;
        demote(sys);
        sys.setrlimit(Resource::Processes, Rlimit::of(50))
    })
    .as_root(),
    refused("setrlimit(limit)", "more descriptors than the system allows", Errno::EPERM, |sys| {
        sys.setrlimit(Resource::Descriptors, Rlimit::INFINITY)
    }),
    allowed("setrlimit(limit)", "the current limits", |sys| {
        let set = |resource: &Resource| sys.setrlimit(*resource, sys.getrlimit(*resource));
        Resource::ALL.iter().try_for_each(set)
    }),
    // getpriority
    refused("getpriority(whose)", "no process has the number", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::Process(MISSING)).map(drop)
    }),
    refused("getpriority(whose)", "−1", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::Process(MINUS_ONE)).map(drop)
    }),
    refused("getpriority(whose)", "the lowest number", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::Process(LOWEST)).map(drop)
    }),
    refused("getpriority(whose)", "already reaped", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::Process(reaped(sys))).map(drop)
    }),
    refused("getpriority(whose)", "a missing group", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::Group(MISSING)).map(drop)
    }),
    refused("getpriority(whose)", "an invalid group number", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::Group(MINUS_ONE)).map(drop)
    }),
    refused("getpriority(whose)", "a process that leads no group", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::Group(sleeper(sys))).map(drop)
    }),
    refused("getpriority(whose)", "a user without processes", Errno::ESRCH, |sys| {
        sys.getpriority(NO_USER).map(drop)
    }),
    refused("getpriority(whose)", "an invalid user", Errno::ESRCH, |sys| {
        sys.getpriority(PriorityScope::User(u32::MAX)).map(drop)
    }),
    // setpriority
    refused("setpriority(whose)", "no process has the number", Errno::ESRCH, |sys| {
        sys.setpriority(PriorityScope::Process(MISSING), 1)
    }),
    refused("setpriority(whose)", "−1", Errno::ESRCH, |sys| {
        sys.setpriority(PriorityScope::Process(MINUS_ONE), 1)
    }),
    refused("setpriority(whose)", "the lowest number", Errno::ESRCH, |sys| {
        sys.setpriority(PriorityScope::Process(LOWEST), 1)
    }),
    refused("setpriority(whose)", "already reaped", Errno::ESRCH, |sys| {
        sys.setpriority(PriorityScope::Process(reaped(sys)), 1)
    }),
    refused("setpriority(whose)", "a missing group", Errno::ESRCH, |sys| {
        sys.setpriority(PriorityScope::Group(MISSING), 1)
    }),
    refused("setpriority(whose)", "an invalid group number", Errno::ESRCH, |sys| {
        sys.setpriority(PriorityScope::Group(MINUS_ONE), 1)
    }),
    refused("setpriority(whose)", "a user without processes", Errno::ESRCH, |sys| {
        sys.setpriority(NO_USER, 1)
    }),
    refused("setpriority(whose)", "an invalid user", Errno::ESRCH, |sys| {
        sys.setpriority(PriorityScope::User(u32::MAX), 1)
    }),
    refused("setpriority(whose)", "a process of another user", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        sys.setpriority(PriorityScope::Process(child), 1)
    })
    .as_root(),
    refused("setpriority(whose)", "a group of other users' processes", Errno::EPERM, |sys| {
        let group = leader(sys);
        demote(sys);
        sys.setpriority(PriorityScope::Group(group), 1)
    })
    .as_root(),
    // The user that runs the tests may have any priority, so these rows first set the lowest one.
    refused("setpriority(nice)", "lowered without privilege", Errno::EACCES, |sys| {
        demote(sys);
        sys.setpriority(PriorityScope::Process(SELF), LOWEST_PRIORITY)?;
        sys.setpriority(PriorityScope::Process(SELF), LOWEST_PRIORITY - 1)
    })
    .as_root(),
    refused("setpriority(nice)", "lowered for a group", Errno::EACCES, |sys| {
        demote(sys);
        sys.setpgid(SELF, SELF)?;
        sys.setpriority(PriorityScope::Process(SELF), LOWEST_PRIORITY)?;
        sys.setpriority(PriorityScope::Group(SELF), LOWEST_PRIORITY - 1)
    })
    .as_root(),
    refused("setpriority(nice)", "lowered for another user's process", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        sys.setpriority(PriorityScope::Process(child), LOWEST_PRIORITY)?;
        demote(sys);
        sys.setpriority(PriorityScope::Process(child), LOWEST_PRIORITY - 1)
    })
    .as_root(),
    allowed("setpriority(nice)", "beyond the range", |sys| {
        sys.setpriority(PriorityScope::Process(SELF), i32::MAX)?;
        assert_eq!(sys.getpriority(PriorityScope::Process(SELF))?, LOWEST_PRIORITY);
        sys.setpriority(PriorityScope::Process(SELF), i32::MIN)?;
        assert_eq!(sys.getpriority(PriorityScope::Process(SELF))?, -20);
        Ok(())
    })
    .as_root(),
    // place
    refused("place(processor)", "beyond the last", Errno::EINVAL, |sys| sys.place(Some(1 << 20))),
    refused("place(processor)", "the highest number", Errno::EINVAL, |sys| {
        sys.place(Some(usize::MAX))
    }),
    allowed("place(processor)", "any", |sys| sys.place(None)),
    // profil
    refused("profil(counts)", "the kernel has no such call", Errno::ENOSYS, stop_profil)
        .on_linux("Virtual has it"),
];

fn stop_profil(sys: &dyn Sys) -> Result<()> {
    sys.profil(None)
}

#[test]
fn limit_priority_and_user_errors_match_linux() {
    hold(ROWS);
}
