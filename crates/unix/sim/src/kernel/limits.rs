//! Resource limits and usage of a process: [`ResourceLimits`], guarded by `p_lock`, and
//! [`UserTimes`], guarded by `u_time_lock` (§6.1). [`accounts`](super::accounts) sets the limits;
//! [`clock`](super::clock) charges for processor time.

use tontine_unix::{Resource, Rlimit, Usage};

/// Maximum value of the limit on descriptors, as in `/proc/sys/fs/nr_open`.
pub(super) const MOST_DESCRIPTORS: u64 = 1 << 20;

/// The limits, in the order of [`Resource::ALL`].
#[derive(Clone, Copy)]
pub(super) struct ResourceLimits(pub(super) [Rlimit; Resource::ALL.len()]);

impl Default for ResourceLimits {
    fn default() -> Self {
        let mut all = Self([Rlimit::INFINITY; Resource::ALL.len()]);
        all.0[Resource::Descriptors as usize] = Rlimit::of(MOST_DESCRIPTORS);
        all
    }
}

impl ResourceLimits {
    /// Returns the limits that apply when a system starts.
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

/// The state that `u_time_lock` guards, written by the clock tick at high spl (§6.1).
#[derive(Clone, Copy)]
pub(super) struct UserTimes {
    pub(super) used: Usage,
    /// The limit in seconds. The soft limit is raised whenever it is exceeded.
    pub(super) cpu_limit: Rlimit,
}

impl Default for UserTimes {
    fn default() -> Self {
        Self { used: Usage::default(), cpu_limit: Rlimit::INFINITY }
    }
}

/// Adds processor times.
pub(super) fn add_usage(sum: &mut Usage, used: Usage) {
    sum.user += used.user;
    sum.system += used.system;
}
