//! Tests of the help, the manual page and the completions, and of output that is not read.

use std::process::Command;

use crate::common::{text, tontine};

#[test]
fn closed_stdout_causes_no_panic() {
    let output = Command::new("sh")
        .args(["-c", "\"$1\" man | head -n 1", "sh", crate::PROGRAM])
        .output()
        .expect("sh runs");
    assert!(!output.stdout.is_empty());
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
        for command in ["recv", "send", "bridge"] {
            assert!(text.contains(command), "{command} is missing in {text}");
        }
    }
    // The help names the commands of the other programs.
    for command in ["measure", "compare", "explain", "list", "doctor", "crash", "unix"] {
        assert!(of(&["--help"]).contains(command), "{command} is missing");
    }
}

/// Regression: without a terminal, or on a wider one, the help was wrapped at 100 columns.
#[test]
fn help_fits_80_columns_on_wide_and_narrow_terminals() {
    for name in ["recv", "send", "bridge"] {
        for columns in [None, Some(200), Some(60)] {
            let mut command = tontine();
            match columns {
                Some(columns) => command.env("COLUMNS", columns.to_string()),
                None => command.env_remove("COLUMNS"),
            };
            let output = command.args(["help", name]).output().expect("tontine runs");
            let most = columns.unwrap_or(80).min(80);
            for line in text(&output.stdout).lines() {
                // An example command has no space at which to break.
                let breaks = line.trim().contains(' ') && !line.starts_with("Usage: ");
                assert!(line.chars().count() <= most || !breaks, "{name}, {columns:?}: {line}");
            }
        }
    }
}
