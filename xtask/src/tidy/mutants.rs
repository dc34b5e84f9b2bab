//! Patches for `cargo xtask mutants`: each applies to the tree, and names tests that exist.

use std::path::Path;
use std::process::Command;

use super::{Complaint, File};
use crate::mutants::{Patch, RACES, RULES, does_not_apply, patches};

/// The folder of the tests that patches name.
const TESTS: &str = "crates/unix-sim/tests/sim/";

/// The rules on patches.
pub(super) fn check(root: &Path, files: &[File]) -> Vec<Complaint> {
    if !root.join(RACES.folder()).is_dir() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for set in [&RACES, &RULES] {
        match patches(root, set) {
            Ok(patches) => {
                found.extend(patches.iter().filter_map(|patch| refused(root, patch)));
                found.extend(patches.iter().flat_map(|patch| unknown_tests(patch, files)));
            }
            Err(why) => found.push(complaint(&set.folder(), why.to_string())),
        }
    }
    found
}

fn complaint(path: &Path, text: String) -> Complaint {
    Complaint { path: path.to_owned(), line: 0, text }
}

/// A patch that no longer applies.
fn refused(root: &Path, patch: &Patch) -> Option<Complaint> {
    let checked =
        Command::new("git").args(["apply", "--check"]).arg(&patch.path).current_dir(root).output();
    let why = match checked {
        Ok(done) if done.status.success() => return None,
        Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    Some(complaint(&patch.path, does_not_apply(&patch.path, &why)))
}

/// Tests of a patch that no file has.
fn unknown_tests(patch: &Patch, files: &[File]) -> Vec<Complaint> {
    let is_there = |test: &str| {
        let (module, name) = test.rsplit_once("::").unwrap_or_default();
        let path = format!("{TESTS}{}.rs", module.replace("::", "/"));
        let line = format!("\nfn {name}() {{");
        files.iter().any(|file| file.path == Path::new(&path) && file.text.contains(&line))
    };
    let unknown = patch.tests.iter().filter(|test| !is_there(test));
    unknown.map(|test| complaint(&patch.path, format!("there is no test {test}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_is_looked_for_in_its_module() {
        let mut patch = Patch::made_up("one");
        patch.tests = vec!["races::waits::one".to_owned()];
        let file = |path| [File::made_up(path, "//! A.\n#[test]\nfn one() {\n}\n")];
        assert!(
            unknown_tests(&patch, &file("crates/unix-sim/tests/sim/races/waits.rs")).is_empty()
        );
        assert_eq!(
            unknown_tests(&patch, &file("crates/unix-sim/tests/sim/races/exits.rs")).len(),
            1
        );
    }
}
