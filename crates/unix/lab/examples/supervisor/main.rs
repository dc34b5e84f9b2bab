//! A small supervisor. It starts services, restarts failed services, and on SIGTERM stops all
//! services with the processes that they left behind.
//!
//! `supervise` is written against `Sys` and does not depend on a backend; `main` selects one.
//!
//! `cargo run -p tontine-unix-lab --example supervisor -- linux` runs the supervisor; `kill -TERM`
//! with its process number stops it. `-- virtual` does the same in a simulated system, where sleeps
//! take no real time.
//!
//! `-- explore` stops the supervisor under all schedules of a simulated system up to a bound, `--
//! sample` under many random schedules, one per seed. The last argument `planted` plants a mistake:
//! `-- explore planted` and `-- sample planted` find it, `-- replay SCHEDULE planted` and `-- seed
//! SEED planted` show it again.

mod explored;
mod supervise;

use std::io::Write;
use std::thread;
use std::time::Duration;

use tontine_unix::{Linux, SigAction, Signal, Sys, WaitOptions};
use tontine_unix_lab::explore::{Exploration, ExplorationReport, ReplayReport, Schedule};

use tontine_unix_sim::{Console, Executor, TerminalController as _, Virtual};

use crate::supervise::{Groups, Service, supervise};

/// Number of sampled schedules.
const SEEDS: u64 = 10_000;
/// Time for which the supervisor runs in a virtual system.
const RUN: Duration = Duration::from_secs(3);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let groups = match arguments.pop_if(|last| *last == "planted") {
        Some(_) => Groups::ByTheChild,
        None => Groups::ByBoth,
    };
    let status = match arguments.as_slice() {
        ["linux"] => on_linux(groups),
        ["virtual"] => in_a_virtual_system(groups),
        ["explore"] => search(groups, Exploration::run),
        ["sample"] => search(groups, |exploration| exploration.sample(1, SEEDS)),
        ["replay", schedule] => match schedule.parse::<Schedule>() {
            Ok(schedule) => show(&explored::exploration(groups).replay(&schedule)),
            Err(error) => refuse(&error.to_string()),
        },
        ["seed", seed] => match seed.parse() {
            Ok(seed) => show(&explored::exploration(groups).replay_seed(seed)),
            Err(_) => refuse(&format!("`{seed}` is not a seed")),
        },
        _ => refuse(
            "usage: supervisor linux|virtual|explore|sample|replay SCHEDULE|seed SEED [planted]",
        ),
    };
    std::process::exit(status);
}

/// Runs the supervisor on real processes until it is stopped. Returns its exit status.
fn on_linux(groups: Groups) -> i32 {
    match Linux::new() {
        Ok(linux) => supervise(&linux, services(), groups),
        Err(error) => {
            eprintln!("this kernel is not supported: {error}");
            1
        }
    }
}

/// Reports wrong usage. Returns the exit status.
fn refuse(why: &str) -> i32 {
    eprintln!("{why}");
    2
}

/// Stops the supervisor under many schedules. Returns 1 if the supervisor leaves a process behind
/// under one of these schedules.
fn search(groups: Groups, run: impl FnOnce(&Exploration) -> ExplorationReport) -> i32 {
    let outcome = run(&explored::exploration(groups));
    match outcome.violation {
        Some(found) => {
            let seed = found.seed.map_or(String::new(), |seed| format!("seed {seed}, "));
            println!("{seed}schedule {}:\n{}\n{}", found.schedule, found.what, found.interleaving);
            1
        }
        None => {
            println!("no process was left behind in any of {} schedules", outcome.schedules);
            0
        }
    }
}

/// Shows the run of one schedule. Returns 1 if a process is left behind.
fn show(replayed: &ReplayReport) -> i32 {
    println!("{}\n{}", replayed.violation.as_deref().unwrap_or("holds"), replayed.interleaving);
    i32::from(replayed.violation.is_some())
}

/// Runs the supervisor in a virtual system and shows its output. Returns its exit status.
fn in_a_virtual_system(groups: Groups) -> i32 {
    let console = Console::new();
    let executor = Executor::Simulated { seed: 1 };
    let unix = Virtual::builder().executor(executor).console(&console).build().expect("one fits");
    let report = thread::scope(|scope| {
        let running = scope.spawn(|| unix.run(move |sys| ask_it_to_stop(sys, groups)));
        let mut out = std::io::stdout();
        loop {
            // The end is queried first, so that output from before it is shown.
            let over = console.is_over();
            let bytes = console.output(Duration::from_millis(50));
            if over && bytes.is_empty() {
                break;
            }
            // The supervisor continues even if its output cannot be shown.
            let _ = out.write_all(&bytes).and_then(|()| out.flush());
        }
        running.join().expect("the system does not panic")
    });
    report.status.and_then(|status| status.exited()).unwrap_or(1)
}

/// Runs as the first program: starts the supervisor, sends SIGTERM to it after a while, and returns
/// its exit status.
fn ask_it_to_stop(sys: &dyn Sys, groups: Groups) -> i32 {
    let ended = || {
        let supervisor = sys.fork(move |sys| supervise(sys, services(), groups))?;
        let _ = sys.nanosleep(RUN);
        sys.kill(supervisor.into(), Some(Signal::TERM))?;
        sys.waitpid(supervisor.into(), WaitOptions::empty())
    };
    ended().ok().flatten().and_then(|waited| waited.status.exited()).unwrap_or(1)
}

/// Returns the services: one that runs, one that fails, and one that leaves an orphan and ignores
/// SIGTERM.
fn services() -> Vec<Service> {
    vec![
        Service::new("steady", |sys| {
            loop {
                sys.pause();
            }
        }),
        Service::new("flaky", |sys| {
            let _ = sys.nanosleep(Duration::from_millis(200));
            1
        }),
        Service::new("deaf", |sys| {
            let deaf = |sys: &dyn Sys| {
                let _ = sys.sigaction(Signal::TERM, Some(SigAction::IGNORE));
                loop {
                    sys.pause();
                }
            };
            let _ = sys.fork(deaf);
            deaf(sys)
        }),
    ]
}
