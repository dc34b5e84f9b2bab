//! Tests of the examples whose processes call exec, on real processes. The program that they run is
//! this test program.
//!
//! If cargo starts the program, it starts itself for each such example, in a folder with a link to
//! itself under the name of each process and a named pipe for the log. The program started there is
//! the run; a program started under the name of a process is that process. The program has its own
//! harness because the default harness would interpret the arguments of such a process as test
//! names.

#[path = "examples/calls.rs"]
mod calls;
mod examples;
#[path = "../../api/tests/keeper/mod.rs"]
mod keeper;

use std::env;
use std::fs::{File, read_to_string};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

use calls::has;
use examples::{examples, folder};
use keeper::keep;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tontine_unix::Linux;
use tontine_unix_lab::scenario::{
    CallName, PipeLog, Scenario, ScenarioVerdict, SystemCall, Timeline, executed, read_log, root,
};

/// Environment variable with the path of the scenario, set in every process that this program
/// starts.
const SCENARIO: &str = "TONTINE_SCENARIO";
/// File name of a run's log.
const LOG: &str = "log";
/// Minimum number of examples to run, so that a wrong folder, which yields none, fails the test.
const LEAST: usize = 10;

fn main() -> ExitCode {
    let Some(path) = env::var_os(SCENARIO) else { return every_example_that_executes() };
    let text = read_to_string(path).expect("a scenario");
    let scenario: Scenario = text.parse().expect("parsed by the parent");
    let arguments: Vec<String> = env::args().collect();
    match scenario.block(&arguments[0]) {
        Some(_) => one_process(&scenario, &arguments),
        None => one_run(&scenario),
    }
}

/// Returns `true` for calls that read the alternate stack: on Linux, Rust's runtime gives a program
/// started by exec an alternate stack.
fn asks_for_its_stack(call: &SystemCall) -> bool {
    call.name == CallName::Sigstack
}

fn every_example_that_executes() -> ExitCode {
    let program = env::current_exe().expect("the path of this program");
    let (mut ran, mut failed) = (0, 0);
    for (name, scenario) in examples() {
        if !has(&scenario, SystemCall::executes) || has(&scenario, asks_for_its_stack) {
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
        let holds = status.expect("the program starts").success();
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
    // Opening one end of a named pipe blocks until the other end is opened.
    let reader = thread::spawn(|| read_log(File::open(LOG).expect("the named pipe")));
    let ended = keep(root(scenario, log()));
    let records = reader.join().expect("no panic").expect("a log");
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
