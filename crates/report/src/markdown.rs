//! A run as Markdown: [`markdown`], for a README, a commit message or an issue.
//!
//! The document starts with the verdict, the recommendations and the effects of kills; a table for
//! each experiment follows. It has the contents of [`super::text`], without charts.

use std::fmt::Write;

use tontine_bench::format::FormattedFigure;
use tontine_bench::format::escaped;
use tontine_bench::schema::Results;

use super::text::{self, TextRow};
use super::verdict;

/// Returns the run as one Markdown document.
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
    let rows = text::rows(results);
    let mut experiments: Vec<&str> = Vec::new();
    for row in &rows {
        if !experiments.contains(&row.experiment.as_str()) {
            experiments.push(&row.experiment);
        }
    }
    for experiment in experiments {
        line(&mut out, &format!("\n## {}\n", escaped(experiment)));
        table(&mut out, rows.iter().filter(|row| row.experiment == experiment));
    }
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

fn table<'a>(out: &mut String, rows: impl Iterator<Item = &'a TextRow>) {
    record(
        out,
        [
            "variant",
            "metric",
            "parameters",
            "estimate",
            "interval",
            "floor",
            "p99",
            "published",
            "ratio",
            "notes",
        ],
    );
    line(out, "| --- | --- | --- | ---: | --- | ---: | ---: | --- | --- | --- |");
    for row in rows {
        record(
            out,
            [
                &row.name,
                &row.metric,
                &row.params,
                &row.estimate,
                &row.interval,
                &row.floor,
                &row.p99,
                &row.published,
                &row.ratio,
                &row.notes,
            ],
        );
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
    use tontine_bench::fixture;

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

    #[test]
    fn hostile_names_stay_within_table_cell() {
        let mut results = fixture::small();
        results.cells[0].variant = "a | b\n<script>".into();
        let text = markdown(&results);
        assert!(text.contains("| a \\| b \\<script\\> |"), "{text}");
    }
}
