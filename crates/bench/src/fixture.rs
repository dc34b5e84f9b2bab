//! An invented run for the tests of this crate and of `tontine-report`, with the shape and size of
//! a real run.
//! [`run`] contains every experiment, every status and all special cases that a report must handle.
//! [`small`] contains three cells with round figures, for snapshots.

mod scaling;
pub mod suite;

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::fixture::suite::SUITE;
use crate::observe::{ObservedEvent, Statistic};
use crate::schema::{Cell, Estimate, Invocation, Ratio, Results, SCHEMA, Status, TriedRow};
use crate::size::Size;
use crate::stats::summary::Summary;
use crate::task::Params;

/// Returns a whole run, generated once.
pub fn run() -> Results {
    static RUN: LazyLock<Results> = LazyLock::new(made);
    RUN.clone()
}

fn made() -> Results {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut cells = Vec::new();
    for (placement, slower) in [("cross-core", 1.0), ("same-core", 9.0)] {
        for (variant, ns, spread) in ROUND_TRIPS {
            let params = [("pacing", "hot"), ("placement", placement)];
            let centre = if ns < 500.0 { ns * slower * slower } else { ns / slower.sqrt() };
            cells.push(timed(&mut rng, "round-trip", variant, "one_way", &params, centre, spread));
        }
    }
    cells[6]
        .notes
        .push("unstable: two modes between invocations: 4 near 2.61 µs, 6 near 3.05 µs".into());
    cells[5].failures.push("deadline of 20 s passed in block 4, twice".into());
    cells.push(without("round-trip", "container-tcp", Status::Skipped, "no Docker engine answers"));
    cells.push(without("round-trip", "iceoryx2", Status::Failed, "exit status 101"));
    for (variant, ns) in CHECKS {
        cells.push(timed(&mut rng, "liveness-check", variant, "check", &[], ns, 0.01));
    }
    for check in ["none", "load", "kill-0"] {
        let rate = if check == "kill-0" { 4.9e6 } else { 11.3e6 };
        let mut cell = timed(&mut rng, "queue-with-check", check, "throughput", &[], rate, 0.03);
        cell.unit = "messages/s".into();
        cell.statistic = Statistic::Mean;
        cells.push(cell);
    }
    for (variant, signal, share) in [
        ("as-published", "SIGINT", 0.31),
        ("as-published", "SIGKILL", 0.27),
        ("one-clock", "SIGINT", 0.35),
    ] {
        let params = [("placement", "cross-core"), ("signal", signal)];
        let mut cell =
            timed(&mut rng, "signal-delivery", variant, "parent_after", &params, share, 0.02);
        cell.unit = "share".into();
        cell.statistic = Statistic::Mean;
        cells.push(cell);
        cells.push(timed(
            &mut rng,
            "signal-delivery",
            variant,
            "child_after_by",
            &params,
            240.0,
            0.2,
        ));
    }
    cells.extend(scaling::curves(&mut rng));
    cells.extend(scaling::kills(&mut rng));
    for cell in &mut cells {
        cell.published =
            (SUITE.published)(&cell.experiment, &cell.variant, &cell.metric, &cell.params);
    }
    Results {
        schema: SCHEMA,
        machine: machine(),
        executable: None,
        experiments: SUITE.experiments.iter().map(|one| one.description()).collect(),
        mechanisms: (SUITE.mechanisms)(),
        order_seed: 4_242,
        started: "2026-01-02T03:04:05Z".into(),
        seconds: 431.7,
        ledger: std::collections::BTreeMap::new(),
        size: Size::Default,
        complete: true,
        cells,
        ratios: ratios(),
        tried: tried(),
        maps: Vec::new(),
    }
}

/// Returns three cells: one measured and published, one measured with a note, and one skipped.
pub fn small() -> Results {
    let mut results = run();
    results.cells.truncate(3);
    for (cell, ns) in results.cells.iter_mut().zip([88.0, 1_500.0]) {
        set(cell, ns, ns * 0.98, ns * 1.03);
    }
    results.cells[0].variant = "spinlock-ttas".into();
    results.cells[0].published =
        (SUITE.published)("round-trip", "spinlock-ttas", "one_way", &results.cells[0].params);
    results.cells[1].variant = "futex".into();
    results.cells[1].published.clear();
    results.cells[1].notes = vec!["unstable: drift".into()];
    results.cells[2] = without("round-trip", "posix-mq", Status::Skipped, "mq_open: not | here");
    results.ratios.truncate(1);
    results.tried.clear();
    results
}

const ROUND_TRIPS: [(&str, f64, f64); 10] = [
    ("flag-one-line", 61.0, 0.04),
    ("spinlock-tas", 118.0, 0.08),
    ("spinlock-ttas", 97.0, 0.06),
    ("futex", 1_720.0, 0.11),
    ("eventfd", 2_310.0, 0.06),
    ("pipe", 2_450.0, 0.05),
    ("unix-stream", 2_900.0, 0.05),
    ("tcp-loopback", 7_400.0, 0.04),
    ("zmq-inproc", 9_100.0, 0.05),
    ("zmq-ipc", 23_600.0, 0.06),
];

const CHECKS: [(&str, f64); 8] = [
    ("dummy", 0.31),
    ("load", 0.32),
    ("polling-thread", 0.28),
    ("futex-word", 0.33),
    ("mutex-trylock", 4.2),
    ("epoll-empty", 131.0),
    ("kill-0", 96.0),
    ("procfs-faccessat", 702.0),
];

fn timed(
    rng: &mut ChaCha8Rng,
    experiment: &str,
    variant: &str,
    metric: &str,
    params: &[(&str, &str)],
    centre: f64,
    spread: f64,
) -> Cell {
    let invocations: Vec<Invocation> = (0..10)
        .map(|block| {
            let centre = centre * (1.0 + spread * (rng.random::<f64>() - 0.5));
            invocation(block, &samples(rng, centre, spread))
        })
        .collect();
    let mut medians: Vec<f64> = invocations.iter().map(|i| i.summary.median).collect();
    medians.sort_by(f64::total_cmp);
    let floor = invocations.iter().map(|i| i.summary.min).fold(f64::INFINITY, f64::min);
    let p99 = invocations[4].summary.p99;
    let mut cell = without(experiment, variant, Status::Ok, "");
    cell.why = None;
    cell.metric = metric.into();
    cell.params = params.iter().map(|&(k, v)| (k.into(), v.into())).collect();
    set(&mut cell, (medians[4] + medians[5]) / 2.0, medians[1], medians[8]);
    cell.floor = Some(floor);
    cell.p99 = Some(Estimate { value: p99, low: p99 * 0.97, high: p99 * 1.06 });
    cell.p999 = cell.p99.map(|e| Estimate { value: e.value * 1.4, low: e.low, high: e.high * 2.0 });
    cell.invocations = invocations;
    cell
}

fn set(cell: &mut Cell, value: f64, low: f64, high: f64) {
    (cell.estimate, cell.low, cell.high) = (Some(value), Some(low), Some(high));
    cell.achieved = Some(0.979);
    cell.mean = Some(Estimate { value: value * 1.04, low: low * 1.02, high: high * 1.06 });
    cell.trimmed_mean = Some(Estimate { value: value * 1.01, low: low * 1.01, high: high * 1.01 });
    cell.floor = Some(value * 0.9);
    cell.p99 = Some(Estimate { value: value * 1.5, low: value * 1.4, high: value * 1.7 });
}

/// Draws lognormal samples, generated from three uniforms, with one far outlier in two hundred.
fn samples(rng: &mut ChaCha8Rng, centre: f64, spread: f64) -> Vec<f64> {
    (0..2_000)
        .map(|_| {
            let uniforms: f64 = (0..3).map(|_| rng.random::<f64>()).sum();
            let normal = 2.0 * uniforms - 3.0;
            let far =
                if rng.random::<f64>() < 0.005 { 1.0 + 6.0 * rng.random::<f64>() } else { 1.0 };
            centre * (normal * spread).exp() * far
        })
        .collect()
}

fn invocation(block: usize, samples: &[f64]) -> Invocation {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for sample in samples {
        histogram.record((sample * 1_000.0).round() as u64).unwrap();
    }
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut bytes).unwrap();
    Invocation {
        block,
        attempts: 1,
        summary: Summary {
            count: samples.len(),
            batch: 1,
            median: at(0.5),
            mean,
            deviation: mean * 0.1,
            min: sorted[0],
            max: at(1.0),
            p99: at(0.99),
            p999: at(0.999),
            trimmed_mean: at(0.5),
            trimmed_half_width: mean * 0.001,
            mild_outliers: 12,
            extreme_outliers: 9,
            autocorrelation: 0.3,
            effective_count: 1_077.0,
            unstable: Vec::new(),
            histogram: STANDARD.encode(&bytes),
        },
        empty_pair_ns: 11.2,
        clock_drift: 1e-7,
        stolen_ms: 0.0,
    }
}

fn without(experiment: &str, variant: &str, status: Status, why: &str) -> Cell {
    Cell {
        experiment: experiment.into(),
        variant: variant.into(),
        params: Params::new(),
        metric: String::new(),
        unit: "ns".into(),
        status,
        why: Some(why.into()),
        estimate: None,
        low: None,
        high: None,
        statistic: Statistic::Median,
        confidence: 0.95,
        achieved: None,
        mean: None,
        floor: None,
        trimmed_mean: None,
        p99: None,
        p999: None,
        invocations: Vec::new(),
        failures: Vec::new(),
        published: Vec::new(),
        notes: Vec::new(),
    }
}

fn ratios() -> Vec<Ratio> {
    let hot = [("pacing", "hot"), ("placement", "cross-core")];
    let params: Params = hot.iter().map(|&(k, v)| (k.into(), v.into())).collect();
    let parent = [("parent", "1 MiB"), ("placement", "same-core")];
    let parent: Params = parent.iter().map(|&(k, v)| (k.into(), v.into())).collect();
    let ratio = |experiment: &str, name: &str, params: &Params, value: f64| Ratio {
        experiment: experiment.into(),
        name: name.into(),
        params: params.clone(),
        estimate: value,
        low: value * 0.97,
        high: value * 1.02,
        pairs: 10,
    };
    vec![
        ratio("round-trip", "futex / flag-one-line", &params, 28.2),
        ratio("round-trip", "zmq-ipc / futex", &params, 13.7),
        ratio("liveness-check", "load / dummy", &Params::new(), 1.03),
        ratio("liveness-check", "kill-0 / dummy", &Params::new(), 310.0),
        ratio("thread-vs-process", "fork / thread", &parent, 4.12),
    ]
}

fn tried() -> Vec<TriedRow> {
    let answers = [
        ("futex-word", ["dead", "dead", "dead", "alive"]),
        ("polling-thread", ["dead", "alive", "alive", "alive"]),
        ("kill-0", ["dead", "alive", "alive", "alive"]),
        ("procfs-faccessat", ["dead", "alive", "alive", "n/a: /proc is not mounted"]),
    ];
    let events = [("killed", "dead"), ("exec", "dead"), ("zombie", "dead"), ("stopped", "alive")];
    let mut rows = Vec::new();
    for (variant, says) in answers {
        for ((event, truth), says) in events.into_iter().zip(says) {
            rows.push(TriedRow {
                experiment: "liveness-check".into(),
                variant: variant.into(),
                tried: ObservedEvent {
                    event: event.into(),
                    truth: truth.into(),
                    says: says.into(),
                },
            });
        }
    }
    rows
}

fn machine() -> serde_json::Value {
    json!({
        "advice": [
            {
                "topic": "virtual machine", "severity": "spoils",
                "finding": "a hypervisor (KVM) runs this system",
                "effect": "another guest may take a processor away in the middle of a round",
                "mend": "measure on bare metal, or compare rows of one run only"
            },
            {
                "topic": "governor", "severity": "note",
                "finding": "the frequency governor cannot be read",
                "effect": "the clock may ramp up during a cell",
                "mend": "set it to performance on the host"
            },
        ],
        "card": [
            ["processor", [["model", "Example CPU at 2.1 GHz"], ["online", "2"]]],
            ["kernel", [["release", "6.1.0"], ["preemption", "voluntary"]]],
            ["clock", [["source", "tsc"], ["invariant", "yes"]]],
        ],
    })
}
