//! `tontine-measure crash`: kills processes at every instruction, and reports what happens to the
//! survivors.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use tontine_bench::engine::stop::StopRequest;
use tontine_command::{CommandFailure, FAILED, print, stopped_by};
use tontine_crash::explore::{Observer, select};
use tontine_crash::report::{plan, text};
use tontine_crash::worker_launcher::WorkerLauncher;
use tontine_crash::{ExploreRequest, KillMode};

use crate::args::{self, ACTOR, Crash, Format};

/// Number of points of each operation at which `--plan` kills, for an estimate of the time: twice
/// the number of simultaneous kills on two processors.
const SAMPLE: usize = 16;

/// Runs `crash`.
pub(crate) fn crash(args: &Crash) -> Result<ExitCode, CommandFailure> {
    let subjects = select::subjects(&args.targets).map_err(CommandFailure::usage)?;
    let operation = args.operation.as_deref();
    let operation = operation.map(|name| select::operation(name, &subjects)).transpose();
    let request = ExploreRequest {
        operation: operation.map_err(CommandFailure::usage)?,
        subjects,
        mode: mode(args.mode),
        point: args.point,
        sample: args.sample.map(NonZeroUsize::get).or(args.plan.then_some(SAMPLE)),
    };
    // With the hidden command, the program serves as a worker.
    let stage = WorkerLauncher {
        program: std::env::current_exe()
            .map_err(CommandFailure::cannot("find this program's own path"))?,
        arguments: vec![ACTOR.into()],
    };
    let stop =
        StopRequest::on_signals().map_err(CommandFailure::cannot("install signal handlers"))?;
    let watch = CrashProgress { stop, bar: bar() };
    let report = tontine_crash::run(&request, &stage, &watch);
    watch.bar.finish_and_clear();
    match args.format {
        Format::Text if args.plan => print(plan::render(&report).as_bytes())?,
        Format::Text => print(text::render(&report).as_bytes())?,
        Format::Json => {
            let mut text = serde_json::to_string_pretty(&report).map_err(CommandFailure::failed)?;
            text.push('\n');
            print(text.as_bytes())?;
        }
    }
    Ok(match watch.stop.signal() {
        Some(signal) => stopped_by(signal),
        None if report.is_bad() => ExitCode::from(FAILED),
        // A requested point that does not exist must not appear as a success.
        None if args.point.is_some() && report.has_failed() => ExitCode::from(FAILED),
        None => ExitCode::SUCCESS,
    })
}

fn mode(args: args::ModeArgument) -> KillMode {
    match args {
        args::ModeArgument::Fast => KillMode::Fast,
        args::ModeArgument::Pairs => KillMode::Pairs,
        args::ModeArgument::Full => KillMode::Full,
    }
}

/// Progress of an exploration, shown if standard error is a terminal.
struct CrashProgress {
    stop: StopRequest,
    bar: ProgressBar,
}

impl Observer for CrashProgress {
    fn progress(&self, subject: &str, operation: &str, done: usize, of: usize) {
        self.bar.set_message(format!("{subject} {operation}"));
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
    }

    fn stopped(&self) -> bool {
        self.stop.requested()
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len}, {elapsed}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
