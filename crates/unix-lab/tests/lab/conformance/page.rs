//! Rendering of the conformance lists as `docs/evidence/conformance.md` and
//! `docs/evidence/conformance-further.md`: [`page`].

use std::fmt::Write as _;

use super::claim::{Claim, REASONS, ScenarioVerdict};
use super::suite::{Suite, Tally};

/// The text that follows the head of each page.
const VERDICTS: &str = "
- *holds*: the named tests show it. Tests of `sim::rules` and `sim::jobs` run on the virtual Unix in
  every mode, simulated and parallel, and most of them on Linux too; tests of `linux` run on Linux
  only.
- *n/a*: the assertion does not apply to this crate, for one of the reasons below.
- *open*: the assertion does not hold, or no test here shows it.

The assertions are restated, and those about the form of a C interface are translated to ours: −1
with an `errno` is an `Err`. `Signal::new` refuses an invalid signal number before any system call.

";

/// Returns the page that begins with `head` and contains the lists `suites`.
pub(crate) fn page(head: &str, suites: &[Suite]) -> String {
    let mut page = format!("{head}{VERDICTS}");
    push_counts(&mut page, suites);
    push_reasons(&mut page, suites);
    push_open(&mut page, suites);
    for suite in suites {
        push_suite(&mut page, suite);
    }
    page
}

fn push_counts(page: &mut String, suites: &[Suite]) {
    page.push_str("| suite | assertions | holds | open | n/a | holds, of applicable | n/a |\n");
    page.push_str("| --- | --: | --: | --: | --: | --: | --: |\n");
    let mut rows: Vec<_> = suites.iter().map(|suite| (suite.about.title, suite.tally())).collect();
    rows.push(("all", suites.iter().map(Suite::tally).sum()));
    let proper = suites.iter().filter(|suite| suite.about.proper);
    if proper.clone().count() < suites.len() {
        rows.push(("all but the additional cases", proper.map(Suite::tally).sum()));
    }
    for (title, tally) in rows {
        push(page, &format!("| {title} {}", counts(tally)));
    }
}

fn counts(tally: Tally) -> String {
    let percent = |part: usize, whole: usize| format!("{:.1} %", share(part, whole));
    format!(
        "| {} | {} | {} | {} | {} | {} |",
        tally.all(),
        tally.holds,
        tally.open,
        tally.not_applicable,
        percent(tally.holds, tally.applies()),
        percent(tally.not_applicable, tally.all()),
    )
}

/// Returns `part` of `whole` in percent.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn push_reasons(page: &mut String, suites: &[Suite]) {
    let titles: Vec<_> = suites.iter().map(|suite| suite.about.title).collect();
    push(page, "\n## Reasons for assertions that do not apply\n");
    push(page, &format!("| reason | | {} |", titles.join(" | ")));
    push(page, &format!("| --- | --- |{}", " --: |".repeat(suites.len())));
    for reason in &REASONS {
        let is_it = |claim: &&Claim| claim.verdict == ScenarioVerdict::NotApplicable(reason);
        let count = |suite: &Suite| suite.claims.iter().filter(is_it).count().to_string();
        let counts: Vec<_> = suites.iter().map(count).collect();
        push(page, &format!("| {} | {} | {} |", reason.key, reason.means, counts.join(" | ")));
    }
}

fn push_open(page: &mut String, suites: &[Suite]) {
    push(page, "\n## Open assertions\n");
    let mut none = true;
    for suite in suites {
        for claim in &suite.claims {
            if let ScenarioVerdict::Open(why) = &claim.verdict {
                let (title, group, name) = (suite.about.title, &claim.group, &claim.name);
                push(page, &wrapped(&format!("- {title}, {group} {name}: {}: {why}", claim.asks)));
                none = false;
            }
        }
    }
    if none {
        push(page, "None.");
    }
}

fn push_suite(page: &mut String, suite: &Suite) {
    push(page, &format!("\n## {}\n\n{}", suite.about.title, wrapped(suite.about.counted)));
    let mut group = "";
    for claim in &suite.claims {
        if claim.group != group {
            group = &claim.group;
            push(page, &format!("\n### {group}\n\n| | assertion | |\n| --: | --- | --- |"));
        }
        push(page, &format!("| {} | {} | {} |", claim.name, claim.asks, verdict(&claim.verdict)));
    }
}

fn verdict(verdict: &ScenarioVerdict) -> String {
    match verdict {
        ScenarioVerdict::Holds(tests) => {
            let tests: Vec<_> = tests.iter().map(|test| format!("`{test}`")).collect();
            format!("holds: {}", tests.join(", "))
        }
        ScenarioVerdict::NotApplicable(reason) => format!("n/a: {}", reason.key),
        ScenarioVerdict::Open(why) => format!("*open*: {why}"),
    }
}

/// Columns of the page, except in tables.
const COLUMNS: usize = 100;

/// Wraps a paragraph into lines. In a list item, the later lines are indented like the item's text.
fn wrapped(text: &str) -> String {
    let under = if text.starts_with("- ") { "\n  " } else { "\n" };
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            lines.push_str(under);
            column = under.len() - 1;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

fn push(page: &mut String, line: &str) {
    writeln!(page, "{line}").expect("a string grows");
}
