//! Tests of `across-machines` from a user's point of view: as root, without root, and after a kill.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::getuid;
use serde_json::Value;

use crate::common::{copy_command, devices, kill_at_process, text, tontine, until_none_is_left};

/// A uid without privileges.
const UNPRIVILEGED: u32 = 65_534;

/// Returns the command for an unprivileged user, as a copy, because not every user may enter the
/// build directory.
pub(crate) fn unprivileged(folder: &Path) -> Command {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("chmod");
    let program = folder.join("tontine");
    copy_command(&program);
    let mut command = Command::new(program);
    command.env("TMPDIR", folder).env("HOME", folder);
    if getuid().is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

#[test]
#[ignore = "takes long: starts measurements"]
fn across_machines_is_measured_or_skipped_for_every_user() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, mut command) in [tontine(), unprivileged(folder.path())].into_iter().enumerate() {
        let out = folder.path().join(format!("out{number}"));
        let output = command
            .args(["--quick", "--invocations", "1", "--out"])
            .arg(&out)
            .arg("across-machines")
            .output()
            .expect("tontine runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let results = fs::read(out.join("results.json")).expect("results.json");
        let results: Value = serde_json::from_slice(&results).expect("valid JSON");
        let cells = results["cells"].as_array().expect("cells");
        for variant in ["tontine", "tcp", "tcp-buffered"] {
            assert!(cells.iter().any(|cell| cell["variant"] == variant), "{variant}");
        }
        for cell in cells {
            let why = cell["why"].as_str().unwrap_or_default();
            if cell["status"] == "skipped" {
                eprintln!("skipped: {why}");
                // Some variants need a program of another project, or the carrier over Zenoh.
                let lacks = ["unshare", "needs ip", "ip link", "none on PATH"];
                assert!(lacks.iter().any(|lack| why.contains(lack)), "{why}");
            } else {
                assert_eq!(cell["status"], "ok", "{cell}");
            }
        }
    }
}

#[test]
#[ignore = "takes long: starts measurements"]
fn killed_across_machines_run_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let temporary = tempfile::tempdir().expect("a folder");
    let devices = || devices(&["eth0"]);
    let before = devices();
    // The run, its invocation, the two hosts, and their gateways.
    for processes in [2, 3, 4, 6] {
        let run = tontine()
            .args(["--out"])
            .arg(folder.path())
            .arg("across-machines/tontine")
            .env("TONTINE_TEST", folder.path())
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("tontine runs");
        kill_at_process(run, folder.path(), processes);
        // A namespace without a process vanishes if no file holds it.
        until_none_is_left(folder.path());
        assert_eq!(devices(), before);
    }
    // The next run removes the directories of the mailboxes.
    let output = tontine()
        .args(["--quick", "--invocations", "1", "--out"])
        .arg(folder.path())
        .arg("liveness-check/dummy")
        .env("TMPDIR", temporary.path())
        .output()
        .expect("tontine runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left = fs::read_dir(temporary.path()).expect("a folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
