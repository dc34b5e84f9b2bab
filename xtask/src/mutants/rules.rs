//! Rules in a copy: counts the uses of each rule by random scenarios, and checks that the scenarios
//! detect a broken rule.
//!
//! The program `mutants/rules/met.rs` does both. In the copy, the program is an example of
//! `tontine-unix-lab`.

use std::io;

use super::tree::PatchedTree;

const EXAMPLE: [&str; 4] = ["--package", "tontine-unix-lab", "--example", "rules"];

/// Builds the program and runs it. The program first counts uses and then breaks each rule. Returns
/// `Ok(false)` if a rule is used too rarely, or if too many broken rules are not detected.
pub(super) fn run(tree: &PatchedTree, scenarios: u64, seed: u64) -> io::Result<bool> {
    let started = |arguments: &[&str]| {
        let mut cargo = tree.cargo(&["run", "--release", "--locked", "--quiet"]);
        cargo.args(EXAMPLE).arg("--").args(arguments).status()
    };
    let counted = started(&["count", &scenarios.to_string(), &seed.to_string()])?;
    let broken = started(&["break"])?;
    Ok(counted.success() && broken.success())
}

/// Checks that the program compiles.
pub(super) fn check(tree: &PatchedTree) -> io::Result<()> {
    let status = tree.cargo(&["check", "--locked", "--quiet"]).args(EXAMPLE).status()?;
    if status.success() {
        println!("the copy that counts rules compiles");
        return Ok(());
    }
    Err(io::Error::other("the copy that counts rules does not compile; see above"))
}
