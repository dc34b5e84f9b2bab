//! The events of a run in order: [`Timeline`].

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::error::Printable;
use super::log::{EventKind, Record};

/// The records of a run, in the order in which the log received them.
///
/// The timeline is displayed as a table of time in milliseconds, process (with the thread, if it is
/// not the first), name and event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    pub records: Vec<Record>,
}

impl Timeline {
    /// Returns the processes by number, each with its name, the last name first.
    pub(crate) fn names(&self) -> Vec<(i32, String)> {
        let records = self.records.iter().rev();
        records.map(|record| (record.pid, record.name.clone())).collect()
    }

    /// Returns the notes in order, each as the process's name and the text.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        let notes = self.records.iter().filter(|record| record.kind == EventKind::Note);
        notes.map(|record| (record.name.as_str(), record.what.as_str()))
    }

    /// Returns the timeline as a table with a column for each process.
    pub fn columns(&self) -> Columns<'_> {
        Columns(self)
    }
}

impl Display for Timeline {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 4]> = self
            .records
            .iter()
            .map(|record| [time(record), who(record), record.name.clone(), what(record)])
            .collect();
        let heads = ["ms", "pid", "process", "event"];
        let mut widths = heads.map(str::len);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let [time, pid, name, _] = widths;
        for row in std::iter::once(&heads.map(str::to_owned)).chain(&rows) {
            let [at, who, process, event] = row;
            writeln!(f, "{at:>time$}  {who:>pid$}  {process:name$}  {event}")?;
        }
        Ok(())
    }
}

/// A [`Timeline`] with a column for each process. If there are more than [`Columns::MOST`]
/// processes, the others share the last column, where each event names its process.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'t>(&'t Timeline);

impl Columns<'_> {
    /// Maximum number of processes with their own column.
    pub const MOST: usize = 16;
    /// Maximum width of a column in characters. Longer events are cut.
    pub const WIDEST: usize = 60;

    /// Returns the column of each process, and the head of each column.
    fn places(self) -> (BTreeMap<i32, usize>, Vec<String>) {
        let (mut places, mut heads) = (BTreeMap::new(), Vec::new());
        for Record { pid, name, .. } in &self.0.records {
            if !places.contains_key(pid) {
                places.insert(*pid, heads.len().min(Self::MOST));
                match heads.len() {
                    ..Self::MOST => heads.push(format!("{pid} {name}")),
                    Self::MOST => heads.push("others".to_owned()),
                    _ => {}
                }
            }
        }
        (places, heads)
    }
}

impl Display for Columns<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let records = &self.0.records;
        let (places, heads) = self.places();
        let event = |record: &Record| {
            let place = places[&record.pid];
            let mut event = match place {
                Self::MOST => format!("{} {}: {}", record.pid, record.name, what(record)),
                _ => what(record),
            };
            if let Some((cut, _)) = event.char_indices().nth(Self::WIDEST) {
                event.truncate(cut);
                event.pop();
                event.push('…');
            }
            (place, event)
        };
        let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
        for record in records {
            let (place, event) = event(record);
            widths[place] = widths[place].max(event.chars().count());
        }
        let times = records.iter().map(|record| time(record).len());
        let width = times.chain([2]).max().unwrap_or(2);
        let mut line = format!("{:>width$}", "ms");
        for (head, width) in heads.iter().zip(&widths) {
            line.push_str(&format!("  {head:width$}"));
        }
        writeln!(f, "{}", line.trim_end())?;
        for record in records {
            let (place, event) = event(record);
            let before: usize = widths[..place].iter().map(|width| width + 2).sum();
            writeln!(f, "{:>width$}  {:before$}{event}", time(record), "")?;
        }
        Ok(())
    }
}

fn time(record: &Record) -> String {
    let microseconds = record.at.as_micros();
    format!("{}.{:03}", microseconds / 1000, microseconds % 1000)
}

fn who(record: &Record) -> String {
    if record.tid == record.pid {
        record.pid.to_string()
    } else {
        format!("{}/{}", record.pid, record.tid)
    }
}

fn what(record: &Record) -> String {
    let Record { what, result, found, line, .. } = record;
    let text = match record.kind {
        EventKind::Began => format!("begins {what}"),
        EventKind::Call if result.is_empty() => what.clone(),
        EventKind::Call => format!("{what} -> {result}"),
        EventKind::Handler => format!("handles {what}"),
        EventKind::Note => format!("notes \"{what}\""),
        EventKind::Miss => {
            format!("MISSED at line {line}: {what}: expected {result}, found {found}")
        }
    };
    Printable(&text).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record(us: u64, pid: i32, tid: i32, name: &str, kind: EventKind, what: &str) -> Record {
        Record {
            at: Duration::from_micros(us),
            pid,
            tid,
            name: name.into(),
            line: 3,
            kind,
            what: what.into(),
            result: if kind == EventKind::Call { "7".into() } else { String::new() },
            found: String::new(),
            made: None,
            seen: None,
        }
    }

    fn timeline() -> Timeline {
        let records = vec![
            record(0, 2, 2, "mother", EventKind::Call, "fork daughter"),
            record(10_050, 7, 9, "daughter", EventKind::Note, "here"),
        ];
        Timeline { records }
    }

    #[test]
    fn timeline_displays_as_aligned_table() {
        assert_eq!(
            timeline().to_string(),
            "    ms  pid  process   event\n \
             0.000    2  mother    fork daughter -> 7\n\
             10.050  7/9  daughter  notes \"here\"\n"
        );
    }

    #[test]
    fn timeline_columns_display_processes_side_by_side() {
        assert_eq!(
            timeline().columns().to_string(),
            "    ms  2 mother            7 daughter\n \
             0.000  fork daughter -> 7\n\
             10.050                      notes \"here\"\n"
        );
    }
    #[test]
    fn timeline_columns_limit_columns_and_event_width() {
        let note = |pid| record(0, pid, pid, "one", EventKind::Note, &"x".repeat(500));
        let timeline = Timeline { records: (2..502).map(note).collect() };
        let shown = timeline.columns().to_string();
        assert!(shown.lines().next().is_some_and(|heads| heads.ends_with("others")), "{shown}");
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some((Columns::MOST + 1) * (Columns::WIDEST + 2) + 8), "{widest:?}");
        assert!(shown.contains("  501 one: notes \"xx"), "{shown}");
    }
}
