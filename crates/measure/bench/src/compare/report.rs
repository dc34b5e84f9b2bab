//! A comparison as text: [`head`], [`rows`], [`tail`], and all of it as [`markdown`].
//!
//! The command line formats the rows as tables. The JSON form is the [`Comparison`] itself.

use std::fmt::Write as _;

use super::direction::Direction;
use super::{Change, ChangeScale, ComparedRow, Comparison, RowVerdict, SecondStage};
use crate::format::{self, NOTHING, escaped};
use crate::sequence::grouped;
use crate::stats::interval::CONFIDENCE;
use crate::stats::{many, shift};
use crate::task;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparisonRow {
    /// Experiment and metric, by which rows are grouped.
    pub group: String,
    pub name: String,
    pub place: String,
    pub base: String,
    pub new: String,
    /// The change, such as `+9.1 %`.
    pub change: String,
    pub interval: String,
    /// The smallest difference that could have been resolved.
    pub smallest: String,
    pub verdict: String,
    /// Basis of the conclusion, such as `screen` or `23 pairs`.
    pub by: String,
    pub notes: String,
}

/// A column of the table of rows.
pub struct ComparisonColumn {
    pub title: &'static str,
    pub is_figure: bool,
    /// The order in which a narrow terminal leaves columns out; 0 for never.
    pub leave_out: u8,
    pub text: fn(&ComparisonRow) -> &str,
}

const fn column(
    title: &'static str,
    is_figure: bool,
    leave_out: u8,
    text: fn(&ComparisonRow) -> &str,
) -> ComparisonColumn {
    ComparisonColumn { title, is_figure, leave_out, text }
}

/// The columns, which the notes follow.
pub static COLUMNS: [ComparisonColumn; 9] = [
    column("variant", false, 0, |row| &row.name),
    column("where", false, 0, |row| &row.place),
    column("A", true, 3, |row| &row.base),
    column("B", true, 3, |row| &row.new),
    column("change", true, 0, |row| &row.change),
    column("interval", true, 2, |row| &row.interval),
    column("could resolve", true, 0, |row| &row.smallest),
    column("verdict", false, 0, |row| &row.verdict),
    column("by", false, 4, |row| &row.by),
];

/// Groups rows by experiment and metric, in the order of their first rows.
pub fn groups(rows: &[ComparisonRow]) -> Vec<(&str, Vec<&ComparisonRow>)> {
    grouped(rows.iter().map(|row| (row.group.as_str(), row)))
}

pub fn rows(comparison: &Comparison) -> Vec<ComparisonRow> {
    comparison.rows.iter().map(text_row).collect()
}

fn text_row(row: &ComparedRow) -> ComparisonRow {
    let change = row.change();
    let mut notes = row.notes.clone();
    if row.worse == Direction::Unknown {
        notes.push(format!(
            "it is unknown whether more {} of {} is better or worse: never a regression",
            row.unit, row.metric
        ));
    }
    ComparisonRow {
        group: format!("{}: {}", row.experiment, row.metric),
        name: row.variant.clone(),
        place: task::short(&row.params).rev().collect::<Vec<_>>().join(" "),
        base: format::single(&row.unit, row.base),
        new: format::single(&row.unit, row.new),
        change: change.map_or_else(|| NOTHING.into(), |change| estimate(row, change)),
        interval: change.map_or_else(|| NOTHING.into(), |change| interval(row, change)),
        smallest: row.smallest.map_or_else(|| NOTHING.into(), |amount| amount_of(row, amount)),
        verdict: verdict(row).into(),
        by: match &row.again {
            Some(again) => format!("{} pairs", again.pairs),
            None if row.fails => "failures".into(),
            None => "screen".into(),
        },
        notes: notes.join("; "),
    }
}

/// Returns a row's conclusion in words, which are never "the same".
fn verdict(row: &ComparedRow) -> &'static str {
    match row.verdict {
        RowVerdict::Worse if row.regression => "WORSE",
        RowVerdict::Worse => "worse, within the threshold",
        RowVerdict::Better => "better",
        RowVerdict::Changed => "changed",
        RowVerdict::NoneResolved => "no difference resolved",
        RowVerdict::NotConfirmed => "not confirmed: no difference resolved",
        RowVerdict::Unsettled => "flagged, not settled",
        RowVerdict::TooFew if row.screen.flagged => "apart, but too few invocations",
        RowVerdict::TooFew => "too few invocations",
        RowVerdict::Failed => "FAILS in B",
    }
}

/// The format of a row's changes: a factor, digits and a unit.
struct Style {
    factor: f64,
    unit: String,
    /// The value for "no change", which is subtracted.
    none: f64,
}

impl Style {
    fn of(row: &ComparedRow) -> Self {
        let none = row.scale.none();
        match row.scale {
            ChangeScale::Quotient => Self { factor: 100.0, unit: "%".into(), none },
            ChangeScale::Difference if row.unit == "share" => {
                Self { factor: 100.0, unit: "points".into(), none }
            }
            ChangeScale::Difference => Self { factor: 1.0, unit: row.unit.clone(), none },
        }
    }

    fn signed(&self, change: f64, digits: usize) -> String {
        let value = (change - self.none) * self.factor;
        let text = format!("{value:+.digits$}");
        // A value rounded to zero has neither sign nor decimals.
        match text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
            true => text.replace('-', "−"),
            false => "0".into(),
        }
    }

    /// Returns the number of digits that shows a tenth of the interval's width. Returns more if the
    /// interval excludes "no change" and one of its ends would otherwise be shown as no change.
    fn digits(&self, change: Change, scale: ChangeScale) -> usize {
        let width = (change.high - change.low) * self.factor;
        let digits = if width > 0.0 && width.is_finite() {
            ((-width.log10()).ceil() + 1.0).clamp(0.0, 3.0) as usize
        } else {
            1
        };
        let shown = |digits: &usize| {
            let is_something = |end: f64| self.signed(end, *digits).starts_with(['+', '−']);
            !change.resolves(scale) || [change.low, change.high].into_iter().all(is_something)
        };
        (digits..=MOST_DIGITS).find(shown).unwrap_or(digits)
    }
}

/// Maximum number of decimals of a change.
const MOST_DIGITS: usize = 9;

fn estimate(row: &ComparedRow, change: Change) -> String {
    let style = Style::of(row);
    format!("{} {}", style.signed(change.estimate, style.digits(change, row.scale)), style.unit)
}

fn interval(row: &ComparedRow, change: Change) -> String {
    let style = Style::of(row);
    let digits = style.digits(change, row.scale);
    let [low, high] = [change.low, change.high].map(|end| style.signed(end, digits));
    format!("{low} to {high} {}", style.unit)
}

/// Multiple of the base above which a difference is no longer shown in per cent.
const MOST_TIMES: f64 = 10.0;

fn amount_of(row: &ComparedRow, amount: f64) -> String {
    let style = Style::of(row);
    let value = amount * style.factor;
    match value {
        _ if row.scale == ChangeScale::Quotient && amount > MOST_TIMES => {
            format!("more than {MOST_TIMES:.0}×")
        }
        ..0.05 if row.scale == ChangeScale::Quotient => format!("< 0.1 {}", style.unit),
        ..10.0 => format!("{value:.1} {}", style.unit),
        _ => format!("{value:.0} {}", style.unit),
    }
}

/// Returns the header: the two runs, the differences of machines and builds, and reasons to doubt
/// the comparison.
pub fn head(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, side) in [("A, before", &comparison.base), ("B, after", &comparison.new)] {
        let size = side.size.name();
        lines.push(format!("{name}: {}: {}, {size}, {}", side.path, side.started, side.machine));
    }
    if !comparison.machines.is_empty() {
        lines.push("Two machines, or one in two states, which also changes figures:".into());
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

/// Returns the result: what was not compared, how the flagged rows were settled, and the counts.
pub fn tail(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    for (title, regression) in [("Measured in A, FAILED in B:", true), ("Not compared:", false)] {
        let of_it = comparison.not_compared.iter().filter(|one| one.regression == regression);
        let reasons: Vec<String> =
            of_it.map(|one| format!("  {}: {}", one.name, one.why)).collect();
        if !reasons.is_empty() {
            lines.push(title.into());
            lines.extend(reasons);
        }
    }
    if !comparison.answers.is_empty() {
        lines.push("Different answers after the same event:".into());
        lines.extend(comparison.answers.iter().map(|one| {
            format!(
                "  {}, {}: {} → {} (truth: {})",
                one.mechanism, one.event, one.base, one.new, one.truth
            )
        }));
    }
    let flagged = comparison.flagged().len();
    let all = comparison.rows.len();
    match &comparison.again {
        SecondStage::NotNeeded => {}
        SecondStage::NotMade { why } => {
            lines.push(format!("Screened only, {flagged} of {all} rows flagged: {why}."));
            lines.extend(unresolvable(comparison));
        }
        SecondStage::Made { base, new, .. } => {
            let again = comparison.rows.iter().filter(|row| row.again.is_some()).count();
            lines.push(format!(
                "{flagged} of {all} rows flagged, {again} measured again in pairs, {base} against \
                 {new}."
            ));
        }
    }
    if !comparison.complete {
        lines.push("Stopped early: the rows judged so far are above.".into());
    }
    lines.push(count(comparison));
    lines
}

/// Returns a note if the screen decides alone and some rows have too few invocations for the number
/// of rows. The note says that no difference can be resolved in these rows, and what to do.
fn unresolvable(comparison: &Comparison) -> Option<String> {
    let all = comparison.rows.len();
    let none = |row: &&ComparedRow| row.smallest.is_none() && row.screen.change.is_some();
    let count = comparison.rows.iter().filter(none).count();
    let few = comparison.rows.iter().filter(none).map(|row| row.invocations);
    let (base, new) = few.min_by_key(|(base, new)| *base.min(new))?;
    let whose = if count == all { String::new() } else { format!(" of {count} of them") };
    let enough = shift::fewest_each(many::each(CONFIDENCE, all));
    Some(format!(
        "With {base} and {new} invocations and {all} rows the screen alone can resolve no \
         difference{whose}, however large. To resolve some, make more invocations (`measure \
         --invocations {enough}` for both runs), name fewer experiments, or measure in pairs \
         (--again OLD NEW)."
    ))
}

fn count(comparison: &Comparison) -> String {
    let rows = comparison.rows.len();
    let lost = match comparison.not_compared.iter().filter(|one| one.regression).count() {
        0 => String::new(),
        1 => " In addition, 1 row that A measured failed in B.".into(),
        lost => format!(" In addition, {lost} rows that A measured failed in B."),
    };
    if rows == 0 {
        return format!("No row is in both runs.{lost}");
    }
    let parts = parts(comparison).into_iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
    format!("{rows} {}: {}.{lost}", if rows == 1 { "row" } else { "rows" }, said.join(", "))
}

/// Returns the number of rows for each conclusion. Each row counts once.
fn parts(comparison: &Comparison) -> Vec<(usize, &'static str)> {
    let count = |fits: &dyn Fn(&ComparedRow) -> bool| {
        comparison.rows.iter().filter(|row| fits(row)).count()
    };
    let of = |verdicts: &[RowVerdict]| count(&|row| verdicts.contains(&row.verdict));
    let beyond = count(&|row| row.verdict == RowVerdict::Worse && row.regression);
    let apart = count(&|row| row.verdict == RowVerdict::TooFew && row.screen.flagged);
    vec![
        (beyond, "worse"),
        (of(&[RowVerdict::Worse]) - beyond, "worse within the threshold"),
        (of(&[RowVerdict::Failed]), "failing in B"),
        (of(&[RowVerdict::Better]), "better"),
        (of(&[RowVerdict::Changed]), "changed"),
        (of(&[RowVerdict::Unsettled]), "flagged and not settled"),
        (of(&[RowVerdict::NoneResolved, RowVerdict::NotConfirmed]), "no difference resolved"),
        (apart, "apart, but too few invocations"),
        (of(&[RowVerdict::TooFew]) - apart, "too few invocations"),
    ]
}

/// Formats the comparison as one Markdown document.
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
    let titles = COLUMNS.each_ref().map(|column| column.title).join(" | ");
    let align = |column: &ComparisonColumn| if column.is_figure { "---:" } else { "---" };
    let aligned = COLUMNS.each_ref().map(align).join(" | ");
    for (group, of_it) in groups(&rows) {
        let group = escaped(group);
        let _ = writeln!(out, "\n## {group}\n\n| {titles} | notes |\n| {aligned} | --- |");
        for row in of_it {
            let fields = COLUMNS.each_ref().map(|column| escaped((column.text)(row))).join(" | ");
            let _ = writeln!(out, "| {fields} | {} |", escaped(&row.notes));
        }
    }
    out.push('\n');
    list(&mut out, tail(comparison));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::read::RunFiles;
    use crate::compare::screen::screen;
    use crate::fixture;
    use crate::schema::{Results, Status};

    fn side(results: Results) -> RunFiles {
        RunFiles { path: "results.json".into(), results }
    }

    /// Compares the fixture with a copy in which one row is `factor` times as large.
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
    fn unresolved_rows_show_the_smallest_resolvable_change() {
        let comparison = against("flag-one-line", 1.0);
        let rows = rows(&comparison);
        let measured = fixture::run().cells.iter().filter(|cell| cell.estimate.is_some()).count();
        assert_eq!(rows.len(), measured);
        for row in &rows {
            assert_eq!(row.verdict, "no difference resolved", "{row:?}");
            assert!(row.smallest.ends_with(['%', 's']) && row.smallest != "0", "{row:?}");
        }
        let text = markdown(&comparison);
        assert!(!text.contains("the same"), "{text}");
        // A row that neither run measured is listed with its reason.
        assert!(text.contains("no Docker engine answers"), "{text}");
    }

    #[test]
    fn slower_row_is_positive_and_faster_row_negative() {
        for (factor, sign) in [(1.5, "+50"), (0.5, "−50")] {
            let comparison = against("flag-one-line", factor);
            let row =
                rows(&comparison).into_iter().find(|row| row.name == "flag-one-line").unwrap();
            assert!(row.change.starts_with(sign), "{row:?}");
            assert!(row.interval.contains(" to "), "{row:?}");
        }
    }

    fn row_of<'a>(comparison: &'a mut Comparison, variant: &str) -> &'a mut ComparedRow {
        comparison.rows.iter_mut().find(|row| row.variant == variant).unwrap()
    }

    #[test]
    fn counts_of_the_verdicts_add_up_to_all_rows() {
        let mut comparison = against("flag-one-line", 1.5);
        let verdicts = [
            RowVerdict::Worse,
            RowVerdict::Better,
            RowVerdict::Changed,
            RowVerdict::NoneResolved,
            RowVerdict::NotConfirmed,
            RowVerdict::Unsettled,
            RowVerdict::TooFew,
            RowVerdict::Failed,
        ];
        for (index, row) in comparison.rows.iter_mut().enumerate() {
            row.verdict = verdicts[index % verdicts.len()];
            row.regression = index % 3 == 0;
            row.screen.flagged = index % 5 == 0;
        }
        let parts = parts(&comparison);
        assert!(parts.iter().all(|(count, _)| *count > 0), "{parts:?}");
        let all: usize = parts.iter().map(|(count, _)| count).sum();
        assert_eq!(all, comparison.rows.len(), "{parts:?}");
        assert!(count(&comparison).contains(" apart, but too few invocations"));
    }

    #[test]
    fn resolved_interval_end_is_never_printed_as_zero() {
        let mut comparison = against("flag-one-line", 1.5);
        let row = row_of(&mut comparison, "flag-one-line");
        let change = |low: f64| Change { estimate: 1.2, low, high: 1.5, confidence: 0.95 };
        assert_eq!(interval(row, change(1.000_04)), "+0.004 to +50.000 %");
        assert_eq!(interval(row, change(1.04)), "+4 to +50 %");
        // An interval that contains "no change" may show 0.
        assert_eq!(interval(row, change(0.999_99)), "0 to +50 %");
        (row.scale, row.unit) = (ChangeScale::Difference, "share".into());
        assert_eq!(interval(row, change(0.4)), "+40 to +150 points");
    }

    #[test]
    fn resolvable_change_above_tenfold_is_shortened() {
        let mut comparison = against("flag-one-line", 1.5);
        let row = row_of(&mut comparison, "flag-one-line");
        assert_eq!(amount_of(row, 12.3), "more than 10×");
        assert_eq!(amount_of(row, 9.9), "990 %");
        row.scale = ChangeScale::Difference;
        assert_eq!(amount_of(row, 12.3), "12 ns");
    }

    /// Compares the fixture with itself with `invocations` per cell. The screen decides alone.
    fn screened(invocations: usize) -> Comparison {
        let mut run = fixture::run();
        for cell in &mut run.cells {
            cell.invocations.truncate(invocations);
        }
        let mut comparison = screen(&side(run.clone()), &side(run), 0.0);
        comparison.leave_to_the_screen("as requested".into());
        comparison
    }

    #[test]
    fn screen_without_second_stage_shows_its_resolution() {
        // With 6 and 6 invocations the smallest p is 0.0022. With more than 23 rows it is never
        // below 5 %.
        let few = screened(6);
        assert!(few.rows.len() > 23);
        assert!(rows(&few).iter().all(|row| row.smallest == NOTHING));
        assert!(few.rows.iter().all(|row| row.screen.smallest.is_some()));
        let text = markdown(&few);
        let all = few.rows.len();
        let said = format!("With 6 and 6 invocations and {all} rows the screen");
        assert_eq!(text.matches(&said).count(), 1, "{text}");
        assert!(text.contains("`measure --invocations 7`") || all > 85, "{text}");
        let enough = screened(10);
        assert!(!markdown(&enough).contains("the screen alone can"));
        for row in &enough.rows {
            assert!(row.smallest >= row.screen.smallest, "corrected: {row:?}");
            assert!(row.smallest > row.screen.smallest || row.unit == "share", "{row:?}");
        }
    }

    #[test]
    fn failure_in_the_new_run_is_a_regression_and_a_skip_is_not() {
        let run = fixture::run();
        let lost = |status: Status, params: &[&str]| {
            let mut new = run.clone();
            let cell = new.cells.iter_mut().find(|cell| cell.variant == "flag-one-line").unwrap();
            cell.status = status;
            cell.why = Some("it broke".into());
            cell.metric = String::new();
            cell.params.retain(|key, _| params.contains(&key.as_str()));
            cell.invocations.clear();
            screen(&side(run.clone()), &side(new), 0.0)
        };
        let failed = lost(Status::Failed, &["placement", "pacing"]);
        assert_eq!(failed.regressions, 1);
        let text = markdown(&failed);
        let row = "Measured in A, FAILED in B:\n  - round-trip/flag-one-line cross-core hot \
                   one_way: in B failed: it broke";
        let text = text.replace("- Measured", "Measured").replace('\\', "");
        assert!(text.contains(row) || text.contains("hot cross-core one_way"), "{text}");
        assert!(text.contains("In addition, 1 row that A measured failed in B."), "{text}");
        assert_eq!(lost(Status::Skipped, &["placement", "pacing"]).regressions, 0);
        // The row's samples would have added a parameter that the task's row lacks.
        assert_eq!(lost(Status::Failed, &["placement"]).regressions, 1);
    }

    #[test]
    fn special_characters_in_names_are_escaped() {
        let mut run = fixture::run();
        run.cells[0].variant = "a | b\n<script>".into();
        let text = markdown(&screen(&side(run.clone()), &side(run), 0.0));
        assert!(text.contains("| a \\| b \\<script\\> |"), "{text}");
    }
}
