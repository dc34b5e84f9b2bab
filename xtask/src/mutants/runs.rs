//! Runs the tests that must find mutants, and prints their results: [`find_all`].
//!
//! A test finds a mutant if it names a seed that violates its invariant, and a second run with the
//! same seed violates the invariant again. The example `explored` finds a mutant if a schedule
//! violates the invariant, both with and without the reduction.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::patch::{MODES, Patch};
use super::tree::PatchedTree;

/// Number of seeds that a test tries.
const SEEDS: &str = "10000";
/// Number of seeds that a test tries without a mutant.
const BASELINE_SEEDS: &str = "20";
/// Maximum number of preemptions of the explored schedules.
const BOUND: &str = "2";
/// Maximum duration of one run.
const RUN_TIMEOUT: Duration = Duration::from_secs(180);
/// Interval between two checks for the end of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A test or race in all modes of its mutant.
struct FinderRow<'p> {
    mutant: &'p str,
    finder: Finder<'p>,
    modes: &'p [&'static str],
    found: Mutex<Vec<ModeRun>>,
}

/// A mode of a row.
struct ModeRun {
    mode: &'static str,
    /// The seed or the schedule that shows the mutant, or the reason why it was not found.
    found: Result<String, String>,
    took: Duration,
}

#[derive(Clone, Copy)]
enum Finder<'p> {
    Test(&'p str),
    Race(&'p str),
}

/// The programs of the copy.
struct CopyPrograms {
    tests: PathBuf,
    explored: Option<PathBuf>,
}

/// Builds the programs, runs the finders of each of `patches` in each of its modes, and prints a
/// table. Returns `Ok(false)` if a mutant is not found. With `explores`, also runs the example
/// `explored`.
pub(super) fn find_all(tree: &PatchedTree, patches: &[Patch], explores: bool) -> io::Result<bool> {
    let began = Instant::now();
    let rows: Vec<FinderRow<'_>> = patches.iter().flat_map(|patch| rows(patch, explores)).collect();
    let races = rows.iter().any(|row| matches!(row.finder, Finder::Race(_)));
    let programs = CopyPrograms::build(tree, races)?;
    println!("built in {} s", began.elapsed().as_secs());
    programs.hold_without_mutant(patches)?;
    let began = Instant::now();
    let jobs: Vec<(&FinderRow<'_>, &str)> =
        rows.iter().flat_map(|row| row.modes.iter().map(move |mode| (row, *mode))).collect();
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        while let Some((row, mode)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = Instant::now();
            let found = programs.find(row, mode)?;
            let mut all = row.found.lock().expect("no thread panics with it");
            all.push(ModeRun { mode, found, took: began.elapsed() });
            if all.len() == row.modes.len() {
                print(row.mutant, row.finder, &mut all);
            }
        }
        Ok(())
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    let is_found = |row: &&FinderRow<'_>| {
        let all = row.found.lock().expect("no thread panics with it");
        all.iter().all(|run| run.found.is_ok())
    };
    let missed: Vec<&str> =
        rows.iter().filter(|row| !is_found(row)).map(|row| row.mutant).collect();
    let (runs, seconds) = (jobs.len(), began.elapsed().as_secs());
    println!("{} mutants, {runs} runs, {} not found; {seconds} s", patches.len(), missed.len());
    Ok(missed.is_empty())
}

fn rows(patch: &Patch, explores: bool) -> Vec<FinderRow<'_>> {
    let tests = patch.tests.iter().map(|test| Finder::Test(test));
    let races = patch.explored.iter().filter(|_| explores).map(|race| Finder::Race(race));
    let row = |finder| {
        let (mutant, modes) = (patch.name.as_str(), patch.modes.as_slice());
        FinderRow { mutant, finder, modes, found: Mutex::new(Vec::new()) }
    };
    tests.chain(races).map(row).collect()
}

/// Prints a row of the table.
fn print(mutant: &str, finder: Finder<'_>, all: &mut [ModeRun]) {
    all.sort_by_key(|run| MODES.iter().position(|mode| *mode == run.mode));
    let took: Duration = all.iter().map(|run| run.took).sum();
    let finder = match finder {
        Finder::Test(test) => test.to_owned(),
        Finder::Race(race) => format!("explored: {race}"),
    };
    let in_modes: Vec<String> = all
        .iter()
        .map(|ModeRun { mode, found, .. }| match found {
            Ok(what) => format!("{mode} {what}"),
            Err(why) => format!("{mode} NOT FOUND: {why}"),
        })
        .collect();
    println!("| {mutant} | {finder} | {} | {:.1} s |", in_modes.join(", "), took.as_secs_f64());
}

impl CopyPrograms {
    fn build(tree: &PatchedTree, explored: bool) -> io::Result<Self> {
        let tests = ["test", "--no-run", "--package", "tontine-unix-sim", "--test", "sim"];
        let races = ["build", "--package", "tontine-unix-lab", "--example", "explored"];
        let tests = executable(tree, &tests, "sim")?;
        let explored = explored.then(|| executable(tree, &races, "explored")).transpose()?;
        Ok(Self { tests, explored })
    }

    fn test(&self, test: &str, seeds: &str) -> Command {
        let mut command = Command::new(&self.tests);
        command
            .args([test, "--exact", "--include-ignored"])
            .env("RACE_SEEDS", seeds)
            .env_remove("MUTANT");
        command
    }

    /// Runs each test of `patches` in the copy without a mutant, because a test that fails there
    /// would find every mutant.
    fn hold_without_mutant(&self, patches: &[Patch]) -> io::Result<()> {
        let tests: BTreeSet<&String> = patches.iter().flat_map(|patch| &patch.tests).collect();
        for test in tests {
            match output_in_time(self.test(test, BASELINE_SEEDS))? {
                Some((true, output)) if output.contains("1 passed") => {}
                Some((_, output)) => {
                    let why = format!("{test} fails in the copy without a mutant:\n{output}");
                    return Err(io::Error::other(why));
                }
                None => {
                    let why = format!("{test} does not end in the copy without a mutant");
                    return Err(io::Error::other(why));
                }
            }
        }
        Ok(())
    }

    /// Runs the finder of a mutant in one mode. Returns the seed or the schedule, or the reason why
    /// the mutant was not found.
    fn find(&self, row: &FinderRow<'_>, mode: &str) -> io::Result<Result<String, String>> {
        let mut command = match row.finder {
            Finder::Race(race) => {
                let program = self.explored.as_ref().expect("built if a race is selected");
                let mut command = Command::new(program);
                command.args(["find", BOUND, mode, race]);
                command
            }
            Finder::Test(test) => {
                let mut command = self.test(test, SEEDS);
                command.env("RACE_MODE", mode);
                command
            }
        };
        command.env("MUTANT", row.mutant);
        let Some((succeeded, output)) = output_in_time(command)? else {
            return Ok(Err(format!("no end within {} s", RUN_TIMEOUT.as_secs())));
        };
        Ok(match row.finder {
            Finder::Test(_) => seed_in(&output, mode),
            Finder::Race(_) if succeeded => Ok(schedule_in(&output)),
            Finder::Race(_) => Err(output.trim().to_owned()),
        })
    }
}

/// Returns the seed that a test's output names, or the reason why the output names none.
fn seed_in(output: &str, mode: &str) -> Result<String, String> {
    let start = format!("{mode}, seed ");
    let line_rest = output.lines().find_map(|line| line.strip_prefix(&start));
    match line_rest.and_then(|line_rest| line_rest.split_once(", which ")) {
        Some((seed, again)) if again.starts_with("shows it again") => Ok(seed.to_owned()),
        Some((seed, _)) => Err(format!("seed {seed} does not show it again")),
        None if output.contains("running 0 tests") => Err("there is no such test".to_owned()),
        None if output.contains("test result: ok") => Err("the test passes".to_owned()),
        None => Err(format!("the test fails for another reason:\n{}", output.trim())),
    }
}

/// Returns the violation that the example `explored` prints: `1 preemptions, schedule 23`.
fn schedule_in(output: &str) -> String {
    output.split(" | ").nth(2).unwrap_or_default().to_owned()
}

/// Runs a program. Returns its success and its output, or `None` if it did not end in time and was
/// killed.
fn output_in_time(mut command: Command) -> io::Result<Option<(bool, String)>> {
    let mut file = nameless_file()?;
    let began = Instant::now();
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > RUN_TIMEOUT {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    };
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(Some((status.success(), String::from_utf8_lossy(&bytes).into_owned())))
}

/// Creates a file without a name, which several processes can write to.
fn nameless_file() -> io::Result<File> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("mutants-{}-{number}", std::process::id()));
    let file = File::options().read(true).append(true).create_new(true).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Returns the path of the program that a message of cargo names.
fn executable_in(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    Some(PathBuf::from(rest.split_once('"')?.0))
}

/// Builds a target of the copy, and returns the path of its program.
fn executable(tree: &PatchedTree, arguments: &[&str], name: &str) -> io::Result<PathBuf> {
    let mut cargo = tree.cargo(arguments);
    cargo.args(["--locked", "--quiet", "--message-format=json-render-diagnostics"]);
    let done = cargo.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let is_of_target = |line: &&str| line.contains(&format!("\"name\":\"{name}\""));
    let program = text.lines().filter(is_of_target).find_map(executable_in);
    match program {
        // The program is copied, because the repository's own build writes a program to the same
        // path.
        Some(program) if done.status.success() => {
            let kept = tree.folder().with_extension(name);
            fs::copy(program, &kept)?;
            Ok(kept)
        }
        _ => Err(io::Error::other(format!(
            "{cargo:?} failed ({}); see its errors above",
            done.status
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_finders_and_cargo_are_read() {
        for (output, expected) in [
            ("x\nmaster, seed 17, which shows it again: Finished", Ok("17")),
            ("master, seed 17, which does not show it again: Finished", Err("does not show")),
            ("parallel, seed 17, which shows it again: Finished", Err("another reason")),
            ("running 0 tests\ntest result: ok. 0 passed", Err("no such test")),
            ("running 1 test\ntest result: ok. 1 passed", Err("passes")),
        ] {
            match (seed_in(output, "master"), expected) {
                (Ok(seed), Ok(expected)) => assert_eq!(seed, expected),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (found, expected) => panic!("found {found:?}, expected {expected:?}"),
            }
        }
        let row = "| two waiters | parallel | 1 preemptions, schedule 9 | 1 preemptions, 30 |";
        assert_eq!(schedule_in(row), "1 preemptions, schedule 9");
        let message = "{\"name\":\"sim\"},\"executable\":\"/t/deps/sim-1\",\"fresh\":true}";
        assert_eq!(executable_in(message), Some(PathBuf::from("/t/deps/sim-1")));
        assert_eq!(executable_in("{\"executable\":null}"), None);
    }
}
