//! Memory use of an exploration, which equals the memory use of one run, regardless of the number
//! of runs.

use std::fs;

use tontine_unix_lab::explore::Exploration;
use tontine_unix_lab::scenario::Scenario;

/// Returns the resident pages of this process.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages")
}

/// Regression: the records of a process's variables were kept for the whole exploration, about 300
/// bytes per process, and each run searched all of them. The test has its own file because other
/// tests use memory too.
#[test]
fn exploration_memory_is_constant_over_ten_thousand_runs() {
    let text = "process main\n  child = fork other\n  wait -> child exited 0\n\n\
                process other\n  getpid\n";
    let scenario: Scenario = text.parse().expect("a scenario");
    let exploration = Exploration::scenario(&scenario);
    let sample = |first, seeds| {
        let outcome = exploration.sample(first, seeds);
        assert_eq!((outcome.schedules, outcome.violation), (seeds, None));
    };
    sample(1, 1_000);
    let before = resident();
    sample(1_001, 9_000);
    let more = resident().saturating_sub(before);
    assert!(more < 256, "grew by {more} pages");
}
