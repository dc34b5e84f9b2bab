//! A comparison as JUnit XML: [`junit`], for CI systems that show the results of tests.
//!
//! A row is a test case, a regression a failure, and a row without a conclusion is skipped. The
//! properties of each case contain the change and the smallest difference that could have been
//! resolved, because a case that passes proves only that no larger difference exists.

use std::fmt::Write as _;

use super::report::{self, COLUMNS, ComparisonRow};
use super::{ComparedRow, Comparison, RowVerdict};
use crate::format::NOTHING;
use crate::sequence::grouped;

/// Result of a test case, with the message of a failure or of a skipped case.
enum CaseResult {
    Passed,
    Failed(String),
    Skipped(String),
}

struct TestCase {
    suite: String,
    name: String,
    properties: Vec<(&'static str, String)>,
    result: CaseResult,
    notes: String,
}

/// Formats the comparison as one XML document.
pub fn junit(comparison: &Comparison) -> String {
    let texts = report::rows(comparison);
    let mut cases: Vec<TestCase> =
        comparison.rows.iter().zip(&texts).map(|(row, text)| case(row, text)).collect();
    cases.extend(comparison.not_compared.iter().map(|one| TestCase {
        suite: "not compared".into(),
        name: one.name.clone(),
        properties: Vec::new(),
        result: match one.regression {
            true => CaseResult::Failed(format!("measured in A, failed in B: {}", one.why)),
            false => CaseResult::Skipped(one.why.clone()),
        },
        notes: String::new(),
    }));
    let all: Vec<&TestCase> = cases.iter().collect();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuites name=\"tontine-measure compare\"{}>", counts(&all));
    for (suite, of_it) in suites(&cases) {
        let _ = writeln!(out, "  <testsuite name=\"{}\"{}>", escaped(suite), counts(&of_it));
        for case in of_it {
            write_case(&mut out, case);
        }
        out.push_str("  </testsuite>\n");
    }
    if cases.is_empty() {
        // Some readers refuse a document without a suite.
        out.push_str("  <testsuite name=\"no row is in both runs\" tests=\"0\"/>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn case(row: &ComparedRow, text: &ComparisonRow) -> TestCase {
    let change = format!("{}: {} ({})", text.verdict, text.change, text.interval);
    let result = match row.verdict {
        _ if row.fails => CaseResult::Failed(format!("{}: {}", text.verdict, text.notes)),
        _ if row.regression => CaseResult::Failed(change),
        RowVerdict::Unsettled | RowVerdict::TooFew => CaseResult::Skipped(text.verdict.clone()),
        _ => CaseResult::Passed,
    };
    // The name of the case has the first two columns.
    let properties =
        COLUMNS[2..].iter().map(|column| (column.title, (column.text)(text).to_owned()));
    TestCase {
        suite: text.group.clone(),
        name: format!("{} {}", text.name, text.place).trim_end().into(),
        properties: properties.filter(|(_, value)| value != NOTHING && !value.is_empty()).collect(),
        result,
        notes: text.notes.clone(),
    }
}

/// Groups test cases by suite, in the order of their first cases.
fn suites(cases: &[TestCase]) -> Vec<(&str, Vec<&TestCase>)> {
    grouped(cases.iter().map(|case| (case.suite.as_str(), case)))
}

fn counts(cases: &[&TestCase]) -> String {
    let count =
        |fits: fn(&CaseResult) -> bool| cases.iter().filter(|case| fits(&case.result)).count();
    format!(
        " tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
        cases.len(),
        count(|result| matches!(result, CaseResult::Failed(_))),
        count(|result| matches!(result, CaseResult::Skipped(_))),
    )
}

fn write_case(out: &mut String, case: &TestCase) {
    let (suite, name) = (escaped(&case.suite), escaped(&case.name));
    let _ = writeln!(out, "    <testcase classname=\"{suite}\" name=\"{name}\">");
    if !case.properties.is_empty() {
        out.push_str("      <properties>\n");
        for (name, value) in &case.properties {
            let value = escaped(value);
            let _ = writeln!(out, "        <property name=\"{name}\" value=\"{value}\"/>");
        }
        out.push_str("      </properties>\n");
    }
    match &case.result {
        CaseResult::Passed => {}
        CaseResult::Failed(why) => {
            let why = escaped(why);
            let _ = writeln!(out, "      <failure message=\"{why}\" type=\"regression\"/>");
        }
        CaseResult::Skipped(why) => {
            let _ = writeln!(out, "      <skipped message=\"{}\"/>", escaped(why));
        }
    }
    if !case.notes.is_empty() {
        let _ = writeln!(out, "      <system-out>{}</system-out>", escaped(&case.notes));
    }
    out.push_str("    </testcase>\n");
}

/// Escapes text for an attribute or an element. Characters that XML 1.0 excludes become spaces.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::read::RunFiles;
    use crate::compare::screen::screen;
    use crate::compare::{NotCompared, Settled};
    use crate::fixture;

    /// A comparison of the fixture with itself, in which one row is judged by pairs.
    fn compared(row: impl FnOnce(&mut ComparedRow)) -> Comparison {
        let side = || RunFiles { path: "results.json".into(), results: fixture::run() };
        let mut comparison = screen(&side(), &side(), 0.0);
        row(&mut comparison.rows[0]);
        comparison.judge();
        comparison
    }

    fn worse(row: &mut ComparedRow) {
        let mut change = row.screen.change.expect("a change");
        (change.estimate, change.low, change.high) = (1.2, 1.1, 1.3);
        row.again = Some(Settled { change, pairs: 20, smallest: Some(0.013) });
    }

    #[test]
    fn regression_is_a_failure_and_states_what_could_be_resolved() {
        let text = junit(&compared(worse));
        assert!(text.contains("failures=\"1\" errors=\"0\""), "{text}");
        let wanted = "<failure message=\"WORSE: +20 % (+10 to +30 %)\" type=\"regression\"/>";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("<property name=\"could resolve\" value=\"1.3 %\"/>"), "{text}");
        let unchanged = junit(&compared(|_| {}));
        assert!(unchanged.contains("failures=\"0\"") && !unchanged.contains("<failure"));
    }

    #[test]
    fn each_row_is_one_case_and_tags_are_balanced() {
        let comparison = compared(worse);
        let text = junit(&comparison);
        let cases = comparison.rows.len() + comparison.not_compared.len();
        for tag in ["testsuites", "testsuite", "testcase", "properties"] {
            let count = |what: &str| text.matches(what).count();
            let open = count(&format!("<{tag} ")) + count(&format!("<{tag}>"));
            assert_eq!(open, count(&format!("</{tag}>")), "{tag}");
            assert!(tag != "testcase" || open == cases, "{open} of {cases}");
        }
        assert!(
            text.contains(&format!(
                "<testsuites name=\"tontine-measure compare\" tests=\"{cases}\""
            ))
        );
    }

    #[test]
    fn hostile_names_and_lost_rows_are_escaped() {
        let mut comparison = compared(|row| row.variant = "a<&\"\u{1b}>b".into());
        comparison.not_compared = vec![NotCompared {
            name: "x".into(),
            why: "failed: \"<no>\"".into(),
            regression: true,
        }];
        let text = junit(&comparison);
        assert!(text.contains("name=\"a&lt;&amp;&quot; &gt;b "), "{text}");
        assert!(text.contains("measured in A, failed in B: failed: &quot;&lt;no&gt;&quot;"));
        comparison.rows.clear();
        comparison.not_compared.clear();
        assert!(junit(&comparison).contains("tests=\"0\""));
    }
}
