//! Helpers for the tests of the explorer.

use tontine_crash::explore::{Observer, select};
use tontine_crash::report::{CrashReport, OperationReport, text};
use tontine_crash::worker_launcher::WorkerLauncher;
use tontine_crash::{ExploreRequest, KillMode, run};

struct Quiet;

impl Observer for Quiet {
    fn progress(&self, _subject: &str, _operation: &str, _done: usize, _of: usize) {}

    fn stopped(&self) -> bool {
        false
    }
}

/// Explores a target with this package's worker, and prints the report.
pub(crate) fn explore(name: &str, ask: impl FnOnce(&mut ExploreRequest)) -> CrashReport {
    let subjects = select::subjects(&[name.to_owned()]).expect("a known subject");
    let mut request = ExploreRequest {
        subjects,
        mode: KillMode::Fast,
        operation: None,
        point: None,
        sample: None,
    };
    ask(&mut request);
    let program = env!("CARGO_BIN_EXE_tontine-crash-actor").into();
    let report = run(&request, &WorkerLauncher { program, arguments: Vec::new() }, &Quiet);
    println!("{}", text::render(&report));
    report
}

/// Returns the operations of the only subject, or `None` if the machine does not permit tracing.
pub(crate) fn operations(report: &CrashReport) -> Option<&[OperationReport]> {
    let subject = &report.subjects[0];
    let mut troubles = subject.operations.iter().filter_map(|one| one.trouble.as_ref());
    if let Some(trouble) = subject.trouble.as_ref().or_else(|| troubles.next()) {
        assert!(trouble.starts_with("skipped: "), "{}: {trouble}", subject.name);
        println!("{trouble}");
        return None;
    }
    assert!(!subject.operations.is_empty(), "{} has no operation", subject.name);
    for one in &subject.operations {
        let kinds = [one.passed, one.wedged, one.torn, one.lost];
        assert_eq!(kinds.iter().sum::<usize>(), one.explored, "every kill has one verdict");
        assert!(one.explored > 0 && one.classes <= one.points, "{one:?}");
    }
    Some(&subject.operations)
}
