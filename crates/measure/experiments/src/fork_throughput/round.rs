//! A round: several processes fork at once, and all their children sleep until the last fork:
//! [`run`].
//!
//! A child sleeps on a futex word that opens when every process has reported its last fork. If a
//! process dies before that, its children are killed with it; if the measuring process dies, all
//! processes are killed.

use std::sync::atomic::{AtomicU64, Ordering};

use tontine_mechanisms::start_barrier::StartBarrier;

use crate::prelude::*;

/// Returns, for each process, the seconds from its first fork to its last.
pub(super) fn run(processes: usize, forks: usize, clock: Clock) -> Result<Vec<f64>> {
    let (start, all_forked, words) =
        (StartBarrier::new()?, StartBarrier::new()?, ChildError::new()?);
    let ticks = (0..processes)
        .map(|_| SharedMapping::<AtomicU64>::anonymous())
        .collect::<Result<Vec<SharedMapping<AtomicU64>>>>()?;
    let mut parents = Vec::with_capacity(processes);
    for ticks in &ticks {
        let fork_all = || fork_all(forks, &start, &all_forked, clock, ticks);
        parents.push(Child::fork(|| words.status(fork_all()))?);
    }
    let living =
        || parents.iter().try_for_each(|parent: &Child| PeerHandle::Child(parent.pid()).check());
    let gone_through = start.until(processes, living).and_then(|()| {
        start.open();
        all_forked.until(processes, living)
    });
    all_forked.open();
    gone_through.map_err(|ours| words.heard().unwrap_or(ours))?;
    for parent in &mut parents {
        let ended = parent.expect_success("a process");
        ended.map_err(|ours| words.heard().unwrap_or(ours))?;
    }
    let seconds = |ticks: &SharedMapping<AtomicU64>| match ticks.load(Ordering::Relaxed) {
        0 => Err(MeasureError::fail("a process ended without having timed its forks")),
        ticks => Ok(clock.ns(ticks.cast_signed()) / 1e9),
    };
    ticks.iter().map(seconds).collect()
}

fn fork_all(
    forks: usize,
    start: &StartBarrier,
    all_forked: &StartBarrier,
    clock: Clock,
    ticks: &AtomicU64,
) -> Result<()> {
    let mut children = Vec::with_capacity(forks);
    start.arrive();
    start.pass();
    let began = clock.start();
    for _ in 0..forks {
        children.push(Child::fork(|| {
            all_forked.pass();
            0
        })?);
    }
    let ended = clock.stop();
    ticks.store(ended.wrapping_sub(began), Ordering::Relaxed);
    all_forked.arrive();
    children.iter_mut().try_for_each(|child| child.expect_success("a child"))
}
