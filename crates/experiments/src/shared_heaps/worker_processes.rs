//! The workers of a plan ([`WorkerPlan`]), and worker processes ([`WorkerProcesses`]).

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tontine_host::error::{MeasureError, Result};
use tontine_host::os::child::{self, Child};
use tontine_host::os::deadline;
use tontine_host::os::pin::Pinned;
use tontine_host::os::shared::SharedMapping;
use tontine_host::os::state::ProcStatFile;
use tontine_host::peer::{ChildError, PeerHandle};

use super::benchmark::Benchmark;
use super::board::{SEATS, WorkerTable};
use super::heap::World;
use super::worker::HeapWorker;

/// Timeout for the workers to start, and for them to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Polling interval.
pub(super) const LOOK: Duration = Duration::from_micros(100);

/// The benchmark, its workers and its time.
#[derive(Debug, Clone)]
pub(super) struct WorkerPlan<'a> {
    pub(super) benchmark: Benchmark,
    pub(super) workers: usize,
    pub(super) time: Duration,
    /// Worker i runs on processor i, modulo the number of processors.
    pub(super) processors: &'a [usize],
}

impl WorkerPlan<'_> {
    pub(super) fn board(&self) -> Result<SharedMapping<WorkerTable>> {
        if !(1..=SEATS).contains(&self.workers) {
            let found = self.workers;
            return Err(MeasureError::fail(format!(
                "expected 1 to {SEATS} workers, found {found}"
            )));
        }
        let board = SharedMapping::<WorkerTable>::anonymous()?;
        board.set_workers(self.workers);
        Ok(board)
    }

    /// Runs a worker from beginning to end.
    pub(super) fn work<W: World>(&self, world: &W, board: &WorkerTable, seat: usize) -> Result<()> {
        let work = || {
            let _pinned = Pinned::to(self.processors[seat % self.processors.len()])?;
            let heap = world.join()?;
            self.benchmark.run(HeapWorker::new(&heap, board, seat))
        };
        let worked = std::panic::catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(MeasureError::fail("a worker panicked")));
        if worked.is_err() {
            // The other workers must not wait for this one.
            board.stop();
            board.sit(seat, 0);
            board.finish(seat);
        }
        worked
    }
}

/// Worker processes, which the owner of this value starts. All of them are killed on drop.
pub(super) struct WorkerProcesses<'h, W> {
    plan: &'h WorkerPlan<'h>,
    pub(super) world: &'h W,
    board: &'h WorkerTable,
    pub(super) seats: Vec<(Child, SharedMapping<ChildError>)>,
    /// Processor time of each worker, in nanoseconds, as of the last [`Self::is_starved`].
    used: Vec<u64>,
}

impl<'h, W: World> WorkerProcesses<'h, W> {
    /// Starts a process for each worker of the plan.
    pub(super) fn new(
        plan: &'h WorkerPlan<'h>,
        world: &'h W,
        board: &'h WorkerTable,
    ) -> Result<Self> {
        let mut processes = Self { plan, world, board, seats: Vec::new(), used: Vec::new() };
        for seat in 0..plan.workers {
            let words = ChildError::new()?;
            let child = processes.seat(seat, &words)?;
            processes.seats.push((child, words));
        }
        Ok(processes)
    }

    fn seat(&self, seat: usize, words: &ChildError) -> Result<Child> {
        Child::fork(|| match self.plan.work(self.world, self.board, seat) {
            Ok(()) => 0,
            Err(trouble) => {
                words.say(&trouble);
                1
            }
        })
    }

    /// Checks that all workers still run.
    pub(super) fn check(&self) -> Result<()> {
        self.said()?;
        self.seats.iter().try_for_each(|(child, _)| PeerHandle::Child(child.pid()).check()).map_err(
            // The worker may have recorded the reason in the meantime.
            |trouble| self.said().err().unwrap_or(trouble),
        )
    }

    /// Returns `true` if a worker is awake but has not run since the last call.
    pub(super) fn is_starved(&mut self) -> bool {
        let pids = self.seats.iter().map(|(child, _)| child.pid().as_raw_nonzero().get());
        let now: Vec<(u64, bool)> =
            pids.map(|pid| (processor_time(pid), thread_sleeps(pid))).collect();
        let before = std::mem::replace(&mut self.used, now.iter().map(|one| one.0).collect());
        now.iter().zip(&before).any(|(&(used, sleeps), &before)| used == before && !sleeps)
    }

    fn said(&self) -> Result<()> {
        self.seats.iter().find_map(|(_, words)| words.heard()).map_or(Ok(()), Err)
    }

    /// Kills a random worker at an arbitrary point of its work, and starts a replacement.
    pub(super) fn kill_one(&mut self) -> Result<()> {
        let seat = rand::random_range(0..self.seats.len());
        self.kill(seat)?;
        self.replace(seat)
    }

    /// Kills a worker.
    pub(super) fn kill(&mut self, seat: usize) -> Result<()> {
        let status = self.seats[seat].0.kill()?;
        if status.terminating_signal() != Some(libc::SIGKILL) {
            self.said()?;
            return Err(MeasureError::fail(format!(
                "a worker ended before it was killed: {status:?}"
            )));
        }
        Ok(())
    }

    /// Reports the end to the other workers, and starts a replacement.
    pub(super) fn replace(&mut self, seat: usize) -> Result<()> {
        self.board.died();
        self.seats[seat].0 = self.seat(seat, &self.seats[seat].1)?;
        Ok(())
    }

    /// Waits until all workers have ended.
    pub(super) fn close(&mut self) -> Result<()> {
        self.board.stop();
        for at in 0..self.seats.len() {
            let ended = child::ends_within(self.seats[at].0.pid(), deadline::within(PATIENCE))?;
            self.said()?;
            if !ended {
                return Err(MeasureError::fail("a worker did not end in time"));
            }
            let status = self.seats[at].0.wait()?;
            if status.exit_status() != Some(0) {
                self.said()?;
                return Err(MeasureError::fail(format!("a worker ended with {status:?}")));
            }
        }
        Ok(())
    }
}

/// Returns the processor time of a process with one thread, in nanoseconds; 0 without `/proc`.
fn processor_time(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|used| used.parse().ok()).unwrap_or(0)
}

/// Returns `true` if a process with one thread sleeps, or if there is no `/proc`.
fn thread_sleeps(pid: i32) -> bool {
    let pid = pid.cast_unsigned();
    ProcStatFile::of(pid, pid).map_or(true, |state| state.asleep())
}
