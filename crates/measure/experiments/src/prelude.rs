//! The items that most experiments use, for `use crate::prelude::*`: of the bench and the
//! mechanisms, and the helpers of this crate.

use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use tontine_bench::about::Explanation;
pub(crate) use tontine_bench::clock::Clock;
pub(crate) use tontine_bench::clock::offset::Band;
pub(crate) use tontine_bench::error::{ErrorContext, MeasureError, Result};
pub(crate) use tontine_bench::leftovers::Folder;
pub(crate) use tontine_bench::machine::topology::{Placement, Topology};
pub(crate) use tontine_bench::observe::{Observed, PairedRatio, Series};
pub(crate) use tontine_bench::os::child::{Child, ends_within, exit_at_once};
pub(crate) use tontine_bench::os::pin::{self, Pinned};
pub(crate) use tontine_bench::os::shared::{Shareable, SharedMapping};
pub(crate) use tontine_bench::os::signal::Only;
pub(crate) use tontine_bench::os::state::ProcStatFile;
pub(crate) use tontine_bench::os::{capacity, checked};
#[cfg(test)]
pub(crate) use tontine_bench::peer::in_a_process_of_its_own;
pub(crate) use tontine_bench::peer::{ChildError, Pass, PeerHandle, spin_until, wait_until};
pub(crate) use tontine_bench::size::Size;
pub(crate) use tontine_bench::stats::order;
pub(crate) use tontine_bench::suite::{Experiment, Facts, Variant};
pub(crate) use tontine_bench::task::{InvocationTask, Params, params, word};
pub(crate) use tontine_bench::{bail, ensure, skip};
pub(crate) use tontine_mechanisms::threads;
pub(crate) use tontine_mechanisms::workers::{ReportingChild, in_two_processes};

pub(crate) use crate::card::card;
#[cfg(test)]
pub(crate) use crate::invocation_tests::{
    metrics, no_child_is_left, series, unless_skipped, usual,
};

/// Returns the error for a variant, or for the value of a parameter, that an experiment lacks.
pub(crate) fn unknown(experiment: &str, what: &str, found: &str) -> MeasureError {
    MeasureError::fail(format!("{experiment} has no {what} `{found}`: see `tontine-measure list`"))
}

/// Returns a parameter that is a number in `range`.
pub(crate) fn number_in(
    params: &Params,
    name: &str,
    range: RangeInclusive<usize>,
) -> Result<usize> {
    let found = word(params, name);
    found.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let (from, to) = (range.start(), range.end());
        MeasureError::fail(format!("expected {name} to be from {from} to {to}, found `{found}`"))
    })
}

/// Calls `done` at intervals until it returns `true`. Returns `false` if it does not within
/// `timeout`, or shortly before this process's deadline.
pub(crate) fn poll_for(
    timeout: Duration,
    interval: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let began = Instant::now();
    loop {
        if done()? {
            return Ok(true);
        }
        if began.elapsed() > tontine_bench::os::deadline::within(timeout) {
            return Ok(false);
        }
        thread::sleep(interval);
    }
}

/// Has a thread of the library take a signal, for the lifetime of the process.
pub(crate) fn library_takes(
    number: libc::c_int,
    mut taken: impl FnMut() + Send + 'static,
) -> Result<()> {
    let refused = |error: tontine::signal::SignalError| MeasureError::fail(error.to_string());
    let signal = tontine::signal::Signal::from_raw(number);
    let signal = signal.ok_or_else(|| MeasureError::fail(format!("no signal is {number}")))?;
    let blocked = Box::new(tontine::signal::Blocked::new(signal).map_err(refused)?);
    std::mem::forget(Box::leak(blocked).thread(move |_| taken()).map_err(refused)?);
    Ok(())
}

/// Returns the placement that a cell's parameters name.
pub(crate) fn placement_of(params: &Params) -> Result<Placement> {
    let name = params.get("placement").map_or("cross-core", String::as_str);
    Topology::of_this_machine().placement(name).ok_or_else(|| match name {
        "cross-core" => MeasureError::skip("needs two processors; this process may use one"),
        _ => MeasureError::skip(format!("this machine has no placement `{name}`")),
    })
}
