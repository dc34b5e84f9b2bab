//! Tests of scenarios that call exec or spawn, on both backends in lock-step. On Linux the program
//! that they run is this test program, which becomes a process of the scenario before the harness
//! begins.

use tontine_unix_lab::check::{CheckOptions, Checker, Trace, TraceComparison, TraceEnd, against};
use tontine_unix_lab::scenario::{Scenario, SystemCall};
use tontine_unix_sim::{LockingMode, Virtual};

use crate::calls::has;
use crate::examples::examples;

/// Number of orders of steps tried.
const SEEDS: u64 = 4;
/// Minimum number of comparisons, so that a wrong folder, which yields none, fails the test.
const LEAST: usize = 16;

fn checker() -> Checker {
    Checker::new().expect("a PID namespace")
}

/// Asserts that both backends do the same in every mode, under several orders of steps; returns the
/// trace of the first order.
fn same_with(checker: &mut Checker, name: &str, scenario: &Scenario) -> Trace {
    let mut first = None;
    for seed in 1..=SEEDS {
        let options = CheckOptions { seed, ..CheckOptions::new() };
        let real = checker.on_linux(scenario, &options);
        let real = real.unwrap_or_else(|error| panic!("{name}: {error}"));
        for mode in LockingMode::ALL {
            let options =
                CheckOptions { builder: Virtual::builder().mode(mode), ..options.clone() };
            let found = against(scenario, &options, &real).expect("comparable on Linux");
            if let TraceComparison::Differs(difference) = found {
                panic!("{name}, {mode}: {difference}");
            }
        }
        first = first.or(Some(real));
    }
    first.expect("at least one order was tried")
}

fn same(text: &str) -> Trace {
    let scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
    same_with(&mut checker(), "it", &scenario)
}

/// Returns `true` if the trace contains the entry `what`.
fn has_entry(trace: &Trace, what: &str) -> bool {
    trace.entries.iter().any(|entry| entry.what == what)
}

#[test]
fn every_example_with_exec_matches_linux() {
    let mut checker = checker();
    let executing: Vec<_> = examples()
        .into_iter()
        .filter(|(_, scenario)| has(scenario, SystemCall::executes))
        .collect();
    for (name, scenario) in &executing {
        let trace = same_with(&mut checker, name, scenario);
        assert!(
            !trace.entries.iter().any(|entry| entry.what.starts_with("missed")),
            "{name}: {trace:?}"
        );
    }
    assert!(executing.len() >= LEAST, "only {}", executing.len());
}

#[test]
fn scenario_with_exec_matches_linux_without_namespace() {
    let scenario = "process main\n  child = spawn other group new\n  wait -> child exited 3\n\n\
                    process other\n  getppid\n  exec last\n\nprocess last\n  exit 3\n";
    let scenario = scenario.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut checker = Checker::without_namespace().expect("a checker without a namespace");
    let trace = same_with(&mut checker, "it", &scenario);
    assert!(has_entry(&trace, "begins last"), "{trace:?}");
}

/// Rust's runtime ignores SIGPIPE, opens those of the first three descriptors that are closed, and
/// gives the thread an alternate stack. A process that called exec must not show any of this.
#[test]
fn exec_leaves_no_trace_of_rust_runtime() {
    let trace = same(
        "process main\n  close 2\n  exec after\n\nprocess after\n  \
         sigaction PIPE -> by-default\n  sigaction SEGV -> by-default\n  close 0\n  \
         close 2 -> EBADF\n  sigstack -> 0\n  getmask -> {}\n",
    );
    assert!(has_entry(&trace, "close 2 -> EBADF"), "{trace:?}");
}

/// On both sides, a scenario's processes and the programs that they exec or spawn begin with
/// descriptors 0 to 2 on a null device. Regression: they began with all descriptors closed, unlike
/// on any Unix.
#[test]
fn standard_descriptors_are_null_device_on_both_sides() {
    let uses = "read 0 -> \"\"\n  write 1 \"dropped\" -> 7\n  write 2 \"x\" -> 1\n  \
                tcgetattr 0 -> ENOTTY\n  pipe reads writes\n  note \"{reads} {writes}\"\n";
    let trace = same(&format!(
        "process main\n  {uses}  child = spawn other\n  wait -> child exited 0\n  exec other\n\n\
         process other\n  {uses}"
    ));
    let notes = trace.entries.iter().filter(|entry| entry.what == "notes \"3 4\"").count();
    assert_eq!(notes, 3, "{trace:?}");
}

/// The first thread waits at its gate, or sleeps for a time, while another thread calls exec. The
/// process continues with the first thread's ordinal.
#[test]
fn exec_by_any_thread_continues_as_first_thread() {
    for call in ["pause", "getpid", "sleep 20ms", "sigtimedwait {USR1} 20ms"] {
        let trace = same(&format!(
            "process main\n  child = fork before\n  wait -> child exited 0\n\n\
             process before\n  thread executes\n  repeat 9: {call} -> anything\n\n\
             thread executes\n  getpid\n  exec after\n\n\
             process after\n  gettid\n  thread more\n  pause\n\n\
             thread more\n  gettid\n  exec last\n\n\
             process last\n  gettid -> self\n",
        ));
        if call == "pause" {
            assert!(has_entry(&trace, "begins last"), "{trace:?}");
        }
    }
}

#[test]
fn failed_exec_leaves_all_threads_running() {
    let trace = same(
        "process main\n  thread other\n  getpid\n  getpid\n  join 0 -> anything\n  pause\n\n\
         thread other\n  exec \"/nowhere\" -> ENOENT\n  spawn \"/nowhere\" -> ENOENT\n  \
         kill self TERM\n",
    );
    assert!(has_entry(&trace, "exec \"/nowhere\" -> ENOENT"), "{trace:?}");
}

/// A signal that arrives between `exec` and the first statement of the new program has its default
/// effect, or stays pending.
#[test]
fn signal_during_exec_reaches_new_program() {
    let trace = same(
        "process main\n  block {USR1}\n  child = fork before\n  kill child USR1\n  \
         kill child TSTP\n  wait child stopped nohang -> anything\n  kill child CONT\n  \
         kill child TERM\n  wait -> anything\n\n\
         process before\n  on USR1: note \"before\"\n  on TERM: note \"before\"\n  exec after\n\n\
         process after\n  on USR1: note \"after\"\n  unblock {USR1}\n  pause\n",
    );
    assert!(has_entry(&trace, "begins before"), "{trace:?}");
}

/// Regression: the Linux backend knew only children that it had created itself. After an exec, the
/// children of the process had been created by the previous program of the same scenario.
#[test]
fn children_of_previous_program_are_reaped() {
    let trace = same(
        "process main\n  child = fork quick\n  spawn quick group new\n  exec after\n\n\
         process after\n  wait -> exited 3\n  wait -> exited 3\n  wait -> ECHILD\n\n\
         process quick\n  exit 3\n",
    );
    assert_eq!(trace.ending, TraceEnd::Finished);
}

/// Regression: the Linux backend held a spawned child by the lowest free descriptor. If a thread
/// had closed the second of two descriptors, that descriptor was open again after the spawn.
#[test]
fn closed_descriptor_stays_closed_after_spawn() {
    let trace = same(
        "process main\n  pipe reads writes\n  close writes\n  spawn other\n  \
         read writes 4 -> EBADF\n  pipe one other\n  note \"{one}\"\n  wait\n\n\
         process other\n  getpid\n",
    );
    assert!(has_entry(&trace, "notes \"4\""), "{trace:?}");
}

#[test]
fn tracee_stops_after_exec() {
    let trace = same(
        "process main\n  child = fork before\n  wait -> child trapped TRAP\n  \
         ptrace continue child\n  wait -> child trapped USR1\n  ptrace kill child\n  wait\n\n\
         process before\n  ptrace traceme\n  exec after\n\nprocess after\n  raise USR1\n",
    );
    assert!(has_entry(&trace, "wait -> main.1 trapped USR1"), "{trace:?}");
}
