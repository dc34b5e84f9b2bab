//! Messages that a sender sends before any receiver has accepted its lane: 1 MiB of chunks that
//! need no grant, whatever the caps of the receiver are.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tontine::Error;
use tontine::mailbox::{Mailbox, MailboxOptions, OnDeath, Options, Sender, WaitStrategy};

use crate::common::{AMPLE, Signal, connect, fork, kill, place, reap, sleep_indefinitely, until};
use crate::shortage::{become_ordinary_user, open_to_all};

/// Lengths whose records need three chunks: of 4, 16 and 256 KiB.
const LENGTHS: [usize; 5] = [1000, 5000, 65_536, 0, 30_000];

/// Receivers whose caps are smaller than the chunks, and the default.
fn receivers() -> [MailboxOptions; 3] {
    let small = Options::new().lane_cap(4096);
    [Options::new().into(), small.clone().into(), small.mailbox_cap(3 * 4096).max_lanes(3)]
}

/// Sends one message of each length, all bytes of which are `mark`.
fn send_all(sender: &mut Sender, mark: u8) {
    for length in LENGTHS {
        sender.try_send(&vec![mark; length]).unwrap_or_else(|error| panic!("{length}: {error}"));
    }
}

/// Receives the messages of `senders` senders, by polling if the flag is set, and checks each
/// sender's order.
fn receive_all(mailbox: &mut Mailbox, senders: usize, polls: bool) {
    let mut seen = std::collections::HashMap::new();
    for _ in 0..senders * LENGTHS.len() {
        until("a message arrives", || {
            let timeout = if polls { Duration::ZERO } else { AMPLE };
            let Ok(message) = mailbox.recv_timeout(timeout) else { return false };
            let next = seen.entry(message.sender()).or_insert((0, message.first().copied()));
            assert_eq!(message.len(), LENGTHS[next.0]);
            assert!(message.iter().all(|&byte| Some(byte) == next.1));
            next.0 += 1;
            true
        });
    }
    assert_eq!(seen.len(), senders);
    assert_eq!(mailbox.take_errors(), []);
}

/// A thread uses both ends, over each kind of address.
#[test]
fn message_of_64_kib_needs_no_receiving_call() {
    alone!();
    let place = place();
    let name = format!("@before-welcome-{}", std::process::id());
    for address in [Path::new(&name), &place.path] {
        let mut mailbox = Mailbox::bind(address).expect("binds");
        let mut sender = Sender::connect(address).expect("connects");
        send_all(&mut sender, 1);
        receive_all(&mut mailbox, 1, false);
    }
    let (ours, theirs) = crate::raw::pair();
    let mut sender = Sender::from_socket(theirs).expect("connects");
    send_all(&mut sender, 1);
    let mut mailbox = Mailbox::unbound().expect("a mailbox");
    mailbox.adopt(ours).expect("adopted");
    receive_all(&mut mailbox, 1, false);
}

/// The senders have ended before the receiver's first call, each without closing its lane. A
/// receiver without memory for all of them reads one lane after the other.
#[test]
fn messages_of_ended_senders_arrive_whatever_caps_are() {
    alone!();
    let place = place();
    let strategies = [WaitStrategy::Sleep, WaitStrategy::Spin];
    let cases = receivers().into_iter().flat_map(|options| {
        strategies.map(|strategy| (options.clone().wait_strategy(strategy), false))
    });
    for (options, polls) in cases.chain(receivers().map(|options| (options, true))) {
        let mut mailbox = options.bind(&place.path).expect("binds");
        for mark in 0..3 {
            let child = fork(|| {
                let mut sender = Sender::connect(&place.path).expect("connects");
                send_all(&mut sender, mark);
                std::mem::forget(sender);
            });
            assert_eq!(reap(child), 0);
        }
        receive_all(&mut mailbox, 3, polls);
    }
}

/// A sender that has been lent memory, and makes no call, takes no place of another sender.
#[test]
fn sender_connects_while_another_has_excess_memory() {
    alone!();
    let place = place();
    let options = Options::new().mailbox_cap(3 * 4096).max_lanes(3);
    let mut mailbox = options.bind(&place.path).expect("binds");
    let mut senders = Vec::new();
    for mark in 0..3 {
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.try_send(&[mark; 5000]).expect("space before the lane is accepted");
        assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), [mark; 5000]);
        senders.push(sender);
    }
    assert_eq!(mailbox.take_errors(), []);
}

/// A lane that exceeds the mailbox's cap returns the memory once it is read and its sender calls.
#[test]
fn messages_of_living_senders_arrive_whatever_caps_are() {
    alone!();
    let place = place();
    for options in receivers() {
        let mut mailbox = options.bind(&place.path).expect("binds");
        thread::scope(|scope| {
            for mark in 0..3 {
                let mut sender = Sender::connect(&place.path).expect("connects");
                send_all(&mut sender, mark);
                scope.spawn(move || sender.wait_acked(Some(AMPLE)).expect("read"));
            }
            receive_all(&mut mailbox, 3, false);
            mailbox.ack();
        });
    }
}

/// A lane that grew while no receiver had accepted it is handed over, to owners with smaller caps
/// too.
#[test]
fn messages_before_acceptance_reach_successor() {
    alone!();
    let place = place();
    for options in receivers() {
        let owner = fork(|| {
            let _mailbox = Mailbox::bind(&place.path).expect("binds");
            sleep_indefinitely();
        });
        let waiting = Options::new().on_death(OnDeath::WaitForSuccessor);
        let mut sender = connect(&waiting, &place.path);
        send_all(&mut sender, 1);
        kill(owner);
        let mut mailbox = options.bind(&place.path).expect("a free address");
        thread::scope(|scope| {
            scope.spawn(|| sender.wait_acked(Some(AMPLE)).expect("read"));
            receive_all(&mut mailbox, 1, false);
            mailbox.ack();
        });
    }
}

/// Regression: while WELCOME could not be read for lack of a thread, a chunk that the closed
/// receiver refused ended the lane, and the message that the receiver had acknowledged was taken
/// back.
#[test]
fn chunk_refused_with_unread_welcome_returns_no_acked_message() {
    alone!();
    let place = place();
    let options = open_to_all(&place.path);
    let mut mailbox = options.clone().mode(0o666).bind(&place.path).expect("binds");
    let closed = Signal::new();
    let child = fork(|| {
        become_ordinary_user();
        let mut sender = options.connect(&place.path).expect("connects");
        let before = getrlimit(Resource::Nproc);
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..before }).expect("lowered");
        sender.send(b"acknowledged").expect("space in the first chunk");
        closed.take();
        assert_eq!(sender.try_send(&[1; 5000]), Err(Error::WouldBlock));
        setrlimit(Resource::Nproc, before).expect("raised");
        until("the sender learns of the end", || {
            matches!(sender.try_send(&[1; 5000]), Err(Error::Closed { .. }))
        });
        assert_eq!(sender.take_unread().expect("the lane has ended"), [[0_u8; 0]; 0]);
    });
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"acknowledged");
    mailbox.close();
    closed.give(0);
    assert_eq!(reap(child), 0);
}
