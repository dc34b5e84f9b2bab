//! `cargo xtask mutants`: removes protections from a copy of the virtual Unix's kernel, or breaks
//! its rules there, and shows that a test finds each change.
//!
//! `crates/unix/sim/mutants/races` contains a [`Patch`] for each protection, with the tests that
//! must fail without it. All patches are applied to one [`PatchedTree`], which is built once; the
//! environment variable `MUTANT` names the protection that a run omits. `mutants/rules` contains
//! patches for a second copy, in which the kernel checks at each of its rules whether to follow the
//! rule: [`rules`].
//!
//! With `--protocol`, the task applies the patches of `crates/bridge/gateway/mutants` instead:
//! [`protocol`].
//!
//! The task does not change the repository. A patch that no longer applies is updated by hand.

mod patch;
mod protocol;
mod rules;
mod runs;
mod tree;

pub(crate) use patch::{Patch, RACES, RULES, patches};
pub(crate) use protocol::protocol_patches;
pub(crate) use tree::does_not_apply;

use std::io;
use std::path::Path;
use std::process::Command;

use tree::PatchedTree;

use crate::arguments::{Arguments, usage};

/// Arguments of `cargo xtask mutants`.
#[derive(Debug)]
pub(crate) struct MutantsRequest {
    /// Names of the patches to try; empty for all.
    names: Vec<String>,
    sample: Option<usize>,
    protocol: bool,
    rules: bool,
    scenarios: u64,
    seed: u64,
}

/// Number of random scenarios that must use each rule.
const SCENARIOS: u64 = 100_000;
/// Seed of the first scenario.
const SEED: u64 = 93_000_000;

impl MutantsRequest {
    pub(crate) fn parse(mut arguments: Arguments) -> io::Result<Self> {
        let sample = arguments.value("--sample")?;
        let (protocol, rules) = (arguments.flag("--protocol"), arguments.flag("--rules"));
        let scenarios = arguments.value("--scenarios")?;
        let seed = arguments.value("--seed")?;
        let names = arguments.names()?;
        let kinds = [sample.is_some(), protocol, rules].into_iter().filter(|given| *given);
        if kinds.count() > 1 || (sample.is_some() || rules) && !names.is_empty() {
            return Err(usage("give one of names, --sample, --protocol and --rules".to_owned()));
        }
        if !rules && (scenarios.is_some() || seed.is_some()) {
            return Err(usage("--scenarios and --seed need --rules".to_owned()));
        }
        let (scenarios, seed) = (scenarios.unwrap_or(SCENARIOS), seed.unwrap_or(SEED));
        Ok(Self { names, sample, protocol, rules, scenarios, seed })
    }
}

/// Tries the requested mutants. Without names, also checks that the copy with rules compiles.
/// Returns `Ok(false)` if a mutant is not found.
pub(crate) fn run(root: &Path, request: &MutantsRequest) -> io::Result<bool> {
    if request.protocol {
        return protocol::run(root, &request.names);
    }
    if request.rules {
        return rules::run(&PatchedTree::make(root, &RULES)?, request.scenarios, request.seed);
    }
    let all = patches(root, &RACES)?;
    let selected = match request.sample {
        Some(count) => sample(all, count, commit(root)),
        None => named(all, &request.names)?,
    };
    let explores = request.sample.is_none();
    let found = runs::find_all(&PatchedTree::make(root, &RACES)?, &selected, explores)?;
    if request.names.is_empty() {
        rules::check(&PatchedTree::make(root, &RULES)?)?;
    }
    Ok(found)
}

/// Returns the named patches, or all if none is named.
fn named(all: Vec<Patch>, names: &[String]) -> io::Result<Vec<Patch>> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|patch| patch.name != **name)) {
        let known: Vec<&str> = all.iter().map(|patch| patch.name.as_str()).collect();
        let text = format!("expected a mutant, found {unknown}; name one of: {}", known.join(", "));
        return Err(io::Error::other(text));
    }
    let wanted = |patch: &Patch| names.is_empty() || names.contains(&patch.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Returns `count` patches at equal distances; `number` determines the first patch.
fn sample(all: Vec<Patch>, count: usize, number: usize) -> Vec<Patch> {
    let len = all.len();
    let count = count.min(len);
    let taken: Vec<usize> = (0..count).map(|nth| (number + nth * len / count) % len).collect();
    let numbered = all.into_iter().enumerate();
    numbered.filter(|(at, _)| taken.contains(at)).map(|(_, patch)| patch).collect()
}

/// Returns a number derived from the checked-out commit, or 0 without a commit.
fn commit(root: &Path) -> usize {
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root).output();
    let name = head.map(|head| String::from_utf8_lossy(&head.stdout).into_owned());
    let digits = name.ok().and_then(|name| name.get(..8).map(str::to_owned));
    digits.and_then(|digits| usize::from_str_radix(&digits, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradicting_arguments_are_refused() {
        let parse = |words: &str| {
            let words = words.split_whitespace().map(std::ffi::OsString::from);
            MutantsRequest::parse(Arguments::new(words))
        };
        for fine in ["", "one two", "--protocol one", "--sample 4", "--rules --seed 1"] {
            parse(fine).expect(fine);
        }
        for wrong in ["--sample 4 one", "--rules --protocol", "--seed 1", "--rules one", "--what"] {
            parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn mutants_are_selected_by_number_or_name() {
        let all = || (0..23).map(|nth| Patch::made_up(&nth.to_string())).collect::<Vec<_>>();
        let names = |count, number| -> Vec<String> {
            sample(all(), count, number).into_iter().map(|patch| patch.name).collect()
        };
        assert_eq!(names(4, 0), ["0", "5", "11", "17"]);
        assert_eq!(names(4, 22), ["4", "10", "16", "22"]);
        assert_eq!(names(100, 7).len(), 23);
        let error = named(all(), &["seven".to_owned()]).expect_err("none has this name");
        assert!(error.to_string().contains("one of: 0, 1"), "{error}");
        assert_eq!(named(all(), &[]).expect("all").len(), 23);
    }
}
