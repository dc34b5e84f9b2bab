//! Explores the schedules of the known races and of the scenarios in `examples/unix`. Prints the
//! figures that docs/reference/explore.md contains.
//!
//! ```console
//! $ cargo run --release -p tontine-unix-lab --example explored -- races 3
//! $ cargo run --release -p tontine-unix-lab --example explored -- lost
//! $ cargo run --release -p tontine-unix-lab --example explored -- sample 9999
//! $ cargo run --release -p tontine-unix-lab --example explored -- speed
//! ```
//!
//! The program stops at the first violation. `cargo xtask mutants` runs `find` in a copy whose
//! kernel lacks a protection.

#![allow(clippy::disallowed_types, reason = "it measures the duration of real runs")]

#[path = "../tests/examples/mod.rs"]
mod examples;
#[path = "../tests/scenes/mod.rs"]
mod scenes;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use scenes::{KNOWN, lost};
use tontine_unix_lab::explore::{Exploration, ExplorationReport};
use tontine_unix_sim::LockingMode;

/// Scenarios that use seconds of processor time, which only clock ticks measure.
const COMPUTE: [&str; 2] = ["limits/processor-limit", "limits/hard-processor-limit-kills"];
/// Scenarios whose expectations rely on a timer not expiring soon.
const PUNCTUAL: [&str; 9] = [
    "actions/restart-or-eintr",
    "exec/alarm-stays",
    "limits/alarm",
    "limits/alarm-can-be-cancelled",
    "limits/alarm-goes-off-once",
    "pipes/full-pipe-blocks-writer",
    "taking/sigtimedwait-is-interrupted",
    "taking/sleep-is-interrupted-and-not-restarted",
    "threads/alarm-is-shared-by-threads",
];
/// The indices of the known races, by ascending number of schedules.
const QUICK_FIRST: [usize; 9] = [0, 8, 3, 6, 5, 7, 1, 2, 4];
/// The scenarios whose speed of sampling is measured.
const DICED: [&str; 4] = [
    "taking/ping-pong",
    "waits/two-waiters-one-child",
    "sending/group-kill",
    "queues/sigqueue-order",
];
/// Maximum number of schedules to run until a violation is found.
const MOST_TO_FIND: u64 = 20_000;
/// Number of consecutive runs of one scene.
const IN_A_ROW: u64 = 1000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    let held = match words[..] {
        ["races", bound, ref names @ ..] => number(bound).map(|bound| races(bound as u32, names)),
        ["find", bound, mode, race] => number(bound).map(|bound| find(bound as u32, mode, race)),
        ["lost"] => Some(lost_signals()),
        ["sample", runs] => number(runs).map(|runs| sample(1, runs)),
        ["sample", runs, from] => {
            number(runs).zip(number(from)).map(|(runs, from)| sample(from, runs))
        }
        ["speed"] => Some(speed()),
        _ => None,
    };
    match held {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::from(1),
        None => {
            eprintln!(
                "usage: explored races BOUND [MODE…] [RACE…] | find BOUND MODE RACE | lost | \
                 sample RUNS [FROM] | speed"
            );
            ExitCode::from(2)
        }
    }
}

/// Reports the violation, if any. Returns `true` if no violation was found.
fn held(what: &str, outcome: &ExplorationReport) -> bool {
    if let Some(found) = &outcome.violation {
        let seed = found.seed.map_or(String::new(), |seed| format!(", seed {seed}"));
        println!(
            "{what}{seed}, schedule {}:\n{}\n{}",
            found.schedule, found.what, found.interleaving
        );
    }
    outcome.violation.is_none()
}

/// Explores the named races, or all known races, in all modes up to a bound.
fn races(bound: u32, names: &[&str]) -> bool {
    let modes = LockingMode::ALL.map(|mode| (mode, mode.to_string()));
    let races = QUICK_FIRST.map(|place| &KNOWN[place]);
    let known = |name: &&str| {
        modes.iter().any(|(_, mode)| mode == name) || races.iter().any(|race| race.name == *name)
    };
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        println!("{unknown:?} is neither a mode nor a race");
        return false;
    }
    let all_modes = !modes.iter().any(|(_, mode)| names.contains(&mode.as_str()));
    let all_races = !races.iter().any(|race| names.contains(&race.name));
    for (mode, name) in &modes {
        if !all_modes && !names.contains(&name.as_str()) {
            continue;
        }
        for known in races.iter().filter(|race| all_races || names.contains(&race.name)) {
            let began = Instant::now();
            let outcome = known.exploration(*mode).preemption_bound(bound).run();
            let (seconds, runs) = (began.elapsed().as_secs_f64(), &outcome.by_bound);
            println!("| {} | {mode} | {runs:?} | {seconds:.1} s |", known.name);
            if !held(known.name, &outcome) {
                return false;
            }
        }
    }
    true
}

/// Searches for a violation of one race in one mode, with and without pruning. Returns `true` if
/// both searches find a violation with equally few preemptions, and a replay of its schedule shows
/// the violation again.
fn find(bound: u32, mode: &str, race: &str) -> bool {
    let mode = LockingMode::ALL.into_iter().find(|one| one.to_string() == mode);
    let (Some(mode), Some(known)) = (mode, KNOWN.iter().find(|known| known.name == race)) else {
        println!("no such mode or race; `races 0` lists them");
        return false;
    };
    let exploration = |reduced| {
        known.exploration(mode).preemption_bound(bound).max_schedules(MOST_TO_FIND).reduced(reduced)
    };
    let [reduced, all] = [true, false].map(|reduced| exploration(reduced).run());
    let describe = |outcome: &ExplorationReport| match &outcome.violation {
        Some(found) => format!("{} preemptions, schedule {}", found.preemptions, outcome.schedules),
        None => format!("nothing in {} schedules", outcome.schedules),
    };
    println!("| {race} | {mode} | {} | {} |", describe(&reduced), describe(&all));
    let (Some(found), Some(first)) = (reduced.violation, all.violation) else { return false };
    let schedule = found.schedule.to_string().parse().expect("it was printed");
    let again = exploration(true).replay(&schedule);
    let same = (&again.violation, &again.interleaving) == (&Some(found.what), &found.interleaving);
    found.preemptions == first.preemptions && same
}

/// Explores each scenario with a lost wake-up, and each corrected version, in each mode with one
/// preemption. Returns `true` if violations are found in exactly the scenarios with the mistake.
fn lost_signals() -> bool {
    lost().iter().all(|(name, scenario)| {
        let (is_right, began) = (name.ends_with("-cured"), Instant::now());
        let mut schedules = Vec::new();
        let is_as_meant = LockingMode::ALL.iter().all(|mode| {
            let outcome = Exploration::scenario(scenario).mode(*mode).preemption_bound(1).run();
            schedules.push(outcome.schedules.to_string());
            outcome.violation.is_none() == is_right
        });
        let seconds = began.elapsed().as_secs_f64();
        println!("| `{name}` | {} | {seconds:.2} s |", schedules.join(" | "));
        is_as_meant
    })
}

/// Samples `runs` schedules, over all scenes and modes in turn.
fn sample(from: u64, runs: u64) -> bool {
    let scenarios =
        examples::examples().into_iter().filter(|(name, _)| !COMPUTE.contains(&&**name));
    let mut scenes: Vec<(String, Exploration)> = Vec::new();
    for (name, scenario) in scenarios {
        for mode in LockingMode::ALL {
            let exploration = Exploration::scenario(&scenario)
                .mode(mode)
                .max_steps(1_000_000)
                .idle_clock(PUNCTUAL.contains(&&*name));
            scenes.push((format!("{name}, {mode}"), exploration));
        }
    }
    for known in &KNOWN {
        for mode in LockingMode::ALL {
            scenes.push((format!("{}, {mode}", known.name), known.exploration(mode)));
        }
    }
    let (began, mut done, mut seed) = (Instant::now(), 0, from);
    let mut next_word = Duration::ZERO;
    while done < runs {
        for (name, exploration) in &scenes {
            let some = IN_A_ROW.min(runs - done);
            let outcome = exploration.sample(seed, some);
            done += outcome.schedules;
            if !held(name, &outcome) {
                return false;
            }
            if began.elapsed() >= next_word {
                let rate = done as f64 / began.elapsed().as_secs_f64();
                println!("{done} schedules, seeds from {seed}, {rate:.0} per second");
                next_word = began.elapsed() + Duration::from_secs(10);
            }
        }
        seed += IN_A_ROW;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{done} schedules without a violation in {seconds:.0} s, {} scenes", scenes.len());
    true
}

/// Measures the number of schedules per second.
fn speed() -> bool {
    for (name, exploration) in [
        ("killpg against exit (4 processes)", KNOWN[4].exploration(LockingMode::Parallel)),
        ("SIGCHLD coalesces (3 processes)", KNOWN[7].exploration(LockingMode::Parallel)),
        ("signal against sigsuspend (2 processes)", KNOWN[8].exploration(LockingMode::Parallel)),
    ] {
        let began = Instant::now();
        let outcome = exploration.preemption_bound(3).max_schedules(200_000).run();
        let rate = outcome.schedules as f64 / began.elapsed().as_secs_f64();
        println!("{name}: {} schedules, {rate:.0} per second", outcome.schedules);
        if !held(name, &outcome) {
            return false;
        }
    }
    let scenarios = examples::examples();
    for name in DICED {
        let (_, scenario) = scenarios.iter().find(|one| one.0 == name).expect("its file");
        let began = Instant::now();
        let outcome = Exploration::scenario(scenario).sample(1, 20_000);
        let rate = outcome.schedules as f64 / began.elapsed().as_secs_f64();
        println!("{name}, sampled: {} schedules, {rate:.0} per second", outcome.schedules);
    }
    true
}
