//! The kernels on which rows are run: [`hold`].
//!
//! The program of a row runs in its own process, the *player*. The player's parent leads the
//! session of both and inherits the processes that the player leaves behind. On Linux that parent
//! is forked by [`keep`].

use tontine_unix::{Errno, Linux, Result, Sys, WaitOptions, WaitStatus};
use tontine_unix_sim::{EndReason, Executor, LockingMode};

use crate::errnos::row::{On, Program, Row};
use crate::keeper::keep;
use crate::systems::{is_included, of, run, with_cat};

/// The result of the call, or the reason why no result is available.
type Answer = std::result::Result<Result<()>, String>;

/// Runs each row on every included kernel that supports it. Panics with all unexpected results, if
/// any.
pub(crate) fn hold(rows: &[Row]) {
    let wrong: Vec<String> = rows.iter().flat_map(play).collect();
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the results of one row that differ from its expectation.
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
        for mode in LockingMode::ALL {
            let executors = [Executor::Simulated { seed: 1 }, Executor::Parallel];
            for executor in executors.into_iter().filter(|executor| is_included(mode, *executor)) {
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

fn on_virtual(program: Program, mode: LockingMode, executor: Executor) -> Answer {
    let report = run(with_cat(of(mode, executor).pids(1000)), move |sys| {
        sys.set_subreaper(true).expect("always permitted");
        let player = sys.fork(move |sys| exit_status(program(sys))).expect("within the limits");
        let waited =
            sys.waitpid(player.into(), WaitOptions::empty()).expect("a child of the caller");
        waited.expect("the wait blocks").status.exited().expect("the player exits")
    });
    match report.status {
        Some(WaitStatus::Exited(status))
            if report.ending == EndReason::Finished && report.panicked.is_empty() =>
        {
            answer(status)
        }
        _ => Err(format!("{report:?}")),
    }
}

fn on_linux(program: Program) -> Answer {
    keep(move |sys| exit_status(program(sys))).map_or_else(failed, answer)
}

fn is_root() -> bool {
    Linux::new().is_ok_and(|linux| linux.geteuid() == 0)
}

fn exit_status(answer: Result<()>) -> i32 {
    answer.map_or_else(Errno::raw, |()| 0)
}

fn answer(status: i32) -> Answer {
    Ok(if status == 0 { Ok(()) } else { Err(Errno::from_raw(status)) })
}

fn failed() -> Answer {
    Err("the player failed before the call".to_owned())
}
