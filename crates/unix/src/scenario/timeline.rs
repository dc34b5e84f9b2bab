//! What happened in a run, in order: [`Timeline`].

use std::fmt::{self, Display, Formatter};

use super::log::{EventKind, Record};

/// The records of a run, in the order in which the log took them.
///
/// Displayed as a table: time in milliseconds, process (and thread, where that is another), name,
/// event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    /// What was recorded.
    pub records: Vec<Record>,
}

impl Timeline {
    /// The notes, in order: who noted it, and what.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        let notes = self.records.iter().filter(|record| record.kind == EventKind::Note);
        notes.map(|record| (record.name.as_str(), record.what.as_str()))
    }

    /// The same with a column for each process, to be read side by side.
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

/// A [`Timeline`] with a column for each process.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'t>(&'t Timeline);

impl Display for Columns<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let records = &self.0.records;
        let mut pids: Vec<i32> = Vec::new();
        for record in records {
            if !pids.contains(&record.pid) {
                pids.push(record.pid);
            }
        }
        let column = |pid: i32| {
            let of = move |record: &&Record| record.pid == pid;
            let name = records.iter().find(of).map_or("", |record| &record.name);
            let head = format!("{pid} {name}");
            let events = records.iter().filter(of).map(|record| what(record).chars().count());
            let width = events.chain([head.chars().count()]).max().unwrap_or(0);
            (head, width)
        };
        let columns: Vec<(String, usize)> = pids.iter().map(|pid| column(*pid)).collect();
        let times = records.iter().map(|record| time(record).len());
        let width = times.chain([2]).max().unwrap_or(2);
        let mut line = format!("{:>width$}", "ms");
        for (head, width) in &columns {
            line.push_str(&format!("  {head:width$}"));
        }
        writeln!(f, "{}", line.trim_end())?;
        for record in records {
            let mut line = format!("{:>width$}", time(record));
            for (pid, (_, width)) in pids.iter().zip(&columns) {
                let event = if *pid == record.pid { what(record) } else { String::new() };
                line.push_str(&format!("  {event:width$}"));
            }
            writeln!(f, "{}", line.trim_end())?;
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
    match record.kind {
        EventKind::Began => format!("begins {what}"),
        EventKind::Call if result.is_empty() => what.clone(),
        EventKind::Call => format!("{what} -> {result}"),
        EventKind::Handler => format!("takes {what}"),
        EventKind::Note => format!("notes \"{what}\""),
        EventKind::Miss => {
            format!("MISSED at line {line}: {what}: expected {result}, found {found}")
        }
    }
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
    fn a_timeline_is_an_aligned_table() {
        assert_eq!(
            timeline().to_string(),
            "    ms  pid  process   event\n \
             0.000    2  mother    fork daughter -> 7\n\
             10.050  7/9  daughter  notes \"here\"\n"
        );
    }

    #[test]
    fn columns_stand_side_by_side() {
        assert_eq!(
            timeline().columns().to_string(),
            "    ms  2 mother            7 daughter\n \
             0.000  fork daughter -> 7\n\
             10.050                      notes \"here\"\n"
        );
    }
}
