//! `tontine measure`: runs experiments, shows progress, writes the report.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tontine_measure::engine::launch::Launcher;
use tontine_measure::engine::pilot::Pilot;
use tontine_measure::engine::plan::{Plan, select};
use tontine_measure::engine::stop::Stop;
use tontine_measure::engine::{self, estimate};
use tontine_measure::machine::topology::Topology;
use tontine_measure::report::schema::{Results, Status};
use tontine_measure::report::write::{self, json};
use tontine_measure::size::Size;

use crate::args::{Format, INVOCATION, Measure};
use crate::progress::Show;
use crate::{FAILED, Refusal, print, repetitions, reproduction, stopped_by, table};

/// Carries out `measure`.
pub(crate) fn measure(asked: &Measure) -> Result<ExitCode, Refusal> {
    if let Some(seed) = &asked.as_published {
        return reproduction::reproduce(seed, asked);
    }
    let size = size_of(asked);
    let tasks = select(&asked.names, size, &Topology::of_this_machine()).map_err(Refusal::usage)?;
    if asked.plan {
        return repetitions::advise(&tasks, asked, &launcher(size)?);
    }
    let mut plan =
        Plan::new(tasks, size, asked.order_seed.unwrap_or_else(engine::plan::fresh_seed));
    if let Some(invocations) = asked.invocations {
        plan = plan.with_invocations(invocations.into());
    }
    writable(&asked.out)?;
    let samples = asked.samples.as_deref().map(samples_folder).transpose()?;
    let stop = Stop::on_signals()?;
    let launcher = launcher(size)?;
    if size == Size::Full {
        announce(&plan, &launcher, &stop);
    }
    let mut show = Show::new();
    let results = engine::run(&plan, &launcher, samples.as_ref(), &stop, &mut show);
    publish(&results, asked)?;
    Ok(status(&results, &stop))
}

/// Starts this very program anew for each invocation.
fn launcher(size: Size) -> Result<Launcher, Refusal> {
    let program = std::env::current_exe()?;
    Ok(Launcher { program, arguments: vec![INVOCATION.into()], deadline: size.deadline() })
}

fn size_of(asked: &Measure) -> Size {
    match (asked.quick, asked.full) {
        (true, _) => Size::Quick,
        (_, true) => Size::Full,
        _ => Size::Default,
    }
}

/// Says how long a full run will take, after a pilot of a minute or two.
fn announce(plan: &Plan, launcher: &Launcher, stop: &Stop) {
    let mut out = io::stderr();
    let _ = writeln!(out, "finding out how long this will take, with a pilot …");
    if let Some(seconds) = estimate::seconds(plan, Pilot { launcher, stop }) {
        let time = duration(seconds);
        let _ = writeln!(out, "this will take about {time}; Ctrl-C keeps what there is");
    }
}

/// Seconds, as one says them.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        ..0.95 => format!("{:.0} ms", seconds * 1e3),
        ..600.0 => format!("{seconds:.0} seconds"),
        ..36_000.0 => format!("{:.0} minutes", seconds / 60.0),
        _ => format!("{:.0} hours", seconds / 3_600.0),
    }
}

/// Says *before* measuring that nothing could be written afterwards.
pub(crate) fn writable(folder: &Path) -> Result<(), Refusal> {
    write::check_folder(folder).map_err(|error| {
        let folder = folder.display();
        Refusal::failed(format!(
            "cannot write results to {folder}: {error}; name another folder with --out"
        ))
    })
}

fn samples_folder(folder: &Path) -> Result<PathBuf, Refusal> {
    write::check_folder(folder).and_then(|()| folder.canonicalize()).map_err(|error| {
        let folder = folder.display();
        Refusal::failed(format!("cannot write samples to {folder}: {error}"))
    })
}

/// Writes the files first: whatever becomes of standard output, what was measured is kept.
fn publish(results: &Results, asked: &Measure) -> Result<(), Refusal> {
    let written = write::write_all(results, &asked.out);
    let mut said = String::from("\n");
    for file in written.iter().flatten() {
        let _ = writeln!(said, "wrote {}", file.display());
    }
    if !results.complete {
        said.push_str("ended early: what was measured was kept and is marked incomplete\n");
    }
    match asked.format {
        Format::Text => print((table::render(results) + &said).as_bytes())?,
        Format::Json => {
            print(&json(results)?)?;
            let _ = io::stderr().write_all(said.as_bytes());
        }
    }
    written.map(|_| ()).map_err(Refusal::failed)
}

fn status(results: &Results, stop: &Stop) -> ExitCode {
    if let Some(signal) = stop.signal() {
        return stopped_by(signal);
    }
    let failed = results.cells.iter().any(|cell| cell.status == Status::Failed);
    if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}
