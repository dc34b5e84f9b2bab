//! `tontine-unix check`: runs a scenario on the virtual Unix and on Linux in lock-step, and reports
//! where they diverge.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tontine_command::{CommandFailure, FAILED, print};
use tontine_unix_lab::check::{CheckError, CheckOptions, Checker, TraceComparison, against};
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::{LockingMode, Virtual};

use super::{mode, random, run};
use crate::args::CheckScenario;

/// Runs `unix check`.
pub(crate) fn check(args: &CheckScenario) -> Result<ExitCode, CommandFailure> {
    if let Some(count) = args.random {
        return random::check(args, count);
    }
    let path = args.file.as_deref().unwrap_or(Path::new(""));
    let file = path.display();
    let text = run::read(path).map_err(|why| CommandFailure::usage(format!("{file}: {why}")))?;
    let scenario: Scenario =
        text.parse().map_err(|error| CommandFailure::usage(format!("{file}:{error}")))?;
    let modes = args.mode.map_or(LockingMode::ALL.to_vec(), |args| vec![mode(args)]);
    let mut checker = Checker::new().map_err(CommandFailure::failed)?;
    let mut printed = String::new();
    let last = args.seed.saturating_add(args.runs - 1);
    let mut found = None;
    for seed in args.seed..=last {
        let options = CheckOptions {
            seed,
            max_steps: args.steps,
            timeout: Duration::from_secs(args.limit),
            ..CheckOptions::new()
        };
        let refused = |error| match error {
            CheckError::Unsupported { .. } => CommandFailure::usage(format!("{file}: {error}")),
            _ => CommandFailure::failed(format!("{file}, seed {seed}: {error}")),
        };
        let real = checker.on_linux(&scenario, &options).map_err(refused)?;
        for mode in &modes {
            let builder = Virtual::builder().mode(*mode);
            let options = CheckOptions { builder, ..options.clone() };
            match against(&scenario, &options, &real).map_err(refused)? {
                TraceComparison::Same(trace) => found = Some(trace),
                TraceComparison::Differs(difference) => {
                    // Writing to a string does not fail.
                    let _ = writeln!(
                        printed,
                        "{file}, mode {mode}, {difference}\nto repeat: tontine-unix check --seed \
                         {seed} --mode {mode} {file}"
                    );
                    print(printed.as_bytes())?;
                    return Ok(ExitCode::from(FAILED));
                }
            }
        }
    }
    if let Some(trace) = found {
        if args.log {
            trace.entries.iter().for_each(|entry| {
                let _ = writeln!(printed, "{entry}");
            });
        }
        let seeds = match args.runs {
            1 => format!("seed {last}"),
            _ => format!("seeds {} to {last}", args.seed),
        };
        let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            printed,
            "{file}, {seeds}, mode {}: both sides observed the same; {} steps; {}",
            modes.join(", "),
            trace.steps.len(),
            trace.ending
        );
    }
    print(printed.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
