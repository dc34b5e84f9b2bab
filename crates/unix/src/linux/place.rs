//! On which processor things run: [`Placement`].
//!
//! A placed process's new threads and children set their own affinity before they do anything
//! else. The caller stays where it is.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::convert::to_errno;
use crate::errno::{Errno, Result};

/// Where new threads and children run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    wanted: Option<CpuSet>,
    /// Where this process, or the one that it was forked by, might run before it was placed.
    before: Option<CpuSet>,
}

impl Placement {
    /// Wherever their maker may.
    pub(super) const fn new() -> Self {
        Self { wanted: None, before: None }
    }

    /// On `processor` from now on; `None`: where things ran before they were placed.
    pub(super) fn moved_to(self, processor: Option<usize>) -> Result<Self> {
        let Self { before, .. } = self;
        Ok(match processor {
            Some(processor) => {
                let before =
                    before.map_or_else(|| sched_getaffinity(None), Ok).map_err(to_errno)?;
                Self { wanted: Some(only(processor)?), before: Some(before) }
            }
            None => Self { wanted: before, before },
        })
    }

    /// In the new thread or process. A processor that has gone meanwhile places nothing.
    pub(super) fn apply(self) {
        if let Some(set) = self.wanted {
            let _ = sched_setaffinity(None, &set);
        }
    }
}

/// That processor alone, if the kernel takes it: this thread goes there and back.
fn only(processor: usize) -> Result<CpuSet> {
    if processor >= CpuSet::MAX_CPU {
        return Err(Errno::EINVAL);
    }
    let mut set = CpuSet::new();
    set.set(processor);
    let before = sched_getaffinity(None).map_err(to_errno)?;
    sched_setaffinity(None, &set).map_err(to_errno)?;
    sched_setaffinity(None, &before).map_err(to_errno)?;
    Ok(set)
}
