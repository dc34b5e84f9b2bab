//! Tests of invocations that crash, hang or print unexpected output. Each is named, repeated once,
//! counted, and never included in an average.

mod fixture;

use std::time::{Duration, Instant};

use tontine_bench::engine::launch::Launcher;
use tontine_bench::engine::plan::Plan;
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::engine::{Silent, run};
use tontine_bench::schema::{Results, Status};
use tontine_bench::size::Size;

use fixture::suite::SUITE;
use tontine_bench::task::{InvocationTask, Params};

/// Runs a plan of one task, each of whose invocations is the given shell script.
fn measured_by(script: &str, deadline: Duration) -> Results {
    let task = InvocationTask::new("round-trip", "pipe", Params::new(), Size::Quick);
    let plan = Plan::new(&SUITE, vec![task], Size::Quick, 1);
    let launcher = Launcher {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        deadline,
    };
    run(&plan, &launcher, None, &StopRequest::never().expect("descriptors"), &mut Silent)
}

fn the_only_reason(results: &Results) -> String {
    assert_eq!(results.cells.len(), 1);
    let cell = &results.cells[0];
    assert_eq!(cell.status, Status::Failed);
    assert_eq!(cell.estimate, None, "the estimate includes a failure");
    assert_eq!(cell.failures.len(), 2, "the task is omitted after two failed blocks");
    assert!(results.complete);
    cell.why.clone().expect("a reason")
}

/// A timeout that no wait of a test reaches.
const AMPLE: Duration = Duration::from_secs(60);

#[test]
fn crash_report_has_the_signal_and_last_output() {
    let script = "echo something broke >&2; kill -SEGV $$";
    let why = the_only_reason(&measured_by(script, AMPLE));
    assert!(why.contains("crashed") && why.contains("SIGSEGV"), "{why}");
    assert!(why.contains("something broke"), "{why}");
}

#[test]
fn invalid_reply_is_quoted() {
    let why = the_only_reason(&measured_by("echo 42 apples", AMPLE));
    assert!(why.contains("expected a reply") && why.contains("42 apples"), "{why}");
}

#[test]
fn hanging_invocation_ends_at_deadline_without_leftovers() {
    // On a busy machine a script may not begin before a short deadline.
    let makes_all = ["0.2", "2", "20"].into_iter().any(|seconds| {
        let dir = tempfile::tempdir().expect("a folder");
        let pids = dir.path().join("pids");
        let script = format!("sleep 1000 & echo $! >> {}; wait", pids.display());
        let deadline = Duration::from_secs_f64(seconds.parse().expect("a number"));
        let why = the_only_reason(&measured_by(&script, deadline));
        assert!(why.contains("hung") && why.contains(&format!("{seconds} s")), "{why}");
        let pids = std::fs::read_to_string(&pids).unwrap_or_default();
        for pid in pids.lines() {
            wait_until_gone(pid);
        }
        pids.lines().count() == 4
    });
    assert!(makes_all, "two blocks, each tried twice");
}

/// Waits until a process has ended. The init process reaps a killed orphan a moment later.
fn wait_until_gone(pid: &str) {
    let until = Instant::now() + AMPLE;
    let status = format!("/proc/{pid}/stat");
    while std::fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < until, "process {pid} was left behind");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn endless_output_ends_at_the_deadline() {
    let why = the_only_reason(&measured_by("exec yes", Duration::from_millis(200)));
    assert!(why.contains("hung"), "{why}");
}

#[test]
fn success_after_repetition_counts_and_is_noted() {
    let dir = tempfile::tempdir().expect("a folder");
    let mark = dir.path().join("mark");
    let reply = r#"{"outcome": {"Measured": {
        "figures": [{"metric": "one_way", "unit": "ns", "statistic": "median", "summary": {
            "count": 1, "batch": 1, "median": 5.0, "mean": 5.0, "deviation": 0.0,
            "min": 5.0, "max": 5.0, "p99": 5.0, "p999": 5.0,
            "trimmed_mean": 5.0, "trimmed_half_width": 0.0,
            "mild_outliers": 0, "extreme_outliers": 0,
            "autocorrelation": 0.0, "effective_count": 1.0,
            "unstable": [], "histogram": ""}, "stretches": []}],
        "ratios": [], "tried": [], "notes": []}},
        "empty_pair_ns": 1.0, "clock_drift": 0.0, "stolen_ms": 0.0}"#;
    let script = format!(
        "if mkdir {0} 2>/dev/null; then exit 7; fi; cat <<'END'\n{reply}\nEND",
        mark.display()
    );
    let results = measured_by(&script, AMPLE);
    let cell = &results.cells[0];
    assert_eq!((cell.status, cell.estimate), (Status::Ok, Some(5.0)));
    assert_eq!(cell.invocations.len(), 6);
    assert_eq!(cell.invocations[0].attempts, 2);
    assert!(cell.notes.iter().any(|note| note.contains("only when repeated")), "{:?}", cell.notes);
}

#[test]
fn missing_program_is_named() {
    let task = InvocationTask::new("round-trip", "pipe", Params::new(), Size::Quick);
    let launcher =
        Launcher { program: "/no/such/program".into(), arguments: Vec::new(), deadline: AMPLE };
    let plan = Plan::new(&SUITE, vec![task], Size::Quick, 1);
    let stop = StopRequest::never().expect("descriptors");
    let results = run(&plan, &launcher, None, &stop, &mut Silent);
    assert!(the_only_reason(&results).contains("/no/such/program"));
}

#[test]
fn results_describe_experiments_of_the_plan_only() {
    let results = measured_by("exit 1", AMPLE);
    let names: Vec<&str> = results.experiments.iter().map(|about| about.name.as_str()).collect();
    assert_eq!(names, ["round-trip"]);
}
