//! Tests of the help, the manual page and the completions, and of output that is not read.

use std::process::Command;

use crate::common::{text, tontine};

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
