//! The protocol in a virtual Unix: [`run`].

use std::sync::{Arc, Mutex, PoisonError};

use tontine_host::error::{MeasureError, Result};
use tontine_unix::{Fd, Sys};

use crate::modes::{self, System, TimeSource};

/// Runs `rounds` rounds in one system, after one round that is not counted because the memory is
/// cold. In each round, each of `processes` processes forks `forks` times. Returns the seconds of
/// each process.
///
/// # Errors
/// Returns `Failed` if the virtual Unix does not end with status 0.
pub(super) fn run(
    system: System,
    processes: usize,
    forks: usize,
    rounds: usize,
) -> Result<Vec<f64>> {
    let unix = system.builder().build().map_err(|error| MeasureError::fail(error.to_string()))?;
    let all = Arc::new(Mutex::new(Vec::with_capacity(rounds * processes)));
    let seen = Arc::clone(&all);
    let report = unix.run(move |sys| {
        let one = || round(sys, system, processes, forks, &seen);
        let cold = one();
        seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let warm = (0..rounds).try_for_each(|_| one());
        i32::from(cold.and(warm).is_err())
    });
    modes::ran(&report)?;
    let seconds = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(seconds)
}

fn round(
    sys: &dyn Sys,
    System { processors, watch, .. }: System,
    processes: usize,
    forks: usize,
    all: &Arc<Mutex<Vec<f64>>>,
) -> tontine_unix::Result<()> {
    // There are two gates, each of which opens when the last copy of its other end is closed. The
    // first gate starts all processes; the second gate opens after the last fork.
    let (start, started) = sys.pipe()?;
    let (made, making) = sys.pipe()?;
    for number in 0..processes {
        let all = Arc::clone(all);
        sys.place(Some(number % processors))?;
        sys.fork(move |sys| {
            let waited = sys.close(started).is_ok() && pass(sys, start);
            let forked = waited.then(|| fork_all(sys, forks, watch, made, making)).flatten();
            let Some(seconds) = forked else { return 1 };
            all.lock().unwrap_or_else(PoisonError::into_inner).push(seconds);
            i32::from((0..forks).any(|_| sys.wait().is_err()))
        })?;
    }
    sys.close(making)?;
    sys.close(started)?;
    let mut failed = false;
    for _ in 0..processes {
        failed |= sys.wait()?.status.exited() != Some(0);
    }
    if failed { Err(tontine_unix::Errno::EAGAIN) } else { Ok(()) }
}

/// Forks as fast as possible. Returns the seconds from the first fork to the last.
fn fork_all(sys: &dyn Sys, forks: usize, watch: TimeSource, made: Fd, making: Fd) -> Option<f64> {
    let begun = watch.begin(sys);
    for _ in 0..forks {
        let child = move |sys: &dyn Sys| {
            let closed = sys.close(making).is_ok();
            i32::from(!(closed && pass(sys, made)))
        };
        sys.fork(child).ok()?;
    }
    let seconds = watch.ns_since(sys, begun) / 1e9;
    sys.close(making).ok()?;
    Some(seconds)
}

/// Waits until a gate is open.
fn pass(sys: &dyn Sys, gate: Fd) -> bool {
    loop {
        match sys.read(gate, &mut [0]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::clock::Clock;
    use tontine_unix_sim::{CostModel, LockingMode};

    #[test]
    fn every_virtual_process_reports_its_time_in_every_mode() {
        for mode in LockingMode::ALL {
            let processors = if mode == LockingMode::Uniprocessor { 1 } else { 2 };
            for processes in [1, 3] {
                let model = TimeSource::Model { seed: 1, costs: CostModel::published() };
                for watch in [TimeSource::Machine(Clock::calibrated()), model] {
                    let system = System { mode, processors, watch };
                    let seconds = run(system, processes, 10, 2).expect("two rounds");
                    assert_eq!(seconds.len(), 2 * processes, "{mode}");
                    assert!(seconds.iter().all(|&seconds| seconds > 0.0), "{mode}: {seconds:?}");
                }
            }
        }
    }
}
