//! Frames that are lost, repeated, overtaken and late.

use std::time::Duration;

use tontine_gateway::memory::Faults;

use crate::hosts::in_processes;
use crate::hosts::program::SenderTask;
use crate::run::{FaultRun, Growth, Traffic};

/// Faults per thousand frames: lost, repeated, overtaken; then the delay in milliseconds.
const FAULTS: [(u16, u16, u16, u64); 8] = [
    (10, 0, 0, 0),
    (50, 0, 0, 0),
    (200, 0, 0, 0),
    (0, 200, 0, 0),
    (0, 0, 200, 0),
    (0, 0, 0, 20),
    (50, 50, 50, 2),
    (200, 200, 200, 5),
];

fn faults(index: usize) -> Faults {
    let (lost, doubled, overtaken, delay) = FAULTS[index];
    let delay = Duration::from_millis(delay);
    Faults { seed: 0x5eed_0000 + index as u64, lost, doubled, overtaken, delay }
}

/// Maximum growth of a process's private memory during a case.
const MAX_GROWTH: u64 = 8 << 20;

/// Returns each index of [`FAULTS`] with each traffic.
fn cases(traffics: &[Traffic]) -> impl Iterator<Item = (usize, Traffic)> {
    let each = |index| traffics.iter().map(move |traffic| (index, *traffic));
    (0..FAULTS.len()).flat_map(each)
}

/// Bytes of a lane that is full at the end of a flood.
const LANE_CAP: u64 = 1 << 20;

/// Sends through each kind of faults, for `rounds` times [`Traffic::messages`].
fn deliver_through_faults(rounds: u32) {
    in_processes(cases(&[Traffic::Paced, Traffic::Flooded]), |(index, traffic)| {
        let growth = Growth::begin();
        let name = format!("{:?} {traffic:?}", FAULTS[index]);
        let mut run = FaultRun::new(name, faults(index), None);
        let task = traffic.task(&run.address());
        run.send_task(SenderTask { lane_cap: Some(LANE_CAP), ..task });
        run.wait_until_open();
        for _ in 0..rounds {
            run.wait_for_messages(traffic.messages());
        }
        run.finish();
        growth.check(MAX_GROWTH);
    });
}

#[test]
fn faulty_frames_lose_and_repeat_no_message() {
    alone!();
    deliver_through_faults(8);
}

#[test]
#[ignore = "takes long: 30 s"]
fn faulty_frames_lose_nothing_in_longer_runs() {
    alone!();
    deliver_through_faults(100);
}

#[test]
fn closed_mailbox_is_reported_through_faulty_frames() {
    alone!();
    in_processes(cases(&Traffic::ALL), |(index, traffic)| {
        let name = format!("{:?} {traffic:?}", FAULTS[index]);
        let mut run = FaultRun::new(name, faults(index), None);
        run.send(traffic);
        run.wait_for_messages(2 * traffic.messages());
        let report = run.close(|_| ());
        assert_eq!(report.errno, libc::EPIPE, "{}", report.summary());
    });
}

#[test]
fn largest_records_pass_faulty_frames() {
    alone!();
    in_processes([(0, 2), (6, 1)], |(index, records)| {
        let mut run = FaultRun::new(format!("16 MiB, {:?}", FAULTS[index]), faults(index), None);
        let task = SenderTask::new(&run.address(), 1, records);
        let length = (16 << 20) - 4096;
        run.send_task(SenderTask { length, ..task });
        run.wait_for_messages(records);
        let report = run.finish();
        assert_eq!(report.acked, records);
    });
}
