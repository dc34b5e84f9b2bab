//! The work of a pseudo-user: [`Script`], for `/bin/sh` and the machine's utilities.
//!
//! The steps are in `script.sh`. A line that begins with `#:` begins a step and names the utilities
//! that it needs; if one is missing, the step is omitted. Steps check their results, so a session
//! that reports success has done all of its work.

use std::fmt::Write as _;

use tontine_bench::os::program::find;

use crate::prelude::*;

/// The first line that a session prints.
pub(super) const BEGINS: &str = "pseudo-user: begins";
/// The last line that a session prints, if all steps succeeded.
pub(super) const DONE: &str = "pseudo-user: done";
/// Number of lines of the text that a session works on.
const LINES: usize = 2_000;

const TEMPLATE: &str = include_str!("script.sh");

#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    /// The utilities that the script would use, but that are missing.
    pub(super) missing: Vec<&'static str>,
}

impl Script {
    /// Creates a script that runs all steps `iterations` times. Skips if fewer than two thirds of
    /// the steps are possible.
    pub(super) fn new(iterations: usize) -> Result<Self> {
        Self::with(iterations, |utility| find(utility).is_some())
    }

    fn with(iterations: usize, exists: impl Fn(&str) -> bool) -> Result<Self> {
        let mut parts = TEMPLATE.split("#:");
        let mut text = parts.next().unwrap_or_default().replace("BEGINS", BEGINS);
        text = text.replace("ITERATIONS", &iterations.to_string());
        let (mut missing, mut omitted, mut first) = (Vec::new(), 0, true);
        let steps: Vec<_> = parts.filter_map(|part| part.split_once('\n')).collect();
        for &(needs, step) in &steps {
            let lacks: Vec<&str> = needs.split_whitespace().filter(|name| !exists(name)).collect();
            if lacks.is_empty() {
                text.push_str(step);
            } else {
                // The first step creates the text for the other steps.
                omitted += if first { steps.len() } else { 1 };
                missing.extend(lacks);
            }
            first = false;
        }
        missing.sort_unstable();
        missing.dedup();
        if 3 * omitted > steps.len() + 1 {
            skip!(
                "needs the utilities of a user, and found no {}: too few of {} steps are possible",
                missing.join(", "),
                steps.len() - 1
            );
        }
        Ok(Self { text: text.replace("DONE", DONE), missing })
    }
}

/// Returns the text that a session works on, which is the same for all sessions.
pub(super) fn input() -> String {
    const WORDS: [&str; 12] = [
        "signal", "process", "session", "master", "kernel", "thread", "lock", "vnode", "socket",
        "terminal", "group", "parent",
    ];
    let mut text = String::new();
    let mut state: u32 = 1993;
    for line in 1..=LINES {
        let mut word = || {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            WORDS[(state >> 16) as usize % WORDS.len()]
        };
        let (first, second, third) = (word(), word(), word());
        let _ = writeln!(text, "{line} {first} {second} {third} {}", line * 7 % 1000);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_step_without_its_utility_is_omitted() {
        let whole = Script::with(1, |_| true).expect("all are there");
        assert!(whole.missing.is_empty() && whole.text.contains("gzip -c"));
        let bare = Script::with(1, |name| name != "gzip").expect("all but one");
        assert_eq!(bare.missing, ["gzip"]);
        assert!(!bare.text.contains("gzip -c") && bare.text.ends_with(&format!("\"{DONE}\"\n")));
    }

    #[test]
    fn script_without_enough_utilities_skips_and_names_them() {
        let without = ["tr", "cmp", "sort", "head", "grep"];
        let found = Script::with(1, |name| !without.contains(&name)).expect_err("too few");
        assert!(
            matches!(&found, MeasureError::Skipped(why) if why.contains("no cmp, grep")),
            "{found}"
        );
    }

    #[test]
    fn session_input_has_the_expected_lines_and_words() {
        let text = input();
        assert_eq!(text.lines().count(), LINES);
        for words in ["signal process", "parent", "lock", "kernel"] {
            assert!(text.contains(words), "no {words}");
        }
    }
}
