//! `cargo xtask tidy`: checks the project's rules that no compiler checks.
//!
//! [`run`] reads every file that git tracks or would add, and returns a [`Diagnostic`] for each
//! violation. [`lines`] checks single lines, [`files`] a Rust file as a whole, [`sync`] the names
//! of memory orderings over the whole tree, and [`links`] the links in Markdown. [`decisions`]
//! checks the numbers of the records, [`toolchain`] the promised Rust version, [`arrows`] the
//! dependencies of the crates, [`floors`] the modules within each crate, and [`names`] types that
//! share a name. [`mutants`] checks patches for the kernel's mutants, and [`words`] the language
//! and the subjects of commits.
//!
//! The task does not change a file, and does not repeat what rustfmt and clippy find.

mod arrows;
mod decisions;
mod files;
mod floors;
mod lines;
mod links;
mod mutants;
mod names;
mod sync;
mod toolchain;
mod words;

use std::cell::OnceCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    /// Path of the file, relative to the root.
    pub(crate) path: PathBuf,
    /// Line, from 1; 0 means the whole file.
    pub(crate) line: usize,
    /// The violation, and how to fix it.
    pub(crate) text: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.text),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.text),
        }
    }
}

/// A text file of the tree.
struct TextFile {
    /// Path, relative to the root.
    path: PathBuf,
    text: String,
    /// The syntax of a Rust file, once it is needed.
    syntax: OnceCell<syn::Result<syn::File>>,
}

impl TextFile {
    fn new(path: PathBuf, text: String) -> Self {
        Self { path, text, syntax: OnceCell::new() }
    }

    /// Parses a Rust file.
    fn syntax(&self) -> Result<&syn::File, &syn::Error> {
        self.syntax.get_or_init(|| syn::parse_file(&self.text)).as_ref()
    }

    fn complain(&self, line: usize, text: impl Into<String>) -> Diagnostic {
        let (path, text) = (self.path.clone(), text.into());
        Diagnostic { path, line, text }
    }

    fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }

    /// Returns the lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    #[cfg(test)]
    fn made_up(path: &str, text: &str) -> Self {
        Self::new(PathBuf::from(path), text.to_owned())
    }

    #[cfg(test)]
    fn all_made_up(files: &[(&str, &str)]) -> Vec<Self> {
        files.iter().map(|(path, text)| Self::made_up(path, text)).collect()
    }
}

/// Checks the tree below `root`, and returns the violations. A missing git counts as a violation.
pub(crate) fn run(root: &Path) -> Vec<Diagnostic> {
    let files = match read(root) {
        Ok(files) => files,
        Err(why) => {
            let path = root.to_path_buf();
            return vec![Diagnostic { path, line: 0, text: why }];
        }
    };
    let mut found = Vec::new();
    for file in &files {
        found.extend(lines::check(file));
        found.extend(files::check(file));
    }
    found.extend(sync::check(&files));
    found.extend(links::check(&files));
    found.extend(decisions::check(&files));
    found.extend(toolchain::check(&files));
    found.extend(arrows::check(&files));
    found.extend(floors::check(&files));
    found.extend(files::check_crates(&files));
    found.extend(names::check(&files));
    found.extend(mutants::check(root, &files));
    found.extend(words::check(&files));
    found.extend(words::check_subjects(root));
    found
}

/// Reads the text files that git tracks or would add.
fn read(root: &Path) -> Result<Vec<TextFile>, String> {
    let listed =
        output(root, "git", &["ls-files", "--cached", "--others", "--exclude-standard", "-z"])?;
    let mut files = Vec::new();
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let path = PathBuf::from(name);
        // A deleted file that git still tracks, or a link to a directory, is skipped.
        let Ok(bytes) = std::fs::read(root.join(&path)) else {
            continue;
        };
        // Git uses the same test for text files. Some seeds of fuzzers are valid UTF-8 by accident.
        if bytes.contains(&0) {
            continue;
        }
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile::new(path, text));
        }
    }
    Ok(files)
}

/// Returns the output of a program, or the reason for its failure.
fn output(root: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    let done = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        return Err(format!("{program} {}: {}", arguments.join(" "), why.trim()));
    }
    String::from_utf8(done.stdout).map_err(|error| format!("{program}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_lists_untracked_but_not_ignored_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert_eq!(run(root).len(), 1, "no repository is a complaint");
        output(root, "git", &["init", "--quiet"]).expect("git init");
        std::fs::write(root.join("new.rs"), "//! New.\n").expect("write");
        std::fs::write(root.join("built.rs"), "no doc").expect("write");
        std::fs::write(root.join(".gitignore"), "/built.rs\n").expect("write");
        let mut names: Vec<PathBuf> =
            read(root).expect("files").into_iter().map(|file| file.path).collect();
        names.sort();
        assert_eq!(names, [PathBuf::from(".gitignore"), PathBuf::from("new.rs")]);
    }
}
