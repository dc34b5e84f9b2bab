//! Links that are cut, in one direction or both, and heal.

use std::thread;
use std::time::Duration;

use tontine_remote::memory::Faults;

use crate::run::{FaultRun, Growth, Traffic};

/// Directions of a cut: from the sender's host, to it, both.
const CUTS: [[bool; 2]; 3] = [[true, false], [false, true], [true, true]];

fn partition_and_heal(duration: Duration, traffics: &[Traffic]) {
    for cut in CUTS {
        for &traffic in traffics {
            let name = format!("cut {cut:?} {duration:?} {traffic:?}");
            let mut run = FaultRun::new(name, Faults::default(), None);
            run.send(traffic);
            thread::sleep(Duration::from_millis(50));
            run.gateways.switch.cut(cut);
            thread::sleep(duration);
            if duration > Duration::from_secs(2) {
                run.sender.as_ref().expect("started").wait_until_suspecting();
            }
            run.gateways.switch.cut([false; 2]);
            thread::sleep(Duration::from_millis(50));
            run.finish();
        }
    }
}

#[test]
fn short_partition_loses_and_repeats_no_message() {
    alone!();
    partition_and_heal(Duration::from_millis(500), &Traffic::ALL);
}

#[test]
fn long_partition_under_flood_loses_no_message() {
    alone!();
    partition_and_heal(Duration::from_secs(3), &[Traffic::Flooded]);
}

#[test]
#[ignore = "takes 20 s"]
fn long_partition_of_idle_and_paced_lane_loses_no_message() {
    alone!();
    partition_and_heal(Duration::from_secs(3), &[Traffic::Idle, Traffic::Paced]);
}

/// The owner closes during the partition; the sender learns it when the link heals.
#[test]
fn end_during_partition_is_reported_after_healing() {
    alone!();
    for cut in CUTS {
        for traffic in Traffic::ALL {
            let mut run = FaultRun::new(format!("{cut:?} {traffic:?}"), Faults::default(), None);
            run.send(traffic);
            thread::sleep(Duration::from_millis(100));
            run.gateways.switch.cut(cut);
            thread::sleep(Duration::from_millis(100));
            let report = run.close(|run| {
                thread::sleep(Duration::from_millis(1100));
                run.gateways.switch.cut([false; 2]);
            });
            assert_eq!(report.errno, libc::EPIPE, "{}", report.summary());
        }
    }
}

/// The link never heals: what left the host is in doubt, the rest was never sent.
#[test]
fn lasting_partition_separates_doubtful_from_unsent() {
    alone!();
    for (cut, traffic) in [
        ([true, true], Traffic::Paced),
        ([false, true], Traffic::Paced),
        ([true, true], Traffic::Flooded),
    ] {
        let name = format!("lasting cut {cut:?} {traffic:?}");
        let timeout = Some(Duration::from_millis(300));
        let mut run = FaultRun::new(name, Faults::default(), timeout);
        run.send(traffic);
        thread::sleep(Duration::from_millis(200));
        run.gateways.switch.cut(cut);
        thread::sleep(Duration::from_millis(700));
        let report = run.close(|_| ());
        assert_eq!(report.errno, libc::EHOSTUNREACH, "{}", report.summary());
        if traffic == Traffic::Paced {
            assert!(!report.unsent.is_empty(), "{}", report.summary());
        }
    }
}

fn partition_repeatedly(cycles: u32, length: Duration) {
    let growth = Growth::begin();
    let mut run = FaultRun::new(format!("{cycles} cycles"), Faults::default(), None);
    run.send(Traffic::Paced);
    let address = run.address();
    let mut others = 0;
    for cycle in 0..cycles {
        thread::sleep(length / 2);
        run.gateways.switch.cut(CUTS[cycle as usize % 3]);
        // Another lane begins and ends during each cut.
        let task = crate::hosts::program::SenderTask::new(&address, 100 + u64::from(cycle), 20);
        let other = crate::run::SenderThread::start(task);
        thread::sleep(length / 2);
        run.gateways.switch.cut([false; 2]);
        others += other.report().acked;
    }
    assert_eq!(others, 20 * u64::from(cycles));
    run.finish();
    growth.check(16 << 20);
}

#[test]
fn twenty_partitions_leave_no_descriptor_and_no_memory() {
    alone!();
    partition_repeatedly(20, Duration::from_millis(100));
}

#[test]
#[ignore = "takes 40 s"]
fn hundred_partitions_leave_no_descriptor_and_no_memory() {
    alone!();
    partition_repeatedly(100, Duration::from_millis(300));
}
