//! Tests of `tontine NAME`, which runs the program `tontine-NAME`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::{copy_command, text, write_program};

/// A copy of the command, alone in a folder, and a folder on its PATH.
struct Installation {
    own: TempDir,
    path: TempDir,
}

impl Installation {
    fn new() -> Self {
        let folder = || tempfile::tempdir().expect("a folder");
        let installation = Self { own: folder(), path: folder() };
        copy_command(&installation.command());
        installation
    }

    fn command(&self) -> PathBuf {
        self.own.path().join("tontine")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.command());
        command.env("PATH", self.path.path()).args(arguments).output().expect("tontine runs")
    }
}

/// Writes a program that prints its name, a mark and its arguments, and exits with status 7.
fn install(folder: &Path, name: &str, mark: &str) {
    let script = format!("#!/bin/sh\necho {name} {mark} \"$@\"\nexit 7\n");
    write_program(&folder.join(name), &script);
}

#[test]
fn unknown_subcommand_runs_program_of_its_name() {
    let installation = Installation::new();
    install(installation.path.path(), "tontine-measure", "path");
    install(installation.path.path(), "tontine-other", "path");
    let printed = |arguments: &[&str]| {
        let output = installation.run(arguments);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(printed(&["measure", "--quick", "a/b"]), "tontine-measure path --quick a/b\n");
    assert_eq!(printed(&["compare", "a", "b"]), "tontine-measure path compare a b\n");
    assert_eq!(printed(&["__invocation"]), "tontine-measure path __invocation\n");
    assert_eq!(printed(&["other", "--help"]), "tontine-other path --help\n");
    assert_eq!(printed(&["help", "measure"]), "tontine-measure path --help\n");
    assert_eq!(printed(&["help", "crash"]), "tontine-measure path crash --help\n");
    // A program next to the command precedes PATH.
    install(installation.own.path(), "tontine-measure", "own");
    assert_eq!(printed(&["measure"]), "tontine-measure own\n");
}

#[test]
fn missing_program_is_named_with_what_installs_it() {
    let installation = Installation::new();
    let error = |arguments: &[&str]| {
        let output = installation.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    for (name, package) in [
        ("compare", "crates/measure/cli"),
        ("measure", "crates/measure/cli"),
        ("unix", "crates/unix/cli"),
    ] {
        let why = error(&[name]);
        assert!(why.contains(&format!("cargo install --locked --path {package}")), "{why}");
    }
    assert!(error(&["sned"]).contains("did you mean `send`?"));
    assert!(error(&["../escape"]).contains("expected a command"));
    let folder = installation.path.path().join("tontine-folder");
    fs::create_dir(folder).expect("a folder");
    let output = installation.run(&["folder"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("cannot run tontine-folder"), "{}", text(&output.stderr));
}
