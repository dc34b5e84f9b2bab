//! `cargo xtask zenoh`: checks, builds and tests `crates/bridge/zenoh`, the carrier over Zenoh
//! ([`run`]).
//!
//! The package is outside of the workspace, because it has two hundred dependencies. It has its own
//! lock file, and its own target directory below `target`.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::arguments::Arguments;
use crate::programs::succeeds;

/// Folder of the package, relative to the root.
const PACKAGE: &str = "crates/bridge/zenoh";

/// Arguments of `cargo xtask zenoh`.
#[derive(Debug)]
pub(crate) struct ZenohRequest {
    bench: bool,
    /// Number of times that the tests run.
    repeat: u32,
}

impl ZenohRequest {
    pub(crate) fn parse(mut arguments: Arguments) -> io::Result<Self> {
        let bench = arguments.flag("--bench");
        let repeat = arguments.value("--repeat")?.unwrap_or(1);
        arguments.end()?;
        Ok(Self { bench, repeat })
    }
}

/// Checks, builds and tests the package, or measures it. Returns `Ok(false)` if a step fails.
pub(crate) fn run(root: &Path, request: &ZenohRequest) -> io::Result<bool> {
    let target = std::path::absolute(root.join("target/zenoh"))?;
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(arguments).current_dir(root.join(PACKAGE)).env("CARGO_TARGET_DIR", &target);
        succeeds(&mut cargo)
    };
    if request.bench {
        return cargo(&["bench", "--bench", "carrier", "--locked", "--quiet"]);
    }
    if !cargo(&["fmt", "--check"])? {
        return Ok(false);
    }
    let started = Instant::now();
    let tests = ["test", "--locked", "--quiet"];
    if !cargo(&[&tests[..], &["--no-run"]].concat())? {
        return Ok(false);
    }
    println!("built in {:.0} s", started.elapsed().as_secs_f64());
    for _ in 0..request.repeat {
        if !cargo(&tests)? {
            return Ok(false);
        }
    }
    // Clippy compiles the dependencies a second time, without code, and comes last therefore.
    cargo(&["clippy", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"])
}
