//! Links that are cut, in one direction or both, and heal.

use std::thread;
use std::time::Duration;

use tontine_gateway::memory::Faults;

use crate::hosts::in_processes;
use crate::hosts::program::SenderTask;
use crate::run::{FaultRun, Growth, SenderThread, Traffic};

/// Directions of a cut: from the sender's host, to it, both.
const CUTS: [[bool; 2]; 3] = [[true, false], [false, true], [true, true]];

/// Returns each cut with each traffic.
fn cases() -> impl Iterator<Item = ([bool; 2], Traffic)> {
    CUTS.into_iter().flat_map(|cut| Traffic::ALL.map(|traffic| (cut, traffic)))
}

/// Cuts the link under traffic, heals it after `lasts` has returned, and checks that nothing is
/// lost or repeated.
fn partition_and_heal(lasts: impl Fn(&FaultRun)) {
    in_processes(cases(), |(cut, traffic)| {
        let name = format!("cut {cut:?} {traffic:?}");
        let mut run = FaultRun::new(name, Faults::default(), None);
        run.send(traffic);
        run.wait_for_messages(traffic.messages());
        run.gateways.switch.cut(cut);
        lasts(&run);
        run.gateways.switch.cut([false; 2]);
        run.wait_for_messages(traffic.messages());
        run.finish();
    });
}

#[test]
fn short_partition_loses_and_repeats_no_message() {
    alone!();
    partition_and_heal(|_| thread::sleep(Duration::from_millis(500)));
}

fn wait_until_suspecting(run: &FaultRun) {
    run.sender().wait_until_suspecting();
}

#[test]
fn long_partition_loses_and_repeats_no_message() {
    alone!();
    partition_and_heal(|run| {
        wait_until_suspecting(run);
        thread::sleep(Duration::from_millis(300));
    });
}

#[test]
#[ignore = "takes long: 7 s"]
fn partition_of_seconds_loses_and_repeats_no_message() {
    alone!();
    partition_and_heal(|run| {
        wait_until_suspecting(run);
        thread::sleep(Duration::from_secs(5));
    });
}

/// The owner closes during the partition; the sender learns it when the link heals.
#[test]
fn end_during_partition_is_reported_after_healing() {
    alone!();
    in_processes(cases(), |(cut, traffic)| {
        let mut run = FaultRun::new(format!("{cut:?} {traffic:?}"), Faults::default(), None);
        run.send(traffic);
        run.wait_for_messages(traffic.messages());
        run.gateways.switch.cut(cut);
        thread::sleep(Duration::from_millis(100));
        let report = run.close(|run| {
            wait_until_suspecting(run);
            run.gateways.switch.cut([false; 2]);
        });
        assert_eq!(report.errno, libc::EPIPE, "{}", report.summary());
    });
}

/// The link never heals: what left the host is in doubt, the rest was never sent.
#[test]
fn lasting_partition_separates_doubtful_from_unsent() {
    alone!();
    let cases = [
        ([true, true], Traffic::Paced),
        ([false, true], Traffic::Paced),
        ([true, true], Traffic::Flooded),
    ];
    in_processes(cases, |(cut, traffic)| {
        let name = format!("lasting cut {cut:?} {traffic:?}");
        // The sender sends for this long while the other host is suspected.
        let timeout = Some(Duration::from_secs(1));
        let mut run = FaultRun::new(name, Faults::default(), timeout);
        run.send(traffic);
        run.wait_for_messages(3 * traffic.messages());
        run.gateways.switch.cut(cut);
        thread::sleep(Duration::from_millis(500));
        let report = run.close(|_| ());
        assert_eq!(report.errno, libc::EHOSTUNREACH, "{}", report.summary());
        if traffic == Traffic::Paced {
            assert!(!report.unsent.is_empty(), "{}", report.summary());
        }
    });
}

/// Cuts and heals four links at the same time, each `cycles` times.
fn partition_repeatedly(cycles: u32, length: Duration) {
    in_processes(0..4, |link| {
        let growth = Growth::begin();
        let mut run = FaultRun::new(format!("link {link}"), Faults::default(), None);
        run.send(Traffic::Paced);
        let address = run.address();
        let mut others = 0;
        for cycle in 0..cycles {
            thread::sleep(length / 2);
            run.gateways.switch.cut(CUTS[(link + cycle) as usize % 3]);
            // Another lane begins and ends during each cut.
            let task = SenderTask::new(&address, 100 + u64::from(cycle), 20);
            let other = SenderThread::start(task);
            thread::sleep(length / 2);
            run.gateways.switch.cut([false; 2]);
            others += other.report().acked;
        }
        assert_eq!(others, 20 * u64::from(cycles));
        run.finish();
        growth.check(16 << 20);
    });
}

#[test]
fn twenty_partitions_leave_no_descriptor_and_no_memory() {
    alone!();
    partition_repeatedly(5, Duration::from_millis(100));
}

#[test]
#[ignore = "takes long: 10 s"]
fn hundred_partitions_leave_no_descriptor_and_no_memory() {
    alone!();
    partition_repeatedly(25, Duration::from_millis(300));
}
