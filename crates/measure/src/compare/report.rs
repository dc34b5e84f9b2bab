//! A comparison in words: [`head`], [`rows`], [`tail`], and all of it as [`markdown`].
//!
//! The command line sets the rows into tables; JSON is the [`Comparison`] itself.

use std::fmt::Write as _;

use super::direction::Direction;
use super::{Again, Change, Comparison, Row, Scale, Verdict};
use crate::experiment;
use crate::report::format::{self, NOTHING};
use crate::report::markdown::escaped;

/// One row of a table, all cells formatted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRow {
    /// Experiment and metric, to group by.
    pub group: String,
    /// Name of the variant.
    pub name: String,
    /// The parameters in short.
    pub place: String,
    /// The base's figure.
    pub base: String,
    /// The new run's.
    pub new: String,
    /// `+9.1 %`.
    pub change: String,
    /// `+5.0 to +12.3 %`.
    pub interval: String,
    /// The smallest difference that could have been resolved.
    pub smallest: String,
    /// The conclusion.
    pub verdict: String,
    /// What it rests on: `screen`, `23 pairs`.
    pub by: String,
    /// What has to be said beside it.
    pub notes: String,
}

/// All rows that both runs have.
pub fn rows(comparison: &Comparison) -> Vec<TextRow> {
    comparison.rows.iter().map(text_row).collect()
}

fn text_row(row: &Row) -> TextRow {
    let change = row.change();
    let mut notes = row.notes.clone();
    if row.worse == Direction::Unknown {
        notes.push(format!(
            "whether more {} of {} is better or worse is not known: never a regression",
            row.unit, row.metric
        ));
    }
    TextRow {
        group: format!("{}: {}", row.experiment, row.metric),
        name: row.variant.clone(),
        place: experiment::short(&row.params).rev().collect::<Vec<_>>().join(" "),
        base: format::single(&row.unit, row.base),
        new: format::single(&row.unit, row.new),
        change: change.map_or_else(|| NOTHING.into(), |change| estimate(row, change)),
        interval: change.map_or_else(|| NOTHING.into(), |change| interval(row, change)),
        smallest: row.smallest().map_or_else(|| NOTHING.into(), |amount| amount_of(row, amount)),
        verdict: verdict(row).into(),
        by: match &row.again {
            Some(again) => format!("{} pairs", again.pairs),
            None => "screen".into(),
        },
        notes: notes.join("; "),
    }
}

/// A row's conclusion in words. Never "the same".
fn verdict(row: &Row) -> &'static str {
    match row.verdict {
        Verdict::Worse if row.regression => "WORSE",
        Verdict::Worse => "worse, within the threshold",
        Verdict::Better => "better",
        Verdict::Changed => "changed",
        Verdict::NoneResolved => "no difference resolved",
        Verdict::NotConfirmed => "not confirmed: no difference resolved",
        Verdict::Unsettled => "flagged, not settled",
        Verdict::TooFew if row.screen.flagged => "apart, but too few invocations",
        Verdict::TooFew => "too few invocations",
    }
}

/// How a row's changes are written: a factor, digits and a unit behind.
struct Style {
    factor: f64,
    unit: String,
    /// What "no change" is subtracted as.
    none: f64,
}

impl Style {
    fn of(row: &Row) -> Self {
        let none = row.scale.none();
        match row.scale {
            Scale::Quotient => Self { factor: 100.0, unit: "%".into(), none },
            Scale::Difference if row.unit == "share" => {
                Self { factor: 100.0, unit: "points".into(), none }
            }
            Scale::Difference => Self { factor: 1.0, unit: row.unit.clone(), none },
        }
    }

    fn signed(&self, change: f64, digits: usize) -> String {
        let value = (change - self.none) * self.factor;
        let text = format!("{value:+.digits$}");
        // A rounded zero has no sign.
        match text.trim_start_matches(['+', '-']).bytes().any(|b| (b'1'..=b'9').contains(&b)) {
            true => text.replace('-', "−"),
            false => text.trim_start_matches(['+', '-']).into(),
        }
    }

    fn digits(&self, change: Change) -> usize {
        let width = (change.high - change.low) * self.factor;
        if width > 0.0 && width.is_finite() {
            ((-width.log10()).ceil() + 1.0).clamp(0.0, 3.0) as usize
        } else {
            1
        }
    }
}

fn estimate(row: &Row, change: Change) -> String {
    let style = Style::of(row);
    format!("{} {}", style.signed(change.estimate, style.digits(change)), style.unit)
}

fn interval(row: &Row, change: Change) -> String {
    let style = Style::of(row);
    let [low, high] = [change.low, change.high].map(|end| style.signed(end, style.digits(change)));
    format!("{low} to {high} {}", style.unit)
}

fn amount_of(row: &Row, amount: f64) -> String {
    let style = Style::of(row);
    let value = amount * style.factor;
    match value {
        ..0.05 if row.scale == Scale::Quotient => format!("< 0.1 {}", style.unit),
        ..10.0 => format!("{value:.1} {}", style.unit),
        _ => format!("{value:.0} {}", style.unit),
    }
}

/// What is compared, where it was made, and what makes the comparison doubtful.
pub fn head(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, side) in [("A, before", &comparison.base), ("B, after", &comparison.new)] {
        let size = format!("{:?}", side.size).to_lowercase();
        lines.push(format!("{name}: {}: {}, {size}, {}", side.path, side.started, side.machine));
    }
    if !comparison.machines.is_empty() {
        lines.push("Two machines, or one in two states; figures follow the machine too:".into());
        for one in &comparison.machines {
            lines.push(format!("  {}: {} → {}", one.fact, one.base, one.new));
        }
    }
    if !comparison.builds.is_empty() {
        lines.push("The builds differ:".into());
        for one in &comparison.builds {
            lines.push(format!("  {}: {} → {}", one.fact, one.base, one.new));
        }
    }
    lines.extend(comparison.warnings.iter().map(|warning| format!("Note: {warning}.")));
    lines
}

/// How it came out: what was not compared, how the flagged rows were settled, and the count.
pub fn tail(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    if !comparison.not_compared.is_empty() {
        lines.push("Not compared:".into());
        lines.extend(
            comparison.not_compared.iter().map(|one| format!("  {}: {}", one.name, one.why)),
        );
    }
    if !comparison.answers.is_empty() {
        lines.push("Other answers to the same event:".into());
        lines.extend(comparison.answers.iter().map(|one| {
            format!(
                "  {}, {}: {} → {} (the truth: {})",
                one.mechanism, one.event, one.base, one.new, one.truth
            )
        }));
    }
    let flagged = comparison.flagged().len();
    match &comparison.again {
        Again::NotNeeded => {}
        Again::NotMade { why } => lines.push(format!(
            "Screened only, {flagged} of {} rows flagged: {why}.",
            comparison.rows.len()
        )),
        Again::Made { base, new, .. } => lines.push(format!(
            "{flagged} of {} rows flagged and measured again in pairs, {base} against {new}.",
            comparison.rows.len()
        )),
    }
    if !comparison.complete {
        lines.push("Ended early: what was settled by then stands above.".into());
    }
    lines.push(count(comparison));
    lines
}

fn count(comparison: &Comparison) -> String {
    let of = |verdicts: &[Verdict]| {
        comparison.rows.iter().filter(|row| verdicts.contains(&row.verdict)).count()
    };
    let regressions = comparison.regressions;
    let within = of(&[Verdict::Worse]) - regressions;
    let parts = [
        (regressions, "worse"),
        (within, "worse within the threshold"),
        (of(&[Verdict::Better]), "better"),
        (of(&[Verdict::Changed]), "changed"),
        (of(&[Verdict::Unsettled]), "flagged and not settled"),
        (of(&[Verdict::NoneResolved, Verdict::NotConfirmed]), "no difference resolved"),
        (of(&[Verdict::TooFew]), "too few invocations"),
    ];
    let said = parts.iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> = said.map(|(count, what)| format!("{count} {what}")).collect();
    let rows = comparison.rows.len();
    if rows == 0 {
        return "No row is in both runs.".into();
    }
    format!("{rows} {}: {}.", if rows == 1 { "row" } else { "rows" }, said.join(", "))
}

/// The comparison as one Markdown document.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = String::from("# Comparison\n\n");
    let list = |out: &mut String, lines: Vec<String>| {
        for line in lines {
            let (indent, text) = match line.strip_prefix("  ") {
                Some(text) => ("  ", text),
                None => ("", line.as_str()),
            };
            let _ = writeln!(out, "{indent}- {}", escaped(text));
        }
    };
    list(&mut out, head(comparison));
    let rows = rows(comparison);
    let mut groups: Vec<&str> = Vec::new();
    for row in &rows {
        if !groups.contains(&row.group.as_str()) {
            groups.push(&row.group);
        }
    }
    for group in groups {
        let _ = writeln!(out, "\n## {}\n", escaped(group));
        out.push_str(
            "| variant | where | A | B | change | interval | could resolve | verdict | by | \
             notes |\n\
             | --- | --- | ---: | ---: | ---: | --- | ---: | --- | --- | --- |\n",
        );
        for row in rows.iter().filter(|row| row.group == group) {
            let fields = [
                &row.name,
                &row.place,
                &row.base,
                &row.new,
                &row.change,
                &row.interval,
                &row.smallest,
                &row.verdict,
                &row.by,
                &row.notes,
            ];
            let _ = writeln!(out, "| {} |", fields.map(|field| escaped(field)).join(" | "));
        }
    }
    out.push('\n');
    list(&mut out, tail(comparison));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::read::Side;
    use crate::compare::screen::screen;
    use crate::report::fixture;
    use crate::report::schema::Results;

    fn side(results: Results) -> Side {
        Side { path: "results.json".into(), results }
    }

    /// The fixture beside itself, one row of it made `factor` times as large.
    fn against(variant: &str, factor: f64) -> Comparison {
        let mut new = fixture::run();
        let cell = new.cells.iter_mut().find(|cell| cell.variant == variant).unwrap();
        for one in &mut cell.invocations {
            one.summary.median *= factor;
            one.summary.mean *= factor;
        }
        screen(&side(fixture::run()), &side(new), 0.0)
    }

    #[test]
    fn every_row_says_what_it_could_have_resolved_and_none_is_called_the_same() {
        let comparison = against("flag", 1.0);
        let rows = rows(&comparison);
        let measured = fixture::run().cells.iter().filter(|cell| cell.estimate.is_some()).count();
        assert_eq!(rows.len(), measured);
        for row in &rows {
            assert_eq!(row.verdict, "no difference resolved", "{row:?}");
            assert!(row.smallest.ends_with(['%', 's']) && row.smallest != "0", "{row:?}");
        }
        let text = markdown(&comparison);
        assert!(!text.contains("the same"), "{text}");
        // What neither run has is told with its reason.
        assert!(text.contains("no Docker engine answers"), "{text}");
    }

    #[test]
    fn a_change_has_the_sign_of_what_happened() {
        for (factor, sign) in [(1.5, "+50"), (0.5, "−50")] {
            let comparison = against("flag", factor);
            let row = rows(&comparison).into_iter().find(|row| row.name == "flag").unwrap();
            assert!(row.change.starts_with(sign), "{row:?}");
            assert!(row.interval.contains(" to "), "{row:?}");
        }
    }

    #[test]
    fn hostile_names_stay_inside_their_field() {
        let mut run = fixture::run();
        run.cells[0].variant = "a | b\n<script>".into();
        let text = markdown(&screen(&side(run.clone()), &side(run), 0.0));
        assert!(text.contains("| a \\| b \\<script\\> |"), "{text}");
    }
}
