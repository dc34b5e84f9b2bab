//! The program behind `cargo xtask torment`, which tests the library with random kills and hostile
//! peers.
//!
//! [`run`] starts this program again for each slice of a [`TormentPart`]. Each slice has its own
//! process and directory, and reports through its standard output ([`slice`]). A slice that panics,
//! crashes or does not end counts as a violation, like a violation that it reports itself.

#[path = "../../tests/common/mod.rs"]
mod common;
mod crowds;
mod descriptors;
mod heap;
#[path = "../../tests/heap_members/mod.rs"]
mod heap_members;
mod kills;
mod message;
mod names;
#[path = "../../tests/raw/mod.rs"]
mod raw;
mod receivers;
mod request;
mod runtimes;
mod senders;
mod slice;
mod wire;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use request::{SliceRequest, TormentPart, TormentRequest, USAGE};
use slice::SliceReport;

/// Number of slices of a run.
const SLICES: u64 = 18;
/// Minimum duration of a slice.
const MIN_SLICE: Duration = Duration::from_secs(2);
/// Maximum duration of a slice.
const MAX_SLICE: Duration = Duration::from_secs(30);

/// Minimum duration in seconds of a run in which another user holds names. It takes these names
/// while the first slices run.
const MIN_NAMES_S: u64 = 60;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = match command.as_str() {
        "run" => TormentRequest::parse(arguments.into_iter()).map(|request| run(&request)),
        "slice" => SliceRequest::parse(&arguments).map(|request| serve(&request)),
        _ => Err(format!("expected a command, found {command:?}")),
    };
    match done {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("torment: {error}");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("torment: {why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs all parts in turn and prints a line for each. Returns `false` after a violation.
fn run(request: &TormentRequest) -> io::Result<bool> {
    let program = std::env::current_exe()?;
    let seed = request.seed.unwrap_or_else(from_clock);
    println!("torment: seed {seed}, {} s", request.seconds);
    let names = (request.seconds >= MIN_NAMES_S).then(names::HeldNames::start);
    let parts: Vec<TormentPart> = TormentPart::ALL
        .into_iter()
        .filter(|part| request.only.is_none_or(|only| only == *part))
        .collect();
    let duration = Duration::from_secs(request.seconds / SLICES).clamp(MIN_SLICE, MAX_SLICE);
    let end = Instant::now() + Duration::from_secs(request.seconds);
    let mut totals: BTreeMap<TormentPart, SliceReport> = BTreeMap::new();
    for part in parts.iter().cycle() {
        let is_complete = totals.len() == parts.len();
        if is_complete && (Instant::now() >= end || totals.values().all(SliceReport::has_failed)) {
            break;
        }
        let total = totals.entry(*part).or_default();
        if total.has_failed() {
            continue;
        }
        let left = end.saturating_duration_since(Instant::now()).max(MIN_SLICE);
        let slice = SliceRequest {
            part: *part,
            seed,
            case: request.case + total.cases,
            milliseconds: duration.min(left).as_millis() as u64,
            folder: folder(*part)?,
        };
        let found = slice::start(&program, &slice)?;
        report(&found, &slice);
        total.add(found);
    }
    for (part, total) in &totals {
        println!("{:<10}{total}", part.name());
    }
    match names.map(|names| names.map(|names| names.count())) {
        Some(Ok((taken, all))) => println!("names     {taken} of {all} held by another user"),
        Some(Err(why)) => println!("names     skipped: {why}"),
        None => {}
    }
    Ok(totals.values().all(|total| total.violations.is_empty()))
}

/// Prints the violations of one slice, or removes its directory if it has none.
fn report(found: &SliceReport, slice: &SliceRequest) {
    let SliceRequest { part, seed, folder, .. } = slice;
    let part = part.name();
    for (case, text) in &found.violations {
        println!("violation in {part}, case {case}, seed {seed}: {text}");
        println!("  repeat: cargo xtask torment --only {part} --seed {seed} --case {case}");
        println!("  folder: {}", folder.display());
    }
    if found.violations.is_empty() {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Creates a directory for one slice that other users may enter.
fn folder(part: TormentPart) -> io::Result<PathBuf> {
    let name = format!("torment-{}-", part.name());
    let folder = tempfile::Builder::new().prefix(&name).tempdir()?.keep();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(folder)
}

fn from_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64 % 1_000_000_000)
}

/// Runs one slice in this process.
fn serve(request: &SliceRequest) -> io::Result<bool> {
    worker::end_with_parent();
    let slice = slice::Slice::new(request);
    match request.part {
        TormentPart::Kills => kills::run(&slice),
        TormentPart::Senders => senders::run(&slice),
        TormentPart::Receivers => receivers::run(&slice),
        TormentPart::Crowds => crowds::run(&slice),
        TormentPart::Heap => heap::run(&slice),
        TormentPart::Runtimes => runtimes::run(&slice),
    }
    slice.finish();
    Ok(true)
}
