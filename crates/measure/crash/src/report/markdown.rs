//! A report as part of a Markdown page: a table, with one reproducer per verdict.

use std::fmt::Write;
use std::time::Duration;

use super::text::{figures, legend, sampled, word};
use super::{CrashReport, OperationReport, plan};
use crate::mode::KillMode;
use crate::verdict::KillVerdict;

pub fn render(report: &CrashReport) -> String {
    let mut text = legends(report);
    text.push_str(
        " If a kill stands for several points, the number of points is in \
         brackets.\n\n| target | operation | mode | points | classes | explored | passed | wedged \
         | torn | lost | took | for example |\n| --- | --- | --- | --: | --: | --: | --: | --: | \
         --: | --: | --: | --- |\n",
    );
    for subject in &report.subjects {
        if let Some(trouble) = &subject.trouble {
            let _ = writeln!(text, "| {} | | | | | | | | | | | {trouble} |", subject.name);
        }
        for operation in &subject.operations {
            let (name, figures) = (operation.operation.name(), figures(operation));
            let _ = write!(text, "| {} | {name} | {} |", subject.name, operation.mode.name());
            let [points, classes, explored, passed, ..] = figures;
            let _ = write!(text, " {points} | {classes} | {explored} | {passed} |");
            for verdict in [KillVerdict::Wedged, KillVerdict::Torn, KillVerdict::Lost] {
                let kills =
                    operation.findings.iter().filter(|finding| finding.verdict == verdict).count();
                let points = operation.points_of(verdict);
                let _ = match (kills, points) {
                    (0, _) => write!(text, " 0 |"),
                    (kills, points) if kills == points => write!(text, " {kills} |"),
                    (kills, points) => write!(text, " {kills} ({points}) |"),
                };
            }
            let took = plan::length(Duration::from_millis(operation.took_ms));
            let _ = writeln!(text, " {took} | {} |", examples(operation));
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

/// Returns the legend of each mode that occurs in the report.
fn legends(report: &CrashReport) -> String {
    let modes = [KillMode::Fast, KillMode::Pairs, KillMode::Full];
    let is_there = |mode: &KillMode| {
        let mut all = report.subjects.iter().flat_map(|subject| &subject.operations);
        all.any(|one| one.mode == *mode)
    };
    let said: Vec<String> = modes
        .into_iter()
        .filter(is_there)
        .map(|mode| format!("`{}`: {}.", mode.name(), legend(mode)))
        .collect();
    said.join(" ")
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
        all.push("killed only around its system calls".to_owned());
    }
    all.extend(sampled(one));
    let left = |why| format!("not explored: {} (first: {why})", one.not_explored);
    all.extend(one.diverged.as_ref().map(left));
    all.extend(one.trouble.clone());
    all.join("; ")
}
