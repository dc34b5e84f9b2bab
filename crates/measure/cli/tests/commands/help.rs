//! Tests of the help, the manual page and the completions, and of output that is not read.

use std::process::Command;

use crate::common::{text, tontine};

#[test]
fn closed_stdout_causes_no_panic() {
    let output = Command::new("sh")
        .args(["-c", "\"$1\" list | head -n 1", "sh", crate::PROGRAM])
        .output()
        .expect("sh runs");
    assert_eq!(text(&output.stdout), "round-trip\n");
    assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
}

#[test]
fn help_manual_and_completions_name_every_command() {
    let of = |arguments: &[&str]| {
        let output = tontine().args(arguments).output().expect("tontine-measure runs");
        assert!(output.status.success(), "{arguments:?}");
        text(&output.stdout)
    };
    for text in [of(&["--help"]), of(&["man"]), of(&["completions", "bash"])] {
        for command in ["quick", "compare", "explain", "list", "doctor", "crash"] {
            assert!(text.contains(command), "{command} is missing in {text}");
        }
        for hidden in ["Serve one invocation", "Serve as one end", "Serve as a worker"] {
            assert!(!text.contains(hidden), "a hidden command is shown");
        }
    }
}
