//! The memory and descriptors that lanes use, and the memory that they return.

use std::thread;
use std::time::Duration;

use crate::common::*;
use crate::requested_back::until_requested_back;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender};

/// Returns the resident bytes of a process in mappings whose names contain `name`.
fn resident(pid: i32, name: &str) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let mut counts = false;
    let mut kib = 0;
    for line in maps.lines() {
        if line.split_whitespace().next().is_some_and(|first| !first.ends_with(':')) {
            counts = line.contains(name);
        } else if let (true, Some(rest)) = (counts, line.strip_prefix("Rss:")) {
            let number = rest.trim().trim_end_matches(" kB");
            kib += number.parse::<u64>().expect("a number");
        }
    }
    kib << 10
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

#[test]
fn memory_is_returned_after_large_messages() {
    alone!();
    memory_is_returned_after(48);
}

#[test]
#[ignore = "takes long: a gibibyte of messages"]
fn memory_is_returned_after_gibibyte_of_messages() {
    alone!();
    memory_is_returned_after(1024);
}

/// Sends this number of messages of 1 MiB before any is received, then checks that both ends return
/// the memory.
fn memory_is_returned_after(pieces: usize) {
    const PIECE: usize = 1 << 20;
    let place = place();
    let options = Options::new().lane_cap(4 << 30);
    let report = Signal::new();
    let go = Signal::new();
    let child = fork(|| {
        let mut sender = connect(&options, &place.path);
        let piece = vec![5; PIECE];
        go.take();
        for _ in 0..pieces {
            sender.try_send(&piece).expect("the lane grows");
        }
        report.give(1);
        sender.wait_acked(Some(AMPLE)).expect("read");
        until_requested_back();
        sender.send(b"small").expect("sent");
        report.give(2);
        sleep_indefinitely();
    });
    let receiving = options.mailbox_cap(16 << 30).shrink_after(Duration::from_millis(20));
    let mut mailbox = receiving.bind(&place.path).expect("binds");
    accept(&mut mailbox);
    let (ours, theirs) = (resident(own_pid(), "tontine-chunk"), resident(child, "tontine-chunk"));
    go.give(0);
    report.take();
    assert!(resident(child, "tontine-chunk") > pieces as u64 * PIECE as u64, "it was there");
    for _ in 0..pieces {
        assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), PIECE);
    }
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"small");
    report.take();
    for (pid, before) in [(own_pid(), ours), (child, theirs)] {
        let after = resident(pid, "tontine-chunk");
        assert!(after <= before + (1 << 20), "{before} bytes before, {after} after");
    }
    kill(child);
}

/// Regression: the copy that `recv` returns permanently kept the capacity of the longest message
/// received.
#[test]
fn copy_of_long_message_is_released() {
    alone!();
    const LONG: usize = 8 << 20;
    let place = place();
    let (held, measured) = (Signal::new(), Signal::new());
    let reader = fork(|| {
        let options = Options::new().shrink_after(Duration::from_millis(10));
        let mut mailbox = options.bind(&place.path).expect("binds");
        loop {
            // The copy is kept at least until the next call.
            if mailbox.recv().expect("a message").len() == LONG {
                held.give(0);
                measured.take();
            }
        }
    });
    let mut sender = connect(&Options::new(), &place.path);
    let round = |sender: &mut Sender| {
        sender.send(b"small").expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read");
    };
    round(&mut sender);
    let before = resident(reader, "");
    sender.send(&vec![5; LONG]).expect("sent");
    held.take();
    let with = resident(reader, "");
    measured.give(0);
    assert!(with > before + LONG as u64 / 2, "{before} bytes before, {with} with it");
    until("the memory is given back", || {
        round(&mut sender);
        thread::sleep(Duration::from_millis(30));
        resident(reader, "") <= before + (1 << 20)
    });
    kill(reader);
}

#[test]
fn idle_lane_uses_three_pages_and_few_descriptors() {
    alone!();
    const LANES: u64 = 100;
    let place = place();
    let report = Signal::new();
    let descriptors =
        |pid: i32| std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a folder").count() as u64;
    let child = fork(|| {
        let mut senders = Vec::new();
        let before = descriptors(own_pid());
        for number in 0..LANES {
            let mut sender = connect(&Options::new(), &place.path);
            sender.send(&number.to_le_bytes()).expect("sent");
            sender.wait_acked(Some(AMPLE)).expect("read");
            senders.push(sender);
        }
        // Each lane needs a connection, a doorbell and a pidfd.
        let each = (descriptors(own_pid()) - before) / LANES;
        report.give(each as i32);
        sleep_indefinitely();
    });
    // The receiver runs in a separate process, because other tests have lanes in the test's own
    // process.
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        loop {
            let _ = mailbox.recv_timeout(AMPLE);
        }
    });
    let each = report.take();
    assert!(each <= 3, "{each} descriptors per lane at the sender");
    // The resident memory includes process pages in addition to the lanes.
    for pid in [reader, child] {
        let lanes = resident(pid, "tontine-chunk") + resident(pid, "tontine-lane");
        assert!(lanes <= LANES * 2 * 4096, "{lanes} bytes for {LANES} lanes");
        assert!(resident(pid, "tontine-") <= LANES * 12_288 + 2 * 4096, "with the others' pages");
    }
    assert!(descriptors(reader) <= 3 * LANES + 20, "{} at the reader", descriptors(reader));
    kill(child);
    kill(reader);
}

/// Regression: only memory that exceeded the size of the handed-over chunk was ever requested back.
/// A lane that was large when its receiver died therefore stayed large at the successor.
#[test]
fn lane_handed_over_while_large_shrinks_again() {
    alone!();
    let place = place();
    let reader = fork(|| {
        let _mailbox = {
            let mut mailbox = Mailbox::bind(&place.path).expect("binds");
            let _ = mailbox.recv().expect("a message");
            mailbox
        };
        sleep_indefinitely();
    });
    let waiting = Options::new().on_death(OnDeath::WaitForSuccessor);
    let mut sender = connect(&waiting, &place.path);
    let large = vec![5; 1 << 20];
    sender.send(&large).expect("sent");
    sender.send(b"behind it").expect("sent");
    let before = resident(own_pid(), "tontine-chunk");
    assert!(before >= 1 << 20, "{before} bytes");
    kill(reader);
    let options = Options::new().shrink_after(Duration::from_millis(10));
    let mut mailbox = options.bind(&place.path).expect("a free address");
    let mut received = 0;
    until("the large chunk is given back, at both ends", || {
        sender.service().expect("no error yet");
        received += usize::from(mailbox.try_recv().is_ok());
        received == 2 && resident(own_pid(), "tontine-chunk") < 1 << 20
    });
    sender.send(&large).expect("the lane grows again");
    assert!(*mailbox.recv_timeout(AMPLE).expect("a message") == *large);
    assert_eq!(mailbox.take_errors(), []);
}
