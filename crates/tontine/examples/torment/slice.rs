//! A slice of a part: [`Slice`] inside the slice's process, [`start`] and [`SliceReport`] outside.
//!
//! The process prints its counts, one name and number per line. Violations are appended to a file
//! in the directory. Every forked worker inherits its descriptor, so that a worker of another user,
//! or without a free descriptor, can report them too.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::common::Random;
use super::request::{SliceRequest, TormentPart};
use super::worker::{self, ForkedWorker};

/// Maximum delay between the end of a slice's time and the end of its process.
const GRACE: Duration = Duration::from_secs(90);

/// Name of the file of violations.
const VIOLATIONS: &str = "violations";

/// Maximum number of violations that one slice reports.
const MAX_VIOLATIONS: u64 = 5;

/// Number of slices with violations after which a part is aborted.
const MAX_FAILED_SLICES: u64 = 3;

/// Maximum duration of a call, excluding the time that it waits for a processor; a longer call is
/// a violation.
pub(super) const MAX_CALL: Duration = Duration::from_secs(5);

/// Maximum time without progress; a longer pause is a violation.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(25);

/// The counters of a slice.
#[derive(Debug, Clone, Copy)]
pub(super) enum SliceCounter {
    Rounds,
    Cases,
    Deaths,
    Messages,
    LongestUs,
}

/// The slice that this process runs, and its workers.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) folder: PathBuf,
    part: TormentPart,
    seed: u64,
    end: Instant,
    counts: worker::SharedWords,
    violations: File,
}

/// Index of the shared word that holds the next case's number.
const CASE: usize = 5;

impl Slice {
    pub(super) fn new(request: &SliceRequest) -> Self {
        let violations = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(request.folder.join(VIOLATIONS));
        let slice = Self {
            folder: request.folder.clone(),
            part: request.part,
            seed: request.seed,
            end: Instant::now() + Duration::from_millis(request.milliseconds),
            counts: worker::shared(8),
            violations: violations.expect("a file"),
        };
        worker::set(&slice.counts[CASE], request.case);
        slice.report_panics();
        slice
    }

    /// Returns `true` if the slice's time is up or it has reported the maximum number of
    /// violations.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end || self.violations() > 0
    }

    /// Returns the remaining time.
    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Begins the next case and returns its number.
    pub(super) fn next_case(&self) -> u64 {
        self.add(SliceCounter::Cases, 1);
        worker::add(&self.counts[CASE], 1)
    }

    /// Returns the number of the current case.
    pub(super) fn latest_case(&self) -> u64 {
        worker::get(&self.counts[CASE]).saturating_sub(1)
    }

    /// Returns the random generator of one case.
    pub(super) fn random(&self, case: u64) -> Random {
        let mut state = self.seed ^ (self.part as u64) << 56;
        for word in [case, 1] {
            state = state.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            state ^= state >> 31;
        }
        Random(state | 1)
    }

    /// Adds to a count; any worker may call this.
    pub(super) fn add(&self, count: SliceCounter, more: u64) {
        worker::add(&self.counts[count as usize], more);
    }

    /// Records the duration of a call.
    pub(super) fn took(&self, duration: Duration) {
        worker::raise(&self.counts[SliceCounter::LongestUs as usize], duration.as_micros() as u64);
    }

    /// Reports a violation of `case`.
    pub(super) fn violate(&self, case: u64, text: &str) {
        write_violation(&self.violations, case, text);
    }

    /// Reports a violation unless `holds`.
    pub(super) fn check(&self, case: u64, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.violate(case, &text());
        }
    }

    /// Reports a violation unless a process has exited with 0.
    pub(super) fn check_exit(&self, case: u64, status: Option<i32>, what: &str) {
        self.check(case, status == Some(0), || {
            format!("expected {what} to exit with 0, found {}", worker::describe(status))
        });
    }

    /// Like [`Slice::check_exit`], with the stacks of a process that has not ended.
    pub(super) fn check_worker(&self, case: u64, status: Option<i32>, worker: &ForkedWorker) {
        let what = match status {
            None => format!("the {}, now at\n{}\n", worker.name, worker::stacks(worker.pid)),
            Some(_) => format!("the {}", worker.name),
        };
        self.check_exit(case, status, &what);
    }

    /// Returns the number of reported violations.
    pub(super) fn violations(&self) -> u64 {
        read_violations(&self.violations).len() as u64
    }

    /// Reports a case that cannot run on this machine, and the reason.
    pub(super) fn note_skipped(&self, what: &str) {
        let _ = std::fs::write(self.folder.join("skipped"), what);
    }

    /// Prints the counts.
    pub(super) fn finish(&self) {
        let [rounds, cases, deaths, messages, longest] = [
            SliceCounter::Rounds,
            SliceCounter::Cases,
            SliceCounter::Deaths,
            SliceCounter::Messages,
            SliceCounter::LongestUs,
        ]
        .map(|count| worker::get(&self.counts[count as usize]));
        println!("{rounds} {cases} {deaths} {messages} {longest}");
    }

    /// Makes every panic of this process and its workers a violation.
    fn report_panics(&self) {
        let violations = self.violations.try_clone().expect("a descriptor");
        let next = &self.counts[CASE];
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let case = worker::get(next).saturating_sub(1);
            write_violation(&violations, case, &format!("panic: {info}"));
            print(info);
        }));
    }
}

/// Appends one line in a single write, because several processes may append concurrently.
fn write_violation(mut file: &File, case: u64, text: &str) {
    if read_violations(file).len() as u64 >= MAX_VIOLATIONS {
        return;
    }
    let line = format!("{case} {}\n", text.replace('\n', "\\n"));
    if let Err(error) = file.write_all(line.as_bytes()) {
        eprintln!("a violation could not be written ({error}): {line}");
    }
}

fn read_violations(file: &File) -> Vec<(u64, String)> {
    let length = file.metadata().map_or(0, |file| file.len());
    let mut bytes = vec![0; length as usize];
    let text = file.read_exact_at(&mut bytes, 0).map(|()| String::from_utf8_lossy(&bytes));
    let text = text.unwrap_or_default();
    let parse = |line: &str| {
        let (case, text) = line.split_once(' ').unwrap_or(("0", line));
        (case.parse().unwrap_or(0), text.replace("\\n", "\n  "))
    };
    text.lines().map(parse).collect()
}

/// The findings of one slice, or of all slices of a part.
#[derive(Debug, Default)]
pub(super) struct SliceReport {
    pub(super) cases: u64,
    pub(super) violations: Vec<(u64, String)>,
    limits: std::collections::BTreeSet<String>,
    rounds: u64,
    deaths: u64,
    messages: u64,
    longest: Duration,
    failed_slices: u64,
}

impl SliceReport {
    /// Returns `true` if enough slices of the part have failed to end the part.
    pub(super) fn has_failed(&self) -> bool {
        self.failed_slices >= MAX_FAILED_SLICES
    }

    /// Adds the findings of another slice.
    pub(super) fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.rounds += other.rounds;
        self.deaths += other.deaths;
        self.messages += other.messages;
        self.longest = self.longest.max(other.longest);
        self.failed_slices += u64::from(!other.violations.is_empty());
        self.violations.extend(other.violations);
        self.limits.extend(other.limits);
    }
}

impl fmt::Display for SliceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, deaths, messages, cases, longest, .. } = self;
        write!(f, "{rounds} rounds, {deaths} deaths, {messages} messages, {cases} cases, ")?;
        if *longest > Duration::ZERO {
            write!(f, "longest call {:.1} ms, ", longest.as_secs_f64() * 1e3)?;
        }
        write!(f, "{} violations", self.violations.len())?;
        for limit in &self.limits {
            write!(f, "; skipped: {limit}")?;
        }
        Ok(())
    }
}

/// Runs one slice in a separate process and waits until it ends.
pub(super) fn start(program: &Path, request: &SliceRequest) -> io::Result<SliceReport> {
    let SliceRequest { part, seed, case, milliseconds, folder } = request;
    let errors = folder.join("stderr");
    let counts = folder.join("counts");
    let mut child = Command::new(program)
        .args(["slice", part.name()])
        .args([seed, case, milliseconds].map(u64::to_string))
        .arg(folder)
        // Leak detection is off, because most workers are killed.
        .env("ASAN_OPTIONS", "detect_leaks=0:exitcode=99")
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(File::create(&counts)?)
        .stderr(File::create(&errors)?)
        .spawn()?;
    let deadline = Instant::now() + Duration::from_millis(*milliseconds) + GRACE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= deadline {
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut outcome = SliceReport::default();
    let printed = std::fs::read_to_string(&counts)?;
    let numbers: Vec<u64> =
        printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if let [rounds, cases, deaths, messages, longest] = numbers[..] {
        outcome.longest = Duration::from_micros(longest);
        (outcome.rounds, outcome.cases, outcome.deaths) = (rounds, cases, deaths);
        outcome.messages = messages;
    }
    outcome.limits.extend(std::fs::read_to_string(folder.join("skipped")).ok());
    outcome.violations = read_violations(&File::open(folder.join(VIOLATIONS))?);
    match status {
        None => {
            let stacks = worker::stacks(child.id() as i32);
            child.kill()?;
            child.wait()?;
            let text = format!("expected the slice to end, found it hanging:\n{stacks}");
            outcome.violations.push((*case, text));
        }
        Some(status) if !status.success() && outcome.violations.is_empty() => {
            let text = std::fs::read_to_string(&errors)?;
            let text: Vec<&str> = text.lines().take(20).collect();
            let text = format!("expected exit status 0, found {status}:\n  {}", text.join("\n  "));
            outcome.violations.push((*case, text));
        }
        Some(_) => {}
    }
    outcome.cases = outcome.cases.max(1);
    Ok(outcome)
}
