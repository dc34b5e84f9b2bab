//! Tasks that are programs or tests of other packages: [`run`] builds a program with cargo and
//! starts it, [`header`] runs a test.
//!
//! `xtask` links no crate of the product, so that `tidy` starts within seconds. The programs are
//! examples of the packages that they use. Their arguments are passed on unread, but for `--asan`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An example of a package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExampleProgram {
    package: &'static str,
    example: &'static str,
    /// `true` if the program computes or measures, and therefore is built for release.
    is_optimised: bool,
    /// First arguments of the program.
    arguments: &'static [&'static str],
}

pub(crate) const CLAIMS: ExampleProgram =
    ExampleProgram { arguments: &["claims"], is_optimised: false, ..TREES };
pub(crate) const CRASH: ExampleProgram = ExampleProgram {
    package: "tontine-measure",
    example: "survival",
    is_optimised: false,
    arguments: &[],
};
pub(crate) const TORMENT: ExampleProgram = ExampleProgram {
    package: "tontine",
    example: "torment",
    is_optimised: false,
    arguments: &["run"],
};
pub(crate) const TREES: ExampleProgram = ExampleProgram {
    package: "tontine-experiments",
    example: "evidence",
    is_optimised: true,
    arguments: &["trees"],
};

/// Target of the build with AddressSanitizer. Naming a target keeps the flags away from build
/// scripts and procedural macros.
const ASAN_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the program and runs it. Returns `Ok(false)` if the program fails.
///
/// Without optimisation, the whole workspace determines the features of the build, as in
/// `cargo test --workspace`, whose results are used again. This program takes part, because its
/// dependency `syn` determines how the dependencies of procedural macros are built.
pub(crate) fn run(program: ExampleProgram, arguments: &[OsString]) -> io::Result<bool> {
    let mut cargo = Command::new("cargo");
    cargo.args(BUILD).args(["--example", program.example]);
    let profile = if program.is_optimised {
        cargo.args(["--release", "--package", program.package]);
        "release"
    } else {
        cargo.args(["--workspace", "--bin", "xtask"]);
        "debug"
    };
    built(&mut cargo)?;
    start(&target().join(profile).join("examples").join(program.example), program, arguments)
}

/// Like [`run`], but with the argument `--asan`, builds the program below `target/asan` with
/// AddressSanitizer, which needs a nightly toolchain.
pub(crate) fn run_or_sanitize(program: ExampleProgram, arguments: &[OsString]) -> io::Result<bool> {
    let is_asan = |argument: &OsString| argument == "--asan";
    if !arguments.iter().any(is_asan) {
        return run(program, arguments);
    }
    if !has_nightly() {
        println!("skipped: no nightly toolchain (rustup toolchain install nightly)");
        return Ok(true);
    }
    let folder = target().join("asan");
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo"]).args(BUILD);
    cargo.args(["--package", program.package, "--example", program.example]);
    cargo.args(["--target", ASAN_TARGET, "--target-dir"]).arg(&folder);
    built(cargo.env("RUSTFLAGS", "-Zsanitizer=address"))?;
    let path = folder.join(ASAN_TARGET).join("debug/examples").join(program.example);
    let others: Vec<OsString> =
        arguments.iter().filter(|argument| !is_asan(argument)).cloned().collect();
    start(&path, program, &others)
}

/// Runs the test that compares the C header with the sources. Unless `check` is set, the test
/// first writes the header.
pub(crate) fn header(check: bool) -> io::Result<bool> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--quiet", "--locked", "--package", "tontine-c", "--test", "header"]);
    if !check {
        cargo.env("WRITE_DOCS", "1");
    }
    Ok(cargo.status()?.success())
}

const BUILD: [&str; 3] = ["build", "--quiet", "--locked"];

fn has_nightly() -> bool {
    let list = Command::new("rustup").args(["toolchain", "list"]).output();
    list.is_ok_and(|list| {
        String::from_utf8_lossy(&list.stdout).lines().any(|line| line.starts_with("nightly"))
    })
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

fn start(
    path: &std::path::Path,
    program: ExampleProgram,
    arguments: &[OsString],
) -> io::Result<bool> {
    succeeds(Command::new(path).args(program.arguments).args(arguments))
}

/// Runs a program. Returns `false` if it fails, and an error if it cannot start.
pub(crate) fn succeeds(command: &mut Command) -> io::Result<bool> {
    let status = command.status();
    let named = |error| io::Error::other(format!("cannot start {command:?}: {error}"));
    Ok(status.map_err(named)?.success())
}
