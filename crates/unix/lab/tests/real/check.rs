//! Tests of the checker, which runs a scenario on both backends in lock-step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tontine_unix_lab::check::{
    CheckError, CheckOptions, Checker, Trace, TraceComparison, TraceEnd, against, on_virtual,
};
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::{Delivery, LockingMode, Virtual};

use crate::examples::examples;
use crate::extent;

fn checker() -> Checker {
    Checker::new().expect("a PID namespace")
}

fn scenario(text: &str) -> Scenario {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Asserts that both backends do the same, and returns the trace.
fn same(text: &str) -> Trace {
    match checker().check(&scenario(text), &CheckOptions::new()).expect("the check completes") {
        TraceComparison::Same(trace) => trace,
        TraceComparison::Differs(difference) => panic!("{difference}"),
    }
}

fn events(trace: &Trace) -> Vec<&str> {
    trace.entries.iter().map(|entry| entry.what.as_str()).collect()
}

#[test]
fn every_example_matches_linux_in_every_mode() {
    let mut checker = checker();
    let (mut compared, mut differences) = (0, Vec::new());
    for (name, scenario) in examples() {
        let options = CheckOptions::new();
        let real = match checker.on_linux(&scenario, &options) {
            Ok(real) => real,
            Err(CheckError::Unsupported { .. }) => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        for mode in LockingMode::ALL {
            let builder = Virtual::builder().mode(mode);
            let options = CheckOptions { builder, ..options.clone() };
            let found = against(&scenario, &options, &real).expect("comparable on Linux");
            compared += 1;
            differences.extend(found.difference().map(|found| format!("{name} {mode}\n{found}")));
        }
    }
    assert!(compared >= 40 * LockingMode::ALL.len(), "only {compared}");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn trace_shows_names_instead_of_numbers() {
    let trace = same(
        "process main\n  child = fork other\n  number = thread third\n  \
         note \"{self} made {child}\"\n  join number\n  wait -> child exited 0\n\n\
         process other\n  getppid\n\nthread third\n  gettid\n",
    );
    let events = events(&trace);
    for event in [
        "child = fork other -> main.1",
        "number = thread third -> main/1",
        "notes \"main made main.1\"",
        "getppid -> main",
        "gettid -> main/1",
        "wait -> main.1 exited 0",
    ] {
        assert!(events.contains(&event), "{event}: {events:?}");
    }
    assert_eq!(trace.ending, TraceEnd::Finished);
}

#[test]
fn equal_seeds_give_equal_runs_on_linux() {
    let text = "process main\n  fork other\n  fork other\n  getpid\n  getpid\n\n\
                process other\n  getpid\n  getpid\n";
    let (scenario, mut checker) = (scenario(text), checker());
    let mut with = |seed| {
        let options = CheckOptions { seed, ..CheckOptions::new() };
        checker.on_linux(&scenario, &options).expect("the check completes")
    };
    assert_eq!(with(7), with(7));
    let orders: Vec<Trace> = (0..8).map(with).collect();
    assert!(orders.iter().any(|trace| trace.steps != orders[0].steps));
}

/// POSIX and Linux let any thread take a signal that it does not block. With OSF/1's rule, only the
/// oldest thread delivers signals; in this scenario the oldest thread blocks the signal.
const TAKEN_BY_ANOTHER: &str = "\
process main
  on USR1: note \"taken\"
  worker = thread worker
  block USR1
  kill self USR1
  getpid
  exit 0

thread worker
  getpid
  pause
";

/// Regression: the report named `main` and `main/1`, but stated neither that these are two threads
/// of one process nor which of the scenario's threads `main/1` is.
#[test]
fn different_delivery_rule_is_reported_as_difference() {
    let (scenario, mut checker) = (scenario(TAKEN_BY_ANOTHER), checker());
    let mut options = CheckOptions::new();
    assert!(
        checker.check(&scenario, &options).expect("the check completes").difference().is_none()
    );
    options.builder = Virtual::builder().delivery(Delivery::Oldest);
    let found = checker.check(&scenario, &options).expect("the check completes");
    let difference = found.difference().expect("main blocks the signal").to_string();
    for part in [
        "seed 1",
        "virtual:",
        "linux:",
        "handles USR1 from main",
        "\nmain (main): process, its first thread\n",
        "\nmain/1 (worker): thread 1 created by process main\n",
    ] {
        assert!(difference.contains(part), "{difference}");
    }
}

#[test]
fn deadlock_on_both_sides_names_waiting_calls() {
    let trace = same("process main\n  fork other\n  wait\n\nprocess other\n  pause\n");
    let TraceEnd::Deadlocked(waiting) = &trace.ending else { panic!("{}", trace.ending) };
    let who: Vec<_> = waiting.iter().map(|one| (one.who.as_str(), one.call.as_str())).collect();
    assert_eq!(who, [("main", "wait"), ("main.1", "pause")]);
}

#[test]
fn stopped_process_counts_as_deadlock_on_both_sides() {
    let trace = same("process main\n  raise STOP\n");
    let TraceEnd::Deadlocked(waiting) = &trace.ending else { panic!("{}", trace.ending) };
    assert!(waiting[0].is_stopped, "{waiting:?}");
}

#[test]
fn endless_run_is_cut_off_on_both_sides() {
    let text = "process main\n  while 1 == 1: getpid\n";
    let options = CheckOptions { max_steps: 100, ..CheckOptions::new() };
    let found = checker().check(&scenario(text), &options).expect("the check completes");
    let TraceComparison::Same(trace) = found else { panic!("{found:?}") };
    assert_eq!((trace.steps.len(), trace.ending), (100, TraceEnd::Cut));
}

#[test]
fn endless_computation_error_names_running_thread() {
    let text = "process main\n  while 1 == 1\n    while 1 == 1: x = x + 1\n";
    let mut checker = checker();
    let mut timeout = Duration::from_millis(300);
    loop {
        let options = CheckOptions { timeout, ..CheckOptions::new() };
        match checker.on_linux(&scenario(text), &options) {
            Err(CheckError::RunFailed(why)) if why.contains("Runs") => break,
            // On a busy machine, the computation may not have begun in time.
            Err(CheckError::RunFailed(why)) => {
                assert!(timeout < Duration::from_secs(60), "{why}");
                timeout *= 3;
            }
            other => panic!("{other:?}"),
        }
    }
    // The next run finds no process of the previous run.
    let next = scenario("process main\n  kill everyone TERM\n  wait -> ECHILD\n");
    let found = checker.check(&next, &CheckOptions::new()).expect("the check completes");
    assert!(found.difference().is_none(), "{found:?}");
}

/// Regression: the time limit was checked only within long steps, not across many short ones. If
/// the limit expired while a process slept, that process was reported as blocked indefinitely.
#[test]
fn time_limit_holds_across_steps_and_during_sleeps() {
    let mut checker = checker();
    for (text, timeout) in [
        ("process main\n  while 1 == 1: getpid\n", Duration::from_millis(2)),
        ("process main\n  sleep 9s\n", Duration::from_millis(20)),
    ] {
        let options = CheckOptions { timeout, ..CheckOptions::new() };
        match checker.on_linux(&scenario(text), &options) {
            Err(CheckError::RunFailed(why)) => assert!(why.contains("an end within"), "{why}"),
            other => panic!("{text}{other:?}"),
        }
    }
}

#[test]
fn process_ignoring_all_signals_is_killed_after_run() {
    let text = "process main\n  fork deaf\n  exit 0\n\nprocess deaf\n  ignore TERM\n  \
                ignore HUP\n  ignore INT\n  block all\n  pause\n";
    let mut checker = checker();
    for _ in 0..3 {
        let trace = checker
            .on_linux(&scenario(text), &CheckOptions::new())
            .expect("the run becomes quiescent");
        assert!(matches!(trace.ending, TraceEnd::Deadlocked(_)), "{}", trace.ending);
    }
}

#[test]
fn kill_of_everyone_stays_within_namespace() {
    let outside = std::process::Command::new("sleep").arg("10000").spawn();
    let mut outside = outside.expect("a process of the same user");
    let trace = same(
        "process main\n  on TERM: note \"not me\"\n  fork other\n  kill everyone TERM\n  \
         wait -> killed TERM\n\nprocess other\n  default TERM\n  pause\n",
    );
    assert!(!events(&trace).contains(&"notes \"not me\""), "{trace:?}");
    assert!(
        outside.try_wait().expect("a child of the caller").is_none(),
        "a signal left the namespace"
    );
    outside.kill().expect("the process exists");
    outside.wait().expect("a child of the caller");
}

#[test]
fn check_without_namespace_cleans_up_and_refuses_outside_kills() {
    let mut checker = Checker::without_namespace().expect("a checker without a namespace");
    assert!(!checker.has_namespace());
    let text = "process main\n  child = fork deaf\n  setpgid child 0\n  kill child STOP\n  \
                wait child stopped -> child stopped STOP\n  exit 3\n\n\
                process deaf\n  ignore TERM\n  fork deafer\n  pause\n\n\
                process deafer\n  block all\n  setsid\n  pause\n";
    let parent = "process main\n  getpgid parent -> parent\n  getsid parent -> parent\n";
    for (seed, text) in [(0, text), (1, text), (2, text), (3, text), (1, parent)] {
        let options = CheckOptions { seed, ..CheckOptions::new() };
        let found = checker.check(&scenario(text), &options).expect("the check completes");
        assert!(found.difference().is_none(), "{found:?}");
    }
    for (line, text) in [
        (2, "process main\n  kill everyone KILL\n"),
        (3, "process main\n  note \"one\"\n  kill 4711 KILL\n"),
        (2, "process main\n  other = self - 1\n  kill other KILL\n"),
        (2, "process main\n  on USR1: kill sender KILL\n"),
    ] {
        match checker.on_linux(&scenario(text), &CheckOptions::new()) {
            Err(CheckError::Unsupported { line: found, .. }) => assert_eq!(found, line, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn incomparable_call_is_refused_with_line() {
    let text = "process main\n  getpid\n  compute 10ms\n";
    match on_virtual(&scenario(text), &CheckOptions::new(), 0) {
        Err(error @ CheckError::Unsupported { line: 3, .. }) => {
            assert!(error.to_string().contains("line 3"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// Like [`same`], but in the modes of the [`extent`] with each of the seeds 1 to `seeds`.
fn always_same(text: &str, seeds: u64) -> Trace {
    let (scenario, mut checker) = (scenario(text), checker());
    let mut last = None;
    for seed in 1..=seeds {
        let options = CheckOptions { seed, ..CheckOptions::new() };
        let real = checker.on_linux(&scenario, &options).expect("the check completes");
        for mode in LockingMode::ALL {
            let options =
                CheckOptions { builder: Virtual::builder().mode(mode), ..options.clone() };
            match against(&scenario, &options, &real).expect("comparable on Linux") {
                TraceComparison::Same(trace) => last = Some(trace),
                TraceComparison::Differs(difference) => panic!("{mode}: {difference}"),
            }
        }
    }
    last.expect("at least one seed")
}

/// Regression: a loop that polled without blocking observed the end of a child's sleep on the
/// virtual Unix, whose clock advanced at each point. On Linux, where steps take longer, the run was
/// abandoned.
#[test]
fn sleep_ends_after_all_possible_steps_of_others() {
    let trace = always_same(
        "process main\n  fork sleeper\n  found = 0\n  rounds = 400\n  while rounds != 0\n    \
         found = wait nohang -> nothing\n    yield\n    rounds = rounds - 1\n  \
         wait -> exited 0\n\nprocess sleeper\n  sleep 1ms\n",
        1,
    );
    assert!(events(&trace).contains(&"wait -> main.1 exited 0"), "{trace:?}");
}

/// Like [`sleep_ends_after_all_possible_steps_of_others`], but with a loop that polls until the
/// sleep ends. Regression: on the virtual Unix the sleep ended.
#[test]
fn loop_polling_for_sleeper_is_cut_off_on_both_sides() {
    let text = "process main\n  fork sleeper\n  found = 0\n  while found == 0\n    \
                found = wait nohang -> anything\n    poll\n\nprocess sleeper\n  sleep 1ms\n";
    assert_eq!(always_same(text, 1).ending, TraceEnd::Cut);
}

/// A kernel worker delivers bytes written to a terminal to its other end. Regression: on a busy
/// machine the bytes arrived later than the 2 ms for which the system had to be quiescent.
#[test]
fn written_text_reaches_sleeping_reader_in_same_step() {
    let _load = Load::new();
    always_same(
        "process main\n  openpty user terminal\n  fork reader\n  write terminal \"hello\"\n  \
         write terminal \"you\"\n  wait -> exited 0\n\n\
         process reader\n  read user 5\n  read user 5\n",
        extent::seeds(200, 10),
    );
}

/// Like [`written_text_reaches_sleeping_reader_in_same_step`], but for bytes typed while there is
/// unread input. No thread sleeps in a read, and polling the terminal does not make the kernel
/// deliver the bytes.
#[test]
fn text_typed_after_unread_input_arrives_in_same_step() {
    let _load = Load::new();
    always_same(
        "process main\n  openpty user terminal\n  controlling terminal\n  \
         tcsetattr terminal -echo -icanon\n  on INT: note \"interrupted\"\n  type user \"a\"\n  \
         type user \"bc\"\n  read terminal -> \"abc\"\n  type user \"a\"\n  \
         type user \"b\\x03c\"\n  read terminal -> \"c\"\n",
        extent::seeds(60, 10),
    );
}

/// A load of computing threads, two per processor.
struct Load(Arc<AtomicBool>);

impl Load {
    fn new() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        for _ in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
            let ends = Arc::clone(&ends);
            thread::spawn(move || while !ends.load(Relaxed) {});
        }
        Self(ends)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
