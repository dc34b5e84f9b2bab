//! Maps of the heap after a worker was killed, before and after its recovery: [`pair`].
//!
//! The inspection follows the timed part. All other workers are stopped during the inspection, so
//! that the heap does not change.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};
use tontine_bench::heap_map::{HeapMap, HeapMember};
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::deadline;

use super::heap::World;
use super::worker_processes::{LOOK, PATIENCE, WorkerProcesses};

/// Stops the workers, kills one of them, and inspects the heap twice. The others then continue,
/// with a replacement for the killed worker. Returns no map if the heap cannot be inspected.
///
/// # Errors
/// Returns `Failed` if a worker has ended for another reason, or the heap refuses.
pub(super) fn pair<W: World>(workers: &mut WorkerProcesses<'_, W>) -> Result<Vec<HeapMap>> {
    if workers.world.map("", &[])?.is_none() {
        return Ok(Vec::new());
    }
    for (child, _) in &workers.seats {
        child.signal(Signal::STOP).during("kill(SIGSTOP)")?;
    }
    workers.seats.iter().try_for_each(|(child, _)| until_stopped(child.pid()))?;
    let seat = rand::random_range(0..workers.seats.len());
    let named = named(workers, seat);
    workers.kill(seat)?;
    let moment = format!("Worker {} was killed; it is not recovered yet", seat + 1);
    let before = workers.world.map(&moment, &named)?;
    let began = Instant::now();
    let recovery = workers.world.recover_and_trim()?;
    let took = began.elapsed();
    let mut after =
        workers.world.map("The same heap after one call of recover_and_trim", &named)?;
    if let Some(map) = &mut after {
        map.notes.insert(0, format!("{recovery}, in {} µs", took.as_micros()));
    }
    for (other, (child, _)) in workers.seats.iter().enumerate() {
        if other != seat {
            child.signal(Signal::CONT).during("kill(SIGCONT)")?;
        }
    }
    workers.replace(seat)?;
    Ok(before.into_iter().chain(after).collect())
}

/// Returns the names of the workers, one of which was killed, and of the process that started them.
fn named<W: World>(workers: &WorkerProcesses<'_, W>, killed: usize) -> Vec<(u32, HeapMember)> {
    let seats = workers.seats.iter().enumerate().map(|(seat, (child, _))| {
        let dead = seat == killed;
        let name = format!("worker {}{}", seat + 1, if dead { ", killed" } else { "" });
        (child.pid().as_raw_nonzero().get().cast_unsigned(), HeapMember { name, dead })
    });
    let keeper = HeapMember { name: "the recovering process".into(), dead: false };
    seats.chain([(std::process::id(), keeper)]).collect()
}

/// Waits until a child is stopped.
fn until_stopped(pid: rustix::process::Pid) -> Result<()> {
    let options = WaitIdOptions::STOPPED
        | WaitIdOptions::EXITED
        | WaitIdOptions::NOHANG
        | WaitIdOptions::NOWAIT;
    let began = Instant::now();
    loop {
        match waitid(WaitId::Pid(pid), options).during("waitid")? {
            Some(status) if status.stopped() => return Ok(()),
            Some(_) => return Err(MeasureError::fail("a worker ended before it could be stopped")),
            None => {}
        }
        let patience: Duration = deadline::within(PATIENCE);
        if began.elapsed() > patience {
            return Err(MeasureError::fail("a worker did not stop"));
        }
        thread::sleep(LOOK);
    }
}
