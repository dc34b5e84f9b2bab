//! Tests of every row with a few messages, of the hosts, and of errors on either host.

use std::fs;
use std::time::Instant;

use tontine_host::peer::in_a_process_of_its_own;
use tontine_mechanisms::end::Inlet;

use super::coded_tcp::{CodedTcp, LengthCodec};
use super::crossing::{CrossingEnd, HostSide};
use super::gateways::MailboxEnd;
use super::*;

const BRIEF: CrossingWork = CrossingWork::Rounds { rounds: 20, warm_up: 2 };
const BRIEF_STREAM: CrossingWork = CrossingWork::Stream(Duration::from_millis(20));
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` in a single-threaded process. A skip is reported and passes.
fn passes(body: impl FnOnce() -> Result<()>) {
    in_a_process_of_its_own(|| match body() {
        Ok(()) => Ok(()),
        Err(MeasureError::Skipped(why)) => {
            eprintln!("skipped: {why}");
            Ok(())
        }
        Err(MeasureError::Failed(why)) => Err(why),
    });
}

fn expect(condition: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if condition { Ok(()) } else { Err(MeasureError::fail(otherwise())) }
}

fn left_folders() -> Vec<String> {
    let start = format!("tontine-hosts-{}-", tontine_host::leftovers::maker());
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&start)).collect()
}

/// Checks the series of one cell.
fn yields(variant: &str, work: CrossingWork, metrics: &[&str], samples: usize) -> Result<()> {
    let observed = measure(variant, work, PATIENCE)?;
    let found: Vec<&str> = observed.series.iter().map(|series| series.metric.as_str()).collect();
    expect(found == metrics, || format!("{variant}: {found:?}"))?;
    for series in &observed.series {
        let count = series.samples.len();
        expect(count == samples, || format!("{variant}: {count} samples"))?;
        let possible = series.samples.iter().all(|&sample| sample > 0.0);
        expect(possible, || format!("{variant}: {:?}", series.samples))?;
    }
    let ratios = usize::from(metrics.contains(&"one_way_local"));
    expect(observed.ratios.len() == ratios, || format!("{variant}: {:?}", observed.ratios))?;
    expect(left_folders().is_empty(), || format!("left {:?}", left_folders()))
}

#[test]
fn every_crossing_yields_its_series_and_leaves_nothing() {
    for variant in VARIANTS {
        let latencies: &[&str] = match variant.name {
            "tontine" | OVER_ZENOH => &["one_way", "one_way_local"],
            _ => &["one_way"],
        };
        passes(|| yields(variant.name, BRIEF, latencies, 20));
        passes(|| yields(variant.name, BRIEF_STREAM, &["rate"], 1));
    }
}

#[test]
fn params_name_the_bytes_of_a_message() {
    assert_eq!(MESSAGE, timing::BYTES.to_string());
    let topology = Topology::of_this_machine();
    for variant in VARIANTS {
        let cells = AcrossMachines.params(variant.name, &topology, Size::Quick);
        let count = if variant.name == BUFFERED { 1 } else { 2 };
        assert!(cells.len() == count && cells.iter().all(|cell| cell["size"] == MESSAGE));
    }
}

/// Returns the names of the network devices of this process's namespace.
fn devices() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let lines = text.lines().skip(2);
    let mut names: Vec<String> = lines
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.trim().to_owned()))
        .collect();
    names.sort();
    names
}

#[test]
fn each_host_has_its_own_device_and_no_other() {
    passes(|| {
        let inside =
            || expect(devices() == ["eth0", "lo"], || format!("found the devices {:?}", devices()));
        let before = devices();
        let crossing = TcpCrossing { buffered: false };
        let time = |end: &mut CodedTcp<LengthCodec>| {
            inside()?;
            timing::time(CrossingWork::Rounds { rounds: 1, warm_up: 0 }, end)
        };
        let answer = |end: &mut CodedTcp<LengthCodec>| {
            inside()?;
            timing::answer(end)
        };
        across(&crossing, HostSeparation::Namespaces, PATIENCE, time, answer)?;
        expect(devices() == before, || format!("left {:?}", devices()))
    });
}

#[test]
fn error_on_host_b_ends_both_and_is_returned() {
    passes(|| {
        let began = Instant::now();
        let crossing = TcpCrossing { buffered: false };
        let time = |end: &mut CodedTcp<LengthCodec>| {
            end.settle()?;
            Ok(CrossingTimes::default())
        };
        let answer = |_: &mut CodedTcp<LengthCodec>| Err(MeasureError::fail("no answer today"));
        let found = across(&crossing, HostSeparation::Namespaces, PATIENCE, time, answer);
        match found {
            Err(MeasureError::Failed(why)) if why == "no answer today" => {
                expect(began.elapsed() < PATIENCE / 2, || format!("{:?}", began.elapsed()))
            }
            Err(skipped @ MeasureError::Skipped(_)) => Err(skipped),
            other => Err(MeasureError::fail(format!("{other:?}"))),
        }
    });
}

#[test]
fn silent_program_fails_after_timeout() {
    passes(|| {
        let folder = Folder::new("hosts")?;
        let crossing = MailboxCrossing { folder: folder.path(), gateways: None, sleeps: true };
        let time = |end: &mut MailboxEnd| timing::time(BRIEF, end);
        let answer = |end: &mut MailboxEnd| {
            loop {
                end.receive(&[], |_| ())?;
            }
        };
        let patience = Duration::from_millis(500);
        let found = across(&crossing, HostSeparation::OneHost, patience, time, answer);
        let why = found.err().map_or_else(String::new, |error| error.why().to_owned());
        expect(why.contains("did not end in time"), || why)
    });
}

#[test]
fn hosts_differ_in_name_and_address() {
    let (a, b) = (HostSide::A, HostSide::B);
    assert_eq!((a.other(), b.other()), (b, a));
    assert!(a.name() != b.name() && a.address() != b.address());
    assert_eq!(*HostSide::listener().ip(), b.address());
}

#[test]
fn unknown_crossing_fails() {
    let found = measure("pigeon", BRIEF, PATIENCE).expect_err("no pigeons");
    assert!(found.why().contains("pigeon"), "{found}");
}
