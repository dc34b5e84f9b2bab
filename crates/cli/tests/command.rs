//! Tests of the `tontine` command from a user's point of view: names, files, exit statuses,
//! failures.
//!
//! This is a separate test program, because it searches the whole machine for files that a run left
//! behind.

#[path = "commands/common.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tontine_bench::schema::Results;
use tontine_bench::size::Size;
use tontine_bench::stats::plan::{Components, Costs, RepetitionPlan};

use common::{left_behind, text, tontine};

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
    tontine()
        .args(["measure", "--quick", "--out"])
        .arg(folder)
        .args(names)
        .output()
        .expect("tontine runs")
}

/// One variant of each of several experiments.
const CELLS: [&str; 5] = [
    "round-trip/pipe",
    "throughput/memcpy",
    "survival/pipe",
    "death-notice/pidfd-poll",
    "liveness-check/kill-0",
];

#[test]
fn measure_writes_files_and_prints_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = measure(folder.path(), &CELLS);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for word in ["round-trip: ", "pipe", "GB/s", "wedged", "notice", "kill-0"] {
        assert!(text(&output.stdout).contains(word), "{word}: {}", text(&output.stdout));
    }
    let files = ["results.json", "results.csv", "results.md", "report.html", "report-death.html"];
    for file in files {
        assert!(fs::metadata(folder.path().join(file)).expect(file).len() > 0, "{file} is empty");
    }
    let results = results(folder.path());
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
fn json_on_stdout_equals_results_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tontine()
        .args(["measure", "--quick", "--format", "json", "--out"])
        .arg(folder.path())
        .arg("liveness-check/dummy")
        .output()
        .expect("tontine runs");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("only JSON");
    assert_eq!(printed, results(folder.path()));
}

#[test]
fn measure_unknown_name_suggests_nearest_with_status_2() {
    for (name, offer) in [
        ("round-trp", "'round-trip'"),
        ("round-trip/eventfs", "'round-trip/eventfd'"),
        ("zmq-ipc", "'round-trip/zmq-ipc'"),
    ] {
        let output = tontine().args(["measure", name]).output().expect("tontine runs");
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(text(&output.stderr).contains(offer), "{name}: {}", text(&output.stderr));
    }
    let output = tontine().args(["measure", "--as-published", "9"]).output().expect("tontine runs");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn unwritable_directory_fails_before_measuring() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "mine").expect("a file");
    let began = Instant::now();
    let output = measure(&file, &["round-trip"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--out"), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("invocations"), "the measurement began");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(fs::read_to_string(&file).expect("the file exists"), "mine");
}

/// Starts a run whose processes carry `mark`, sends the run a signal, and returns its exit status.
fn status_of_signalled(command: &mut Command, mark: &Path, signal: Signal) -> Option<i32> {
    let mut run = command
        .env("TONTINE_TEST", mark)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("tontine runs");
    thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&run), signal).expect("the process still runs");
    run.wait().expect("the process ends").code()
}

#[test]
fn as_published_run_shows_progress_and_keeps_its_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tontine();
    command.args(["measure", "--quick", "--as-published", "002", "--out"]).arg(folder.path());
    let output = command.output().expect("tontine runs");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let begins = said.lines().find(|line| line.starts_with("source 002: "));
    let begins = begins.unwrap_or_else(|| panic!("the number of points is missing: {said}"));
    assert!(begins.contains(" fresh processes, about "), "{begins}");
    // The first line comes at once, the others after a minute.
    let is_progress = |line: &&str| line.contains(" %  ") && line.contains("source-002/dummy");
    assert_eq!(said.lines().filter(is_progress).count(), 1, "{said}");
    let kept = fs::read(folder.path().join("as-published-002.txt")).expect("a file");
    assert_eq!(text(&kept), text(&output.stdout));
    assert!(text(&kept).contains("Verdicts on the source's claims"), "{}", text(&kept));
}

#[test]
fn signal_ends_as_published_run_without_leftovers() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tontine();
    command.args(["measure", "--quick", "--as-published", "001", "--out"]).arg(folder.path());
    assert_eq!(status_of_signalled(&mut command, folder.path(), Signal::INT), Some(130));
    assert_eq!(leftover_files(), Vec::<String>::new(), "files were left behind");
    assert_eq!(left_behind(folder.path()), Vec::<String>::new(), "processes were left behind");
    assert_eq!(
        fs::read_dir(folder.path()).expect("a folder").count(),
        0,
        "an incomplete file was left"
    );
}

#[test]
fn signal_ends_measure_and_results_are_kept() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["round-trip/iceoryx2", "round-trip/zmq-ipc", "signal-delivery/one-clock"];
        let mut command = tontine();
        command.args(["measure", "--out"]).arg(folder.path()).args(names);
        assert_eq!(status_of_signalled(&mut command, folder.path(), signal), Some(status));
        assert_eq!(results(folder.path())["complete"], false);
        assert_eq!(leftover_files(), Vec::<String>::new(), "files were left behind");
        assert_eq!(left_behind(folder.path()), Vec::<String>::new(), "processes were left behind");
    }
}

/// Returns the files of the mechanisms that are left in any of their directories.
fn leftover_files() -> Vec<String> {
    let folders = [std::env::temp_dir(), "/dev/shm".into()];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let names = files.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let kinds = ["ice", "zmq", "builds", "sessions"].map(|kind| format!("tontine-{kind}-"));
    let ours = |name: &String| {
        name.starts_with("tontine_ice_") || kinds.iter().any(|start| name.starts_with(start))
    };
    names.filter(ours).collect()
}

#[test]
fn few_descriptors_skip_only_affected_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tontine")])
        .args(["measure", "--quick", "--out"])
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
fn one_processor_skips_only_rows_that_need_two() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("taskset")
        .args(["-c", "0", env!("CARGO_BIN_EXE_tontine"), "measure", "--quick", "--out"])
        .arg(folder.path())
        .args(["round-trip/flag-one-line", "round-trip/pipe", "queue-with-check/load"])
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

/// Regression: intervals of few invocations extended below zero, and those of shares above 1.
#[test]
fn few_invocations_yield_no_impossible_figure() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tontine()
        .args(["measure", "--quick", "--invocations", "2", "--out"])
        .arg(folder.path())
        .args(CELLS)
        .output()
        .expect("tontine runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: Results = serde_json::from_value(results(folder.path())).expect("a run");
    let with_interval = run.cells.iter().filter(|cell| cell.low.is_some());
    assert!(with_interval.count() > 8, "{:?}", run.cells);
    for cell in &run.cells {
        assert!(cell.impossible().is_empty(), "{:?}: {cell:?}", cell.impossible());
    }
}

#[test]
fn closed_stdout_causes_no_panic() {
    let output = Command::new("sh")
        .args(["-c", "\"$1\" list | head -n 1", "sh", env!("CARGO_BIN_EXE_tontine")])
        .output()
        .expect("sh runs");
    assert_eq!(text(&output.stdout), "round-trip\n");
    assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
}

#[test]
fn help_manual_and_completions_name_every_command() {
    let of = |arguments: &[&str]| {
        let output = tontine().args(arguments).output().expect("tontine runs");
        assert!(output.status.success(), "{arguments:?}");
        text(&output.stdout)
    };
    for text in [of(&["--help"]), of(&["man"]), of(&["completions", "bash"])] {
        for command in ["measure", "list", "compare", "recv", "send", "doctor", "crash"] {
            assert!(text.contains(command), "{command} is missing in {text}");
        }
        for hidden in ["Serve one invocation", "Serve as one end", "Serve as a worker"] {
            assert!(!text.contains(hidden), "a hidden command is shown");
        }
    }
}

/// Regression: without a terminal, or on a wider one, the help was wrapped at 100 columns.
#[test]
fn help_fits_80_columns_on_wide_and_narrow_terminals() {
    let commands = ["measure", "recv", "send", "compare", "crash", "explain", "doctor", "list"];
    let names = commands.into_iter().map(|name| vec![name]);
    let unix = ["run", "check", "explore", "shell"].into_iter().map(|name| vec!["unix", name]);
    for name in names.chain(unix) {
        for columns in [None, Some(200), Some(60)] {
            let mut command = tontine();
            match columns {
                Some(columns) => command.env("COLUMNS", columns.to_string()),
                None => command.env_remove("COLUMNS"),
            };
            let output = command.arg("help").args(&name).output().expect("tontine runs");
            let help = text(&output.stdout);
            let most = columns.unwrap_or(80).min(80);
            for line in help.lines() {
                // An example command has no space at which to break.
                let breaks = line.trim().contains(' ') && !line.starts_with("Usage: ");
                assert!(line.chars().count() <= most || !breaks, "{name:?}, {columns:?}: {line}");
            }
        }
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
fn plan_prints_repetitions_and_measures_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let planned = |more: &[&str]| {
        let arguments = ["measure", "--plan", "round-trip/pipe"].iter().chain(more);
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

#[test]
fn samples_files_hold_all_samples_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let samples = folder.path().join("samples");
    let output = tontine()
        .args(["measure", "--quick", "--out"])
        .arg(folder.path())
        .arg("--samples")
        .arg(&samples)
        .arg("round-trip/pipe")
        .output()
        .expect("tontine runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = samples.join("round-trip-pipe-hot-cross-core-one_way-00.txt");
    let text = fs::read_to_string(&file).unwrap_or_else(|error| {
        let there =
            fs::read_dir(&samples).expect("samples").flatten().map(|entry| entry.file_name());
        panic!("{error}; found {:?}", there.collect::<Vec<_>>())
    });
    let numbers = text.lines().filter(|line| !line.starts_with('#'));
    let count = numbers.map(str::parse::<f64>).filter(Result::is_ok).count();
    assert_eq!(count, Size::Quick.blocking_rounds());
}
