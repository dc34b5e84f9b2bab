//! The memory and descriptors that lanes use, and the memory that they return.

use std::thread;
use std::time::Duration;

use crate::asked_back::until_asked_back;
use crate::common::{AMPLE, connect, fork, kill, place, until};
use tontine::mailbox::{Mailbox, OnDeath, Options};

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
    let path = place.path.clone();
    let options = || {
        Options::new()
            .lane_cap(4 << 30)
            .mailbox_cap(16 << 30)
            .shrink_after(Duration::from_millis(20))
    };
    let (mut told, mut tell) = std::io::pipe().expect("a pipe");
    let (mut go, mut ready) = std::io::pipe().expect("a pipe");
    let child = fork(|| {
        let mut sender = connect(&options(), &path);
        let piece = vec![5; PIECE];
        std::io::Read::read_exact(&mut go, &mut [0]).expect("accepted");
        for _ in 0..pieces {
            sender.try_send(&piece).expect("the lane grows");
        }
        std::io::Write::write_all(&mut tell, &[1]).expect("notified");
        sender.wait_acked(Some(AMPLE)).expect("read");
        until_asked_back();
        sender.send(b"small").expect("sent");
        std::io::Write::write_all(&mut tell, &[2]).expect("notified");
        loop {
            thread::park();
        }
    });
    let mut mailbox = options().bind(&place.path).expect("binds");
    until("the lane is accepted", || {
        let _ = mailbox.try_recv();
        mailbox.sender_count() == 1
    });
    let (ours, theirs) = (resident(own_pid(), "tontine-chunk"), resident(child, "tontine-chunk"));
    std::io::Write::write_all(&mut ready, &[1]).expect("notified");
    std::io::Read::read_exact(&mut told, &mut [0]).expect("all messages are sent");
    assert!(resident(child, "tontine-chunk") > pieces as u64 * PIECE as u64, "it was there");
    for _ in 0..pieces {
        assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), PIECE);
    }
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"small");
    std::io::Read::read_exact(&mut told, &mut [0]).expect("one further message");
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
    let path = place.path.clone();
    let reader = fork(|| {
        let options = Options::new().shrink_after(Duration::from_millis(10));
        let mut mailbox = options.bind(&path).expect("binds");
        loop {
            let _ = mailbox.recv().expect("a message");
        }
    });
    let mut sender = connect(&Options::new(), &place.path);
    let mut round = |message: &[u8]| {
        sender.send(message).expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read");
    };
    round(b"small");
    let before = resident(reader, "");
    round(&vec![5; LONG]);
    let with = resident(reader, "");
    assert!(with > before + LONG as u64 / 2, "{before} bytes before, {with} with it");
    until("the memory is given back", || {
        round(b"small");
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
    let path = place.path.clone();
    let (mut told, mut tell) = std::io::pipe().expect("a pipe");
    let descriptors =
        |pid: i32| std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a folder").count() as u64;
    let child = fork(|| {
        let mut senders = Vec::new();
        let before = descriptors(own_pid());
        for number in 0..LANES {
            let mut sender = connect(&Options::new(), &path);
            sender.send(&number.to_le_bytes()).expect("sent");
            sender.wait_acked(Some(AMPLE)).expect("read");
            senders.push(sender);
        }
        // Each lane needs a connection, a doorbell and a pidfd.
        let each = (descriptors(own_pid()) - before) / LANES;
        std::io::Write::write_all(&mut tell, &[each as u8]).expect("notified");
        loop {
            thread::park();
        }
    });
    // The receiver runs in a separate process, because other tests have lanes in the test's own
    // process.
    let path = place.path.clone();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&path).expect("binds");
        loop {
            let _ = mailbox.recv_timeout(AMPLE);
        }
    });
    let mut each = [0];
    std::io::Read::read_exact(&mut told, &mut each).expect("all are connected");
    assert!(each[0] <= 3, "{} descriptors per lane at the sender", each[0]);
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
    let path = place.path.clone();
    let reader = fork(|| {
        let _mailbox = {
            let mut mailbox = Mailbox::bind(&path).expect("binds");
            let _ = mailbox.recv().expect("a message");
            mailbox
        };
        loop {
            thread::park();
        }
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
