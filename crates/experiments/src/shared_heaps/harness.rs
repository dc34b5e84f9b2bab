//! Starts workers, runs them and counts: [`WorkerPlan::in_threads`], [`WorkerPlan::in_processes`].
//!
//! This process sleeps while the workers run. If kills are requested, it kills a random worker at a
//! random moment of each second, reaps it, and starts a replacement. If no worker makes progress
//! for [`STILL`] after a kill, the heap is wedged: this process records the time of the last
//! progress and ends the run. Time in which a worker waited for a processor does not count.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use tontine_bench::heap_map::HeapMap;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::deadline;

use super::board::WorkerTable;
use super::heap::World;
use super::picture;
pub(super) use super::worker_processes::WorkerPlan;
use super::worker_processes::{LOOK, PATIENCE, WorkerProcesses};

/// Minimum number of parts into which the time is divided; each part yields one sample.
const PARTS: u32 = 10;
/// Maximum length of a part.
const PART_MS: u128 = 100;
/// Divisor of the measured time that yields the duration of the warm-up.
const WARM_UP: u32 = 4;
/// Time without any freed block after which the heap counts as wedged, if a worker was killed and
/// no worker waits for a processor.
const STILL: Duration = Duration::from_millis(400);
/// Interval in which one kill happens, at a random moment in its middle.
const KILL_EVERY: Duration = Duration::from_secs(1);
const KILL_WITHIN: Range<f64> = 0.1..0.9;
/// Result of a run.
#[derive(Debug, Default)]
pub(super) struct BenchResult {
    /// Blocks per second freed by all workers, for each part of the time.
    pub(super) rates: Vec<f64>,
    pub(super) kills: u32,
    /// If the heap is wedged, the time of the last progress and the number of kills.
    pub(super) wedged: Option<(Duration, u32)>,
    /// Maps of the heap after the timed part and one more kill, before and after the recovery of
    /// the dead worker.
    pub(super) maps: Vec<HeapMap>,
}

impl WorkerPlan<'_> {
    /// Runs the plan with one thread per worker.
    ///
    /// # Errors
    /// Returns the first error of a worker.
    pub(super) fn in_threads<W: World>(&self, world: &W) -> Result<BenchResult> {
        let board = self.board()?;
        let work = |seat| self.work(world, &board, seat);
        let seen = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..self.workers).map(|seat| scope.spawn(move || work(seat))).collect();
            let seen = until_ready(&board, || Ok(()))
                .and_then(|()| self.watch(&board, |_| Ok(Meanwhile::default())));
            // A worker that still waits may now begin; it finds that the run is over.
            board.stop();
            board.go();
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(MeasureError::fail("a thread panicked")))
            });
            // Join all threads before returning the first error.
            ended.collect::<Vec<_>>().into_iter().collect::<Result<()>>().and(seen)
        })?;
        world.close()?;
        Ok(seen)
    }

    /// Runs the plan with one process per worker. If requested, kills one of them in each second.
    ///
    /// # Errors
    /// Returns the first error of a worker, or of the final check. A wedged heap is not an error.
    pub(super) fn in_processes<W: World>(&self, world: &W, kills: bool) -> Result<BenchResult> {
        let board = self.board()?;
        let mut processes = WorkerProcesses::new(self, world, &board)?;
        until_ready(&board, || processes.check())?;
        let mut due = if kills { moments(self.time) } else { Vec::new() }.into_iter().peekable();
        let mut killed = 0;
        let mut seen = self.watch(&board, |span| {
            while let Some(at) = due.next_if(|at| *at < span.end) {
                sleep_until(span.start + at);
                processes.kill_one()?;
                killed += 1;
            }
            processes.check()?;
            Ok(Meanwhile { kills: killed, is_starved: processes.is_starved() })
        })?;
        seen.kills = killed;
        if seen.wedged.is_none() {
            if kills {
                seen.maps = picture::pair(&mut processes)?;
            }
            processes.close()?;
            world.close()?;
        }
        Ok(seen)
    }

    /// Starts the workers and counts. In each part of the time it first calls `meanwhile` with the
    /// start of the run and the end of this part.
    fn watch(
        &self,
        board: &WorkerTable,
        mut meanwhile: impl FnMut(MeasuredSpan) -> Result<Meanwhile>,
    ) -> Result<BenchResult> {
        board.go();
        thread::sleep(self.time.min(KILL_EVERY) / WARM_UP);
        let parts = PARTS.max((self.time.as_millis() / PART_MS) as u32);
        let mut seen = BenchResult::default();
        let start = Instant::now();
        let mut last = (start, board.freed());
        let (mut got_on, mut quiet, mut kills) = (start, Duration::ZERO, 0);
        for part in 1.. {
            let end = self.time * part / parts;
            let now = meanwhile(MeasuredSpan { start, end })?;
            if now.is_starved || now.kills > kills {
                quiet = Duration::ZERO;
            }
            kills = now.kills;
            sleep_until(start + end);
            let now = (Instant::now(), board.freed());
            let (time, freed) = (now.0 - last.0, now.1 - last.1);
            if freed > 0 {
                (got_on, quiet) = (now.0, Duration::ZERO);
            } else {
                // If this process waits for a processor, a part lasts longer.
                quiet += time.min(self.time / parts);
            }
            if part <= parts {
                seen.rates.push(freed as f64 / time.as_secs_f64());
            }
            let still = kills > 0 && quiet > STILL;
            if still {
                seen.wedged = Some((got_on - start, kills));
                seen.rates.resize(parts as usize, 0.0);
            }
            // If progress has just stopped, continue until it is clear whether the heap is wedged.
            let unclear = kills > 0 && freed == 0;
            if still || board.stopped() || part >= parts && !unclear {
                break;
            }
            last = now;
        }
        Ok(seen)
    }
}

/// Events up to the start of a part of the measured time.
#[derive(Debug, Clone, Copy, Default)]
struct Meanwhile {
    /// Number of kills up to this time.
    kills: u32,
    /// `true` if a worker has waited for a processor since the last part.
    is_starved: bool,
}

/// Start of the measured time, and end of one of its parts.
#[derive(Debug, Clone, Copy)]
struct MeasuredSpan {
    start: Instant,
    end: Duration,
}

/// Returns the moments of the kills: one random moment in each second of the time.
fn moments(time: Duration) -> Vec<Duration> {
    let seconds = time.as_secs().max(1) as u32;
    let within = |second| KILL_EVERY * second + KILL_EVERY.mul_f64(rand::random_range(KILL_WITHIN));
    (0..seconds).map(within).collect()
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Waits until all workers are ready.
fn until_ready(board: &WorkerTable, check: impl Fn() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    while !board.all_ready() && !board.stopped() {
        check()?;
        if began.elapsed() > deadline::within(PATIENCE) {
            return Err(MeasureError::fail(format!(
                "the workers were not ready within {PATIENCE:?}"
            )));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_has_one_kill_per_second() {
        let all = moments(Duration::from_secs(5));
        let seconds: Vec<u64> = all.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [0, 1, 2, 3, 4]);
        assert_eq!(moments(Duration::from_millis(40)).len(), 1);
    }
}
