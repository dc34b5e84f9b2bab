//! Races of well-known programs, as they were reported, found and replayed in a simulated Unix.
//!
//! `cargo run -p tontine-unix --example bed` names them; `-- NAME` finds the schedule at which one
//! goes wrong, runs it again, and sees that the program without the mistake keeps right;
//! `-- NAME linux` runs that on real processes. `docs/bed.md` tells how to test a program of one's
//! own like this.

mod races;
mod schedules;

use std::process::ExitCode;

use tontine_unix::{Errno, Linux, Sys, WaitOptions};

use crate::races::{RACES, Race};

/// Seeds that are tried.
const SEEDS: u64 = 2_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = arguments.iter().map(String::as_str);
    let (name, place) = (arguments.next(), arguments.next());
    let held = match (name, name.and_then(races::find), place) {
        (None, ..) => list(),
        (_, Some(race), None) => hunt(race),
        (_, Some(race), Some("linux")) => on_linux(race) == Ok(Some(0)),
        _ => {
            eprintln!("usage: bed [NAME [linux]]");
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

/// Whether the mistake is found and seen again, and what keeps it right keeps right.
fn hunt(race: &Race) -> bool {
    println!("{}: {}\n{}: {}", race.name, race.what, race.project, race.report);
    let Some(found) = schedules::find(race.wrong, SEEDS) else {
        println!("\nwith the mistake: nothing was seen in {SEEDS} schedules");
        return false;
    };
    println!("\nwith the mistake, seed {}: {}", found.seed, found.seen);
    let again = schedules::replay(race.wrong, found.seed).as_ref() == Some(&found);
    println!("again, by its seed: {}", if again { "the same" } else { "something else" });
    let kept = schedules::find(race.right, SEEDS);
    match &kept {
        None => println!("without it: {SEEDS} schedules, and all went well"),
        Some(found) => println!("without it, seed {}: {}", found.seed, found.seen),
    }
    again && kept.is_none()
}

/// What the program without the mistake exits with on real processes.
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
