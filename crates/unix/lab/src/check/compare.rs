//! The first difference of two traces: [`TraceDifference`].

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use super::trace::{StepRecord, Trace, TraceEnd, TraceEntry};

/// Maximum number of entries displayed before the first difference.
const SHOWN_BEFORE: usize = 12;
/// Maximum number of entries displayed from the first difference onwards.
const SHOWN_AFTER: usize = 8;

/// Two traces of a scenario that differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceDifference {
    /// The seed that decided the order of steps.
    pub seed: u64,
    /// The step in which the traces diverge.
    pub step: u32,
    /// The trace of the virtual Unix.
    pub on_virtual: Trace,
    pub on_linux: Trace,
    /// The index in `entries` at which the two traces diverge.
    at: usize,
}

/// Returns the difference of two traces; `None` if they are equal.
pub fn compare(seed: u64, on_virtual: &Trace, on_linux: &Trace) -> Option<TraceDifference> {
    if on_virtual == on_linux {
        return None;
    }
    let same = on_virtual.entries.iter().zip(&on_linux.entries);
    let at = same.take_while(|(one, other)| one == other).count();
    let entry = |trace: &Trace| trace.entries.get(at).map_or(u32::MAX, |entry| entry.step);
    let steps = on_virtual.steps.iter().zip(&on_linux.steps);
    let steps = steps.take_while(|(one, other)| one == other).count();
    let steps = u32::try_from(steps + 1).unwrap_or(u32::MAX);
    let step = entry(on_virtual).min(entry(on_linux)).min(steps);
    let (on_virtual, on_linux) = (on_virtual.clone(), on_linux.clone());
    Some(TraceDifference { seed, step, on_virtual, on_linux, at })
}

impl TraceDifference {
    /// Returns the first entries that differ: on the virtual Unix, and on Linux.
    pub fn first(&self) -> (Option<&TraceEntry>, Option<&TraceEntry>) {
        (self.on_virtual.entries.get(self.at), self.on_linux.entries.get(self.at))
    }

    /// Returns the entries of a side that are shown, with their indices.
    fn shown<'t>(&self, trace: &'t Trace) -> impl Iterator<Item = (usize, &'t TraceEntry)> {
        let from = self.at.saturating_sub(SHOWN_BEFORE);
        trace.entries.iter().enumerate().skip(from).take(self.at - from + SHOWN_AFTER)
    }

    /// Writes, for each name that is shown, the process or thread that it names.
    fn names(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sides = [&self.on_virtual, &self.on_linux];
        let entries = || sides.iter().flat_map(|trace| &trace.entries);
        let steps = sides.iter().filter_map(|trace| trace.steps.get(self.at_step()));
        let shown = sides.iter().flat_map(|trace| self.shown(trace));
        let names: BTreeSet<&str> =
            shown.map(|(_, entry)| &*entry.who).chain(steps.map(|step| &*step.who)).collect();
        for name in names.into_iter().filter(|name| *name != "init") {
            let begun = entries()
                .find_map(|entry| entry.what.strip_prefix("begins ").filter(|_| entry.who == name));
            let runs = begun.map_or(String::new(), |block| format!(" ({block})"));
            match name.split_once('/') {
                Some((process, ordinal)) => {
                    writeln!(f, "{name}{runs}: thread {ordinal} created by process {process}")?;
                }
                None => {
                    let thread = format!("{name}/");
                    let has_several = entries().any(|entry| entry.who.starts_with(&thread));
                    let which = if has_several { ", its first thread" } else { "" };
                    writeln!(f, "{name}{runs}: process{which}")?;
                }
            }
        }
        Ok(())
    }

    /// Returns the index in `steps` at which the two sides diverge.
    fn at_step(&self) -> usize {
        self.step.saturating_sub(1) as usize
    }

    fn side(&self, f: &mut Formatter<'_>, name: &str, trace: &Trace) -> fmt::Result {
        writeln!(f, "{name}:")?;
        for (at, entry) in self.shown(trace) {
            writeln!(f, "{} {entry}", if at >= self.at { '>' } else { ' ' })?;
        }
        let left = trace.entries.len().saturating_sub(self.at + SHOWN_AFTER);
        match left {
            0 => writeln!(f, "  end: {}", trace.ending),
            _ => writeln!(f, "  {left} more entries; end: {}", trace.ending),
        }?;
        match trace.steps.get(self.at_step()) {
            Some(StepRecord { who, line }) => {
                writeln!(f, "  step {} releases {who} at line {line}", self.step)
            }
            None => writeln!(f, "  no step {}: the run had ended", self.step),
        }
    }
}

impl Display for TraceDifference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: the systems diverge in step {}", self.seed, self.step)?;
        writeln!(f, "   step  thread       line  event")?;
        self.side(f, "virtual", &self.on_virtual)?;
        self.side(f, "linux", &self.on_linux)?;
        self.names(f)
    }
}

impl TraceEnd {
    /// Returns `true` if all processes have ended.
    pub fn is_finished(&self) -> bool {
        *self == Self::Finished
    }
}
