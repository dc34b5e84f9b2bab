//! Figures of the carrier between processes over `tcp/` on loopback, as ratios within a run.
//!
//! `raw` is Zenoh itself. `link` states what the queues and threads of [`tontine_zenoh::ZenohLink`]
//! cost, `linked` what the protocol costs in the programs themselves, and `gateway` what two
//! gateways cost between the sender of a mailbox and its owner. A further figure is a row of
//! [`ROWS`]: a function for each side, and the row to which it is compared.
//!
//! Run it by `cargo xtask zenoh --bench`. Arguments of the program select rows by their names.

mod gateway;
mod link;
mod linked;
mod raw;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tontine_gateway::frame::MAX_FRAME;

/// A measured figure: its name, unit and base, and what both processes do.
struct BenchRow {
    name: &'static str,
    unit: &'static str,
    /// The row to which this one is compared, and the ratio that is aimed at.
    base: Option<(&'static str, &'static str)>,
    near: fn(&str) -> f64,
    far: fn(&str),
}

impl BenchRow {
    const fn new(
        name: &'static str,
        unit: &'static str,
        base: Option<(&'static str, &'static str)>,
        near: fn(&str) -> f64,
        far: fn(&str),
    ) -> Self {
        Self { name, unit, base, near, far }
    }
}

const RAW: [&str; 2] = ["raw/throughput", "raw/round-trip"];
const LINKED: [&str; 2] = ["linked/throughput", "linked/round-trip"];

const ROWS: [BenchRow; 8] = [
    BenchRow::new(RAW[0], "MB/s", None, raw::throughput, raw::counter),
    BenchRow::new(RAW[1], "us", None, raw::round_trip, raw::echo),
    BenchRow::new("link/throughput", "MB/s", Some((RAW[0], "")), link::throughput, link::counter),
    BenchRow::new("link/round-trip", "us", Some((RAW[1], "")), link::round_trip, link::echo),
    BenchRow::new(LINKED[0], "MB/s", Some((RAW[0], ">= 0.6")), linked::throughput, linked::owner),
    BenchRow::new(LINKED[1], "us", Some((RAW[1], "<= 1.5")), linked::round_trip, linked::owner),
    BenchRow::new(
        "gateway/throughput",
        "MB/s",
        Some((LINKED[0], ">= 0.7")),
        gateway::throughput,
        gateway::owner,
    ),
    BenchRow::new(
        "gateway/round-trip",
        "us",
        Some((LINKED[1], "<= 30 us more")),
        gateway::round_trip,
        gateway::owner,
    ),
];

/// Fresh pairs of processes for each row. Rows take turns.
const PAIRS: usize = 7;
/// Time in which the near process sends a stream, and maximum time of its round trips.
const DURATION: Duration = Duration::from_secs(2);
/// Maximum number of round trips.
const ROUND_TRIPS: usize = 10_000;
/// Length of a record, and of a message of which only the arrival counts.
const SHORT: usize = 64;
/// A message of this length ends a stream; the answer is the number of bytes that arrived.
const END: usize = 1;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, endpoint] = &arguments[..]
        && role == "far"
    {
        let row = ROWS.iter().find(|row| row.name == name).expect("a row");
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        (row.far)(endpoint);
        return;
    }
    let names: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_named = |row: &BenchRow| names.iter().any(|name| row.name.contains(name.as_str()));
    let rows: Vec<&BenchRow> =
        ROWS.iter().filter(|row| names.is_empty() || is_named(row)).collect();
    let mut figures = vec![Vec::new(); rows.len()];
    for _ in 0..PAIRS {
        for (row, figures) in rows.iter().zip(&mut figures) {
            let endpoint = free_endpoint();
            let mut far = start(row, &endpoint);
            figures.push((row.near)(&endpoint));
            let _ = far.kill();
            let _ = far.wait();
        }
    }
    println!("median of {PAIRS} pairs of processes, over tcp/ on loopback");
    println!("messages and frames of {MAX_FRAME} B, records of {SHORT} B");
    println!(
        "the ratio and the difference are medians of those within a round; ranges in brackets"
    );
    for (row, figures_of_row) in rows.iter().zip(&figures) {
        println!("{:20} {} {}", row.name, spread(figures_of_row.iter().copied(), 1), row.unit);
        let Some((base, target)) = row.base else { continue };
        let Some(base_row) = rows.iter().position(|row| row.name == base) else { continue };
        let pairs = || figures_of_row.iter().zip(&figures[base_row]);
        let ratio = spread(pairs().map(|(figure, base)| figure / base), 2);
        let difference = spread(pairs().map(|(figure, base)| figure - base), 1);
        println!("  / {base}: {ratio}, - {base}: {difference} {}; target {target}", row.unit);
    }
}

/// Returns the median and the range of some figures.
fn spread(figures: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
    let median = sorted[sorted.len() / 2];
    format!("{median:.digits$} [{min:.digits$}, {max:.digits$}]")
}

fn free_endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("tcp/{}", listener.local_addr().expect("an address"))
}

/// Starts the other process, and waits until it is ready.
fn start(row: &BenchRow, endpoint: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["far", row.name, endpoint]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let mut line = String::new();
    let output = child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

/// Returns the rate of a stream of which the other process counted the bytes.
fn megabytes_a_second(count: &[u8], start: Instant) -> f64 {
    megabytes(u64::from_le_bytes(count.try_into().expect("eight bytes")), start)
}

/// Returns the rate of this number of bytes.
fn megabytes(count: u64, start: Instant) -> f64 {
    count as f64 / 1e6 / start.elapsed().as_secs_f64()
}

/// Returns the median duration in microseconds, of [`ROUND_TRIPS`] or as many as [`DURATION`] has.
fn median_round_trip(mut round_trip: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut durations = Vec::with_capacity(ROUND_TRIPS);
    while durations.len() < ROUND_TRIPS && begin.elapsed() < DURATION {
        let start = Instant::now();
        round_trip();
        durations.push(start.elapsed());
    }
    durations.sort();
    durations[durations.len() / 2].as_secs_f64() * 1e6
}
