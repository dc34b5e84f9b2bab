//! Growth of a lane: up to the memory that the mailbox can spare, and while descriptor tables are
//! full. Its costs are in `footprint.rs`.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{AMPLE, connect, fork, kill, place, reap, until};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

/// Sends messages of 1,000 bytes until no space is left; returns their number.
fn fill(sender: &mut Sender) -> u64 {
    let mut sent = 0;
    loop {
        match sender.try_send(&[7; 1000]) {
            Ok(()) => sent += 1,
            Err(Error::WouldBlock) => return sent,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the maximum number of messages that fit at once, while the mailbox has time to grant
/// more.
fn most_at_once(mailbox: &mut Mailbox, sender: &mut Sender) -> u64 {
    let rounds = (0..20).map(|_| {
        let sent = fill(sender);
        thread::sleep(Duration::from_millis(12));
        while mailbox.try_recv().is_ok() {}
        assert_eq!(mailbox.take_errors(), []);
        sent
    });
    rounds.max().unwrap_or(0)
}

/// Regression: a sender that requested more than its first share was never granted more, because
/// the mailbox compared the request with the sender's first announcement, which is the same. A
/// sender that had returned a large chunk and grew again did not count that chunk, which the
/// receiver had not left yet. The sender was therefore considered to exceed its grant, and its lane
/// was closed.
#[test]
fn lanes_share_mailbox_and_inherit_freed_memory() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(1 << 20).mailbox_cap(1 << 20).max_lanes(64);
    let mut mailbox = options.bind(&place.path).expect("binds");
    let mut first = options.connect(&place.path).expect("connects");
    mailbox.try_recv().expect_err("no message yet");
    let one = most_at_once(&mut mailbox, &mut first) * 1008;
    assert!((200_000..1 << 20).contains(&one), "{one} bytes of a mailbox of 1 MiB");
    // Another sender still receives a lane.
    let mut second = options.connect(&place.path).expect("connects");
    second.send(b"late").expect("space in the first chunk");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"late");
    assert_eq!(mailbox.take_errors(), []);
    // The first sender leaves, and the second can use its memory.
    drop(first);
    until("the first lane is removed", || {
        let _ = mailbox.try_recv();
        mailbox.sender_count() == 1
    });
    let two = most_at_once(&mut mailbox, &mut second) * 1008;
    assert!(two > 200_000, "{two} bytes");
}

/// Regression: a chunk that was passed while the receiver's descriptor table was full was regarded
/// as not passed, and an honest lane was closed, with all its messages.
#[test]
fn lane_grows_while_receiver_table_is_full() {
    alone!();
    use rustix::process::{Resource, Rlimit, setrlimit};
    let place = place();
    let path = place.path.clone();
    let (mut told, mut tell) = std::io::pipe().expect("a pipe");
    let (mut go, mut ready) = std::io::pipe().expect("a pipe");
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&path).expect("binds");
        let _ = mailbox.recv().expect("a message");
        mailbox.ack();
        let mut held: Vec<_> = (0..40)
            .map(|_| rustix::io::fcntl_dupfd_cloexec(&tell, 0).expect("a descriptor"))
            .collect();
        // At first no descriptor is free; each step frees one more.
        let open = std::fs::read_dir("/proc/self/fd").expect("a folder").count() as u64 - 1;
        let limit = Rlimit { current: Some(open), maximum: Some(open) };
        setrlimit(Resource::Nofile, limit).expect("lowered");
        std::io::Write::write_all(&mut tell, &[1]).expect("notified");
        std::io::Read::read_exact(&mut go, &mut [0]).expect("notified");
        let mut received = 0_u32;
        while received < 300 {
            match mailbox.recv_timeout(Duration::from_millis(2)) {
                Ok(message) => {
                    assert_eq!(message[..4], received.to_le_bytes());
                    received += 1;
                }
                Err(Error::TimedOut) => drop(held.pop()),
                Err(error) => assert_eq!(error.errno(), libc::EMFILE),
            }
        }
        mailbox.ack();
        let faults = mailbox.take_errors();
        assert!(faults.iter().all(|fault| fault.errno() == libc::EMFILE), "{faults:?}");
        std::io::Write::write_all(&mut tell, &[1]).expect("notified");
        loop {
            thread::park();
        }
    });
    let mut sender = connect(&Options::new(), &place.path);
    sender.send(b"first").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    std::io::Read::read_exact(&mut told, &mut [0]).expect("the table is full");
    let mut rest = 0..300_u32;
    let message = |number: u32| number.to_le_bytes().repeat(250);
    // Several chunks are passed to a receiver that cannot accept any.
    let waiting = rest.by_ref().take(20);
    waiting.for_each(|number| sender.try_send(&message(number)).expect("the lane grows"));
    std::io::Write::write_all(&mut ready, &[1]).expect("notified");
    rest.for_each(|number| sender.send_timeout(&message(number), AMPLE).expect("sent"));
    sender.wait_acked(Some(AMPLE)).expect("read");
    std::io::Read::read_exact(&mut told, &mut [0]).expect("all messages were received, in order");
    kill(reader);
}

/// Regression: a sender whose descriptor table was full when the WELCOME arrived could not ring the
/// doorbell, and the receiver slept despite pending messages.
#[test]
fn sender_without_free_descriptor_is_served_then_grows() {
    alone!();
    use rustix::process::{Resource, Rlimit, setrlimit};
    let place = place();
    let path = place.path.clone();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let (mut heard, mut hear) = std::io::pipe().expect("a pipe");
    let child = fork(|| {
        let mut held = Vec::new();
        let limit = Rlimit { current: Some(60), maximum: Some(60) };
        setrlimit(Resource::Nofile, limit).expect("lowered");
        let spare = std::fs::File::open("/dev/null").expect("opened");
        while let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(&spare, 0) {
            held.push(copy);
        }
        // Connecting returns a clear error until a descriptor is free.
        let mut sender = loop {
            match Sender::connect(&path) {
                Ok(sender) => break sender,
                Err(error) => assert_eq!(error.errno(), libc::EMFILE, "{error}"),
            }
            drop(held.pop().expect("60 descriptors suffice"));
        };
        while let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(&spare, 0) {
            held.push(copy);
        }
        for number in 0..20_u32 {
            thread::sleep(Duration::from_millis(10));
            sender.send(&number.to_le_bytes()).expect("sent");
        }
        assert_eq!(sender.peer(), None, "the welcome has no space");
        std::io::Read::read_exact(&mut heard, &mut [0]).expect("all messages arrived nevertheless");
        // Until a descriptor is free, growing fails as if there were no space.
        let large = [7; 100_000];
        assert_eq!(sender.try_send(&large), Err(Error::WouldBlock));
        loop {
            match sender.send_timeout(&large, Duration::from_millis(5)) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, Error::TimedOut),
            }
            drop(held.pop().expect("60 descriptors suffice"));
        }
        held.clear();
        sender.wait_acked(Some(AMPLE)).expect("read");
    });
    for number in 0..20_u32 {
        let started = Instant::now();
        let message = mailbox.recv_timeout(AMPLE / 2).expect("a message");
        assert_eq!(*message, number.to_le_bytes());
        // A receiver that is not woken would check again only at its own deadline.
        assert!(started.elapsed() < AMPLE / 4, "the sender was not woken");
    }
    std::io::Write::write_all(&mut hear, &[1]).expect("notified");
    assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), 100_000);
    let _ = mailbox.recv_timeout(Duration::from_millis(100));
    assert_eq!(reap(child), 0);
}
