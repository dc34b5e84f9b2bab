//! The processors on which the calling thread may run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{ErrorContext, MeasureError, Result};

pub fn pin_to(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| {
        MeasureError::skip(format!("sched_setaffinity to processor {cpu}: {error}"))
    })
}

/// Restricts the calling thread to `cpus`.
pub fn pin_to_all(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set)
        .map_err(|error| MeasureError::skip(format!("sched_setaffinity to {cpus:?}: {error}")))
}

/// Returns the processors on which the calling thread may run, in ascending order.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).setting_up("sched_getaffinity")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Returns the first of the processors on which the calling thread may run.
pub fn first() -> Result<usize> {
    let first = allowed()?.first().copied();
    first.ok_or_else(|| MeasureError::skip("sched_getaffinity: no processor"))
}

/// A guard that pins the calling thread to one processor and restores the affinity when dropped.
#[derive(Debug)]
pub struct Pinned(Option<CpuSet>);

impl Pinned {
    pub fn to(cpu: usize) -> Result<Self> {
        let before = sched_getaffinity(None).ok();
        pin_to(cpu)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}
