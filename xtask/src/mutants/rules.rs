//! Rules in a copy: how often random scenarios meet each, and whether they notice a broken one.
//!
//! The program `mutants/rules/met.rs` does both; it is an example of `tontine-unix-lab` there.

use std::io;

use super::tree::PatchedTree;

const EXAMPLE: [&str; 4] = ["--package", "tontine-unix-lab", "--example", "rules"];

/// Builds the program and runs it: counts first, then breaks each rule. Returns `false` if a rule
/// is met too rarely, or too many broken ones are not noticed.
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
///
/// # Errors
/// It does not.
pub(super) fn check(tree: &PatchedTree) -> io::Result<()> {
    let status = tree.cargo(&["check", "--locked", "--quiet"]).args(EXAMPLE).status()?;
    if status.success() {
        println!("the copy that counts rules compiles");
        return Ok(());
    }
    Err(io::Error::other("the copy that counts rules does not compile; see above"))
}
