//! Tests with a seccomp filter that refuses a call. Rows that need the call are skipped and name
//! it; the other rows run.

#![allow(unsafe_code, reason = "installs a filter between fork and exec")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use serde_json::Value;

/// Returns a filter that makes these calls fail with EPERM and allows all others.
fn refusing(calls: &[i64]) -> BpfProgram {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).expect("a filter");
    filter.try_into().expect("a program")
}

#[test]
#[ignore = "takes long: starts measurements"]
fn refused_call_skips_row_with_call_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let filter = refusing(&[libc::SYS_eventfd2, libc::SYS_mq_open, libc::SYS_pidfd_open]);
    let mut command = Command::new(crate::PROGRAM);
    command.args(["--quick", "--invocations", "1", "--out"]).arg(folder.path());
    command.args(["round-trip/eventfd", "round-trip/posix-mq", "round-trip/pipe"]);
    command.args(["throughput/posix-mq", "survival/posix-mq", "death-notice/wait4"]);
    // SAFETY: between fork and exec only `prctl` and `seccomp` are called, with a program that was
    // built earlier.
    unsafe {
        command.pre_exec(move || {
            seccompiler::apply_filter(&filter).map_err(|_| std::io::ErrorKind::Unsupported.into())
        });
    }
    let output = command.output().expect("tontine runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let text = std::fs::read(folder.path().join("results.json")).expect("results.json");
    let results: Value = serde_json::from_slice(&text).expect("valid JSON");
    let mut seen = 0;
    for cell in results["cells"].as_array().expect("cells") {
        let why = cell["why"].as_str().unwrap_or_default();
        match cell["variant"].as_str() {
            Some("pipe") => assert_eq!(cell["status"], "ok", "{why}"),
            Some("eventfd") => {
                assert!(cell["status"] == "skipped" && why.contains("eventfd"), "{cell}")
            }
            Some("wait4") => {
                assert!(cell["status"] == "skipped" && why.contains("pidfd_open"), "{cell}")
            }
            _ => assert!(cell["status"] == "skipped" && why.contains("mq_open"), "{cell}"),
        }
        seen += 1;
    }
    assert!(seen >= 8);
}

#[test]
#[ignore = "takes long: starts measurements"]
fn untraceable_target_is_skipped_with_call_name() {
    for (call, name) in
        [(libc::SYS_ptrace, "ptrace(PTRACE_SEIZE)"), (libc::SYS_personality, "personality")]
    {
        let filter = refusing(&[call]);
        let mut command = Command::new(crate::PROGRAM);
        command.args(["crash", "pipe", "--format", "json"]);
        // SAFETY: between fork and exec only `prctl` and `seccomp` are called, with a program that
        // was built earlier.
        unsafe {
            command.pre_exec(move || {
                let applied = seccompiler::apply_filter(&filter);
                applied.map_err(|_| std::io::ErrorKind::Unsupported.into())
            });
        }
        let output = command.output().expect("tontine runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        let operations = report["subjects"][0]["operations"].as_array().expect("operations");
        let why = operations[0]["trouble"].as_str().unwrap_or_default();
        assert!(why.starts_with("skipped: ") && why.contains(name), "{why}");
        assert_eq!(operations.len(), 1, "a call refused for one operation is refused for all");
    }
}
