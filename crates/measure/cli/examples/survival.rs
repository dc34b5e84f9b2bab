//! The program behind `cargo xtask crash`: writes the effect of kills on each mechanism into
//! docs/evidence/survival.md.
//!
//! The release build of the `tontine` command explores the kills, so that a reader can reproduce
//! the points of the page with the same command. [`run`] first requests a plan, and then explores
//! one operation after the other, the quickest first. Each result is kept below `target/crash`, in
//! a directory named after a hash of the program, so that a later run can continue an interrupted
//! run.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use tontine_crash::KillMode;
use tontine_crash::report::{CrashReport, OperationReport, markdown, plan};

/// Lines of the page that enclose the replaced table.
const BEGIN: &str = "<!-- begin: written by `cargo xtask crash` -->";
const END: &str = "<!-- end -->";

/// Explore the effect of kills on all mechanisms, and write the table of docs/evidence/survival.md
#[derive(Debug, Parser)]
struct Arguments {
    /// Kill at every instruction instead of once per class
    #[arg(long)]
    full: bool,
    /// Kill once per class in operations that would not be finished after N minutes at full size
    #[arg(long, value_name = "N", requires = "full")]
    minutes: Option<u64>,
    /// Use no results of an earlier run of the same program
    #[arg(long)]
    afresh: bool,
}

fn main() -> ExitCode {
    let Arguments { full, minutes, afresh } = Arguments::parse();
    match run(full, minutes.map(|minutes| Duration::from_secs(60 * minutes)), afresh) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("survival: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Explores the operations and writes the table. Operations that do not fit into `most` are
/// explored in the fast mode. Returns `Ok(false)` if the exploration was not complete, or if a
/// mechanism of Tontine failed.
fn run(full: bool, most: Option<Duration>, afresh: bool) -> io::Result<bool> {
    let began = Instant::now();
    let mode = if full { KillMode::Full } else { KillMode::Fast };
    let store = CrashProgram::open(afresh)?;
    let mut report = store.plan(mode)?;
    eprint!("{}", plan::render(&report));
    let mut units = units(&report);
    let count = units.len();
    let mut left: Duration = units.iter().map(|unit| unit.estimate).sum();
    units.sort_by_key(|unit| unit.estimate);
    for (at, unit) in units.into_iter().enumerate() {
        let fits = most.is_none_or(|most| began.elapsed() + unit.estimate <= most);
        let mode = if fits { mode } else { KillMode::Fast };
        let name = format!("{} {}", unit.target, unit.operation);
        let (number, mode_name) = (at + 1, mode.name());
        eprintln!("{number} of {count}: {name}, {mode_name}; about {} left", plan::length(left));
        left = left.saturating_sub(unit.estimate);
        let explored = store.explored(&unit, mode)?;
        let wedged = explored.wedged;
        let (kills, passed) = (explored.explored, explored.passed);
        let took = plan::length(Duration::from_millis(explored.took_ms));
        eprintln!("    {kills} explored, {passed} passed, {wedged} wedged, in {took}");
        report.subjects[unit.place.0].operations[unit.place.1] = explored;
    }
    let path = top().join("docs/evidence/survival.md");
    let page = fs::read_to_string(&path)?;
    let table = format!("{}\n\n{}", machine(), markdown::render(&report));
    fs::write(&path, between_marks(&page, &table)?)?;
    Ok(report.complete && !report.is_bad())
}

/// An operation of one target: the unit of exploration.
struct Unit {
    target: String,
    operation: &'static str,
    estimate: Duration,
    /// Position of the row: the indices of the subject and of the operation.
    place: (usize, usize),
}

/// Returns the operations that the plan can explore.
fn units(plan: &CrashReport) -> Vec<Unit> {
    let mut units = Vec::new();
    for (subject, of) in plan.subjects.iter().enumerate() {
        for (at, one) in of.operations.iter().enumerate() {
            if one.kills > 0 {
                units.push(Unit {
                    target: of.name.clone(),
                    operation: one.operation.name(),
                    estimate: one.estimate(),
                    place: (subject, at),
                });
            }
        }
    }
    units
}

/// The program, and the results that it has written so far.
struct CrashProgram {
    folder: PathBuf,
    program: PathBuf,
}

impl CrashProgram {
    /// Builds the program and keeps a copy that later builds do not overwrite.
    fn open(afresh: bool) -> io::Result<Self> {
        let built = build()?;
        let mut hasher = DefaultHasher::new();
        fs::read(&built)?.hash(&mut hasher);
        let folder = top().join(format!("target/crash/{:016x}", hasher.finish()));
        if afresh && folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let program = folder.join("tontine");
        if !program.exists() {
            let copy = folder.join("tontine.part");
            fs::copy(&built, &copy)?;
            fs::rename(&copy, &program)?;
        }
        Ok(Self { folder, program })
    }

    /// Returns an estimate for a run in this mode. To compute it, the program records every
    /// operation and kills at a few points.
    fn plan(&self, mode: KillMode) -> io::Result<CrashReport> {
        self.report(&format!("plan.{}.json", mode.name()), &["--plan", "--mode", mode.name()])
    }

    /// Returns the result of one operation, from an earlier run or explored now.
    fn explored(&self, unit: &Unit, mode: KillMode) -> io::Result<OperationReport> {
        let (target, operation, mode) = (unit.target.as_str(), unit.operation, mode.name());
        let words = [target, "--operation", operation, "--mode", mode];
        let report = self.report(&format!("{target}.{operation}.{mode}.json"), &words)?;
        if !report.complete {
            return Err(io::Error::other(format!("{target} {operation} was ended early")));
        }
        let operations = report.subjects.into_iter().next().map(|subject| subject.operations);
        operations.and_then(|all| all.into_iter().next()).ok_or_else(|| {
            let text = format!("expected {target} {operation} in the report, found none");
            io::Error::other(text)
        })
    }

    /// Returns the report of this name. If it does not exist, runs `tontine-measure crash`, and
    /// keeps the report if it is complete.
    fn report(&self, name: &str, words: &[&str]) -> io::Result<CrashReport> {
        let path = self.folder.join(name);
        if let Some(kept) = kept(&path) {
            return Ok(kept);
        }
        let done = Command::new(&self.program)
            .args(["crash", "--format", "json"])
            .args(words)
            .stderr(Stdio::inherit())
            .output()?;
        let report: CrashReport = serde_json::from_slice(&done.stdout).map_err(|error| {
            io::Error::other(format!(
                "expected the report of `tontine-measure crash`, found {error}"
            ))
        })?;
        if report.complete {
            let part = path.with_extension("part");
            fs::write(&part, &done.stdout)?;
            fs::rename(&part, &path)?;
        }
        Ok(report)
    }
}

/// Returns a report that an earlier run kept.
fn kept(path: &Path) -> Option<CrashReport> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Builds `tontine-measure` for release, and returns its path.
fn build() -> io::Result<PathBuf> {
    let done = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--package", "tontine-measure"])
        .args(["--locked", "--message-format", "json-render-diagnostics"])
        .current_dir(top())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    };
    let built = text.lines().filter_map(executable).next_back();
    built.ok_or_else(|| io::Error::other("cargo built no `tontine-measure`; see its errors above"))
}

/// Returns the root of the repository.
fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns a line about the machine on which the figures were measured.
fn machine() -> String {
    let machine = tontine_bench::machine::MachineFacts::look();
    format!("Explored on: {}.", machine.one_line())
}

/// Returns the page with `table` between the marks.
fn between_marks(page: &str, table: &str) -> io::Result<String> {
    let missing = |mark| {
        io::Error::other(format!(
            "expected a line `{mark}` in docs/evidence/survival.md, found none; add it"
        ))
    };
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", table.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_replaces_only_text_between_marks() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = between_marks(&page, "new\n").expect("both marks are there");
        assert_eq!(new, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between_marks(&new, "new\n").expect("still there"), new);
        assert!(between_marks("no marks", "new").is_err());
    }

    #[test]
    fn truncated_report_is_not_reused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe.send.full.json");
        let whole =
            CrashReport { schema: 2, mode: KillMode::Full, complete: true, subjects: Vec::new() };
        let text = serde_json::to_string(&whole).expect("valid");
        for cut in [0, text.len() / 2, text.len() - 1] {
            fs::write(&path, &text[..cut]).expect("written");
            assert_eq!(kept(&path), None);
        }
        fs::write(&path, &text).expect("written");
        assert_eq!(kept(&path), Some(whole));
    }
}
