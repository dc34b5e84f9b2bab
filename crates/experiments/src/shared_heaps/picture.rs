//! Maps of the heap after a worker has been killed: [`pair`], before and after its recovery.
//!
//! All other workers are stopped meanwhile, so that nothing changes during the inspection. It
//! happens after the timed part.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};
use tontine_bench::heap_map::{HeapMap, HeapMember};
use tontine_host::os::deadline;
use tontine_host::trouble::{ErrorContext, MeasureError, Result};

use super::heap::World;
use super::house::{LOOK, PATIENCE, WorkerProcesses};

/// Stops the workers, kills one, and inspects the heap twice; then they continue, with another
/// worker in its place. Returns no map if the heap cannot be inspected.
///
/// # Errors
/// Failed, if a worker has ended otherwise, or the heap refuses.
pub(super) fn pair<W: World>(house: &mut WorkerProcesses<'_, W>) -> Result<Vec<HeapMap>> {
    if house.world.map("", &[])?.is_none() {
        return Ok(Vec::new());
    }
    for (child, _) in &house.seats {
        child.signal(Signal::STOP).during("kill(SIGSTOP)")?;
    }
    house.seats.iter().try_for_each(|(child, _)| until_stopped(child.pid()))?;
    let seat = rand::random_range(0..house.seats.len());
    let named = named(house, seat);
    house.kill(seat)?;
    let moment = format!("Worker {} was killed; it is not recovered yet", seat + 1);
    let before = house.world.map(&moment, &named)?;
    let began = Instant::now();
    let recovery = house.world.recover_and_trim()?;
    let took = began.elapsed();
    let mut after = house.world.map("The same heap after one call of recover_and_trim", &named)?;
    if let Some(map) = &mut after {
        map.notes.insert(0, format!("{recovery}, in {} µs", took.as_micros()));
    }
    for (other, (child, _)) in house.seats.iter().enumerate() {
        if other != seat {
            child.signal(Signal::CONT).during("kill(SIGCONT)")?;
        }
    }
    house.replace(seat)?;
    Ok(before.into_iter().chain(after).collect())
}

/// Returns the names of the workers, one of which is killed, and of their keeper.
fn named<W: World>(house: &WorkerProcesses<'_, W>, killed: usize) -> Vec<(u32, HeapMember)> {
    let seats = house.seats.iter().enumerate().map(|(seat, (child, _))| {
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
