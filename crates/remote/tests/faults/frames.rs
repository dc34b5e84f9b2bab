//! Frames that are lost, repeated, overtaken and late.

use std::thread;
use std::time::Duration;

use tontine_remote::memory::Faults;

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

fn deliver_through_faults(during: Duration) {
    let growth = Growth::begin();
    for (index, row) in FAULTS.iter().enumerate() {
        for traffic in [Traffic::Paced, Traffic::Flooded] {
            let faults = faults(index);
            let mut run = FaultRun::new(format!("{row:?} {traffic:?}"), faults, None);
            run.send(traffic);
            thread::sleep(during);
            let report = run.finish();
            assert!(report.sent > 0);
        }
    }
    growth.check(48 << 20);
}

#[test]
fn faulty_frames_lose_and_repeat_no_message() {
    alone!();
    deliver_through_faults(Duration::from_millis(300));
}

#[test]
#[ignore = "takes 60 s"]
fn faulty_frames_lose_nothing_in_longer_runs() {
    alone!();
    deliver_through_faults(Duration::from_secs(3));
}

#[test]
fn closed_mailbox_is_reported_through_faulty_frames() {
    alone!();
    for (index, row) in FAULTS.iter().enumerate() {
        for traffic in Traffic::ALL {
            let name = format!("{row:?} {traffic:?}");
            let mut run = FaultRun::new(name, faults(index), None);
            run.send(traffic);
            thread::sleep(Duration::from_millis(150));
            let report = run.close(|_| ());
            assert_eq!(report.errno, libc::EPIPE, "{}", report.summary());
        }
    }
}

#[test]
fn largest_records_pass_faulty_frames() {
    alone!();
    for index in [0, 6] {
        let mut run = FaultRun::new(format!("16 MiB, {:?}", FAULTS[index]), faults(index), None);
        let task = SenderTask::new(&run.address(), 1, 4);
        let length = (16 << 20) - 4096;
        run.send_task(SenderTask { length, ..task });
        crate::hosts::until("all records arrive", || run.received().len() == 4);
        let report = run.finish();
        assert_eq!(report.acked, 4);
    }
}
