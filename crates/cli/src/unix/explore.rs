//! `tontine unix explore`: runs a scenario under all schedules up to a bound, or under
//! many by dice.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use tontine_unix::explore::{Exploration, Outcome, Replayed, Violation};
use tontine_unix::scenario::Scenario;
use tontine_unix::{Builder, Mode};

use super::run::scenario;
use super::{delivery, masks, mode};
use crate::args::{DeliveryName, ExploreScenario, MasksName};
use crate::{FAILED, Refusal, print};

/// Carries out `unix explore`.
pub(crate) fn explore(asked: &ExploreScenario) -> Result<ExitCode, Refusal> {
    let scenario = scenario(&asked.file)?;
    let modes = match asked.mode {
        Some(one) => vec![mode(one)],
        None => Mode::ALL.to_vec(),
    };
    let several_processors = asked.processors.is_some_and(|processors| processors > 1);
    if several_processors && modes == [Mode::Uniprocessor] {
        return Err(Refusal::usage("mode uniprocessor has one processor: take another mode"));
    }
    let mut holds = true;
    for mode in modes {
        let exploration = exploration(asked, &scenario, mode);
        let (held, text) = match (&asked.replay, asked.seeds) {
            (Some(schedule), _) => replayed(mode, &exploration.follow(schedule)),
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

fn exploration(asked: &ExploreScenario, scenario: &Scenario, mode: Mode) -> Exploration {
    let (delivery, masks) = (delivery(asked.delivery), masks(asked.masks));
    let exploration = Exploration::scenario(scenario)
        .mode(mode)
        .bound(asked.bound)
        .most(asked.most.unwrap_or(u64::MAX))
        .reduced(!asked.unreduced)
        .with(move |builder: Builder| builder.delivery(delivery).masks(masks));
    match asked.processors {
        Some(processors) if mode != Mode::Uniprocessor => {
            exploration.processors(usize::from(processors))
        }
        _ => exploration,
    }
}

/// Runs, and says what came of it and how long it took.
fn timed(asked: &ExploreScenario, mode: Mode, run: impl FnOnce() -> Outcome) -> (bool, String) {
    let began = Instant::now();
    let outcome = run();
    let seconds = began.elapsed().as_secs_f64();
    let Outcome { schedules, complete, violation, .. } = &outcome;
    let rate = *schedules as f64 / seconds.max(1e-9);
    let which = match (asked.seeds, complete, violation) {
        (Some(_), ..) => format!("by dice, from seed {}", asked.seed),
        (None, true, _) => format!("all up to {} preemptions", asked.bound),
        (None, false, None) => format!("not all up to {} preemptions", asked.bound),
        (None, false, Some(_)) => "fewest preemptions first".to_owned(),
    };
    let mut text = format!(
        "mode {mode}: {schedules} schedules, {which}, in {seconds:.1} s ({rate:.0} a second)\n"
    );
    match violation {
        None => text.push_str("holds\n"),
        Some(violation) => text.push_str(&told(asked, mode, violation)),
    }
    (violation.is_none(), text)
}

/// A violation, and how to see it again.
fn told(asked: &ExploreScenario, mode: Mode, violation: &Violation) -> String {
    let Violation { what, schedule, seed, preemptions, interleaving } = violation;
    let command = |which: String| {
        let (with, file) = (system(asked), asked.file.display());
        format!("  tontine unix explore --mode {mode}{with} {which} {file}\n")
    };
    let by_seed = seed.map_or(String::new(), |seed| {
        format!("or from the seed {seed}:\n{}", command(format!("--seeds 1 --seed {seed}")))
    });
    format!(
        "{what}\n\n{interleaving}\nafter {preemptions} preemptions; again:\n{}{by_seed}",
        command(format!("--replay '{schedule}'"))
    )
}

/// What was asked of the system beside its mode, as options.
fn system(asked: &ExploreScenario) -> String {
    let mut options = String::new();
    let mut add = |option: &str, value: Option<String>| {
        if let Some(value) = value {
            options.push_str(&format!(" --{option} {value}"));
        }
    };
    add("processors", asked.processors.map(|processors| processors.to_string()));
    add("delivery", (asked.delivery != DeliveryName::AnyUnblocked).then(|| name(&asked.delivery)));
    add("masks", (asked.masks != MasksName::PerThread).then(|| name(&asked.masks)));
    options
}

/// What a value is called on the command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// What a schedule came to.
fn replayed(mode: Mode, replayed: &Replayed) -> (bool, String) {
    let Replayed { wrong, schedule, preemptions, interleaving } = replayed;
    let mut text = format!("mode {mode}, schedule {schedule}, {preemptions} preemptions:\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "{interleaving}\n{}", wrong.as_deref().unwrap_or("holds"));
    (wrong.is_none(), text)
}
