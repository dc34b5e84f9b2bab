//! The conformance lists as one table, `docs/evidence/conformance.md`: [`page`].

use std::fmt::Write as _;

use super::claim::{REASONS, Verdict};
use super::{SUITES, Tally};

const HEAD: &str = "\
# Conformance

The assertions about processes and signals in the test suites for POSIX and Linux, and in the tests
of two other systems, a C library and two languages, restated in our words, and how many of them our
tests show. The lists in
[crates/unix/lab/tests/lab/conformance](../../crates/unix/lab/tests/lab/conformance) contain each
assertion with the tests that show it. Most of those are scenarios: `examples::tracing::detach` is
[examples/unix/tracing/detach.unix](../../examples/unix/tracing/detach.unix), which runs on the
virtual Unix in every mode, on Linux, and on both in lock-step, unless it needs something that is
not available there. Tests of `sim::rules` and `sim::jobs` run on the virtual Unix in every mode,
and most of them on Linux too; tests of `linux` run on Linux only.

- *holds*: a test shows it.
- *n/a*: the assertion does not apply to this crate, for one of the reasons below.
- *open*: the assertion does not hold, or no test here shows it.

A test compares this page with the lists, and `WRITE_DOCS=1 cargo test -p tontine-unix-lab --test
lab conformance` writes it. Another test checks that each named test exists.

| suite | counted | assertions | holds | open | n/a | holds, of applicable |
| --- | --- | --: | --: | --: | --: | --: |
";

const ADDITIONAL: &str = "
The versions that were read are in the lists. An assertion counts once, regardless of the number of
programs that check it. One that concerns the form of a C interface is translated to ours: −1 with
an `errno` is an `Err`, and `Signal::new` refuses an invalid signal number before any system call.

## Reasons for assertions that do not apply

| reason | | assertions |
| --- | --- | --: |
";

/// Returns the page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    for suite in &SUITES {
        push_row(&mut page, suite.title, suite.counted, suite.tally());
    }
    push_row(&mut page, "all", "", Tally::sum(|_| true));
    page.push_str(ADDITIONAL);
    let claims: Vec<_> = SUITES
        .iter()
        .flat_map(|suite| suite.claims().into_iter().map(move |it| (suite, it)))
        .collect();
    for reason in &REASONS {
        let is_it = |verdict: &Verdict| *verdict == Verdict::NotApplicable(reason);
        let count = claims.iter().filter(|(_, claim)| is_it(&claim.verdict)).count();
        push(&mut page, &format!("| {} | {} | {count} |", reason.key, reason.means));
    }
    push(&mut page, "\n## Open assertions\n");
    for (suite, claim) in &claims {
        if let Verdict::Open(why) = &claim.verdict {
            let (title, group, name) = (suite.title, &claim.group, &claim.name);
            let text = format!("- {title}, {group} {name}: {}: {why}", claim.assertion);
            push(&mut page, &wrapped(&text));
        }
    }
    page
}

fn push_row(page: &mut String, title: &str, counted: &str, tally: Tally) {
    let Tally { holds, open, not_applicable } = tally;
    let share = holds as f64 * 100.0 / tally.applies().max(1) as f64;
    let all = tally.all();
    push(
        page,
        &format!(
            "| {title} | {counted} | {all} | {holds} | {open} | {not_applicable} | {share:.1} % |"
        ),
    );
}

/// Wraps a list item into lines of 100 columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(format!("  {word}"));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n")
}

fn push(page: &mut String, line: &str) {
    writeln!(page, "{line}").expect("a string grows");
}
