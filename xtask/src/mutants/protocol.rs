//! Mutants of the protocol between two gateways: [`run`].
//!
//! `crates/bridge/gateway/mutants` contains a patch for each. Each is applied alone to a copy of
//! the two machines and their explorer, a small package of its own that is built for each mutant.
//! The default tests of the explorer must find a violation: the table names the property, and the
//! number of states or the seed. A patch that does not apply is an error.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::tree::{apply, copy_changes, target};

/// Directory of the patches.
pub(crate) const FOLDER: &str = "crates/bridge/gateway/mutants";

/// Directory of the crate.
const CRATE: &str = "crates/bridge/gateway";

/// Files and directories that the copy has.
const COPIED: [&str; 4] = ["src/frame.rs", "src/incoming.rs", "src/outgoing.rs", "tests/explorer"];

const ROOT_MODULE: &str = "pub mod frame;\npub mod incoming;\npub mod outgoing;\n";

/// The copy is a workspace, because it lies within the repository's.
const MANIFEST: &str = "\
[package]
name = \"tontine-gateway\"
edition = \"2024\"

[dependencies]
crc32fast = \"*\"

[profile.dev]
opt-level = 1
debug = false

[workspace]
";

/// Tests of the explorer, the fastest first.
const TESTS: [&str; 4] = [
    "one_fault_breaks_no_promise",
    "one_fault_breaks_no_record_of_two_frames",
    "random::random_faults_break_no_promise",
    "two_faults_break_no_promise",
];

/// Returns the patches' paths, relative to the root, in the order of their names.
pub(crate) fn protocol_patches(root: &Path) -> io::Result<Vec<PathBuf>> {
    let names = fs::read_dir(root.join(FOLDER))?.map(|entry| Ok(entry?.file_name()));
    let mut paths: Vec<PathBuf> = names
        .map(|name: io::Result<_>| Ok(Path::new(FOLDER).join(name?)))
        .collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    Ok(paths)
}

/// Tries the mutants whose file names contain one of `names`, or all. Returns `Ok(false)` if a
/// mutant is not found.
pub(super) fn run(root: &Path, names: &[String]) -> io::Result<bool> {
    let began = Instant::now();
    let mut patches = protocol_patches(root)?;
    let is_named = |path: &PathBuf, name: &str| path.to_string_lossy().contains(name);
    if let Some(name) = names.iter().find(|name| !patches.iter().any(|path| is_named(path, name))) {
        let text = format!("expected a mutant, found {name}; {FOLDER} lists all");
        return Err(io::Error::other(text));
    }
    patches.retain(|path| names.is_empty() || names.iter().any(|name| is_named(path, name)));
    let copy = MachinesCopy::new(root)?;
    copy.reset(root)?;
    copy.build()?;
    if let Some(found) = copy.find(&TESTS)? {
        let text = format!("the explorer finds a violation without a mutant: {found}");
        return Err(io::Error::other(text));
    }
    println!("| mutant | found by | after |");
    let mut missed = 0;
    for patch in &patches {
        copy.reset(root)?;
        // Paths in the patch begin with `a/crates/bridge/gateway`.
        apply(&copy.folder, &fs::canonicalize(root.join(patch))?, patch, &["-p4"])?;
        copy.build()?;
        let found = copy.find(&TESTS)?;
        missed += usize::from(found.is_none());
        let name = patch.file_stem().unwrap_or_default().to_string_lossy();
        println!("| {name} | {} |", found.as_deref().unwrap_or("NOT FOUND |"));
    }
    let (count, seconds) = (patches.len(), began.elapsed().as_secs());
    println!("{count} mutants of the protocol, {missed} not found; {seconds} s");
    Ok(missed == 0)
}

/// A copy of the machines and their explorer.
struct MachinesCopy {
    folder: PathBuf,
    target: PathBuf,
}

impl MachinesCopy {
    fn new(root: &Path) -> io::Result<Self> {
        let folder = target(root)?.join("mutants/protocol");
        fs::create_dir_all(folder.join("src"))?;
        // Cargo takes the versions of dependencies from the repository's lock file.
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        fs::write(folder.join("Cargo.toml"), MANIFEST)?;
        fs::write(folder.join("src/lib.rs"), ROOT_MODULE)?;
        Ok(Self { target: folder.join("target"), folder })
    }

    /// Replaces the files by the repository's.
    fn reset(&self, root: &Path) -> io::Result<()> {
        for name in COPIED {
            let (from, to) = (root.join(CRATE).join(name), self.folder.join(name));
            if from.is_dir() {
                copy_changes(&from, &to)?;
            } else {
                fs::copy(from, to)?;
            }
        }
        Ok(())
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--quiet", "--offline", "--test", "explorer"]);
        cargo.current_dir(&self.folder).stdin(Stdio::null());
        cargo.env("CARGO_TARGET_DIR", &self.target).env("CARGO_INCREMENTAL", "0");
        // A mutant may leave a variable unused.
        cargo.env("RUSTFLAGS", "--cap-lints=allow");
        cargo
    }

    fn build(&self) -> io::Result<()> {
        if self.cargo().arg("--no-run").status()?.success() {
            return Ok(());
        }
        Err(io::Error::other("the copy of the protocol's machines does not build; see above"))
    }

    /// Runs tests until one of them fails, and returns the property and the number of states, or
    /// the seed.
    fn find(&self, tests: &[&str]) -> io::Result<Option<String>> {
        for test in tests {
            let mut cargo = self.cargo();
            cargo.args(["--", "--exact", test]).env_remove("REMOTE_SEED").env_remove("REMOTE_RUNS");
            let done = cargo.env("RUST_BACKTRACE", "0").output()?;
            if !done.status.success() {
                let output = String::from_utf8_lossy(&done.stdout).into_owned()
                    + &String::from_utf8_lossy(&done.stderr);
                return violation_in(&output)
                    .map(Some)
                    .ok_or_else(|| io::Error::other(format!("{test} failed:\n{output}")));
            }
        }
        Ok(None)
    }
}

/// Returns the columns of the table for the output of a test that failed.
fn violation_in(output: &str) -> Option<String> {
    output.lines().find_map(|line| {
        if let Some((property, states)) = line.split_once(" (after ") {
            return Some(format!("{property} | {}", states.strip_suffix(')')?));
        }
        let (seed, property) = line.strip_prefix("seed ")?.split_once(": ")?;
        Some(format!("{} | seed {seed}", property.split(": ").next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violation_in_reads_states_and_seeds() {
        let found = |output| violation_in(output);
        let states = Some("a message was changed | 17 states".to_owned());
        assert_eq!(found("x\na message was changed (after 17 states)\ny"), states);
        let seed = Some("it does not settle | seed 3, step 9".to_owned());
        assert_eq!(found("seed 3, step 9: it does not settle: Some(x)"), seed);
        assert_eq!(found("error: x"), None);
    }
}
