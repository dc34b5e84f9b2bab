//! Patch files: [`Patch`] and its header, and the [`PatchSet`] of patches that are applied
//! together.
//!
//! The header describes the protection that the patch removes. Lines of this form follow:
//!
//! ```text
//! test: races::waits::one_of_two_waiters_reaps_the_only_child
//! modes: master, parallel
//! explored: two waiters
//! ```
//!
//! Each test must fail in each mode. `explored` names a race of the example `explored`, which must
//! also find a violation in each mode.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Names of the virtual Unix's modes, in the order of the tables.
pub(super) const MODES: [&str; 3] = ["uniprocessor", "master", "parallel"];

/// Directory of all patches.
const FOLDER: &str = "crates/unix/sim/mutants";

/// Patches that are applied together, and the files that they need.
#[derive(Debug)]
pub(crate) struct PatchSet {
    /// Name of the directory in [`FOLDER`], and of the copy.
    pub(crate) name: &'static str,
    /// `true` if each patch names the tests that find it.
    has_tests: bool,
    /// Files of the directory, with their paths in the copy.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Lines to add to the root of the crate.
    pub(super) lines: &'static str,
}

/// Patches that each remove a protection.
pub(crate) const RACES: PatchSet = PatchSet {
    name: "races",
    has_tests: true,
    files: &[("switch.rs", "crates/unix/sim/src/mutants.rs")],
    lines: "\nmod mutants;\n",
};

/// Patches that count rules, and can break each of them.
pub(crate) const RULES: PatchSet = PatchSet {
    name: "rules",
    has_tests: false,
    files: &[
        ("rule.rs", "crates/unix/sim/src/rule.rs"),
        ("met.rs", "crates/unix/lab/examples/rules.rs"),
    ],
    lines: "\n#[allow(missing_docs)]\npub mod rule;\n",
};

impl PatchSet {
    /// Returns the directory, relative to the root.
    pub(crate) fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(self.name)
    }
}

/// A patch for the copy of the kernel, with the tests that must find it.
#[derive(Debug)]
pub(crate) struct Patch {
    /// Name of the file without the extension.
    pub(crate) name: String,
    /// Path of the file, relative to the root.
    pub(crate) path: PathBuf,
    /// Tests of `tontine-unix-sim`'s program `sim` that must fail, by their full names.
    pub(crate) tests: Vec<String>,
    /// Modes in which each test must fail.
    pub(crate) modes: Vec<&'static str>,
    /// Races of the example `explored` in which a violation must be found.
    pub(crate) explored: Vec<String>,
}

/// Reads the patches of a set, in the order of their names.
pub(crate) fn patches(root: &Path, set: &PatchSet) -> io::Result<Vec<Patch>> {
    let folder = set.folder();
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(&folder))? {
        let name = entry?.file_name();
        let path = folder.join(&name);
        if path.extension().is_some_and(|extension| extension == "patch") {
            let text = fs::read_to_string(root.join(&path))?;
            let patch = Patch::parse(path.clone(), &text, set.has_tests);
            let named = |why| io::Error::other(format!("{}: {why}", path.display()));
            found.push(patch.map_err(named)?);
        }
    }
    found.sort_by(|one, next| one.name.cmp(&next.name));
    Ok(found)
}

impl Patch {
    fn parse(path: PathBuf, text: &str, has_tests: bool) -> Result<Self, String> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut patch = Self { name, path, tests: vec![], modes: vec![], explored: vec![] };
        let (header, body) =
            text.split_once("\ndiff --git ").ok_or("expected a line `diff --git`, found none")?;
        for line in header.lines() {
            if let Some(test) = line.strip_prefix("test: ") {
                patch.tests.push(test.to_owned());
            } else if let Some(race) = line.strip_prefix("explored: ") {
                patch.explored.push(race.to_owned());
            } else if let Some(names) = line.strip_prefix("modes: ") {
                for name in names.split(", ") {
                    let mode = MODES.into_iter().find(|mode| *mode == name);
                    patch
                        .modes
                        .push(mode.ok_or_else(|| format!("expected a mode, found {name:?}"))?);
                }
            }
        }
        if has_tests && (patch.tests.is_empty() || patch.modes.is_empty()) {
            return Err("the header needs a line `test: …` and a line `modes: …`".to_owned());
        }
        if has_tests && !body.contains(&format!("is_on(\"{}\")", patch.name)) {
            let name = &patch.name;
            return Err(format!(
                "expected a call of `crate::mutants::is_on({name:?})`, found none"
            ));
        }
        Ok(patch)
    }

    #[cfg(test)]
    pub(crate) fn made_up(name: &str) -> Self {
        let path = PathBuf::from(name);
        Self { name: name.to_owned(), path, tests: vec![], modes: vec![], explored: vec![] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_needs_tests_and_known_modes() {
        let parse = |header: &str| {
            let body = "diff --git a/x b/x\n+    if crate::mutants::is_on(\"one\") {\n";
            let text = format!("Words.\n\n{header}\n{body}");
            Patch::parse(PathBuf::from("folder/one.patch"), &text, true)
        };
        let patch = parse("test: a::b\ntest: a::c\nmodes: master, parallel\nexplored: d e\n");
        let patch = patch.expect("a patch");
        assert_eq!((&*patch.name, patch.tests.join(" ")), ("one", "a::b a::c".to_owned()));
        assert_eq!(patch.modes, ["master", "parallel"]);
        assert_eq!(patch.explored, ["d e"]);
        for incomplete in ["modes: master\n", "test: a::b\n", "test: a::b\nmodes: rough\n"] {
            parse(incomplete).expect_err(incomplete);
        }
    }
}
