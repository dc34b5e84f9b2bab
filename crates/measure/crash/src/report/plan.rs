//! An estimate of a whole run from the run of a sample of its points, as a table.

use std::time::Duration;

use comfy_table::{CellAlignment, Table};

use super::{CrashReport, text};

const COLUMNS: [&str; 5] = ["target", "operation", "points", "kills", "estimate"];

/// Number of text columns; the other columns hold right-aligned figures.
const WORDS: usize = 2;

pub fn render(report: &CrashReport) -> String {
    let mut table = Table::new();
    table.load_style(text::STYLE);
    table.set_header(COLUMNS);
    let (mut points, mut kills, mut whole) = (0, 0, Duration::ZERO);
    let mut notes = String::new();
    for subject in &report.subjects {
        let mut note = |trouble: &Option<String>| {
            if let Some(trouble) = trouble {
                notes.push_str(&format!("\n{}: {trouble}", subject.name));
            }
        };
        note(&subject.trouble);
        for one in &subject.operations {
            note(&one.trouble);
            let estimate = one.estimate();
            table.add_row([
                subject.name.clone(),
                one.operation.name().to_owned(),
                one.points.to_string(),
                one.kills.to_string(),
                length(estimate),
            ]);
            points += one.points;
            kills += one.kills;
            whole += estimate;
        }
    }
    let sums = [points.to_string(), kills.to_string(), length(whole)];
    table.add_row(["in total".to_owned(), String::new()].into_iter().chain(sums));
    for column in WORDS..COLUMNS.len() {
        if let Some(drawn) = table.column_mut(column) {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    let legend = text::legend(report.mode);
    format!("{legend}; the times are estimates from a sample of kills\n\n{table}\n{notes}\n")
}

/// Returns a duration in two units, in printed form.
pub fn length(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) => "1 s".to_owned(),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_printed_in_two_units() {
        for (milliseconds, said) in
            [(20, "1 s"), (59_000, "59 s"), (61_000, "1 min 01 s"), (7_260_000, "2 h 01 min")]
        {
            assert_eq!(length(Duration::from_millis(milliseconds)), said);
        }
    }
}
