//! Races that were reported in well-known programs, found and replayed in a simulated Unix.
//!
//! `cargo run -p tontine-unix-lab --example bed` lists them. `-- NAME` finds a schedule under which
//! the program with the mistake fails, replays that schedule, and explores all schedules of the
//! program without the mistake. `-- NAME replay SCHEDULE` shows the run of one schedule.
//! `-- NAME linux` runs the program without the mistake on real processes. `docs/guides/bed.md`
//! describes how to test your own program in this way.

mod races;

use std::process::ExitCode;

use tontine_unix::{Errno, Linux, Sys, WaitOptions};
use tontine_unix_lab::explore::{Exploration, Schedule};

use crate::races::{BOUND, Program, RACES, Race};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let race = arguments.first().and_then(|name| races::find(name));
    let held = match (race, arguments.as_slice()) {
        (None, []) => list(),
        (Some(race), [_]) => hunt(race),
        (Some(race), [_, "replay", schedule]) => replay(race, schedule),
        (Some(race), [_, "linux"]) => on_linux(race) == Ok(Some(0)),
        _ => {
            eprintln!("usage: bed [NAME [linux | replay SCHEDULE]]");
            false
        }
    };
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list() -> bool {
    for Race { name, project, report, what, .. } in RACES {
        println!("{name:<15} {what}\n{:15} {project}: {report}", "");
    }
    true
}

/// Returns the exploration of a program.
fn exploration(program: Program) -> Exploration {
    Exploration::new(move || program).preemption_bound(BOUND)
}

/// Explores the program with and without the mistake. Returns `true` if the mistake is found and
/// replayed, and the correct program fails under no schedule.
fn hunt(race: &Race) -> bool {
    println!("{}: {}\n{}: {}", race.name, race.what, race.project, race.report);
    let wrong = exploration(race.wrong);
    let outcome = wrong.run();
    let Some(found) = outcome.violation else {
        println!("\nwith the mistake: no violation in {} schedules", outcome.schedules);
        return false;
    };
    println!("\nwith the mistake, schedule {} of {}:", found.schedule, outcome.schedules);
    println!("{}\n{}", found.what, found.interleaving);
    let again = wrong.replay(&found.schedule).violation == Some(found.what);
    println!("replay of the schedule: {}", if again { "the same" } else { "another result" });
    let kept = exploration(race.right).run();
    match kept.violation {
        Some(found) => println!("without it, schedule {}: {}", found.schedule, found.what),
        None => println!(
            "without it: all {} schedules with at most {BOUND} preemptions hold",
            kept.schedules
        ),
    }
    again && kept.complete
}

/// Shows the interleaving of one schedule of the program with the mistake.
fn replay(race: &Race, schedule: &str) -> bool {
    let Ok(schedule) = schedule.parse::<Schedule>() else {
        eprintln!("`{schedule}` is not a schedule");
        return false;
    };
    let replayed = exploration(race.wrong).replay(&schedule);
    println!("{}{}", replayed.interleaving, replayed.violation.as_deref().unwrap_or("holds"));
    true
}

/// Runs the program without the mistake on real processes. Returns its exit status.
fn on_linux(race: &Race) -> Result<Option<i32>, Errno> {
    let linux: &dyn Sys = &Linux::new()?;
    let child = linux.fork(race.right)?;
    let waited = linux.waitpid(child.into(), WaitOptions::empty())?;
    let status = waited.map(|waited| waited.status);
    println!(
        "{} on Linux: {}",
        race.name,
        status.map(|status| status.to_string()).unwrap_or_default()
    );
    Ok(status.and_then(|status| status.exited()))
}
