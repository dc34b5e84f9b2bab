//! The examples that execute processes of theirs, on real processes: this program is what they
//! execute.
//!
//! Started by cargo, it starts itself for each of those examples, in a folder that has a link to
//! itself under the name of each process, and a named pipe for the log. Started there it is the
//! run, and under the name of a process it is that process. A harness of its own, because the
//! usual one would take the arguments of an executed process for the names of tests.

#[path = "examples/calls.rs"]
mod calls;
mod examples;
#[path = "../../unix/tests/keeper/mod.rs"]
mod keeper;

use std::env;
use std::fs::{File, read_to_string};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

use calls::{executes, has};
use examples::{examples, folder};
use keeper::keep;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tontine_unix::Linux;
use tontine_unix_lab::scenario::{
    PipeLog, Scenario, ScenarioVerdict, SystemCall, Timeline, executed, read_log, root,
};

/// Has the path of the scenario, in everything that this program starts.
const SCENARIO: &str = "TONTINE_SCENARIO";
/// Where a run's log is written and read.
const LOG: &str = "log";
/// The least that have to run: a folder that is not found has none.
const LEAST: usize = 10;

fn main() -> ExitCode {
    let Some(path) = env::var_os(SCENARIO) else { return every_example_that_executes() };
    let text = read_to_string(path).expect("a scenario");
    let scenario: Scenario = text.parse().expect("it was parsed before");
    let arguments: Vec<String> = env::args().collect();
    match scenario.block(&arguments[0]) {
        Some(_) => one_process(&scenario, &arguments),
        None => one_run(&scenario),
    }
}

/// On Linux the program that is executed has an alternate stack from Rust's runtime.
fn asks_for_its_stack(call: &SystemCall) -> bool {
    matches!(call, SystemCall::Sigstack(_))
}

fn every_example_that_executes() -> ExitCode {
    let program = env::current_exe().expect("its path");
    let (mut ran, mut failed) = (0, 0);
    for (name, scenario) in examples() {
        if !has(&scenario, executes) || has(&scenario, asks_for_its_stack) {
            continue;
        }
        let place = tempfile::tempdir().expect("a folder");
        let log = place.path().join(LOG);
        let readable = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &log, FileType::Fifo, readable, 0).expect("a named pipe");
        for block in &scenario.blocks {
            symlink(&program, place.path().join(&block.name)).expect("a link");
        }
        let path = folder().join(name.as_str()).with_extension("unix");
        let mut run = Command::new(&program);
        let status = run.current_dir(place.path()).env(SCENARIO, path).status();
        let holds = status.expect("it starts").success();
        println!("{name}: {}", if holds { "holds" } else { "fails" });
        ran += 1;
        failed += usize::from(!holds);
    }
    println!("{ran} examples that execute, {failed} fail");
    if ran >= LEAST && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn log() -> PipeLog {
    let pipe = File::options().write(true).open(Path::new(LOG)).expect("the named pipe");
    PipeLog::to(pipe)
}

fn one_run(scenario: &Scenario) -> ExitCode {
    // To open an end of a named pipe waits for the other.
    let reader = thread::spawn(|| read_log(File::open(LOG).expect("the named pipe")));
    let ended = keep(root(scenario, log()));
    let records = reader.join().expect("it does not panic").expect("a log");
    let timeline = Timeline { records };
    let verdict = ScenarioVerdict::new(scenario, &timeline);
    if ended.is_some() && verdict.holds() {
        return ExitCode::SUCCESS;
    }
    println!("{verdict}\n{timeline}");
    ExitCode::FAILURE
}

fn one_process(scenario: &Scenario, arguments: &[String]) -> ExitCode {
    let linux = Linux::new().expect("pidfds and clone3");
    let status = executed(scenario, &arguments[0], log())(&linux, arguments);
    ExitCode::from(u8::try_from(status).expect("a status has eight bits"))
}
