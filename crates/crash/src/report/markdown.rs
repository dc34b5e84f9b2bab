//! A report as a part of a Markdown page: a table with one reproducer a verdict.

use std::fmt::Write;

use super::text::{figures, legend, word};
use super::{OperationReport, Report};
use crate::explore::verdict::Verdict;

/// Writes the part.
pub fn render(report: &Report) -> String {
    let mut text = format!(
        "Each row: {}. In brackets, the points that these kills stand for.\n\n\
         | target | operation | points | classes | explored | passed | wedged | torn | lost \
         | for example |\n\
         | --- | --- | --: | --: | --: | --: | --: | --: | --: | --- |\n",
        legend(report.mode)
    );
    for subject in &report.subjects {
        if let Some(trouble) = &subject.trouble {
            let _ = writeln!(text, "| {} | | | | | | | | | {trouble} |", subject.name);
        }
        for operation in &subject.operations {
            let (name, figures) = (operation.operation.name(), figures(operation));
            let _ = write!(text, "| {} | {name} |", subject.name);
            let [points, classes, explored, passed, ..] = figures;
            let _ = write!(text, " {points} | {classes} | {explored} | {passed} |");
            for verdict in [Verdict::Wedged, Verdict::Torn, Verdict::Lost] {
                let kills =
                    operation.findings.iter().filter(|finding| finding.verdict == verdict).count();
                let points = operation.points_of(verdict);
                let _ = match (kills, points) {
                    (0, _) => write!(text, " 0 |"),
                    (kills, points) if kills == points => write!(text, " {kills} |"),
                    (kills, points) => write!(text, " {kills} ({points}) |"),
                };
            }
            let _ = writeln!(text, " {} |", examples(operation));
        }
    }
    text.push('\n');
    for subject in &report.subjects {
        let _ = write!(text, "- **{}**: {}.", subject.name, subject.summary);
        if !subject.caveat.is_empty() {
            let _ = write!(text, " {}.", subject.caveat);
        }
        text.push('\n');
    }
    text
}

fn examples(one: &OperationReport) -> String {
    let mut all: Vec<String> = one
        .examples()
        .map(|finding| {
            let then = finding.then.map_or_else(String::new, |then| format!("+{then}"));
            let (verdict, point) = (word(finding.verdict), finding.point);
            format!("{verdict}: `--point {point}{then}`, {}", finding.detail)
        })
        .collect();
    if !one.stepped {
        all.push("around its system calls only".to_owned());
    }
    all.extend(one.diverged.as_ref().map(|_| format!("not explored: {}", one.not_explored)));
    all.extend(one.trouble.clone());
    all.join("; ")
}
