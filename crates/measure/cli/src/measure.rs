//! `tontine-measure`: runs experiments, shows progress, and writes the report.

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use tontine_bench::engine::launch::Launcher;
use tontine_bench::engine::pilot::Pilot;
use tontine_bench::engine::plan::{Plan, select};
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::engine::{self, estimate};
use tontine_bench::machine::topology::Topology;
use tontine_bench::schema::{Results, Status};
use tontine_bench::size::Size;
use tontine_command::{CommandFailure, FAILED, stopped_by};
use tontine_experiments::SUITE;

use crate::args::{INVOCATION, Measure};
use crate::own;
use crate::progress::RunProgress;
use crate::repetitions::{advise, duration};
use crate::reproduction::reproduce;
use crate::results::{publish, samples_folder, writable};

/// Runs `measure`.
pub(crate) fn measure(args: &Measure) -> Result<ExitCode, CommandFailure> {
    if let Some(seed) = &args.as_published {
        return reproduce(seed, args, &launcher(Size::Full)?);
    }
    let size = size_of(args);
    // clap does not report a `--` that nothing follows.
    let ends_with_dashes = env::args_os().next_back().is_some_and(|last| last == "--");
    if !args.own.words.is_empty() || ends_with_dashes {
        return own::measure(args, size);
    }
    let seed = args.order_seed.unwrap_or_else(engine::plan::fresh_seed);
    let topology = Topology::of_this_machine();
    let mut plan = if args.names.is_empty() && !args.all {
        Plan::headline(&SUITE, size, seed, &topology)
    } else {
        let tasks = select(&SUITE, &args.names, size, &topology).map_err(CommandFailure::usage)?;
        Plan::new(&SUITE, tasks, size, seed)
    };
    if args.plan {
        return advise(&plan.tasks, args, &launcher(size)?);
    }
    if let Some(invocations) = args.invocations {
        plan = plan.with_invocations(invocations.into());
    }
    writable(&args.out)?;
    let samples = args.samples.as_deref().map(samples_folder).transpose()?;
    let stop =
        StopRequest::on_signals().map_err(CommandFailure::cannot("install signal handlers"))?;
    let launcher = launcher(size)?;
    if size == Size::Full {
        announce(&plan, &launcher, &stop);
    }
    let mut show = RunProgress::new();
    let results = engine::run(&plan, &launcher, samples.as_ref(), &stop, &mut show);
    publish(&results, args)?;
    Ok(status(&results, &stop))
}

/// Returns a launcher that starts this program again for each invocation.
fn launcher(size: Size) -> Result<Launcher, CommandFailure> {
    let program =
        env::current_exe().map_err(CommandFailure::cannot("find this program's own path"))?;
    Ok(Launcher { program, arguments: vec![INVOCATION.into()], deadline: size.deadline() })
}

fn size_of(args: &Measure) -> Size {
    match (args.quick, args.full) {
        (true, _) => Size::Quick,
        (_, true) => Size::Full,
        _ => Size::Default,
    }
}

/// Prints an estimate of the time of a full run, after a pilot of a minute or two.
fn announce(plan: &Plan, launcher: &Launcher, stop: &StopRequest) {
    let mut out = io::stderr();
    let _ = writeln!(out, "estimating the time with a pilot …");
    if let Some(seconds) = estimate::seconds(plan, Pilot { suite: &SUITE, launcher, stop }) {
        let time = duration(seconds);
        let _ = writeln!(
            out,
            "this will take about {time}; Ctrl-C stops, and keeps the results so far"
        );
    }
}

fn status(results: &Results, stop: &StopRequest) -> ExitCode {
    if let Some(signal) = stop.signal() {
        return stopped_by(signal);
    }
    let failed = results.cells.iter().any(|cell| cell.status == Status::Failed);
    if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}
