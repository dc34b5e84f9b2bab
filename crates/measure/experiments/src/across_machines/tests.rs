//! Tests of every row with a few messages, of the hosts, and of errors on either host.

use std::fs;
use std::time::Duration;

use std::time::Instant;

use tontine_mechanisms::end::Inlet;

use super::ends::TcpEnd;
use super::gateways::MailboxEnd;
use super::timing::CrossingEnd;
use super::*;

const BRIEF: CrossingWork = CrossingWork::Rounds { rounds: 20, warm_up: 2 };
const BRIEF_STREAM: CrossingWork = CrossingWork::Stream(Duration::from_millis(20));
const TIMEOUT: Duration = Duration::from_secs(60);
const TCP: TcpCrossing = TcpCrossing { buffered: false };

fn left_folders() -> Vec<String> {
    let start = format!("tontine-hosts-{}-", tontine_bench::leftovers::maker());
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&start)).collect()
}

#[test]
fn every_crossing_yields_its_series_and_leaves_nothing() {
    for variant in AcrossMachines.variants() {
        let latencies: &[&str] = match variant.name {
            "tontine" | OVER_ZENOH => &["one_way", "one_way_local"],
            _ => &["one_way"],
        };
        for (work, expected, samples) in [(BRIEF, latencies, 20), (BRIEF_STREAM, &["rate"], 1)] {
            in_a_process_of_its_own(|| {
                let found = measure(variant.name, work, TIMEOUT);
                let Some(observed) = unless_skipped(found, variant.name) else { return };
                assert_eq!(metrics(&observed), expected, "{}", variant.name);
                let whole = |series: &Series| {
                    series.samples.len() == samples && series.samples.iter().all(|&one| one > 0.0)
                };
                assert!(observed.series.iter().all(whole), "{}: {observed:?}", variant.name);
                assert_eq!(observed.ratios.len(), expected.len() - 1, "{}", variant.name);
                assert_eq!(left_folders(), Vec::<String>::new());
            });
        }
    }
}

#[test]
fn params_name_the_bytes_of_a_message() {
    assert_eq!(MESSAGE, timing::BYTES.to_string());
    for variant in AcrossMachines.variants() {
        let cells = AcrossMachines.params(variant.name, &Topology::of_this_machine(), Size::Quick);
        let count = if variant.name == BUFFERED { 1 } else { 2 };
        assert!(cells.len() == count && cells.iter().all(|cell| cell["size"] == MESSAGE));
    }
}

/// Returns the names of the network devices of this process's namespace.
fn devices() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    let mut names: Vec<String> = names.map(|(name, _)| name.trim().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn each_host_has_its_own_device_and_no_other() {
    in_a_process_of_its_own(|| {
        let inside = || {
            let found = devices();
            ensure!(found == ["eth0", "lo"], "found the devices {found:?}");
            Ok(())
        };
        let before = devices();
        let time = |end: &mut TcpEnd| {
            inside()?;
            timing::time(CrossingWork::Rounds { rounds: 1, warm_up: 0 }, end)
        };
        let answer = |end: &mut TcpEnd| {
            inside()?;
            timing::answer(end)
        };
        unless_skipped(across(&TCP, HostSeparation::Namespaces, TIMEOUT, time, answer), "devices");
        assert_eq!(devices(), before);
    });
}

#[test]
fn error_on_host_b_ends_both_and_is_returned() {
    in_a_process_of_its_own(|| {
        let began = Instant::now();
        let time = |end: &mut TcpEnd| {
            end.settle()?;
            Ok(CrossingTimes::default())
        };
        let answer = |_: &mut TcpEnd| bail!("no answer today");
        match across(&TCP, HostSeparation::Namespaces, TIMEOUT, time, answer) {
            Err(MeasureError::Failed(why)) => {
                assert_eq!(why, "no answer today");
                assert!(began.elapsed() < TIMEOUT / 2);
            }
            other => assert!(unless_skipped(other, "an error").is_none()),
        }
    });
}

#[test]
fn silent_program_fails_after_timeout() {
    in_a_process_of_its_own(|| {
        let folder = Folder::new("hosts").expect("a folder");
        let crossing = MailboxCrossing { folder: folder.path(), gateways: None, sleeps: true };
        let time = |end: &mut MailboxEnd| timing::time(BRIEF, end);
        let answer = |end: &mut MailboxEnd| {
            loop {
                end.receive(&[], |_| ())?;
            }
        };
        let timeout = Duration::from_millis(500);
        let found = across(&crossing, HostSeparation::OneHost, timeout, time, answer);
        let why = found.expect_err("no answer").to_string();
        assert!(why.contains("did not end in time"), "{why}");
    });
}
