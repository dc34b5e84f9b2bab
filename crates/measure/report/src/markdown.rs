//! A run as Markdown: [`markdown`], for a README, a commit message or an issue.
//!
//! The document starts with the verdict, the recommendations and the effects of kills; a table for
//! each experiment follows. It has the contents of [`super::text`], without charts; the tables of a
//! long run are shortened, so that the document fits into an issue.

use std::fmt::Write;

use tontine_bench::format::FormattedFigure;
use tontine_bench::format::escaped;
use tontine_bench::schema::Results;

use super::{tables, text, verdict};

/// Maximum number of characters of the document. GitHub accepts 65,536 in an issue or a comment.
const MAX_LENGTH: usize = 59_900;

pub fn markdown(results: &Results) -> String {
    let mut out = String::from("# What mechanisms cost on this machine\n\n");
    line(&mut out, &format!("{}.", verdict::run_line(results)));
    if !results.complete {
        line(
            &mut out,
            "\n**Incomplete: the run was interrupted; rows may rest on few invocations.**",
        );
    }
    let sentences = verdict::verdict(results);
    if !sentences.is_empty() {
        out.push('\n');
        for sentence in sentences {
            line(&mut out, &format!("- {}", escaped(&sentence.plain())));
        }
    }
    decisions(&mut out, results);
    survivors(&mut out, results);
    let left = MAX_LENGTH.saturating_sub(out.chars().count());
    out.push_str(&tables::fitting(&text::rows(results), left));
    out
}

fn decisions(out: &mut String, results: &Results) {
    line(out, "\n## What to choose here\n");
    record(out, ["question", "answer", "figures", "not measured"]);
    line(out, "| --- | --- | --- | --- |");
    for decision in verdict::decisions(results) {
        let figures: Vec<String> = decision
            .figures
            .iter()
            .map(|one| format!("{}: {}", one.name, one.shown.in_line()))
            .collect();
        let (answer, figures) = (decision.answer.plain(), figures.join("; "));
        record(out, [decision.question, &answer, &figures, &decision.missing.join("; ")]);
    }
}

fn survivors(out: &mut String, results: &Results) {
    let mechanisms = verdict::mechanisms(results);
    if mechanisms.is_empty() {
        return;
    }
    line(out, "\n## What a message costs, and what a kill does\n");
    record(out, ["mechanism", "one way", "survives?", "kills"]);
    line(out, "| --- | ---: | --- | --- |");
    for row in mechanisms {
        let price = row.one_way.and_then(FormattedFigure::of_cell).map(|shown| shown.in_line());
        let (answer, because) = row.fate.words();
        let price = price.unwrap_or_else(|| "not measured".into());
        record(out, [row.name, &price, answer, &because]);
    }
}

fn record<const FIELDS: usize>(out: &mut String, fields: [&str; FIELDS]) {
    let fields = fields.map(escaped);
    line(out, &format!("| {} |", fields.join(" | ")));
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn markdown_document_matches_snapshot() {
        insta::assert_snapshot!(markdown(&fixture::small()));
    }

    #[test]
    fn interrupted_run_is_marked_before_first_figure() {
        let mut results = fixture::small();
        results.complete = false;
        let text = markdown(&results);
        assert!(text.find("Incomplete").unwrap() < text.find("| variant").unwrap());
    }

    /// Regression: the document of a run with 1,275 cells had 370,000 characters, which no issue
    /// accepts.
    #[test]
    fn document_of_large_run_fits_into_an_issue() {
        let mut results = fixture::run();
        let cells = results.cells.clone();
        for copy in 0..20 {
            results.cells.extend(cells.iter().cloned().map(|mut cell| {
                cell.params.insert("copy".into(), copy.to_string());
                cell
            }));
        }
        assert!(results.cells.len() > 1_275);
        let text = markdown(&results);
        assert!(text.chars().count() <= MAX_LENGTH, "{}", text.chars().count());
        assert!(text.contains("**Shortened to fit into an issue.**"), "{text}");
        assert!(text.contains("`results.csv`"), "{text}");
        assert!(!markdown(&fixture::run()).contains("**Shortened"));
    }

    #[test]
    fn hostile_names_stay_within_table_cell() {
        let mut results = fixture::small();
        results.cells[0].variant = "a | b\n<script>".into();
        let text = markdown(&results);
        assert!(text.contains("| a \\| b \\<script\\> |"), "{text}");
    }
}
