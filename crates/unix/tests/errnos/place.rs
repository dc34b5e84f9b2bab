//! Where rows are played: [`hold`].
//!
//! The program of a row runs in a process of its own, the *player*. Its parent, the *keeper*, leads
//! the session that both are in and inherits whoever the player leaves behind. On Linux the keeper
//! is a forked process; it kills and reaps those, so that no row leaves a process.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tontine_unix::{
    Children, Ending, Errno, Executor, Linux, Mode, Pid, Result, Signal, Status, Sys, Virtual,
    WaitOptions,
};

use crate::row::{On, Program, Row};
use crate::scene::{CAT, cat};

/// A simulated row that takes more steps than this will not end.
const STEPS: u64 = 3_000_000;
/// A row that takes longer than this on Linux will not end.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a player exits with that failed before it could make the call; no errno.
const FAILED: i32 = 255;

/// What was answered, or why nothing was.
type Answer = std::result::Result<Result<()>, String>;

/// Plays each row wherever it can be played, and fails with all that were answered otherwise.
pub(crate) fn hold(rows: &[Row]) {
    let wrong: Vec<String> = rows.iter().flat_map(play).collect();
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// How the answers to one row differ from what it says.
fn play(row: &Row) -> Vec<String> {
    let mut answers = Vec::new();
    match row.on {
        On::Virtual(_) => {}
        On::BothAsRoot if !is_root() => eprintln!("skipped on Linux: {} needs root", row.of),
        On::Both | On::BothAsRoot | On::Linux(_) => {
            answers.push(("Linux".to_owned(), on_linux(row.program)));
        }
    }
    if !matches!(row.on, On::Linux(_)) {
        for mode in Mode::ALL {
            for executor in [Executor::Simulated { seed: 1 }, Executor::Parallel] {
                let place = format!("Virtual, {mode}, {executor:?}");
                answers.push((place, on_virtual(row.program, mode, executor)));
            }
        }
    }
    let wrong = answers.into_iter().filter(|(_, answer)| *answer != Ok(row.answer));
    let told = wrong.map(|(place, answer)| {
        let Row { of, rule, answer: right, .. } = row;
        format!("{of}, {rule}: not {right:?} but {answer:?} on {place}")
    });
    told.collect()
}

fn on_virtual(program: Program, mode: Mode, executor: Executor) -> Answer {
    let processors = if mode == Mode::Uniprocessor { 1 } else { 2 };
    let unix = Virtual::builder().mode(mode).executor(executor).processors(processors);
    let unix = unix.pids(1000).stop_at(STEPS).program(CAT, |sys, _| cat(sys));
    let report = unix.build().expect("a system").run(move |sys| {
        let player = begin(sys, move |sys| exit_status(program(sys)));
        sys.waitpid(player.into(), WaitOptions::empty()).map_or(FAILED, |found| {
            found.and_then(|waited| waited.status.exited()).unwrap_or(FAILED)
        })
    });
    match report.status {
        Some(status) if report.ending == Ending::Finished && report.panicked.is_empty() => {
            answer(status)
        }
        _ => Err(format!("{report:?}")),
    }
}

fn on_linux(program: Program) -> Answer {
    let linux: &dyn Sys = &Linux::new().expect("a kernel with pidfds");
    let keeper = linux.fork(move |linux| {
        let player = begin(linux, move |sys| loudly(|| exit_status(program(sys))));
        let answer = await_end(linux, player);
        reap_all(linux);
        answer
    });
    let keeper = keeper.expect("a process more");
    let waited = linux.waitpid(keeper.into(), WaitOptions::empty()).expect("it is a child");
    answer(waited.expect("it slept").status)
}

fn is_root() -> bool {
    Linux::new().is_ok_and(|linux| linux.geteuid() == 0)
}

/// Makes the caller a keeper, and the player.
fn begin(sys: &dyn Sys, player: impl FnOnce(&dyn Sys) -> i32 + Send + 'static) -> Pid {
    // The first process of a virtual system leads a session already.
    let _ = sys.setsid();
    sys.set_subreaper(true).expect("nothing is refused");
    sys.fork(player).expect("a process more")
}

fn exit_status(answer: Result<()>) -> i32 {
    answer.map_or_else(Errno::raw, |()| 0)
}

fn answer(status: Status) -> Answer {
    match status {
        Status::Exited(0) => Ok(Ok(())),
        Status::Exited(errno) if errno != FAILED => Ok(Err(Errno::from_raw(errno))),
        _ => Err(format!("the player {status}")),
    }
}

/// Runs a player, and says why it panicked past the capture of the test's output, which ends with
/// this process.
fn loudly(player: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(player)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let _ = std::io::stderr().write_all(format!("on Linux: {text}\n").as_bytes());
        FAILED
    })
}

/// The exit status of a player, which is killed if that does not come.
fn await_end(linux: &dyn Sys, player: Pid) -> i32 {
    let begun = Instant::now();
    loop {
        match linux.waitpid(player.into(), WaitOptions::NOHANG) {
            Ok(Some(waited)) => return waited.status.exited().unwrap_or(FAILED),
            Ok(None) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_micros(200));
            }
            _ => return FAILED,
        }
    }
}

/// Kills and reaps all children, those that were inherited too, until there are none.
fn reap_all(linux: &dyn Sys) {
    let look = WaitOptions::EXITED | WaitOptions::NOHANG;
    while linux.waitid(Children::Any, look) != Err(Errno::ECHILD) {
        for child in children_of(linux.getpid().number()) {
            // Nobody else reaps it: the number is still its own.
            let _ = linux.kill(Pid::number_only(child).into(), Some(Signal::KILL));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Whose parent /proc says this process is.
fn children_of(parent: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| parent_of(*number) == Some(parent)).collect()
}

fn parent_of(number: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name before it, in brackets, may be anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
