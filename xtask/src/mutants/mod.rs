//! `cargo xtask mutants`: removes protections from a copy of the virtual Unix's kernel, or breaks
//! its rules there, and shows that a test finds each change.
//!
//! `crates/unix-sim/mutants/races` contains a [`Patch`] for each protection, with the tests that
//! must fail without it. All patches are applied to one [`PatchedTree`], which is built once; the
//! environment variable `MUTANT` names the protection that a run omits. `mutants/rules` contains
//! patches for a second copy, in which the kernel checks at each of its rules whether to follow the
//! rule: [`rules`].
//!
//! With `--protocol`, the task applies the patches of `crates/remote/mutants` instead:
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

use clap::Args;

use tree::PatchedTree;

/// Arguments of `cargo xtask mutants`.
#[derive(Debug, Args)]
pub(crate) struct MutantsRequest {
    /// Names of the patches to try [default: all]
    names: Vec<String>,
    /// Try only N mutants, which change with each commit, and only with tests
    #[arg(long, value_name = "N", conflicts_with = "names")]
    sample: Option<usize>,
    /// Break the protocol between two gateways instead
    #[arg(long, conflicts_with_all = ["sample", "rules"])]
    protocol: bool,
    /// Count the rules that random scenarios use, and break one after another
    #[arg(long, conflicts_with_all = ["names", "sample"])]
    rules: bool,
    /// Number of random scenarios that must use each rule
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "rules")]
    scenarios: u64,
    /// Seed of the first scenario
    #[arg(long, value_name = "SEED", default_value_t = 93_000_000, requires = "rules")]
    seed: u64,
}

/// Tries the requested mutants. Without names, also checks that the copy with rules compiles.
/// Returns `Ok(false)` if a mutant is not found.
///
/// # Errors
/// Fails if a patch does not apply or has no test, or if a copy does not build.
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

    fn made_up(count: usize) -> Vec<Patch> {
        (0..count).map(|nth| Patch::made_up(&nth.to_string())).collect()
    }

    #[test]
    fn sample_has_requested_size_and_depends_on_number() {
        let names = |count, number| {
            let taken = sample(made_up(23), count, number);
            taken.into_iter().map(|patch| patch.name).collect::<Vec<_>>()
        };
        assert_eq!(names(4, 0), ["0", "5", "11", "17"]);
        assert_eq!(names(4, 22), ["4", "10", "16", "22"]);
        assert_eq!(names(100, 7).len(), 23);
        let ever: std::collections::BTreeSet<String> =
            (0..23).flat_map(|number| names(1, number)).collect();
        assert_eq!(ever.len(), 23);
    }

    #[test]
    fn unknown_mutant_error_lists_known_names() {
        let error = named(made_up(2), &["seven".to_owned()]).expect_err("none has this name");
        assert!(error.to_string().contains("one of: 0, 1"), "{error}");
        assert_eq!(named(made_up(3), &[]).expect("all").len(), 3);
    }
}
