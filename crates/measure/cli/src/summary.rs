//! The last screen of `measure`: [`render`], at most 24 lines of 80 columns.
//!
//! It shows the headline numbers with bars, the answers, and what disturbed the run. The report has
//! the figures behind them.

use std::fmt::Write;

use serde_json::Value;
use tontine_bench::format::{NOTHING, tick};
use tontine_bench::schema::{Results, Status};
use tontine_report::verdict::{self, Extent, Headline};

use tontine_command::WIDTH;
use tontine_command::fill;

/// Maximum number of characters of a bar.
const BAR: usize = 8;

/// Both ends of the logarithmic scale of times, in ns.
const TIMES: (f64, f64) = (0.1, 1e7);

/// Both ends of the logarithmic scale of ratios.
const RATIOS: (f64, f64) = (1.0, 100.0);

/// Maximum number of warnings; the report lists all.
const MOST_WARNINGS: usize = 1;

/// Maximum number of reasons for rows without a figure.
const MOST_REASONS: usize = 1;

/// Questions whose answers may have two lines; the others have one. The report has all answers in
/// full.
const LONG_ANSWERS: [&str; 2] = ["Which liveness check?", "Which mechanism survives a kill?"];

/// Returns the screen; the parts that the run does not support are left out.
pub(crate) fn render(results: &Results) -> String {
    let mut text = String::new();
    let headlines = verdict::headlines(results);
    if !headlines.is_empty() {
        let scale = format!("bars: {} to {}, log scale", tick("ns", TIMES.0), tick("ns", TIMES.1));
        let _ = writeln!(text, "{scale:>WIDTH$}");
        headlines.iter().for_each(|one| number(&mut text, one));
    }
    let decided: Vec<_> = verdict::decisions(results)
        .into_iter()
        .filter_map(|one| Some((one.question, one.brief?)))
        .collect();
    if !decided.is_empty() {
        text.push('\n');
    }
    let width = decided.iter().map(|(question, _)| topic(question).len()).max().unwrap_or(0);
    for (question, brief) in &decided {
        let first = format!("{:width$}  ", topic(question));
        let answer = fill(&first, &" ".repeat(width + 2), brief);
        let most = if LONG_ANSWERS.contains(question) { 2 } else { 1 };
        text.push_str(&shortened(&answer, most));
    }
    warnings(&mut text, results);
    text
}

/// Returns the question in few words.
fn topic(question: &'static str) -> &'static str {
    match question {
        "Which liveness check?" => "liveness check",
        "Which mechanism survives a kill?" => "survives a kill",
        "Is padding against false sharing worth it?" => "pad?",
        "Which allocator?" => "allocator",
        "Spin or sleep?" => "spin or sleep?",
        "Thread or process?" => "thread or process?",
        other => other,
    }
}

/// Cuts a paragraph after `most` lines, and marks the cut.
fn shortened(paragraph: &str, most: usize) -> String {
    let lines: Vec<&str> = paragraph.lines().collect();
    if lines.len() <= most {
        return format!("{paragraph}\n");
    }
    let kept = lines[..most].join("\n");
    let end = kept.rfind(", ").unwrap_or(kept.len());
    format!("{}, …\n", &kept[..end])
}

fn number(text: &mut String, one: &Headline) {
    let reference =
        if one.reference.is_empty() { String::new() } else { format!("({})", one.reference) };
    let left = format!("{:24} {:>9}  {:17}", one.label, one.figure.value, one.figure.interval);
    let right = format!("{} {reference}", bar(one.extent));
    // The comparison is the first part to go if the line is too long.
    let line = format!("{left} {right}");
    let line =
        if line.chars().count() > WIDTH { format!("{left} {}", bar(one.extent)) } else { line };
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Blocks that fill a character from the left: an eighth, two eighths, … seven eighths.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Draws a bar: solid up to the lower end of the interval, hatched up to its upper end.
fn bar(extent: Extent) -> String {
    let log = |(from, to): (f64, f64), value: f64| (value.max(from) / from).ln() / (to / from).ln();
    let (low, high) = match extent {
        Extent::Time(low, high) => (log(TIMES, low), log(TIMES, high)),
        Extent::Ratio(low, high) => (log(RATIOS, low), log(RATIOS, high)),
        Extent::Share(low, high) => (low, high),
    };
    let eighths = |share: f64| (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let (low, high) = (eighths(low), eighths(high).div_ceil(8));
    let mut drawn = "█".repeat(low / 8);
    drawn.extend(low.checked_rem(8).filter(|rest| *rest > 0).map(|rest| EIGHTHS[rest - 1]));
    let used = low.div_ceil(8);
    format!("{drawn}{}{}", "░".repeat(high.saturating_sub(used)), "·".repeat(BAR - high.max(used)))
}

/// Appends what disturbed the run, and what was skipped, grouped by reason.
fn warnings(text: &mut String, results: &Results) {
    let advice = results.machine["advice"].as_array().into_iter().flatten();
    let spoils: Vec<&Value> = advice.filter(|one| one["severity"] == "spoils").collect();
    if !spoils.is_empty() {
        text.push('\n');
    }
    for one in spoils.iter().take(MOST_WARNINGS) {
        let finding = one["finding"].as_str().unwrap_or(NOTHING);
        let _ = writeln!(text, "{}", cut(&format!("! {finding}")));
    }
    if spoils.len() > MOST_WARNINGS {
        let more = spoils.len() - MOST_WARNINGS;
        let _ = writeln!(text, "! {more} more: tontine-measure doctor");
    }
    let skipped = skipped(results);
    for (why, count) in skipped.iter().take(MOST_REASONS) {
        let rows = if *count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
        let _ = writeln!(text, "{}", cut(&format!("{rows} {why}")));
    }
    if skipped.len() > MOST_REASONS {
        let more: usize = skipped[MOST_REASONS..].iter().map(|(_, count)| count).sum();
        let _ = writeln!(text, "{more} more rows without a figure: see the report");
    }
}

/// Returns the reasons for rows without a figure, each with its number of rows: failures first. A
/// reason is known by its first words; the report has the details that follow them.
fn skipped(results: &Results) -> Vec<(String, usize)> {
    let mut reasons: Vec<(Status, &str, usize)> = Vec::new();
    for cell in results.cells.iter().filter(|cell| cell.status != Status::Ok) {
        let why = cell.why.as_deref().unwrap_or(NOTHING);
        let why = why.split([',', ';', ':']).next().unwrap_or(why);
        match reasons.iter_mut().find(|(status, known, _)| (*status, *known) == (cell.status, why))
        {
            Some((.., count)) => *count += 1,
            None => reasons.push((cell.status, why, 1)),
        }
    }
    reasons.sort_by_key(|(status, _, count)| (*status != Status::Failed, usize::MAX - count));
    reasons
        .into_iter()
        .map(|(status, why, count)| {
            let verb = if status == Status::Failed { "failed" } else { "skipped" };
            (format!("{verb}: {why}"), count)
        })
        .collect()
}

/// Cuts a line at [`WIDTH`] columns, and marks the cut.
pub(crate) fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.into();
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    /// Number of lines that `measure` prints after the screen.
    const AFTER: usize = 3;

    #[test]
    fn screen_has_24_lines_of_80_columns() {
        let text = render(&fixture::run());
        assert!(text.lines().count() + AFTER <= 24, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for part in ["message, both spin", "liveness check", "spin or sleep?"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn rows_without_figure_are_grouped_by_reason() {
        let mut results = fixture::small();
        let mut missing = results.cells[0].clone();
        (missing.status, missing.why) = (Status::Skipped, Some("no Docker engine".into()));
        results.cells = vec![missing; 3];
        assert!(render(&results).contains("3 rows skipped: no Docker engine"));
    }

    #[test]
    fn bar_grows_with_the_figure() {
        let solid = |extent| bar(extent).chars().filter(|one| *one == '█').count();
        assert!(solid(Extent::Time(50.0, 60.0)) < solid(Extent::Time(3e4, 4e4)));
        assert_eq!(bar(Extent::Share(0.0, 0.0)).chars().filter(|one| *one == '·').count(), BAR);
        assert_eq!(bar(Extent::Ratio(1.0, 1e9)).chars().count(), BAR);
    }
}
