//! Tests of `tontine-measure compare` from a user's point of view: two files, real and modified;
//! output and exit status.

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::LazyLock;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{signal, text, tontine, until_invocation, until_none_is_left, write_program};
use crate::measure;

/// The cells of three variants (times, answers, shares) of a real run, from which the modified runs
/// are made. The figures have a realistic spread, which is the same in all runs.
static RUN: LazyLock<Value> = LazyLock::new(|| {
    let mut run = measure::RUN.results();
    let compared = ["liveness-check", "survival"];
    cells(&mut run).retain(|cell| compared.iter().any(|name| cell["experiment"] == *name));
    for cell in cells(&mut run) {
        let share = cell["unit"] == "share";
        for (index, one) in array(&mut cell["invocations"]).iter_mut().enumerate() {
            let factor = 1.0 + 0.002 * index as f64;
            for key in ["median", "mean"] {
                one[key] = if share { 0.5 } else { 100.0 * factor }.into();
            }
            // Without the samples, a bootstrap takes a moment instead of seconds.
            one["histogram"] = "".into();
        }
    }
    run
});

/// A program whose invocations reply at once: a check takes 100 ns, and up to 0.6 ns more.
const STEADY: &str = r#"#!/bin/sh
echo >> "$0.starts"
ns="100.$(($(wc -l < "$0.starts") % 7))"
cat <<END
{"outcome": {"Measured": {
    "figures": [{"metric": "check", "unit": "ns", "statistic": "median", "summary": {
        "count": 1, "batch": 1, "median": $ns, "mean": $ns, "deviation": 0.0,
        "min": $ns, "max": $ns, "p99": $ns, "p999": $ns,
        "trimmed_mean": $ns, "trimmed_half_width": 0.0,
        "mild_outliers": 0, "extreme_outliers": 0,
        "autocorrelation": 0.0, "effective_count": 1.0,
        "unstable": [], "histogram": ""}, "stretches": []}],
    "ratios": [], "tried": [], "notes": []}},
    "empty_pair_ns": 1.0, "clock_drift": 0.0, "stolen_ms": 0.0}
END
"#;

/// A pair of runs in a separate directory.
struct Pair {
    folder: TempDir,
}

impl Pair {
    /// Returns two copies of the run. `modify` has changed the second copy.
    fn modified(modify: impl FnOnce(&mut Value)) -> Self {
        let mut new = RUN.clone();
        modify(&mut new);
        Self::of(&RUN, &new)
    }

    fn of(base: &Value, new: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, run) in [("before", base), ("after", new)] {
            let out = folder.path().join(name);
            fs::create_dir(&out).expect("a folder");
            fs::write(out.join("results.json"), run.to_string()).expect("a file");
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a program that runs [`STEADY`].
    fn steady_program(&self) -> String {
        let path = self.path("steady");
        write_program(&path, STEADY);
        path.display().to_string()
    }

    fn compare(&self, arguments: &[&str]) -> Output {
        let mut command = tontine();
        command.arg("compare").arg(self.path("before")).arg(self.path("after"));
        command.args(arguments).output().expect("tontine runs")
    }

    fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.compare(&[&["--format", "json"], arguments].concat());
        let printed = serde_json::from_slice(&output.stdout);
        (output.status.code(), printed.unwrap_or_else(|_| panic!("{}", text(&output.stderr))))
    }
}

fn array(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().expect("an array")
}

fn cells(run: &mut Value) -> &mut Vec<Value> {
    array(&mut run["cells"])
}

/// Multiplies every invocation of a row by `factor`.
fn scale(run: &mut Value, variant: &str, metric: &str, factor: f64) {
    let mut found = false;
    for cell in cells(run).iter_mut() {
        if cell["variant"] == variant && cell["metric"] == metric {
            found = true;
            for one in array(&mut cell["invocations"]) {
                for key in ["median", "mean"] {
                    one[key] = (one[key].as_f64().expect("a figure") * factor).into();
                }
            }
        }
    }
    assert!(found, "{variant} {metric}");
}

fn row<'a>(comparison: &'a Value, variant: &str, metric: &str) -> &'a Value {
    let rows = comparison["rows"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["variant"] == variant && row["metric"] == metric);
    found.unwrap_or_else(|| panic!("no row {variant} {metric}"))
}

#[test]
fn regression_in_one_row_gives_status_1() {
    let pair = Pair::modified(|new| scale(new, "kill-0", "check", 1.2));
    let (status, comparison) = pair.json(&["--screen"]);
    assert_eq!(status, Some(1));
    assert_eq!(comparison["regressions"], 1);
    let found = row(&comparison, "kill-0", "check");
    assert_eq!((&found["verdict"], &found["regression"]), (&json!("worse"), &json!(true)));
    let estimate = found["screen"]["change"]["estimate"].as_f64().expect("a change");
    assert!((estimate - 1.2).abs() < 0.01, "{estimate}");
    assert_eq!(row(&comparison, "load", "check")["verdict"], "none-resolved");
    for format in ["text", "markdown"] {
        let output = pair.compare(&["--screen", "--format", format]);
        assert_eq!(output.status.code(), Some(1));
        let printed = text(&output.stdout);
        assert!(printed.contains("WORSE") && printed.contains("+20"), "{printed}");
        assert!(printed.contains("1 worse"), "{printed}");
    }
    let output = pair.compare(&["--screen", "--format", "junit"]);
    let printed = text(&output.stdout);
    assert!(output.status.code() == Some(1) && printed.contains("failures=\"1\""), "{printed}");
    assert!(printed.contains("<property name=\"could resolve\" value=\""), "{printed}");
}

#[test]
fn regression_within_threshold_does_not_count() {
    let pair = Pair::modified(|new| scale(new, "kill-0", "check", 1.2));
    let (status, comparison) = pair.json(&["--screen", "--threshold", "30"]);
    assert_eq!(status, Some(0));
    let found = row(&comparison, "kill-0", "check");
    assert_eq!((&found["verdict"], &found["regression"]), (&json!("worse"), &json!(false)));
    assert_eq!(pair.json(&["--screen", "--threshold", "10"]).0, Some(1));
    assert_eq!(pair.compare(&["--threshold", "-1"]).status.code(), Some(2));
}

/// The row is slower only in the file, because both programs are the same. When the row is measured
/// again, no difference is found.
#[test]
fn unconfirmed_difference_is_not_a_regression() {
    let pair = Pair::modified(|new| scale(new, "kill-0", "check", 1.2));
    let steady = pair.steady_program();
    let again = ["--again", &steady, &steady];
    let seeded = ["--order-seed", "7", "--threshold", "15"];
    let (status, comparison) = pair.json(&[&again[..], &seeded].concat());
    assert_eq!(status, Some(0), "{comparison}");
    assert_eq!(comparison["again"]["status"], "made", "{comparison}");
    assert_eq!(comparison["again"]["order_seed"], 7);
    let found = row(&comparison, "kill-0", "check");
    assert!(found["again"]["pairs"].as_u64() >= Some(20), "{found}");
    assert!(found["again"]["smallest"].as_f64() > Some(0.0), "{found}");
    // One in twenty orders finds a difference, but never one as large as that in the file.
    assert_ne!(found["verdict"], "unsettled", "{found}");
    assert_eq!(found["regression"], false, "{found}");
}

#[test]
#[ignore = "takes long: starts measurements"]
fn compare_again_runs_given_programs_and_names_invalid_one() {
    let pair = Pair::modified(|new| {
        scale(new, "load", "check", 1.5);
        new["executable"] = Value::Null;
    });
    let (status, comparison) = pair.json(&[]);
    let why = comparison["again"]["why"].as_str().expect("a reason");
    assert!(why.contains("B does not say") && why.contains("--again OLD NEW"), "{why}");
    assert_eq!(status, Some(1), "the screen alone decides: {comparison}");

    let this = &*pair.steady_program();
    let (_, comparison) = pair.json(&["--again", this, this]);
    assert!(row(&comparison, "load", "check")["again"]["pairs"].as_u64() >= Some(20));

    let output = pair.compare(&["--again", this, "/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nowhere/at/all"));
}

#[test]
#[ignore = "takes long: starts measurements"]
fn second_stage_announces_pairs_before_it_starts() {
    let pair = Pair::modified(|new| scale(new, "load", "check", 1.5));
    let output = pair.compare(&[]);
    let said = text(&output.stderr);
    let first = said.lines().next().unwrap_or_default();
    let wanted = "one row flagged: at least 20 pairs to measure again, about ";
    assert!(first.starts_with(wanted), "{said}");
    assert!(text(&output.stdout).contains("1 measured again in pairs"), "{output:?}");
}

#[test]
fn changed_program_is_not_run_again() {
    let pair = Pair::modified(|new| scale(new, "load", "check", 1.5));
    let mut base: Value =
        serde_json::from_slice(&fs::read(pair.path("before").join("results.json")).expect("A"))
            .expect("JSON");
    base["executable"]["bytes"] = 1.into();
    fs::write(pair.path("before").join("results.json"), base.to_string()).expect("a file");
    let (_, comparison) = pair.json(&[]);
    let why = comparison["again"]["why"].as_str().expect("a reason");
    assert!(why.contains("no longer exists or has changed"), "{why}");
}

#[test]
fn incomparable_files_exit_with_2_and_name_fix() {
    let pair = Pair::modified(|new| new["schema"] = 9.into());
    let refused = |pair: &Pair| {
        let output = pair.compare(&[]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        assert!(output.stdout.is_empty());
        text(&output.stderr)
    };
    let said = refused(&pair);
    assert!(said.contains("schema 1") && said.contains("schema 9"), "{said}");
    assert!(said.contains("measure the older one again"), "{said}");

    let both = Pair::modified(|_| {});
    for name in ["before", "after"] {
        let path = both.path(name).join("results.json");
        let other =
            fs::read_to_string(&path).expect("a file").replace("\"schema\":1", "\"schema\":9");
        fs::write(path, other).expect("a file");
    }
    assert!(refused(&both).contains("this build reads schema 1"));

    let cut = Pair::modified(|_| {});
    let path = cut.path("after").join("results.json");
    let whole = fs::read(&path).expect("a file");
    fs::write(&path, &whole[..whole.len() / 2]).expect("a file");
    assert!(refused(&cut).contains("cut off"));
    fs::write(&path, "{}").expect("a file");
    assert!(refused(&cut).contains("has no `schema`"));
    fs::write(&path, "{\"schema\": 1}").expect("a file");
    assert!(refused(&cut).contains("results.json of `tontine-measure`"));
    fs::remove_file(&path).expect("a file");
    assert!(refused(&cut).contains("expected a directory with the results.json"));
    assert_eq!(
        tontine().args(["compare", "one"]).output().expect("tontine runs").status.code(),
        Some(2)
    );
}

#[test]
fn differences_between_runs_are_printed() {
    let pair = Pair::modified(|new| {
        new["complete"] = false.into();
        new["size"] = "full".into();
        new["machine"]["kernel"]["release"] = "1.0".into();
        let gone = cells(new).iter().position(|cell| cell["variant"] == "load").expect("load");
        cells(new).remove(gone);
        let torn = |cell: &&mut Value| cell["metric"] == "torn";
        cells(new).iter_mut().find(torn).expect("torn")["unit"] = "furlongs".into();
        let tried = array(&mut new["tried"]).iter_mut().find(|row| row["event"] == "zombie");
        tried.expect("a zombie was tried")["says"] = "perhaps".into();
    });
    let output = pair.compare(&[]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    for said in [
        "B is incomplete",
        "the sizes differ, quick and full",
        "kernel release: ",
        "→ 1.0",
        "liveness-check/load check: only in A",
        "the units differ: share and furlongs",
        "liveness-check/kill-0, zombie: alive → perhaps",
    ] {
        assert!(printed.contains(said), "{said} is missing in {printed}");
    }
}

#[test]
fn runs_of_two_machines_use_bootstrap_only() {
    let pair = Pair::modified(|new| {
        new["machine"]["processor"]["model"] = "Babbage".into();
        scale(new, "kill-0", "check", 2.0);
    });
    let (status, comparison) = pair.json(&[]);
    assert_eq!(comparison["machines"][0]["new"], "Babbage");
    let found = row(&comparison, "kill-0", "check");
    assert_eq!(found["screen"]["method"], "bootstrap");
    let change = &found["screen"]["change"];
    assert!(change["low"].as_f64() < Some(2.0) && change["high"].as_f64() > Some(1.9), "{found}");
    assert!(comparison["again"]["why"].as_str().expect("a reason").contains("two"));
    assert_eq!(status, Some(1));
}

#[test]
fn row_with_few_invocations_gets_no_verdict() {
    let few = |run: &mut Value, factor: f64| {
        for cell in cells(run) {
            array(&mut cell["invocations"]).truncate(3);
        }
        scale(run, "load", "check", factor);
    };
    let mut base = RUN.clone();
    let mut new = RUN.clone();
    few(&mut base, 1.0);
    few(&mut new, 9.0);
    let pair = Pair::of(&base, &new);
    let (status, comparison) = pair.json(&["--screen"]);
    let found = row(&comparison, "load", "check");
    assert_eq!((&found["verdict"], &found["screen"]["flagged"]), (&json!("too-few"), &json!(true)));
    assert_eq!(status, Some(0));
    assert!(text(&pair.compare(&["--screen"]).stdout).contains("apart, but too few invocations"));
}

#[test]
#[ignore = "takes long: starts measurements"]
fn signal_in_second_stage_prints_rows_judged_so_far() {
    let pair = Pair::modified(|new| {
        for cell in ["kill-0", "load"] {
            scale(new, cell, "check", 1.1);
        }
    });
    let run = tontine()
        .arg("compare")
        .args([pair.path("before"), pair.path("after")])
        .args(["--format", "json", "--pairs", "10000"])
        .env("TONTINE_TEST", pair.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tontine runs");
    until_invocation(pair.folder.path());
    signal(&run, Signal::INT);
    let output = run.wait_with_output().expect("the process ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let comparison: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(comparison["complete"], false);
    until_none_is_left(pair.folder.path());
}
