//! A copy of the repository's files with patches applied: [`PatchedTree`].
//!
//! The copy is kept below `target/mutants`, so that the next build is short. It shares the build
//! directory with the repository, which has built the dependencies. The packages of the copy are
//! built under other file names, because a mutated kernel must not replace the repository's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use super::patch::{PatchSet, patches};

/// Path of the file to which [`PatchSet::lines`] are added.
const ROOT_MODULE: &str = "crates/unix/sim/src/lib.rs";

/// A copy with a set of patches.
#[derive(Debug)]
pub(super) struct PatchedTree {
    folder: PathBuf,
    target: PathBuf,
}

impl PatchedTree {
    /// Creates the copy, or updates the existing copy. Unchanged files are not written, so cargo
    /// does not rebuild them.
    pub(super) fn make(root: &Path, set: &PatchSet) -> io::Result<Self> {
        let target = target(root)?;
        let folder = target.join("mutants").join(set.name);
        let staged = folder.with_extension("staged");
        if staged.exists() {
            fs::remove_dir_all(&staged)?;
        }
        let files = tracked(root)?;
        for file in &files {
            // A deleted file that is still tracked, or a link to a directory, is skipped.
            let Ok(bytes) = fs::read(root.join(file)) else { continue };
            write(&staged.join(file), &bytes)?;
        }
        for (from, to) in set.files {
            write(&staged.join(to), &fs::read(root.join(set.folder()).join(from))?)?;
        }
        let module = staged.join(ROOT_MODULE);
        fs::write(&module, fs::read_to_string(&module)? + set.lines)?;
        for patch in patches(root, set)? {
            apply(&staged, &fs::canonicalize(root.join(&patch.path))?, &patch.path, &[])?;
        }
        copy_changes(&staged, &folder)?;
        fs::remove_dir_all(&staged)?;
        Ok(Self { folder, target })
    }

    /// Returns the directory of the copy.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a command that runs cargo in the copy.
    pub(super) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        cargo.env("CARGO_TARGET_DIR", &self.target);
        // Cargo names the files of a package by its path within the workspace, which is the same in
        // the copy. A wrapper changes the file names of the workspace's packages only.
        cargo.env("RUSTC_WORKSPACE_WRAPPER", "env");
        cargo
    }
}

/// Returns the absolute path of the directory in which cargo builds the repository.
pub(super) fn target(root: &Path) -> io::Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    fs::create_dir_all(&target)?;
    fs::canonicalize(target)
}

/// Returns the files that git tracks or would add.
fn tracked(root: &Path) -> io::Result<Vec<PathBuf>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let done = Command::new("git").args(list).current_dir(root).output()?;
    if !done.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    let names = String::from_utf8_lossy(&done.stdout).into_owned();
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// Applies a patch below `folder`; `shown` is its name in an error.
pub(super) fn apply(folder: &Path, patch: &Path, shown: &Path, options: &[&str]) -> io::Result<()> {
    let done = Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .args(options)
        .arg(patch)
        .current_dir(folder)
        // The directory must not count as part of a repository that contains it.
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder))
        .output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(does_not_apply(shown, &String::from_utf8_lossy(&done.stderr))))
}

/// Returns the error for a patch that git refuses, with the fix.
pub(crate) fn does_not_apply(patch: &Path, why: &str) -> String {
    let failed = why.lines().find_map(|line| line.strip_prefix("error: patch failed: "));
    let place = failed.map_or_else(|| why.trim().to_owned(), |place| format!("hunk at {place}"));
    let source = patch.ancestors().find(|folder| folder.ends_with("mutants"));
    let source = source.map_or_else(PathBuf::new, |folder| folder.with_file_name("src"));
    let (patch, source) = (patch.display(), source.display());
    format!(
        "{patch} does not apply ({place}). Update it: `git apply --3way {patch}`, resolve, \
         replace the diff in the file by `git diff HEAD`, then \
         `git restore --staged --worktree {source}`"
    )
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes)
}

/// Makes `to` equal to `from`, and writes only the files that differ.
pub(super) fn copy_changes(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let names = |folder: &Path| -> io::Result<BTreeSet<_>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    };
    let wanted = names(from)?;
    for old in names(to)?.difference(&wanted) {
        let path = to.join(old);
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    for name in &wanted {
        let (from, to) = (from.join(name), to.join(name));
        if from.is_dir() {
            copy_changes(&from, &to)?;
            continue;
        }
        let bytes = fs::read(from)?;
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::write(to, bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_changes_keeps_unchanged_and_removes_old_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        for path in ["to/a/same", "to/a/changed", "to/b/old", "from/a/same"] {
            write(&folder.path().join(path), b"1").expect("written");
        }
        for path in ["a/changed", "new"] {
            write(&from.join(path), b"2").expect("written");
        }
        let time = || fs::metadata(to.join("a/same")).and_then(|file| file.modified());
        let before = time().expect("a time");
        copy_changes(&from, &to).expect("copied");
        assert_eq!(before, time().expect("a time"));
        assert_eq!(fs::read(to.join("a/changed")).expect("a file"), b"2");
        assert!(to.join("new").is_file() && !to.join("b").exists());
    }

    #[test]
    fn refused_patch_names_hunk_and_fix() {
        let folder = tempfile::tempdir().expect("a folder");
        let patch = folder.path().join("p.patch");
        write(&folder.path().join("x"), b"one\n").expect("written");
        write(&patch, b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-two\n+three\n").expect("written");
        let error = apply(folder.path(), &patch, Path::new("p.patch"), &[]).expect_err("refused");
        let text = error.to_string();
        let parts = ["hunk at x:1", "git apply --3way p.patch"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}
