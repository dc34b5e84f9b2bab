//! Shortages of the machine: full descriptor tables, lack of memory. A process that lacks a
//! resource names it, waits without using a processor, and continues once the resource is
//! available.

#![allow(unsafe_code, reason = "changes limits of forked processes")]

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::asleep::{until_asleep, until_others_sleep};
use crate::common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender, WaitStrategy};

/// Maximum number of descriptors of a process in these tests.
const TABLE: u64 = 100;

/// Descriptors that leave only a few entries of a process's table free.
pub(crate) struct Held(Vec<OwnedFd>);

impl Held {
    pub(crate) fn new() -> Self {
        let limit = Rlimit { current: Some(TABLE), maximum: Some(TABLE) };
        setrlimit(Resource::Nofile, limit).expect("lowered");
        Self(Vec::with_capacity(TABLE as usize))
    }

    pub(crate) fn leave(&mut self, free: usize) {
        while let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 0) {
            self.0.push(copy);
        }
        self.0.truncate(self.0.len() - free);
    }

    pub(crate) fn leave_one(&mut self) {
        drop(self.0.pop().expect("the table suffices"));
    }

    pub(crate) fn leave_all(&mut self) {
        self.0.clear();
    }
}

/// The way in which a program waits for its messages.
#[derive(Clone, Copy)]
enum Waits {
    InRecv,
    OnTheDescriptor,
}

/// Returns the next message within `time`.
fn wait(mailbox: &mut Mailbox, how: Waits, time: Duration) -> Option<Vec<u8>> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let received = match how {
            Waits::InRecv => mailbox.recv_timeout(left),
            Waits::OnTheDescriptor => mailbox.try_recv(),
        };
        match received {
            Ok(message) => return Some(message.to_vec()),
            Err(Error::TimedOut) => return None,
            Err(Error::WouldBlock) if left.is_zero() => return None,
            Err(error) => assert_eq!(error, Error::WouldBlock),
        }
        if mailbox.arm().expect("armed") {
            is_readable(&*mailbox, left);
        }
    }
}

/// Limits the memory of this process to its current mappings plus `more` bytes.
fn limit_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = pages.split(' ').next().expect("a number").parse().expect("a number");
    let limit = Rlimit { current: Some(pages * 4096 + more), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).expect("lowered");
}

/// Regression: a full descriptor table kept the receiver awake. A listener with pending
/// connections, and a socket with a chunk that cannot be received, stay readable, and `recv` polled
/// only these, a hundred thousand times per second.
#[test]
fn receiver_with_full_table_sleeps_and_accepts_later() {
    alone!();
    for how in [Waits::InRecv, Waits::OnTheDescriptor] {
        let place = place();
        let path = place.path.clone();
        let report = Signal::new();
        let go = Signal::new();
        let reader = fork(|| {
            let options =
                Options::new().wait_strategy(WaitStrategy::Sleep).handshake_timeout(AMPLE);
            let mut mailbox = options.bind(&path).expect("binds");
            for _ in 0..2 {
                wait(&mut mailbox, how, AMPLE).expect("a message");
            }
            let mut held = Held::new();
            held.leave(0);
            report.give(1);
            go.take();
            // A new sender is pending, a lane has passed chunks, and the sender of another lane has
            // been killed. The parent looks at whether this process sleeps.
            let mut first = 0_u32;
            while !go.is_given() {
                if let Some(message) = wait(&mut mailbox, how, Duration::from_millis(100)) {
                    assert_eq!(message[..4], first.to_le_bytes());
                    first += 1;
                    // The new sender must not receive the descriptors that the dead sender's lane
                    // releases.
                    held.leave(0);
                }
                held.leave(0);
            }
            go.take();
            assert!(first >= 3, "{first} messages of a lane that is served");
            held.leave_all();
            let mut new_sender = false;
            while first < 20 || !new_sender {
                let message = wait(&mut mailbox, how, AMPLE).expect("a message");
                if message == b"new" {
                    new_sender = true;
                } else {
                    assert_eq!(message[..4], first.to_le_bytes());
                    first += 1;
                }
            }
            until("the dead sender's lane is removed", || {
                let _ = mailbox.try_recv();
                mailbox.sender_count() == 2
            });
            let faults = mailbox.take_errors();
            assert!(!faults.is_empty() && faults.len() < 5, "{faults:?}");
            assert!(faults.iter().all(|fault| fault.errno() == libc::EMFILE), "{faults:?}");
            report.give(2);
            go.take();
        });
        let victim = fork(|| {
            let mut sender = connect(&Options::new(), &path);
            sender.send(b"victim").expect("sent");
            sleep_indefinitely();
        });
        let mut sender = connect(&Options::new(), &place.path);
        sender.send(b"first").expect("sent");
        report.take();
        for number in 0..20_u32 {
            sender.try_send(&number.to_le_bytes().repeat(250)).expect("the lane grows");
        }
        let mut new_sender = Sender::connect(&place.path).expect("connects");
        new_sender.send(b"new").expect("sent");
        kill(victim);
        go.give(1);
        // A receiver that polls sockets that stay readable does not sleep.
        (0..20).for_each(|_| until_asleep(reader));
        go.give(1);
        assert_eq!(report.take(), 2);
        new_sender.wait_acked(Some(AMPLE)).expect("read");
        go.give(1);
        assert_eq!(reap(reader), 0);
    }
}

/// The descriptors that a new sender needs are missing one by one. Regression: if the WELCOME
/// failed for lack of one descriptor, the sender was permanently refused.
#[test]
fn receiver_short_of_descriptors_accepts_later() {
    alone!();
    let place = place();
    let path = place.path.clone();
    let report = Signal::new();
    let reader = fork(|| {
        let mut mailbox = Options::new().handshake_timeout(AMPLE * 2).bind(&path).expect("binds");
        let mut held = Held::new();
        loop {
            let message = mailbox.recv().expect("a message").to_vec();
            match message[..] {
                [b'l', free] => held.leave(free.into()),
                [b'f'] => held.leave_all(),
                [b'c'] => {
                    until("the new sender's lane is removed", || {
                        let _ = mailbox.try_recv();
                        mailbox.sender_count() == 1
                    });
                    // The next check closes the lane's descriptors.
                    let nothing = mailbox.recv_timeout(Duration::ZERO).map(drop);
                    assert_eq!(nothing, Err(Error::TimedOut));
                    let faults = mailbox.take_errors();
                    let all = faults.iter().all(|fault| fault.errno() == libc::EMFILE);
                    assert!(all, "{faults:?}");
                    report.give(i32::from(faults.is_empty()));
                    report.give(open_descriptors() as i32);
                }
                _ => assert!([&b"new"[..], b"served"].contains(&&message[..]), "{message:?}"),
            }
            mailbox.ack();
        }
    });
    let mut first = connect(&Options::new(), &place.path);
    let mut say = |message: &[u8]| {
        first.send(message).expect("sent");
        first.wait_acked(Some(AMPLE)).expect("read");
    };
    let mut before = None;
    let mut short = 0;
    for free in 0..12 {
        say(&[b'l', free]);
        let mut new_sender = Sender::connect(&place.path).expect("connects");
        new_sender.send(b"new").expect("space in the first chunk");
        say(b"served");
        // The receiver sleeps only after an attempt.
        until_asleep(reader);
        new_sender.service().expect("no refusal");
        say(b"f");
        new_sender.wait_acked(Some(AMPLE)).expect("read at last");
        drop(new_sender);
        say(b"c");
        short += u8::from(report.take() == 0);
        let open = report.take();
        assert_eq!(*before.get_or_insert(open), open, "{free} were free");
    }
    // A sender needs its connection; its page, chunk and pidfd; a page of ours, and a doorbell with
    // two ends.
    assert!((4..12).contains(&short), "with {short} descriptors it can be taken");
    kill(reader);
}

/// Sets this process's soft limit of descriptors.
fn set_soft_limit(descriptors: u64) {
    let limit = Rlimit { current: Some(descriptors), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("set");
}

/// Becomes a user without privileges and without other processes.
pub(crate) fn become_ordinary_user() {
    if rustix::process::geteuid().is_root() {
        let user = rustix::process::Uid::from_raw(3_000_000 + std::process::id());
        rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
    }
}

/// Lets every user reach mailboxes in the folder of `path` that have mode 0666, with the returned
/// options.
pub(crate) fn open_to_all(path: &Path) -> Options {
    let folder = path.parent().expect("a folder");
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).expect("set");
    Options::new().allow_any_uid()
}

/// Regression: only `accept` raised the soft limit of descriptors, and other calls lacked them
/// first. With the usual limit of 1,024, a mailbox served 337 of its 1,024 senders. The kernel also
/// bounds the descriptors in flight of an ordinary user by this limit.
#[test]
fn lack_of_descriptors_raises_limit_of_both_ends() {
    alone!();
    const SENDERS: usize = 40;
    const SOFT: u64 = 64;
    let place = place();
    let options = open_to_all(&place.path);
    let report = Signal::new();
    let receiver = fork(|| {
        become_ordinary_user();
        set_soft_limit(SOFT);
        let mut mailbox = options.clone().mode(0o666).bind(&place.path).expect("binds");
        // All connections wait at first, with the descriptors that they have passed.
        report.take();
        for _ in 0..SENDERS {
            assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"x");
        }
        assert_eq!((mailbox.sender_count(), mailbox.take_errors()), (SENDERS, vec![]));
    });
    until("the mailbox exists", || place.path.exists());
    let senders = fork(|| {
        become_ordinary_user();
        set_soft_limit(SOFT);
        let mut senders = Vec::new();
        for _ in 0..SENDERS {
            let mut sender = options.connect(&place.path).expect("connects");
            sender.send(b"x").expect("sent");
            senders.push(sender);
        }
        report.give(1);
        for sender in &mut senders {
            sender.wait_acked(Some(AMPLE)).expect("read");
        }
    });
    assert_eq!(reap(senders), 0);
    assert_eq!(reap(receiver), 0);
}

#[test]
fn sender_short_of_descriptors_fails_or_waits() {
    alone!();
    let (place, mut mailbox) = bound();
    let child = fork(|| {
        // A process creates some resources only once; this creates them.
        drop(Sender::connect(&place.path).expect("connects"));
        let mut held = Held::new();
        let (mut failed, mut unheard) = (0, 0);
        for free in 0..12 {
            held.leave(free);
            let before = held.0.len() + free;
            match Sender::connect(&place.path) {
                Ok(mut sender) => {
                    sender.send(&[b'0' + free as u8]).expect("sent");
                    thread::sleep(Duration::from_millis(20));
                    sender.service().expect("the reader lives");
                    unheard += u8::from(sender.peer().is_none());
                    held.leave_all();
                    sender.wait_acked(Some(AMPLE)).expect("read");
                    assert!(sender.peer().is_some());
                }
                Err(error) => {
                    assert_eq!(error.errno(), libc::EMFILE, "{error}");
                    let text = error.to_string();
                    let call = ["socket", "pidfd_open", "memfd_create"]
                        .iter()
                        .any(|call| text.contains(call));
                    assert!(call, "{text}");
                    failed += 1;
                }
            }
            held.leave(0);
            assert_eq!(held.0.len(), before, "a descriptor was lost with {free} free");
            held.leave_all();
        }
        assert!(failed >= 2 && unheard >= 1, "{failed} failed, {unheard} were not welcomed");
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.send(b"end").expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read");
    });
    loop {
        let message = mailbox.recv_timeout(AMPLE).expect("a message");
        if *message == *b"end" {
            break;
        }
    }
    let _ = mailbox.recv_timeout(Duration::from_millis(50));
    assert_eq!(mailbox.take_errors(), []);
    assert_eq!(reap(child), 0);
}

#[test]
fn bind_short_of_descriptors_fails_cleanly() {
    alone!();
    let place = place();
    let child = fork(|| {
        // A process creates some resources only once; this creates them.
        drop(Mailbox::bind(&place.path).expect("binds"));
        let mut held = Held::new();
        let mut failed = 0;
        for free in 0..8 {
            held.leave(free);
            let before = held.0.len() + free;
            match Mailbox::bind(&place.path) {
                Ok(mailbox) => drop(mailbox),
                Err(error) => {
                    assert_eq!(error.errno(), libc::EMFILE, "{error}");
                    failed += 1;
                }
            }
            // A listener is emptied before it is closed; without a descriptor for that, a thread
            // does both slightly later.
            until("no descriptor is lost", || {
                held.leave(0);
                held.0.len() == before
            });
            held.leave_all();
            let left =
                ["mailbox", "mailbox.tmp"].map(|name| place.path.with_file_name(name).exists());
            assert_eq!(left, [false, false], "{free} were free");
        }
        assert_eq!(failed, 4, "set, timer, lock and listener");
    });
    assert_eq!(reap(child), 0);
}

/// A sender that waits longer than the handshake timeout is refused temporarily, as the error
/// states. Regression: a sender with the option to wait for a successor then gave up.
#[test]
fn long_descriptor_shortage_refuses_senders_temporarily() {
    alone!();
    let place = place();
    let report = Signal::new();
    let go = Signal::new();
    let reader = fork(|| {
        let options = Options::new().handshake_timeout(Duration::from_millis(40));
        let mut mailbox = options.bind(&place.path).expect("binds");
        let mut held = Held::new();
        held.leave(2);
        report.give(1);
        // The mailbox is served until the parent has finished its observation.
        while !go.is_given() {
            let error = mailbox.recv_timeout(Duration::from_millis(10)).expect_err("no message");
            assert_eq!(error, Error::TimedOut);
        }
        go.take();
        held.leave_all();
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"patient");
        mailbox.ack();
        report.give(2);
        go.take();
    });
    report.take();
    // On a busy machine, the receiver may drop a connection before its sender introduces itself.
    let mut brief = connect(&Options::new(), &place.path);
    brief.send(b"brief").expect("space in the first chunk");
    let mut error = None;
    until("the sender is refused", || {
        error = brief.service().err();
        error.is_some()
    });
    assert_eq!(error, Some(Error::Refused { errno: libc::EMFILE }));
    let text = error.expect("refused").to_string();
    assert!(text.contains("connect again later"), "{text}");
    assert_eq!(brief.take_unread().expect("refused"), [b"brief"]);

    let options = Options::new().on_death(OnDeath::WaitForSuccessor);
    let mut patient = connect(&options, &place.path);
    patient.send(b"patient").expect("space in the first chunk");
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        patient.service().expect("the call still waits");
        thread::sleep(Duration::from_millis(5));
    }
    go.give(1);
    patient.wait_acked(Some(AMPLE)).expect("read");
    assert_eq!(report.take(), 2);
    go.give(1);
    assert_eq!(reap(reader), 0);
}

/// Regression: a new sender whose chunk could not be mapped was permanently refused. If a lane's
/// later chunk could not be mapped, the receiver tried again only when something else woke it, and
/// slept despite pending messages.
#[test]
fn unmappable_chunk_is_mapped_later() {
    alone!();
    const LARGE: usize = 3 << 20;
    let place = place();
    let path = place.path.clone();
    let report = Signal::new();
    let go = Signal::new();
    let reader = fork(|| {
        let options = Options::new().wait_strategy(WaitStrategy::Sleep).handshake_timeout(AMPLE);
        let mut mailbox = options.bind(&path).expect("binds");
        assert_eq!(&*mailbox.recv().expect("a message"), b"first");
        mailbox.ack();
        for (round, length) in [(1, 3), (2, LARGE)] {
            let before = getrlimit(Resource::As);
            let (begin, begun) = std::sync::mpsc::channel();
            let (start, started) = std::sync::mpsc::channel();
            let raised = thread::Builder::new().stack_size(1 << 18).spawn(move || {
                // A thread maps memory before it runs.
                start.send(()).expect("notified");
                begun.recv().expect("notified");
                until_others_sleep();
                setrlimit(Resource::As, before).expect("raised");
            });
            started.recv().expect("notified");
            limit_memory(2 << 20);
            report.give(round);
            go.take();
            begin.send(()).expect("notified");
            let started = Instant::now();
            assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), length);
            assert!(started.elapsed() < AMPLE / 2, "the receiver slept despite unread messages");
            mailbox.ack();
            raised.expect("a thread").join().expect("raised");
        }
        let faults = mailbox.take_errors();
        assert!(faults.iter().all(|fault| fault.errno() == libc::ENOMEM), "{faults:?}");
        // The only error is the new sender's. There is none if this process was not scheduled for
        // that long.
        assert!(faults.len() < 2, "{faults:?}");
        go.take();
    });
    let mut first = connect(&Options::new(), &place.path);
    first.send(b"first").expect("sent");
    first.wait_acked(Some(AMPLE)).expect("read");
    assert_eq!(report.take(), 1);
    let options = Options::new().first_chunk(8 << 20);
    let mut new_sender = options.connect(&place.path).expect("connects");
    new_sender.send(b"new").expect("sent");
    go.give(1);
    new_sender.wait_acked(Some(AMPLE)).expect("read");
    assert_eq!(report.take(), 2);
    first.send(&[0; LARGE]).expect("the lane grows");
    go.give(1);
    first.wait_acked(Some(AMPLE)).expect("read");
    go.give(1);
    assert_eq!(reap(reader), 0);
}

/// Regression: in a process that locks its memory (`mlockall`), the kernel refuses a mapping beyond
/// the limit of locked memory with EAGAIN, and a blocking `send` returned that number.
#[test]
fn send_waits_while_locked_memory_is_at_limit() {
    alone!();
    let place = place();
    let path = place.path.clone();
    let options = open_to_all(&path);
    let mut mailbox = options.clone().mode(0o666).bind(&path).expect("binds");
    let large = vec![7; 3 << 20];
    let child = fork(|| {
        // A process with CAP_IPC_LOCK has no limit.
        become_ordinary_user();
        let mut sender = options.connect(&path).expect("connects");
        sender.send(b"first").expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read");
        let (start, started) = std::sync::mpsc::channel();
        let (begin, begun) = std::sync::mpsc::channel();
        let unlocking = thread::spawn(move || {
            // A thread maps memory before it runs.
            start.send(()).expect("notified");
            begun.recv().expect("notified");
            until_others_sleep();
            // SAFETY: the call only lets pages be swapped out.
            assert_eq!(unsafe { libc::munlockall() }, 0);
        });
        started.recv().expect("notified");
        let limit = Rlimit { current: Some(1 << 20), ..getrlimit(Resource::Memlock) };
        setrlimit(Resource::Memlock, limit).expect("lowered");
        // SAFETY: the call only keeps the pages of later mappings in memory.
        assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
        assert_eq!(sender.try_send(&large), Err(Error::WouldBlock));
        begin.send(()).expect("notified");
        assert_eq!(sender.send(&large), Ok(()));
        unlocking.join().expect("unlocked");
        sender.wait_acked(Some(AMPLE)).expect("read");
    });
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"first");
    mailbox.ack();
    assert!(*mailbox.recv_timeout(AMPLE).expect("a message") == *large);
    mailbox.ack();
    assert_eq!(reap(child), 0);
}

/// WELCOME waits on the socket while the sender's process can start no thread that receives it.
#[test]
fn sender_that_can_start_no_thread_waits_without_peer() {
    alone!();
    let place = place();
    let options = open_to_all(&place.path);
    let mut mailbox = options.clone().mode(0o666).bind(&place.path).expect("binds");
    let accepted = Signal::new();
    let child = fork(|| {
        become_ordinary_user();
        let mut sender = options.connect(&place.path).expect("connects");
        let before = getrlimit(Resource::Nproc);
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..before }).expect("lowered");
        sender.send(b"unread").expect("space in the first chunk");
        accepted.take();
        assert_eq!(sender.wait_acked(Some(SHORT)), Err(Error::TimedOut));
        assert_eq!(sender.peer(), None);
        setrlimit(Resource::Nproc, before).expect("raised");
        sender.wait_acked(Some(AMPLE)).expect("read");
        assert!(sender.peer().is_some());
    });
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"unread");
    mailbox.ack();
    accepted.give(0);
    assert_eq!(reap(child), 0);
}
