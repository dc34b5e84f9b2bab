//! Tests of the GitHub Action: its script `.ci/compare-action`, and the form of `action.yml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{text, write_program};
use crate::measure;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn compare_action(arguments: &[&str]) -> Output {
    Command::new(root().join(".ci/compare-action"))
        .args(arguments)
        .env("INVOCATIONS", "6")
        .env("PAIRS", "20")
        .env("THRESHOLD", "900")
        .output()
        .expect("the script runs")
}

#[test]
fn action_script_reports_verdict_and_resolution() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.md");
    let report = report.to_str().expect("a path");
    // The program copies a run instead of measuring. The script passes `--out` fifth.
    let this = folder.path().join("tontine");
    let results = folder.path().join("results.json");
    fs::write(&results, measure::RUN.results().to_string()).expect("a file");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = measure ] || exec '{}' \"$@\"\n\
         [ \"$5\" = --out ] && mkdir \"$6\" && cp '{}' \"$6\"\n",
        crate::PROGRAM,
        results.display()
    );
    write_program(&this, &script);
    let this = this.to_str().expect("a path");
    let names = ["liveness-check/load", "liveness-check/kill-0"];
    let output = compare_action(&[&[this, this, report], &names[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let written = fs::read_to_string(report).expect("a report");
    assert!(written.starts_with("**No row is worse by more than 900 %"), "{written}");
    let line = "Smallest difference that could have been resolved, by row: ";
    let (_, figures) = written.split_once(line).expect("the resolution");
    assert!(figures.lines().next().is_some_and(|line| line.ends_with("%.")), "{written}");
    assert!(written.contains("| could resolve |") && written.contains("| kill-0 |"), "{written}");
    assert!(written.chars().count() < 65_536);

    // A program that measures nothing is an error of the script and not a regression.
    let output = compare_action(&[this, "/bin/false", report, "liveness-check/load"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("measuring head"), "{}", text(&output.stderr));
    assert_eq!(compare_action(&[this]).status.code(), Some(2));
}

/// Returns the top-level keys of a YAML mapping, or the keys below one of them, by indentation.
fn keys<'a>(lines: &[&'a str], indent: usize) -> Vec<&'a str> {
    let at = |line: &&&str| line.len() - line.trim_start().len() == indent && !line.is_empty();
    let key = |line: &&'a str| line.trim_start().split_once(':').map(|(key, _)| key);
    lines.iter().filter(at).filter_map(key).collect()
}

/// The form that GitHub requires of a composite action, and two rules against mistakes: each input
/// is used and declared, and no expression is expanded inside a script.
#[test]
fn action_metadata_is_complete_and_scripts_expand_no_expression() {
    let action = fs::read_to_string(root().join("action.yml")).expect("action.yml");
    let lines: Vec<&str> = action.lines().collect();
    let top = keys(&lines, 0);
    assert_eq!(top, ["name", "description", "author", "inputs", "outputs", "runs"]);
    let section = |name: &str| -> Vec<&str> {
        let after = lines.iter().skip_while(|line| **line != format!("{name}:")).skip(1);
        after.take_while(|line| line.is_empty() || line.starts_with(' ')).copied().collect()
    };
    let runs = section("runs");
    assert!(runs.contains(&"  using: composite") && runs.contains(&"  steps:"));
    let (_, steps) = action.split_once("  steps:\n").expect("steps");
    for step in steps.split("\n    - ").filter(|step| !step.trim().is_empty()) {
        assert!(step.contains("      shell: bash\n"), "a step without a shell:\n{step}");
        let (head, script) = step.split_once("      run: ").expect("a script");
        assert!(!script.contains("${{"), "an expression in a script:\n{script}");
        assert!(head.contains("name: "), "{step}");
    }
    let declared: BTreeSet<&str> = keys(&section("inputs"), 2).into_iter().collect();
    let used = action.split("inputs.").skip(1).map(|rest| {
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default()
    });
    assert_eq!(used.collect::<BTreeSet<_>>(), declared);
    for input in section("inputs").split(|line| keys(&[*line], 2).len() == 1).skip(1) {
        assert_eq!(keys(input, 4), ["description", "default"], "{input:?}");
    }
}
