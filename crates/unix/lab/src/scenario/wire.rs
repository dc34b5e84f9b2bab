//! A log for real processes: [`PipeLog`] writes each event as one line into a pipe, [`read_log`]
//! reads the lines.
//!
//! Each line is written by one `write` of at most `PIPE_BUF` bytes, so lines of several processes
//! never interleave. A line is composed on the stack, because a handler may write the line. Longer
//! lines are truncated.

use std::fmt::{self, Write as _};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tontine_unix::{Signal, WaitStatus};

use super::log::{EventKind, Log, LogEvent, Record, RelatedProcess};

/// Maximum length of a line in bytes: Linux's `PIPE_BUF`.
const LONGEST: usize = 4096;

/// A log that writes events into a pipe. Clones, and copies in forked children, write into the same
/// pipe.
#[derive(Debug, Clone)]
pub struct PipeLog(Arc<PipeWriter>);

impl PipeLog {
    /// Creates a log and the end of the pipe for [`read_log`]. The reader reaches end-of-file when
    /// all processes that hold the log have ended. The pipe holds 64 KiB of unread events.
    pub fn new() -> io::Result<(Self, PipeReader)> {
        let (reader, writer) = io::pipe()?;
        Ok((Self(Arc::new(writer)), reader))
    }

    /// Creates a log that writes into an existing pipe, for example a named pipe in a process that
    /// called exec.
    pub fn to(pipe: impl Into<OwnedFd>) -> Self {
        Self(Arc::new(pipe.into().into()))
    }
}

impl Log for PipeLog {
    fn record(&self, event: &LogEvent<'_>) {
        with_line(event, |line| {
            // The reader has ended, so no process needs the event.
            let _ = (&*self.0).write_all(line);
        });
    }
}

/// Passes the line for the event, with its newline, to `take`. Truncates a line that is too long.
/// Allocates nothing.
pub(crate) fn with_line(event: &LogEvent<'_>, take: impl FnOnce(&[u8])) {
    let mut line = StackLine { bytes: [0; LONGEST], length: 0 };
    // The encoding fails if the line is full; the part that fits is written.
    let _ = encode(&mut line, event);
    let end = line.length.min(LONGEST - 1);
    line.bytes[end] = b'\n';
    take(&line.bytes[..=end]);
}

/// Reads a log to its end.
pub fn read_log(from: impl Read) -> io::Result<Vec<Record>> {
    let lines = BufReader::new(from).lines();
    lines.map(|line| line.and_then(|line| decode(&line).ok_or_else(|| wrong(&line)))).collect()
}

fn wrong(line: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("expected an event of a log, found `{line}`"),
    )
}

/// A line under construction, on the stack.
struct StackLine {
    bytes: [u8; LONGEST],
    length: usize,
}

impl fmt::Write for StackLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let space = LONGEST - 1 - self.length;
        let fits = whole_chars(text, space);
        self.bytes[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Returns the length of the longest prefix of at most `max` bytes that splits no character.
pub(crate) fn whole_chars(text: &str, max: usize) -> usize {
    if max >= text.len() {
        return text.len();
    }
    (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Escapes the characters that separate fields with a backslash.
struct Field<'s>(&'s mut StackLine);

impl fmt::Write for Field<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(['\t', '\n', '\r', '\\']) {
            let plain = part.trim_end_matches(['\t', '\n', '\r', '\\']);
            self.0.write_str(plain)?;
            match &part[plain.len()..] {
                "\t" => self.0.write_str("\\t")?,
                "\n" => self.0.write_str("\\n")?,
                "\r" => self.0.write_str("\\r")?,
                "\\" => self.0.write_str("\\\\")?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The letters of [`EventKind::ALL`], in the same order.
const KINDS: [&str; 5] = ["B", "C", "H", "N", "M"];

/// Encodes the numbers first, so that they are never truncated.
fn encode(line: &mut StackLine, event: &LogEvent<'_>) -> fmt::Result {
    let kind = EventKind::ALL.iter().zip(KINDS).find(|(kind, _)| **kind == event.kind);
    let kind = kind.map_or("", |(_, letter)| letter);
    let LogEvent { at, pid, tid, source, .. } = event;
    write!(line, "{}\t{pid}\t{tid}\t{}\t{kind}\t", at.as_nanos(), source.line)?;
    match event.about {
        RelatedProcess::None => write!(line, "-\t0\t0\t")?,
        RelatedProcess::Created(made, _) => write!(line, "+\t{made}\t0\t")?,
        RelatedProcess::Observed(seen, status) => {
            let (letter, number) = match status {
                WaitStatus::Exited(status) => ("e", status),
                WaitStatus::Signaled(signal, false) => ("k", signal.number()),
                WaitStatus::Signaled(signal, true) => ("d", signal.number()),
                WaitStatus::Stopped(signal) => ("s", signal.number()),
                WaitStatus::Trapped(signal) => ("t", signal.number()),
                WaitStatus::Continued => ("c", 0),
            };
            write!(line, "{letter}\t{seen}\t{number}\t")?;
        }
    }
    let made = if let RelatedProcess::Created(_, name) = event.about { name } else { "" };
    let fields: [&dyn fmt::Display; 5] =
        [&event.name, &made, event.what, event.result, event.found];
    for field in fields {
        write!(Field(line), "{field}")?;
        line.write_str("\t")?;
    }
    Ok(())
}

/// Decodes a line. Fields that were cut off are empty.
pub(crate) fn decode(line: &str) -> Option<Record> {
    let mut fields = line.split('\t');
    let at = Duration::from_nanos(fields.next()?.parse().ok()?);
    let pid = fields.next()?.parse().ok()?;
    let tid = fields.next()?.parse().ok()?;
    let source = fields.next()?.parse().ok()?;
    let kind = fields.next()?;
    let (kind, _) = EventKind::ALL.into_iter().zip(KINDS).find(|(_, letter)| *letter == kind)?;
    let about = fields.next()?;
    let other = fields.next()?.parse().ok()?;
    let number: i32 = fields.next()?.parse().ok()?;
    let seen = match about {
        "-" | "+" => None,
        "e" => Some(WaitStatus::Exited(number)),
        "k" => Some(WaitStatus::Signaled(Signal::new(number)?, false)),
        "d" => Some(WaitStatus::Signaled(Signal::new(number)?, true)),
        "s" => Some(WaitStatus::Stopped(Signal::new(number)?)),
        "t" => Some(WaitStatus::Trapped(Signal::new(number)?)),
        "c" => Some(WaitStatus::Continued),
        _ => return None,
    };
    let mut text = || unescaped(fields.next().unwrap_or_default());
    let (name, made) = (text(), text());
    Some(Record {
        at,
        pid,
        tid,
        name,
        line: source,
        kind,
        what: text(),
        result: text(),
        found: text(),
        made: (about == "+").then_some((other, made)),
        seen: seen.map(|status| (other, status)),
    })
}

fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut characters = field.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some('t') => text.push('\t'),
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                other => text.extend(other),
            },
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scenario::ast::SourceLine;

    fn status() -> impl Strategy<Value = WaitStatus> {
        let signal = || (1..=31).prop_map(|n| Signal::new(n).expect("a signal"));
        prop_oneof![
            (0..256).prop_map(WaitStatus::Exited),
            (signal(), any::<bool>()).prop_map(|(signal, core)| WaitStatus::Signaled(signal, core)),
            signal().prop_map(WaitStatus::Stopped),
            signal().prop_map(WaitStatus::Trapped),
            Just(WaitStatus::Continued),
        ]
    }

    proptest! {
        #[test]
        fn log_events_round_trip_through_pipe(
            numbers in any::<(u64, i32, i32, u32)>(),
            kind in proptest::sample::select(EventKind::ALL.to_vec()),
            texts in proptest::collection::vec("([a-z]|[\t\n\r\\\\]|é){0,9}", 4),
            made in proptest::option::of(any::<i32>()),
            seen in proptest::option::of((any::<i32>(), status())),
        ) {
            let (at, pid, tid, line) = numbers;
            let about = match (made, seen) {
                (Some(pid), _) => RelatedProcess::Created(pid, &texts[1]),
                (None, Some((pid, status))) => RelatedProcess::Observed(pid, status),
                (None, None) => RelatedProcess::None,
            };
            let event = LogEvent {
                at: Duration::from_nanos(at),
                pid,
                tid,
                name: &texts[0],
                source: SourceLine { line },
                kind,
                what: &texts[1],
                result: &texts[2],
                found: &texts[3],
                about,
            };
            let (log, reader) = PipeLog::new().expect("a pipe");
            log.record(&event);
            drop(log);
            prop_assert_eq!(read_log(reader).expect("a log"), vec![Record::from(&event)]);
        }
    }

    #[test]
    fn overlong_log_line_is_cut_and_next_line_is_intact() {
        let long = "é".repeat(LONGEST);
        let (log, reader) = PipeLog::new().expect("a pipe");
        for text in [&long, "short"] {
            log.record(&LogEvent {
                at: Duration::ZERO,
                pid: 1,
                tid: 1,
                name: "a",
                source: SourceLine::default(),
                kind: EventKind::Note,
                what: &text,
                result: &"",
                found: &"",
                about: RelatedProcess::None,
            });
        }
        drop(log);
        let records = read_log(reader).expect("a log");
        assert!(records[0].what.len() > LONGEST - 100 && long.starts_with(&records[0].what));
        assert_eq!(records[1].what, "short");
    }
}
