//! The protocol in a virtual Unix: [`run`].

use tontine_unix::{Fd, Sys};

use crate::modes::{self, Found, System, TimeSource};
use crate::prelude::*;

/// Runs `rounds` rounds in one system, after one round that is not counted because the memory is
/// cold. In each round, each of `processes` processes forks `forks` times. Returns the seconds of
/// each process.
pub(super) fn run(
    system: System,
    processes: usize,
    forks: usize,
    rounds: usize,
) -> Result<Vec<f64>> {
    let program = move |sys: &dyn Sys, found: &Found<f64>| {
        round(sys, system, processes, forks, found)?;
        found.take();
        (0..rounds).try_for_each(|_| round(sys, system, processes, forks, found))
    };
    modes::run(system.builder(), program).map(|(seconds, _)| seconds)
}

fn round(
    sys: &dyn Sys,
    System { processors, watch, .. }: System,
    processes: usize,
    forks: usize,
    found: &Found<f64>,
) -> tontine_unix::Result<()> {
    // The first gate starts all processes; the second gate opens after the last fork.
    let (start, made) = (sys.pipe()?, sys.pipe()?);
    for number in 0..processes {
        let found = found.clone();
        sys.place(Some(number % processors))?;
        sys.fork(move |sys| {
            let forked = modes::pass(sys, start).and_then(|()| {
                found.push(fork_all(sys, forks, watch, made)?);
                modes::reap(sys, forks)
            });
            i32::from(forked.is_err())
        })?;
    }
    sys.close(made.1)?;
    sys.close(start.1)?;
    modes::reap(sys, processes)
}

/// Forks as fast as possible. Returns the seconds from the first fork to the last.
fn fork_all(
    sys: &dyn Sys,
    forks: usize,
    watch: TimeSource,
    made: (Fd, Fd),
) -> tontine_unix::Result<f64> {
    let begun = watch.begin(sys);
    for _ in 0..forks {
        sys.fork(move |sys| i32::from(modes::pass(sys, made).is_err()))?;
    }
    let seconds = watch.ns_since(sys, begun) / 1e9;
    sys.close(made.1)?;
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
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
