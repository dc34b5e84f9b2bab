//! Patches for `cargo xtask mutants`. Each patch must apply to the tree and name existing tests.

use std::path::Path;
use std::process::Command;

use super::{Diagnostic, TextFile};
use crate::mutants::{Patch, RACES, RULES, does_not_apply, patches, protocol_patches};

/// Directory of the tests that patches name.
const TESTS: &str = "crates/unix/sim/tests/sim/";

/// Checks the rules on patches.
pub(super) fn check(root: &Path, files: &[TextFile]) -> Vec<Diagnostic> {
    if !root.join(RACES.folder()).is_dir() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for set in [&RACES, &RULES] {
        match patches(root, set) {
            Ok(patches) => {
                found.extend(patches.iter().filter_map(|patch| refused(root, &patch.path)));
                found.extend(patches.iter().flat_map(|patch| unknown_tests(patch, files)));
            }
            Err(why) => found.push(complaint(&set.folder(), why.to_string())),
        }
    }
    match protocol_patches(root) {
        Ok(patches) => found.extend(patches.iter().filter_map(|patch| refused(root, patch))),
        Err(why) => found.push(complaint(Path::new("crates/bridge/gateway"), why.to_string())),
    }
    found
}

fn complaint(path: &Path, text: String) -> Diagnostic {
    Diagnostic { path: path.to_owned(), line: 0, text }
}

/// Returns a diagnostic if a patch does not apply.
fn refused(root: &Path, patch: &Path) -> Option<Diagnostic> {
    let checked =
        Command::new("git").args(["apply", "--check"]).arg(patch).current_dir(root).output();
    let why = match checked {
        Ok(done) if done.status.success() => return None,
        Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    Some(complaint(patch, does_not_apply(patch, &why)))
}

/// Returns a diagnostic for each test of a patch that does not exist.
fn unknown_tests(patch: &Patch, files: &[TextFile]) -> Vec<Diagnostic> {
    let is_there = |test: &str| {
        let (module, name) = test.rsplit_once("::").unwrap_or_default();
        let path = format!("{TESTS}{}.rs", module.replace("::", "/"));
        let line = format!("\nfn {name}() {{");
        files.iter().any(|file| file.path == Path::new(&path) && file.text.contains(&line))
    };
    let unknown = patch.tests.iter().filter(|test| !is_there(test));
    unknown
        .map(|test| {
            complaint(&patch.path, format!("expected a test {test}, found none; correct its name"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_test_of_patch_is_reported() {
        let patch = Patch { tests: vec!["races::waits::one".to_owned()], ..Patch::made_up("one") };
        for (name, unknown) in [("waits", 0), ("exits", 1)] {
            let path = format!("{TESTS}races/{name}.rs");
            let file = TextFile::made_up(&path, "//! A.\n#[test]\nfn one() {\n}\n");
            assert_eq!(unknown_tests(&patch, &[file]).len(), unknown, "{name}");
        }
    }
}
