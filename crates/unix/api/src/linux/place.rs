//! The processor for new threads and children: [`CpuPlacement`].
//!
//! Once the caller has placed its process, each new thread and child sets its own affinity before
//! it does anything else. The caller itself does not move.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::convert::to_errno;
use crate::errno::{Errno, Result};

/// The affinity of new threads and children.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuPlacement {
    wanted: Option<CpuSet>,
    /// The affinity that this process, or the process that forked it, had before its placement.
    before: Option<CpuSet>,
}

impl CpuPlacement {
    /// Returns the placement that leaves the affinity as inherited.
    pub(super) const fn new() -> Self {
        Self { wanted: None, before: None }
    }

    /// Returns the placement on `processor`; with `None`, the placement that restores the affinity
    /// from before the first placement.
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

    /// Sets the affinity of the calling thread, which is new or the first thread of a new process.
    /// Does nothing if the processor has since gone offline.
    pub(super) fn apply(self) {
        if let Some(set) = self.wanted {
            let _ = sched_setaffinity(None, &set);
        }
    }
}

/// Returns the set that contains only this processor. Checks that the kernel accepts the set by
/// moving this thread to the processor and back.
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
