//! Starts workers, runs them and counts: [`WorkerPlan::in_threads`], [`WorkerPlan::in_processes`].
//!
//! This process sleeps while the workers run. If kills are requested, it kills a random worker at a
//! random moment of each second, reaps it, and starts a replacement. If no worker makes progress
//! for [`STILL`] after a kill, the heap is wedged: this process records the time of the last
//! progress and ends the run. Time in which a worker waited for a processor does not count.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use std::ops::Range;
use std::panic::AssertUnwindSafe;

use rustix::process::{WaitId, WaitIdOptions, waitid};
use tontine_bench::heap_map::{HeapMap, HeapMember};
use tontine_bench::os::child;
use tontine_bench::os::deadline;

use super::benchmarks::Benchmark;
use super::heaps::MeasuredHeap;
use super::table::{MAX_WORKERS, WorkerTable};
use super::worker::HeapWorker;
use crate::prelude::*;

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_micros(100);
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

#[derive(Debug, Clone)]
pub(super) struct WorkerPlan<'a> {
    pub(super) benchmark: Benchmark,
    pub(super) workers: usize,
    pub(super) time: Duration,
    /// Worker i runs on processor i, modulo the number of processors.
    pub(super) processors: &'a [usize],
}

impl WorkerPlan<'_> {
    pub(super) fn in_threads<H: MeasuredHeap>(&self, heap: &H) -> Result<BenchResult> {
        let table = self.table()?;
        let work = |slot| self.work(heap, &table, slot);
        let seen = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..self.workers).map(|slot| scope.spawn(move || work(slot))).collect();
            let seen = until_ready(&table, || Ok(()))
                .and_then(|()| self.watch(&table, |_, _| Ok(Meanwhile::default())));
            // A worker that still waits may now begin; it finds that the run is over.
            table.stop();
            table.go();
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(MeasureError::fail("a thread panicked")))
            });
            // Join all threads before returning the first error.
            ended.collect::<Vec<_>>().into_iter().collect::<Result<()>>().and(seen)
        })?;
        heap.close()?;
        Ok(seen)
    }

    /// Runs the plan with one process per worker. If requested, kills one of them in each second.
    pub(super) fn in_processes<H: MeasuredHeap>(
        &self,
        heap: &H,
        kills: bool,
    ) -> Result<BenchResult> {
        let table = self.table()?;
        let mut processes = WorkerProcesses {
            plan: self,
            heap,
            table: &table,
            workers: Vec::new(),
            used: Vec::new(),
        };
        for slot in 0..self.workers {
            let worker = processes.start(slot)?;
            processes.workers.push(worker);
        }
        until_ready(&table, || processes.check())?;
        let mut due =
            if kills { kill_moments(self.time) } else { Vec::new() }.into_iter().peekable();
        let mut killed = 0;
        let mut seen = self.watch(&table, |start, end| {
            while let Some(at) = due.next_if(|at| *at < end) {
                sleep_until(start + at);
                let slot = rand::random_range(0..self.workers);
                processes.kill(slot)?;
                processes.replace(slot)?;
                killed += 1;
            }
            processes.check()?;
            Ok(Meanwhile { kills: killed, is_starved: processes.is_starved() })
        })?;
        seen.kills = killed;
        if seen.wedged.is_none() {
            if kills {
                seen.maps = processes.maps_around_recovery()?;
            }
            processes.close()?;
            heap.close()?;
        }
        Ok(seen)
    }

    fn table(&self) -> Result<SharedMapping<WorkerTable>> {
        let found = self.workers;
        let few = (1..=MAX_WORKERS).contains(&found);
        ensure!(few, "expected 1 to {MAX_WORKERS} workers, found {found}");
        let table = SharedMapping::<WorkerTable>::anonymous()?;
        table.set_workers(self.workers);
        Ok(table)
    }

    fn work<H: MeasuredHeap>(&self, heap: &H, table: &WorkerTable, slot: usize) -> Result<()> {
        let work = || {
            let _pinned = Pinned::to(self.processors[slot % self.processors.len()])?;
            let heap = heap.join()?;
            self.benchmark.run(HeapWorker::new(&heap, table, slot))
        };
        let worked = std::panic::catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(MeasureError::fail("a worker panicked")));
        if worked.is_err() {
            // The other workers must not wait for this one.
            table.stop();
            table.occupy(slot, 0);
            table.finish(slot);
        }
        worked
    }

    /// Starts the workers and counts. In each part of the time it first calls `meanwhile` with the
    /// start of the run and the end of this part.
    fn watch(
        &self,
        table: &WorkerTable,
        mut meanwhile: impl FnMut(Instant, Duration) -> Result<Meanwhile>,
    ) -> Result<BenchResult> {
        table.go();
        thread::sleep(self.time.min(KILL_EVERY) / WARM_UP);
        let parts = PARTS.max((self.time.as_millis() / PART_MS) as u32);
        let mut seen = BenchResult::default();
        let start = Instant::now();
        let mut last = (start, table.freed());
        let (mut progress, mut quiet, mut kills) = (start, Duration::ZERO, 0);
        for part in 1.. {
            let end = self.time * part / parts;
            let now = meanwhile(start, end)?;
            if now.is_starved || now.kills > kills {
                quiet = Duration::ZERO;
            }
            kills = now.kills;
            sleep_until(start + end);
            let now = (Instant::now(), table.freed());
            let (time, freed) = (now.0 - last.0, now.1 - last.1);
            if freed > 0 {
                (progress, quiet) = (now.0, Duration::ZERO);
            } else {
                // If this process waits for a processor, a part lasts longer.
                quiet += time.min(self.time / parts);
            }
            if part <= parts {
                seen.rates.push(freed as f64 / time.as_secs_f64());
            }
            let still = kills > 0 && quiet > STILL;
            if still {
                seen.wedged = Some((progress - start, kills));
                seen.rates.resize(parts as usize, 0.0);
            }
            // If progress has just stopped, continue until it is clear whether the heap is wedged.
            let unclear = kills > 0 && freed == 0;
            if still || table.stopped() || part >= parts && !unclear {
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
    kills: u32,
    /// `true` if a worker has waited for a processor since the last part.
    is_starved: bool,
}

/// Returns the moments of the kills: one random moment in each second of the time.
fn kill_moments(time: Duration) -> Vec<Duration> {
    let seconds = time.as_secs().max(1) as u32;
    let within = |second| KILL_EVERY * second + KILL_EVERY.mul_f64(rand::random_range(KILL_WITHIN));
    (0..seconds).map(within).collect()
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

fn until_ready(table: &WorkerTable, check: impl Fn() -> Result<()>) -> Result<()> {
    poll_until("the workers were not ready in time", || {
        check()?;
        Ok(table.all_ready() || table.stopped())
    })
}

pub(super) fn poll_until(late: &str, done: impl FnMut() -> Result<bool>) -> Result<()> {
    ensure!(poll_for(TIMEOUT, POLL, done)?, "{late}");
    Ok(())
}

/// Worker processes. All of them are killed on drop.
struct WorkerProcesses<'h, H> {
    plan: &'h WorkerPlan<'h>,
    heap: &'h H,
    table: &'h WorkerTable,
    workers: Vec<ReportingChild>,
    /// Processor time of each worker, in nanoseconds, as of the last [`Self::is_starved`].
    used: Vec<u64>,
}

impl<H: MeasuredHeap> WorkerProcesses<'_, H> {
    fn start(&self, slot: usize) -> Result<ReportingChild> {
        ReportingChild::fork(|| self.plan.work(self.heap, self.table, slot))
    }

    fn check(&self) -> Result<()> {
        self.workers.iter().try_for_each(ReportingChild::check)
    }

    fn error(&self) -> Result<()> {
        self.workers.iter().find_map(ReportingChild::error).map_or(Ok(()), Err)
    }

    fn pid(&self, slot: usize) -> u32 {
        self.workers[slot].child.pid().as_raw_nonzero().get().cast_unsigned()
    }

    /// Returns `true` if a worker is awake but has not run since the last call.
    fn is_starved(&mut self) -> bool {
        let pids = (0..self.workers.len()).map(|slot| self.pid(slot));
        let now: Vec<_> = pids.map(|pid| (processor_time(pid), thread_sleeps(pid))).collect();
        let before = std::mem::replace(&mut self.used, now.iter().map(|one| one.0).collect());
        now.iter().zip(&before).any(|(&(used, sleeps), &before)| used == before && !sleeps)
    }

    /// Kills a worker at an arbitrary point of its work.
    fn kill(&mut self, slot: usize) -> Result<()> {
        let status = self.workers[slot].child.kill()?;
        if status.terminating_signal() == Some(libc::SIGKILL) {
            return Ok(());
        }
        self.error()?;
        Err(MeasureError::fail(format!("a worker ended before it was killed: {status:?}")))
    }

    /// Reports the end to the other workers, and starts a replacement.
    fn replace(&mut self, slot: usize) -> Result<()> {
        self.table.add_death();
        self.workers[slot] = self.start(slot)?;
        Ok(())
    }

    /// Stops the workers, kills one of them, and maps the heap before and after its recovery. The
    /// others then continue, with a replacement for the killed worker. Returns no map if the heap
    /// has none.
    fn maps_around_recovery(&mut self) -> Result<Vec<HeapMap>> {
        if self.heap.map("", &[])?.is_none() {
            return Ok(Vec::new());
        }
        for worker in &self.workers {
            worker.child.signal(Signal::STOP).during("kill(SIGSTOP)")?;
        }
        for worker in &self.workers {
            until_stopped(worker.child.pid())?;
        }
        let slot = rand::random_range(0..self.workers.len());
        let mut named: Vec<(u32, HeapMember)> = (0..self.workers.len())
            .map(|other| {
                let dead = other == slot;
                let name = format!("worker {}{}", other + 1, if dead { ", killed" } else { "" });
                (self.pid(other), HeapMember { name, dead })
            })
            .collect();
        let recovering = HeapMember { name: "the recovering process".into(), dead: false };
        named.push((std::process::id(), recovering));
        self.kill(slot)?;
        let moment = format!("Worker {} was killed; it is not recovered yet", slot + 1);
        let before = self.heap.map(&moment, &named)?;
        let began = Instant::now();
        let recovery = self.heap.recover_and_trim()?;
        let took = began.elapsed();
        let mut after =
            self.heap.map("The same heap after one call of recover_and_trim", &named)?;
        if let Some(map) = &mut after {
            map.notes.insert(0, format!("{recovery}, in {} µs", took.as_micros()));
        }
        for (other, worker) in self.workers.iter().enumerate() {
            if other != slot {
                worker.child.signal(Signal::CONT).during("kill(SIGCONT)")?;
            }
        }
        self.replace(slot)?;
        Ok(before.into_iter().chain(after).collect())
    }

    fn close(&mut self) -> Result<()> {
        self.table.stop();
        for slot in 0..self.workers.len() {
            let ended =
                child::ends_within(self.workers[slot].child.pid(), deadline::within(TIMEOUT))?;
            self.error()?;
            ensure!(ended, "a worker did not end in time");
            let status = self.workers[slot].child.wait()?;
            if status.exit_status() != Some(0) {
                self.error()?;
                bail!("a worker ended with {status:?}");
            }
        }
        Ok(())
    }
}

fn until_stopped(pid: Pid) -> Result<()> {
    let options = WaitIdOptions::STOPPED
        | WaitIdOptions::EXITED
        | WaitIdOptions::NOHANG
        | WaitIdOptions::NOWAIT;
    poll_until("a worker did not stop", || {
        match waitid(WaitId::Pid(pid), options).during("waitid")? {
            Some(status) if !status.stopped() => {
                Err(MeasureError::fail("a worker ended before it could be stopped"))
            }
            status => Ok(status.is_some()),
        }
    })
}

/// Returns the processor time of a process with one thread, in nanoseconds; 0 without `/proc`.
fn processor_time(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|used| used.parse().ok()).unwrap_or(0)
}

/// Returns `true` if a process with one thread sleeps, or if there is no `/proc`.
fn thread_sleeps(pid: u32) -> bool {
    ProcStatFile::of(pid, pid).map_or(true, |state| state.asleep())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_has_one_kill_per_second() {
        let all = kill_moments(Duration::from_secs(5));
        let seconds: Vec<u64> = all.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [0, 1, 2, 3, 4]);
        assert_eq!(kill_moments(Duration::from_millis(40)).len(), 1);
    }
}
