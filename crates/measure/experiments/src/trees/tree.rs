//! The processes of one real build or session: [`RecordedTree`], read from the output of `cargo
//! xtask trees`.
//!
//! `builds.txt` and `sessions.txt` contain one process per line; [`step`] explains their words.

use std::time::Duration;

use crate::prelude::*;

const BUILDS: &str = include_str!("builds.txt");
const SESSIONS: &str = include_str!("sessions.txt");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceOp {
    /// Use its processor for this time.
    Compute(Duration),
    /// Create the process with this number.
    Fork(usize),
    Exec,
    Wait,
    /// Set or query the action of a signal.
    Action,
    Mask,
    /// Check for permission to send a signal.
    Kill,
    Pipe,
    Byte,
    /// Become the leader of a process group.
    Group,
    /// Become the leader of a session.
    Session,
}

/// The processes of one real build or session, starting with the first process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedTree(pub(super) Vec<Vec<TraceOp>>);

impl RecordedTree {
    pub(super) fn build() -> Result<Self> {
        Self::read(BUILDS).map_err(MeasureError::fail)
    }

    pub(super) fn session() -> Result<Self> {
        Self::read(SESSIONS).map_err(MeasureError::fail)
    }

    /// Returns the time for which all processes compute together.
    pub(super) fn computing(&self) -> Duration {
        let computed = self.0.iter().flatten().map(|step| match step {
            TraceOp::Compute(duration) => *duration,
            _ => Duration::ZERO,
        });
        computed.sum()
    }

    fn read(text: &str) -> std::result::Result<Self, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let process = |line: &str| {
            let (_, words) = line.split_once(':').ok_or(format!("not a process: `{line}`"))?;
            let steps =
                words.split_whitespace().map(step).collect::<std::result::Result<Vec<_>, _>>()?;
            Ok::<_, String>(steps.into_iter().flatten().collect())
        };
        lines.map(process).collect::<std::result::Result<Vec<_>, _>>().map(Self)
    }
}

/// Returns the steps that a word represents, such as `c120`, `f3` or `2*a`.
fn step(word: &str) -> std::result::Result<Vec<TraceOp>, String> {
    let unknown = || format!("not a step: `{word}`");
    let (times, name) = word.split_once('*').unwrap_or(("1", word));
    let times = times.parse().map_err(|_| unknown())?;
    let number = || name[1..].parse::<u64>().map_err(|_| unknown());
    let step = match name.as_bytes().first() {
        Some(b'c') => TraceOp::Compute(Duration::from_micros(number()?)),
        Some(b'f') => TraceOp::Fork(number()? as usize),
        _ => match name {
            "x" => TraceOp::Exec,
            "w" => TraceOp::Wait,
            "a" => TraceOp::Action,
            "m" => TraceOp::Mask,
            "k" => TraceOp::Kill,
            "p" => TraceOp::Pipe,
            "b" => TraceOp::Byte,
            "g" => TraceOp::Group,
            "s" => TraceOp::Session,
            _ => return Err(unknown()),
        },
    };
    Ok(vec![step; times])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_files_contain_real_trees() {
        for (text, root) in [(BUILDS, "make:"), (SESSIONS, "sh:")] {
            let tree = RecordedTree::read(text).expect("a tree");
            let first = text.lines().find(|line| !line.starts_with('#')).expect("a process");
            assert!(first.starts_with(root), "{first}");
            let forks = tree.0.iter().flatten().filter(|step| matches!(step, TraceOp::Fork(_)));
            assert_eq!(forks.count(), tree.0.len() - 1);
            assert!(tree.0.iter().flatten().any(|step| *step == TraceOp::Exec));
        }
        assert_eq!(step("2*a"), Ok(vec![TraceOp::Action; 2]));
        assert!(step("c").is_err() && step("z").is_err() && step("fx").is_err());
    }
}
