//! The processes of one real thing: [`Tree`], read from what `cargo xtask trees` wrote.
//!
//! `builds.txt` and `sessions.txt` have a process a line; what its words mean says [`step`].

use std::time::Duration;

use tontine_host::trouble::{Result, Trouble};

const BUILDS: &str = include_str!("builds.txt");
const SESSIONS: &str = include_str!("sessions.txt");

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Uses its processor for so long.
    Compute(Duration),
    /// Makes the process of that number.
    Fork(usize),
    /// Executes a program.
    Exec,
    /// Waits for any child.
    Wait,
    /// Says or asks what a signal does.
    Action,
    /// Says which signals are blocked.
    Mask,
    /// Asks whether it may send a signal.
    Kill,
    /// Makes a pipe.
    Pipe,
    /// Reads or writes.
    Byte,
    /// Leads a process group.
    Group,
    /// Leads a session.
    Session,
}

/// The processes of one real thing, the first one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree(pub(super) Vec<Vec<Step>>);

impl Tree {
    /// Those of one `make`.
    ///
    /// # Errors
    /// Failed, where its file is none of ours.
    pub(super) fn build() -> Result<Self> {
        Self::read(BUILDS).map_err(Trouble::fail)
    }

    /// Those of one session of a pseudo-user.
    ///
    /// # Errors
    /// As [`Tree::build`].
    pub(super) fn session() -> Result<Self> {
        Self::read(SESSIONS).map_err(Trouble::fail)
    }

    /// Reads a file of processes.
    ///
    /// # Errors
    /// What is wrong with it.
    fn read(text: &str) -> std::result::Result<Self, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let process = |line: &str| {
            let (_, words) = line.split_once(':').ok_or(format!("no process: `{line}`"))?;
            let steps =
                words.split_whitespace().map(step).collect::<std::result::Result<Vec<_>, _>>()?;
            Ok::<_, String>(steps.into_iter().flatten().collect())
        };
        lines.map(process).collect::<std::result::Result<Vec<_>, _>>().map(Self)
    }
}

/// The steps that a word means: `c120`, `f3`, `2*a`.
fn step(word: &str) -> std::result::Result<Vec<Step>, String> {
    let unknown = || format!("no step: `{word}`");
    let (times, name) = word.split_once('*').unwrap_or(("1", word));
    let times = times.parse().map_err(|_| unknown())?;
    let number = || name[1..].parse::<u64>().map_err(|_| unknown());
    let step = match name.as_bytes().first() {
        Some(b'c') => Step::Compute(Duration::from_micros(number()?)),
        Some(b'f') => Step::Fork(number()? as usize),
        _ => match name {
            "x" => Step::Exec,
            "w" => Step::Wait,
            "a" => Step::Action,
            "m" => Step::Mask,
            "k" => Step::Kill,
            "p" => Step::Pipe,
            "b" => Step::Byte,
            "g" => Step::Group,
            "s" => Step::Session,
            _ => return Err(unknown()),
        },
    };
    Ok(vec![step; times])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_hold_real_trees() {
        for (text, root) in [(BUILDS, "make:"), (SESSIONS, "sh:")] {
            let tree = Tree::read(text).expect("a tree");
            let first = text.lines().find(|line| !line.starts_with('#')).expect("a process");
            assert!(first.starts_with(root), "{first}");
            let forks = tree.0.iter().flatten().filter(|step| matches!(step, Step::Fork(_)));
            assert_eq!(forks.count(), tree.0.len() - 1);
            assert!(tree.0.iter().flatten().any(|step| *step == Step::Exec));
        }
        assert_eq!(step("2*a"), Ok(vec![Step::Action; 2]));
        assert!(step("c").is_err() && step("z").is_err() && step("fx").is_err());
    }
}
