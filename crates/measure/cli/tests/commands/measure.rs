//! Tests of `tontine-measure` from a user's point of view: names, files, exit statuses, failures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use rustix::process::Signal;
use serde_json::Value;
use tontine_bench::schema::Results;
use tontine_bench::size::Size;
use tontine_bench::stats::plan::{Components, Costs, RepetitionPlan};

use crate::common::{marked, signal, text, tontine, until, until_invocation, until_none_is_left};

fn results(folder: &Path) -> Value {
    let text = fs::read(folder.join("results.json")).expect("results.json");
    serde_json::from_slice(&text).expect("valid JSON")
}

fn statuses(results: &Value) -> Vec<(String, String, String)> {
    let of = |cell: &Value, key: &str| cell[key].as_str().unwrap_or_default().to_owned();
    let cells = results["cells"].as_array().expect("cells");
    cells.iter().map(|cell| (of(cell, "variant"), of(cell, "status"), of(cell, "why"))).collect()
}

fn measure(folder: &Path, names: &[&str]) -> Output {
    tontine().args(["--quick", "--out"]).arg(folder).args(names).output().expect("tontine runs")
}

/// Variants of several experiments: times, shares, answers and kills.
const CELLS: [&str; 6] = [
    "round-trip/pipe",
    "throughput/memcpy",
    "survival/pipe",
    "death-notice/pidfd-poll",
    "liveness-check/kill-0",
    "liveness-check/load",
];

/// A quick run of [`CELLS`] with its samples, which several tests examine.
pub(crate) static RUN: LazyLock<MeasuredRun> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let samples = folder.path().join("samples");
    let samples = samples.to_str().expect("a path");
    let output = measure(folder.path(), &[&["--samples", samples], &CELLS[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = [folder.path(), Path::new(samples)].map(fs::read_dir);
    let files = files.into_iter().flat_map(|entries| entries.expect("a folder").flatten());
    let name = |path: &Path| path.file_name().expect("a name").display().to_string();
    let files = files
        .filter(|entry| entry.path().is_file())
        .map(|entry| (name(&entry.path()), text(&fs::read(entry.path()).expect("a file"))));
    MeasuredRun { stdout: text(&output.stdout), files: files.collect() }
});

/// The output and the files of a run.
pub(crate) struct MeasuredRun {
    stdout: String,
    files: BTreeMap<String, String>,
}

impl MeasuredRun {
    pub(crate) fn file(&self, name: &str) -> &str {
        let names = || self.files.keys().collect::<Vec<_>>();
        self.files.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", names()))
    }

    pub(crate) fn results(&self) -> Value {
        serde_json::from_str(self.file("results.json")).expect("valid JSON")
    }
}

#[test]
fn measure_writes_files_and_prints_table() {
    for word in ["round-trip: ", "pipe", "GB/s", "wedged", "notice", "kill-0"] {
        assert!(RUN.stdout.contains(word), "{word}: {}", RUN.stdout);
    }
    let files = ["results.json", "results.csv", "results.md", "report.html", "report-death.html"];
    for file in files {
        assert!(!RUN.file(file).is_empty(), "{file} is empty");
    }
    let results = RUN.results();
    assert_eq!(results["schema"], 1);
    assert_eq!(results["complete"], true);
    for cell in results["cells"].as_array().expect("cells") {
        assert_eq!(cell["status"], "ok", "{cell}");
        assert_eq!(cell["invocations"].as_array().map(Vec::len), Some(6), "{}", cell["variant"]);
        let (low, middle, high) =
            (cell["low"].as_f64(), cell["estimate"].as_f64(), cell["high"].as_f64());
        assert!(low <= middle && middle <= high, "{cell}");
    }
}

#[test]
fn samples_files_hold_all_samples_in_order() {
    let samples = RUN.file("round-trip-pipe-hot-cross-core-one_way-00.txt");
    let numbers = samples.lines().filter(|line| !line.starts_with('#'));
    let count = numbers.map(str::parse::<f64>).filter(Result::is_ok).count();
    assert_eq!(count, Size::Quick.blocking_rounds());
}

/// Regression: intervals of few invocations extended below zero, and those of shares above 1.
#[test]
#[ignore = "takes long: starts measurements"]
fn few_invocations_yield_no_impossible_figure() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--invocations", "2", "--format", "json"];
    let output = measure(folder.path(), &[&few[..], &CELLS].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).expect("only JSON");
    assert_eq!(printed, results(folder.path()), "standard output has the same as the file");
    let run: Results = serde_json::from_value(printed).expect("a run");
    let with_interval = run.cells.iter().filter(|cell| cell.low.is_some());
    assert!(with_interval.count() > 8, "{:?}", run.cells);
    for cell in &run.cells {
        assert!(cell.impossible().is_empty(), "{:?}: {cell:?}", cell.impossible());
    }
}

#[test]
fn measure_unknown_name_suggests_nearest_with_status_2() {
    for (name, offer) in [
        ("round-trp", "'round-trip'"),
        ("round-trip/eventfs", "'round-trip/eventfd'"),
        ("zmq-ipc", "'round-trip/zmq-ipc'"),
    ] {
        let output = tontine().args([name]).output().expect("tontine runs");
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(text(&output.stderr).contains(offer), "{name}: {}", text(&output.stderr));
    }
    let output = tontine().args(["--as-published", "9"]).output().expect("tontine runs");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn unwritable_directory_fails_before_measuring() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "mine").expect("a file");
    let output = measure(&file, &["round-trip"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--out"), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("invocations"), "the measurement began");
    assert_eq!(fs::read_to_string(&file).expect("the file exists"), "mine");
}

#[test]
#[ignore = "takes long: starts measurements"]
fn as_published_run_shows_progress_and_keeps_its_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tontine();
    command.args(["--quick", "--as-published", "002", "--out"]).arg(folder.path());
    let output = command.output().expect("tontine runs");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let begins = said.lines().find(|line| line.starts_with("source 002: "));
    let begins = begins.unwrap_or_else(|| panic!("the number of points is missing: {said}"));
    assert!(begins.contains(" fresh processes, about "), "{begins}");
    // The first line comes at once, the others after a minute.
    let is_progress = |line: &str| line.contains(" %  ") && line.contains("source-002/dummy");
    assert!(said.lines().any(is_progress), "{said}");
    let kept = fs::read(folder.path().join("as-published-002.txt")).expect("a file");
    assert_eq!(text(&kept), text(&output.stdout));
    assert!(text(&kept).contains("Verdicts on the source's claims"), "{}", text(&kept));
}

/// Starts a run, sends it a signal when `is_due` returns `true` for its temporary folder, and
/// checks its exit status and that it leaves no process and no file.
fn end_by_signal(command: &mut Command, by: Signal, is_due: impl Fn(&Path) -> bool) {
    let temporary = tempfile::tempdir().expect("a folder");
    let mut run = command
        .env("TONTINE_TEST", temporary.path())
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("tontine runs");
    until_invocation(temporary.path());
    until("the signal is due", || is_due(temporary.path()));
    let pids = marked(temporary.path());
    signal(&run, by);
    assert_eq!(run.wait().expect("the process ends").code(), Some(128 + by.as_raw()));
    assert_eq!(entries(temporary.path(), |_| true), Vec::<String>::new());
    let is_theirs = |name: &str| pids.iter().any(|pid| is_made_by(name, *pid));
    assert_eq!(entries(Path::new("/dev/shm"), is_theirs), Vec::<String>::new());
    until_none_is_left(temporary.path());
}

/// Returns `true` if the name of a mechanism's file contains its maker: the number of a PID
/// namespace, `p`, and this pid.
fn is_made_by(name: &str, pid: u32) -> bool {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word.split_once('p').is_some_and(|(_, maker)| maker == pid.to_string()))
}

fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let names = fs::read_dir(folder).expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| wanted(name)).collect()
}

#[test]
#[ignore = "takes long: starts measurements"]
fn signal_ends_as_published_run_without_leftovers() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tontine();
    command.args(["--quick", "--as-published", "001", "--out"]).arg(folder.path());
    end_by_signal(&mut command, Signal::INT, |_| true);
    assert_eq!(entries(folder.path(), |_| true), Vec::<String>::new(), "an incomplete file");
}

#[test]
fn signal_ends_measure_and_results_are_kept() {
    for (by, name, kind) in [
        (Signal::INT, "round-trip/iceoryx2", Some("tontine-ice-")),
        (Signal::TERM, "round-trip/zmq-ipc", Some("tontine-zmq-")),
        (Signal::INT, "signal-delivery/one-clock", None),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = tontine();
        command.args(["--out"]).arg(folder.path()).arg(name);
        let has_files = |temporary: &Path| {
            let start = kind.unwrap_or_default();
            kind.is_none() || !entries(temporary, |name| name.starts_with(start)).is_empty()
        };
        end_by_signal(&mut command, by, has_files);
        assert_eq!(results(folder.path())["complete"], false);
    }
}

/// Regression: if the engine was killed before the invocation had asked the kernel to be killed
/// with it, the invocation measured its whole task, although no process read the reply.
#[test]
fn invocation_of_ended_engine_ends_before_its_request() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = tontine();
    command.arg("__invocation").stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped());
    let mut invocation = command.spawn().expect("tontine runs");
    // The request stays incomplete.
    let _request = invocation.stdin.take();
    let output = invocation.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the engine has ended"), "{}", text(&output.stderr));
}

#[test]
#[ignore = "takes long: starts measurements"]
fn few_descriptors_skip_only_affected_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$@\"", "sh", crate::PROGRAM])
        .args(["--quick", "--invocations", "1", "--out"])
        .arg(folder.path())
        .args(["round-trip/eventfd", "round-trip/zmq-inproc", "liveness-check/epoll-socket"])
        .output()
        .expect("tontine runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (variant, status, why) in statuses(&results(folder.path())) {
        assert!(status == "ok" || (status == "skipped" && !why.is_empty()), "{variant}: {why}");
    }
}

#[test]
#[ignore = "takes long: starts measurements"]
fn one_processor_skips_only_rows_that_need_two() {
    let folder = tempfile::tempdir().expect("a folder");
    let allowed = rustix::thread::sched_getaffinity(None).expect("affinity");
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let output = Command::new("taskset")
        .args(["-c", &first.expect("a processor").to_string(), crate::PROGRAM])
        .args(["--quick", "--invocations", "1", "--out"])
        .arg(folder.path())
        .args(["round-trip/flag-one-line", "round-trip/pipe", "throughput/checked-load"])
        .output()
        .expect("taskset runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = statuses(&results(folder.path()));
    let of = |name: &str| rows.iter().filter(|row| row.0 == name).collect::<Vec<_>>();
    assert!(
        of("flag-one-line")
            .iter()
            .all(|row| row.1 == "skipped" && row.2.contains("two processors"))
    );
    for status in ["ok", "skipped"] {
        assert!(of("pipe").iter().any(|row| row.1 == status), "{status}: {rows:?}");
    }
}

/// Checks that the advice for a cell is the cheapest for this precision, according to the pilot's
/// variances and costs, which are in it.
fn assert_planned(cell: &Value, precision: f64) {
    let figure = |name: &str| cell[name].as_f64().expect("a number");
    let (mean, stretch) = (figure("mean"), figure("stretch"));
    let variance = |name: &str| (figure(name) * mean).powi(2);
    let (within, between) = (variance("within"), variance("between"));
    let costs = Costs {
        iteration: figure("iteration_seconds") * stretch,
        invocation: figure("invocation_seconds"),
    };
    let plan = RepetitionPlan::new(Components { mean, within, between }, costs, precision * mean);
    let plan = plan.expect("positive costs");
    assert_eq!(figure("iterations"), plan.iterations as f64 * stretch, "{cell}");
    // The number is null if it is larger than any run allows.
    let invocations = plan.invocations.map(|count| count as u64);
    assert_eq!(cell["invocations"].as_u64(), invocations, "±{precision}: {cell}");
}

#[test]
#[ignore = "takes long: starts measurements"]
fn plan_prints_repetitions_and_measures_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let planned = |more: &[&str]| {
        let arguments = ["--plan", "liveness-check/load"].iter().chain(more);
        tontine().args(arguments).current_dir(folder.path()).output().expect("tontine runs")
    };
    for percent in ["50", "0.5"] {
        let output = planned(&["--format", "json", "--precision", percent]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let advice: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        let cells = advice.as_array().expect("cells");
        assert!(!cells.is_empty(), "{advice}");
        let precision = percent.parse::<f64>().expect("a number") / 100.0;
        cells.iter().for_each(|cell| assert_planned(cell, precision));
    }
    assert!(text(&planned(&[]).stdout).contains("operations × invocations"));
    assert_eq!(planned(&["--precision", "0"]).status.code(), Some(2));
    assert!(fs::read_dir(folder.path()).expect("a folder").next().is_none(), "no file is written");
}
