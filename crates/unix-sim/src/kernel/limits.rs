//! What a process may use and has used: [`Limits`], guarded by `p_lock`, and [`Times`], guarded by
//! `u_time_lock` (§6.1). Who sets them is [`accounts`](super::accounts); who charges for processor
//! time is [`clock`](super::clock).

use tontine_unix::{Resource, Rlimit, Usage};

use super::files::MOST;

/// The limits, by [`Resource::ALL`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits(pub(super) [Rlimit; Resource::ALL.len()]);

impl Default for Limits {
    fn default() -> Self {
        let mut all = Self([Rlimit::INFINITY; Resource::ALL.len()]);
        all.0[Resource::Descriptors as usize] = Rlimit::of(MOST);
        all
    }
}

impl Limits {
    /// The limits that a system begins with.
    pub(super) fn of_config(limits: &[(Resource, Rlimit)]) -> Self {
        let mut all = Self::default();
        for (resource, limit) in limits {
            all.0[*resource as usize] = *limit;
        }
        all
    }

    pub(super) fn of(&self, resource: Resource) -> Rlimit {
        self.0[resource as usize]
    }
}

/// What `u_time_lock` guards: written by the clock tick, at high spl (§6.1).
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) used: Usage,
    /// In seconds; the soft one goes up when it is exceeded.
    pub(super) cpu_limit: Rlimit,
}

impl Default for Times {
    fn default() -> Self {
        Self { used: Usage::default(), cpu_limit: Rlimit::INFINITY }
    }
}
