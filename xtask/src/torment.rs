//! `cargo xtask torment`: builds the program in `torment/` with checks and runs the program.
//!
//! Overflow checks and debug assertions are on, as in the default `dev` profile.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[path = "torment/request.rs"]
mod request;

pub(crate) use request::TormentRequest;

/// Target of the build with AddressSanitizer. Naming a target keeps the flags away from build
/// scripts and procedural macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Arguments of `cargo` that build the program without the other tasks.
const BUILD: [&str; 10] = [
    "build",
    "--quiet",
    "--locked",
    "--package",
    "xtask",
    "--bin",
    "torment",
    "--no-default-features",
    "--features",
    "torment",
];

/// Builds the program and runs it. Returns `Ok(false)` after a violation.
pub(crate) fn run(request: &TormentRequest) -> io::Result<bool> {
    let program = if request.asan {
        let Some(program) = with_address_sanitizer()? else {
            println!("skipped: no nightly toolchain (rustup toolchain install nightly)");
            return Ok(true);
        };
        program
    } else {
        built(Command::new("cargo").args(BUILD))?;
        target().join("debug/torment")
    };
    Ok(Command::new(program).arg("run").args(request.arguments()).status()?.success())
}

/// Builds the program below `target/asan`. Returns `None` without a nightly toolchain.
fn with_address_sanitizer() -> io::Result<Option<PathBuf>> {
    let list = Command::new("rustup").args(["toolchain", "list"]).output();
    let has_nightly = list.is_ok_and(|list| {
        String::from_utf8_lossy(&list.stdout).lines().any(|line| line.starts_with("nightly"))
    });
    if !has_nightly {
        return Ok(None);
    }
    let folder = target().join("asan");
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo"]).args(BUILD);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(&folder);
    cargo.env("RUSTFLAGS", "-Zsanitizer=address");
    built(&mut cargo)?;
    Ok(Some(folder.join(TARGET).join("debug/torment")))
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

fn built(cargo: &mut Command) -> io::Result<()> {
    let status = cargo.stdin(Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{cargo:?} failed ({status}); see its errors above")))
}
