//! `tontine unix explore`: runs a scenario under all schedules up to a bound, or under a random
//! sample.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Instant;

use tontine_unix_lab::explore::{Exploration, ExplorationReport, ReplayReport, Violation};
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::{Builder, LockingMode};

use super::run::scenario;
use super::{delivery, masks, mode};
use crate::args::ExploreScenario;
use crate::{CommandFailure, FAILED, print};

/// Runs `unix explore`.
pub(crate) fn explore(asked: &ExploreScenario) -> Result<ExitCode, CommandFailure> {
    let scenario = scenario(&asked.file)?;
    let modes = match asked.mode {
        Some(one) => vec![mode(one)],
        None => LockingMode::ALL.to_vec(),
    };
    let several_processors = asked.processors.is_some_and(|processors| processors > 1);
    if several_processors && modes == [LockingMode::Uniprocessor] {
        return Err(CommandFailure::usage(
            "expected 1 processor in mode uniprocessor, found more; name another --mode, or leave \
             out --processors",
        ));
    }
    let mut holds = true;
    for mode in modes {
        let exploration = exploration(asked, &scenario, mode);
        let (held, text) = match (&asked.replay, asked.seeds) {
            (Some(schedule), _) => replayed(mode, &exploration.replay(schedule)),
            (None, Some(seeds)) => {
                let seeds = seeds.min(asked.most.unwrap_or(u64::MAX));
                timed(asked, mode, || exploration.sample(asked.seed, seeds))
            }
            (None, None) => timed(asked, mode, || exploration.run()),
        };
        print(text.as_bytes())?;
        holds &= held;
        if !holds {
            break;
        }
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn exploration(asked: &ExploreScenario, scenario: &Scenario, mode: LockingMode) -> Exploration {
    let (delivery, masks) = (delivery(asked.delivery), masks(asked.masks));
    let exploration = Exploration::scenario(scenario)
        .mode(mode)
        .preemption_bound(asked.bound)
        .max_steps(asked.steps)
        .max_schedules(asked.most.unwrap_or(u64::MAX))
        .reduced(!asked.unreduced)
        .idle_clock(asked.idle_clock)
        .configure(move |builder: Builder| builder.delivery(delivery).masks(masks));
    match asked.processors {
        Some(processors) if mode != LockingMode::Uniprocessor => {
            exploration.processors(usize::from(processors))
        }
        _ => exploration,
    }
}

/// Runs the exploration. Returns `true` if all runs held, and a text with the result and the time.
fn timed(
    asked: &ExploreScenario,
    mode: LockingMode,
    run: impl FnOnce() -> ExplorationReport,
) -> (bool, String) {
    let began = Instant::now();
    let outcome = run();
    let seconds = began.elapsed().as_secs_f64();
    let ExplorationReport { schedules, complete, violation, .. } = &outcome;
    let rate = *schedules as f64 / seconds.max(1e-9);
    let which = match (asked.seeds, complete, violation) {
        (Some(_), ..) => format!("sampled, from seed {}", asked.seed),
        (None, true, _) => format!("all up to {} preemptions", asked.bound),
        (None, false, None) => format!("not all up to {} preemptions", asked.bound),
        (None, false, Some(_)) => "fewest preemptions first".to_owned(),
    };
    let mut text = format!(
        "mode {mode}: {schedules} schedules, {which}, in {seconds:.1} s ({rate:.0} per second)\n"
    );
    match violation {
        None => text.push_str("holds\n"),
        Some(violation) => text.push_str(&violation_text(asked, mode, violation)),
    }
    (violation.is_none(), text)
}

/// Returns a violation as text, with the commands that repeat it.
fn violation_text(asked: &ExploreScenario, mode: LockingMode, violation: &Violation) -> String {
    let Violation { what, schedule, seed, preemptions, interleaving } = violation;
    let processors = match asked.processors {
        Some(processors) => format!(" --processors {processors}"),
        None => String::new(),
    };
    let steps = match asked.steps {
        Exploration::DEFAULT_MAX_STEPS => String::new(),
        steps => format!(" --steps {steps}"),
    };
    let clock = if asked.idle_clock { " --idle-clock" } else { "" };
    let file = asked.file.display();
    let command = format!("  tontine unix explore --mode {mode}{processors}{steps}{clock}");
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
