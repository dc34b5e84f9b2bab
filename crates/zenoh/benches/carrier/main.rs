//! Figures of the carrier between processes over `tcp/` on loopback, as ratios within a run.
//!
//! `raw` is Zenoh itself: the denominator of everything above it. `link` states what the queues and
//! threads of [`tontine_zenoh::ZenohLink`] cost, and `gateway` what two gateways cost between the
//! sender of a mailbox and its owner. A further figure is a row of [`ROWS`]: a function for each
//! side, and the row to which it is compared.
//!
//! Run it by `cargo xtask zenoh --bench`.

mod gateway;
mod link;
mod raw;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tontine_remote::frame::MAX_FRAME;

/// A measured figure: its name, unit and base, and what both processes do.
struct BenchRow {
    name: &'static str,
    unit: &'static str,
    /// The row to which this one is compared.
    base: Option<&'static str>,
    near: fn(&str) -> f64,
    far: fn(&str),
}

const ROWS: [BenchRow; 6] = [
    BenchRow {
        name: "raw/throughput",
        unit: "MB/s",
        base: None,
        near: raw::throughput,
        far: raw::counter,
    },
    BenchRow {
        name: "raw/round-trip",
        unit: "us",
        base: None,
        near: raw::round_trip,
        far: raw::echo,
    },
    BenchRow {
        name: "link/throughput",
        unit: "MB/s",
        base: Some("raw/throughput"),
        near: link::throughput,
        far: link::counter,
    },
    BenchRow {
        name: "link/round-trip",
        unit: "us",
        base: Some("raw/round-trip"),
        near: link::round_trip,
        far: link::echo,
    },
    BenchRow {
        name: "gateway/throughput",
        unit: "MB/s",
        base: Some("raw/throughput"),
        near: gateway::throughput,
        far: gateway::owner,
    },
    BenchRow {
        name: "gateway/round-trip",
        unit: "us",
        base: Some("raw/round-trip"),
        near: gateway::round_trip,
        far: gateway::owner,
    },
];

/// Fresh pairs of processes for each row. Rows take turns.
const PAIRS: usize = 5;
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
    let mut figures = [const { Vec::new() }; ROWS.len()];
    for _ in 0..PAIRS {
        for (row, figures) in ROWS.iter().zip(&mut figures) {
            let endpoint = free_endpoint();
            let mut far = start(row, &endpoint);
            figures.push((row.near)(&endpoint));
            let _ = far.kill();
            let _ = far.wait();
        }
    }
    figures.iter_mut().for_each(|figures| figures.sort_by(f64::total_cmp));
    let median = |row: usize| figures[row][PAIRS / 2];
    println!("median of {PAIRS} pairs of processes, over tcp/ on loopback");
    println!("messages and frames of {MAX_FRAME} B, records of {SHORT} B");
    println!("{:20} {:>10} {:>5} {:>21}  ratio", "", "median", "", "range");
    for (number, row) in ROWS.iter().enumerate() {
        let (least, most) = (figures[number][0], figures[number][PAIRS - 1]);
        let range = format!("{least:.1} - {most:.1}");
        let base = row.base.and_then(|base| ROWS.iter().position(|row| row.name == base));
        let ratio =
            base.map(|base| format!("{:.2} of {}", median(number) / median(base), ROWS[base].name));
        let ratio = ratio.unwrap_or_default();
        println!("{:20} {:>10.1} {:>5} {range:>21}  {ratio}", row.name, median(number), row.unit);
    }
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
    let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
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
