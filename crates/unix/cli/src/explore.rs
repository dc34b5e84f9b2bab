//! `tontine-unix explore`: runs a scenario under all schedules up to a bound, or under a random
//! sample.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Instant;

use tontine_command::{CommandFailure, FAILED, print};
use tontine_unix_lab::explore::{Exploration, ExplorationReport, ReplayReport, Violation};
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::{Builder, LockingMode};

use super::run::scenario;
use super::{delivery, masks, mode};
use crate::args::ExploreScenario;

/// Runs `unix explore`.
pub(crate) fn explore(args: &ExploreScenario) -> Result<ExitCode, CommandFailure> {
    let scenario = scenario(&args.file)?;
    let mode = mode(args.mode);
    let several_processors = args.processors.is_some_and(|processors| processors > 1);
    if several_processors && mode == LockingMode::Uniprocessor {
        return Err(CommandFailure::usage(
            "expected 1 processor in mode uniprocessor, found more; name another --mode, or leave \
             out --processors",
        ));
    }
    let exploration = exploration(args, &scenario, mode);
    let (holds, text) = match (&args.replay, args.seeds) {
        (Some(schedule), _) => replayed(mode, &exploration.replay(schedule)),
        (None, Some(seeds)) => {
            let seeds = seeds.min(args.most.unwrap_or(u64::MAX));
            timed(args, mode, || exploration.sample(args.seed, seeds))
        }
        (None, None) => timed(args, mode, || exploration.run()),
    };
    print(text.as_bytes())?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn exploration(args: &ExploreScenario, scenario: &Scenario, mode: LockingMode) -> Exploration {
    let (delivery, masks) = (delivery(args.delivery), masks(args.masks));
    let exploration = Exploration::scenario(scenario)
        .mode(mode)
        .preemption_bound(args.bound)
        .max_steps(args.steps)
        .max_schedules(args.most.unwrap_or(u64::MAX))
        .reduced(!args.unreduced)
        .idle_clock(args.idle_clock)
        .configure(move |builder: Builder| builder.delivery(delivery).masks(masks));
    match args.processors {
        Some(processors) if mode != LockingMode::Uniprocessor => {
            exploration.processors(usize::from(processors))
        }
        _ => exploration,
    }
}

/// Runs the exploration. Returns `true` if all runs held, and a text with the result and the time.
fn timed(
    args: &ExploreScenario,
    mode: LockingMode,
    run: impl FnOnce() -> ExplorationReport,
) -> (bool, String) {
    let began = Instant::now();
    let outcome = run();
    let seconds = began.elapsed().as_secs_f64();
    let ExplorationReport { schedules, complete, violation, .. } = &outcome;
    let rate = *schedules as f64 / seconds.max(1e-9);
    let which = match (args.seeds, complete, violation) {
        (Some(_), ..) => format!("sampled, from seed {}", args.seed),
        (None, true, _) => format!("all up to {} preemptions", args.bound),
        (None, false, None) => format!("not all up to {} preemptions", args.bound),
        (None, false, Some(_)) => "fewest preemptions first".to_owned(),
    };
    let mut text = format!(
        "mode {mode}: {schedules} schedules, {which}, in {seconds:.1} s ({rate:.0} per second)\n"
    );
    match violation {
        None => text.push_str("holds\n"),
        Some(violation) => text.push_str(&violation_text(args, mode, violation)),
    }
    (violation.is_none(), text)
}

/// Returns a violation as text, with the commands that repeat it.
fn violation_text(args: &ExploreScenario, mode: LockingMode, violation: &Violation) -> String {
    let Violation { what, schedule, seed, preemptions, interleaving } = violation;
    let processors = match args.processors {
        Some(processors) => format!(" --processors {processors}"),
        None => String::new(),
    };
    let steps = match args.steps {
        Exploration::DEFAULT_MAX_STEPS => String::new(),
        steps => format!(" --steps {steps}"),
    };
    let clock = if args.idle_clock { " --idle-clock" } else { "" };
    let file = args.file.display();
    let command = format!("  tontine-unix explore --mode {mode}{processors}{steps}{clock}");
    let interleaving = brief(interleaving);
    let by_seed = match seed {
        Some(seed) => format!("or from the seed:\n{command} --seeds 1 --seed {seed} {file}\n"),
        None => String::new(),
    };
    format!(
        "{what}\n\n{interleaving}\nafter {preemptions} preemptions; to repeat it:\n\
         {command} --replay '{schedule}' {file}\n{by_seed}"
    )
}

/// Number of turns of a violation that are printed, at its beginning and again at its end.
const TURNS: usize = 100;

/// Returns the interleaving. If it is long, omits its middle.
fn brief(interleaving: &str) -> String {
    let turns: Vec<&str> = interleaving.lines().collect();
    let middle = turns.len().saturating_sub(2 * TURNS);
    if middle == 0 {
        return interleaving.to_owned();
    }
    let (first, last) = (turns[..TURNS].join("\n"), turns[TURNS + middle..].join("\n"));
    format!("{first}\n        {middle} more turns, which --replay prints\n{last}\n")
}

/// Returns `true` if a schedule held, and its interleaving.
fn replayed(mode: LockingMode, replayed: &ReplayReport) -> (bool, String) {
    let ReplayReport { violation, schedule, preemptions, interleaving } = replayed;
    let mut text = format!("mode {mode}, schedule {schedule}, {preemptions} preemptions:\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "{interleaving}\n{}", violation.as_deref().unwrap_or("holds"));
    (violation.is_none(), text)
}
