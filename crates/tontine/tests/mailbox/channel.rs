//! The behaviours that programs expect of a channel with many senders and one receiver, whatever
//! carries it. All ends have default [`Options`](tontine::mailbox::Options), except for messages
//! that exceed the default cap.
//!
//! - Messages of any size arrive whole: empty, around the sizes of chunks and of a socket's
//!   packets, and beyond what a lane holds before its receiver's first call.
//! - Messages sent before the receiver's first call wait for it, as does the sender's end.
//! - A receiver blocks, polls, waits for a limited time, or waits for the descriptors of several
//!   mailboxes; each way returns the same messages, and none when there is none.
//! - Concurrent senders do not mix, lose or repeat messages, and each sender's keep their order.
//! - Each end learns that the other has closed, at once or during a wait, after the messages.
//! - Another process, forked or started, sends and receives under a name that a message passed on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::asleep::{until_asleep, until_others_sleep};
use crate::common::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

/// The largest packet of a socket with the kernel's default buffers. A channel over sockets sends a
/// longer message in parts.
const PACKET: usize = 212_952;

/// The ways to receive the next message.
const WAYS: [Way; 4] = [blocking, in_time, polling, on_descriptor];

type Way = fn(&mut Mailbox) -> Vec<u8>;

/// Combines each case with each of the [`WAYS`].
fn each_way<T: Copy>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = (T, Way)> {
    cases.into_iter().flat_map(|case| WAYS.map(|way| (case, way)))
}

fn blocking(mailbox: &mut Mailbox) -> Vec<u8> {
    mailbox.recv().expect("a message").to_vec()
}

fn in_time(mailbox: &mut Mailbox) -> Vec<u8> {
    mailbox.recv_timeout(AMPLE).expect("a message").to_vec()
}

fn polling(mailbox: &mut Mailbox) -> Vec<u8> {
    let end = Instant::now() + AMPLE;
    loop {
        match mailbox.try_recv() {
            Ok(message) => return message.to_vec(),
            Err(error) => assert_eq!(error, Error::WouldBlock),
        }
        assert!(Instant::now() < end, "no message within {AMPLE:?}");
        thread::yield_now();
    }
}

fn on_descriptor(mailbox: &mut Mailbox) -> Vec<u8> {
    select(std::slice::from_mut(mailbox), AMPLE).pop().expect("a message").1
}

/// Waits for the descriptors of several mailboxes. Returns at most one message of each, with the
/// mailbox's index, or nothing after `timeout`.
fn select(mailboxes: &mut [Mailbox], timeout: Duration) -> Vec<(usize, Vec<u8>)> {
    let end = Instant::now() + timeout;
    loop {
        let mut received = Vec::new();
        for (index, mailbox) in mailboxes.iter_mut().enumerate() {
            match mailbox.try_recv() {
                Ok(message) => received.push((index, message.to_vec())),
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if !received.is_empty() || left.is_zero() {
            return received;
        }
        if mailboxes.iter_mut().all(|mailbox| mailbox.arm().expect("armed")) {
            wait(mailboxes, left);
        }
    }
}

/// Waits until the descriptor of a mailbox is readable. Returns the number of readable ones.
fn wait(mailboxes: &[Mailbox], timeout: Duration) -> usize {
    let mut polled: Vec<_> = mailboxes.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
    poll(&mut polled, Some(&Timespec::try_from(timeout).expect("a short time"))).expect("polled")
}

fn channel(path: &Path) -> (Mailbox, Sender) {
    let mailbox = Mailbox::bind(path).expect("binds");
    (mailbox, Sender::connect(path).expect("connects"))
}

/// Returns several mailboxes in one folder, and a sender to each.
fn channels(count: usize) -> (Place, Vec<Mailbox>, Vec<Sender>) {
    let place = place();
    let (mailboxes, senders) = (0..count).map(|n| channel(&numbered(&place, n))).unzip();
    (place, mailboxes, senders)
}

/// Returns the path of the `number`th of [`channels`].
fn numbered(place: &Place, number: usize) -> PathBuf {
    place.path.with_file_name(number.to_string())
}

/// Returns `length` bytes that begin with `first`.
fn bytes(length: usize, first: u8) -> Vec<u8> {
    let block: Vec<u8> = (0..251).map(|n| n ^ first).collect();
    let mut bytes = block.repeat(length / block.len() + 1);
    bytes.truncate(length);
    bytes
}

/// Sends a message, which fails rather than block indefinitely.
fn send(sender: &mut Sender, message: &[u8]) {
    sender.send_timeout(message, AMPLE).expect("sent");
}

fn assert_empty(mailbox: &mut Mailbox) {
    assert_eq!(mailbox.try_recv().expect_err("no message"), Error::WouldBlock);
}

#[test]
fn first_message_of_any_size_arrives_whole() {
    alone!();
    let place = place();
    let around_chunks = (11..18).flat_map(|log2| (0..7).map(move |n| (1 << log2) - 24 + n * 8));
    let lengths = (0..20).chain(around_chunks).chain([65_537, PACKET, PACKET + 1]);
    for (length, receive) in each_way(lengths) {
        let (mut mailbox, mut sender) = channel(&place.path);
        send(&mut sender, &bytes(length, 1));
        assert!(receive(&mut mailbox) == bytes(length, 1), "{length} bytes");
        assert_empty(&mut mailbox);
    }
}

/// Sends a message in another thread, and receives it in this one.
fn pass(mailbox: &mut Mailbox, sender: &mut Sender, length: usize, way: Way) {
    thread::scope(|threads| {
        threads.spawn(|| send(sender, &bytes(length, 1)));
        assert!(way(mailbox) == bytes(length, 1), "{length} bytes");
    });
    assert_empty(mailbox);
}

#[test]
fn big_message_of_thread_arrives_whole() {
    alone!();
    let place = place();
    for (is_longest, way) in each_way([false, true]) {
        let (mut mailbox, mut sender) = channel(&place.path);
        let length = if is_longest { sender.max_message_len() } else { 1 << 20 };
        pass(&mut mailbox, &mut sender, length, way);
    }
}

/// The default cap allows messages of almost 16 MiB.
#[test]
fn huge_messages_arrive_whole_with_larger_cap() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(256 << 20);
    for mebibytes in [50, 46, 49, 47, 48] {
        let mut mailbox = options.bind(&place.path).expect("binds");
        let mut sender = options.connect(&place.path).expect("connects");
        pass(&mut mailbox, &mut sender, mebibytes << 20, blocking);
    }
}

#[test]
fn messages_of_concurrent_senders_arrive_once_each() {
    alone!();
    let place = place();
    for (count, length) in [(3, 1 << 20), (10, 512 << 10)] {
        for receive in WAYS {
            let (mut mailbox, first) = channel(&place.path);
            assert_empty(&mut mailbox);
            let ready = Barrier::new(usize::from(count) + 1);
            let mut received: Vec<u8> = thread::scope(|threads| {
                for number in 0..count {
                    let mut sender = first.try_clone().expect("another lane");
                    let ready = &ready;
                    threads.spawn(move || {
                        ready.wait();
                        send(&mut sender, &bytes(length, number));
                    });
                }
                ready.wait();
                let messages = (0..count).map(|_| receive(&mut mailbox));
                let checked = messages.inspect(|one| assert!(*one == bytes(length, one[0])));
                checked.map(|message| message[0]).collect()
            });
            assert_empty(&mut mailbox);
            received.sort_unstable();
            assert_eq!(received, Vec::from_iter(0..count));
        }
    }
}

/// Asserts that there is no message, and that each call waits for one as long as it may.
fn assert_empty_for(mailbox: &mut Mailbox, time: Duration) {
    assert_empty(mailbox);
    let begun = Instant::now();
    assert_eq!(mailbox.recv_timeout(time).expect_err("no message"), Error::TimedOut);
    assert!(begun.elapsed() >= time);
    let begun = Instant::now();
    assert_eq!(select(std::slice::from_mut(mailbox), time), []);
    assert!(begun.elapsed() >= time);
}

#[test]
fn receive_without_message_returns_at_once_or_times_out() {
    alone!();
    let place = place();
    let (mut mailbox, mut sender) = channel(&place.path);
    let at_once = |mailbox: &mut Mailbox| mailbox.try_recv().expect("a message").to_vec();
    for receive in [at_once, in_time, on_descriptor] {
        assert_empty_for(&mut mailbox, SHORT);
        send(&mut sender, b"1234567");
        let begun = Instant::now();
        assert_eq!(receive(&mut mailbox), b"1234567");
        assert!(begun.elapsed() < AMPLE, "the call waited for another message");
    }
    assert_empty_for(&mut mailbox, SHORT);
    drop(sender);
    assert_empty_for(&mut mailbox, SHORT);
}

/// A mailbox never ends for lack of senders, because another one may connect. It reports each end
/// by [`Mailbox::sender_count`], and its descriptor wakes it.
#[test]
fn dropped_sender_leaves_messages_then_no_lane() {
    alone!();
    let place = place();
    let cases = [(false, 0), (false, 1), (false, 3), (true, 0), (true, 1), (true, 3)];
    for ((is_accepted, count), receive) in each_way(cases) {
        let (mut mailbox, mut sender) = channel(&place.path);
        if is_accepted {
            until("the lane is accepted", || {
                assert_empty(&mut mailbox);
                mailbox.sender_count() == 1
            });
        }
        (0..count).for_each(|number| send(&mut sender, &[number]));
        drop(sender);
        (0..count).for_each(|number| assert_eq!(receive(&mut mailbox), [number]));
        has_no_sender(&mut mailbox);
    }
}

/// Prepares for a wait. Returns `true` if the descriptor reports nothing.
fn is_quiet(mailbox: &mut Mailbox) -> bool {
    mailbox.arm().expect("armed") && wait(std::slice::from_ref(mailbox), Duration::ZERO) == 0
}

/// Waits until the last lane has ended without an error, and the descriptor reports nothing more.
fn has_no_sender(mailbox: &mut Mailbox) {
    until("the lane ends", || {
        assert_empty(mailbox);
        mailbox.sender_count() == 0 && is_quiet(mailbox)
    });
    assert_eq!(mailbox.take_deaths(), []);
    assert_eq!(mailbox.take_errors(), []);
}

#[test]
fn sender_dropped_during_wait_ends_wait_for_descriptor() {
    alone!();
    let place = place();
    let (mut mailbox, mut sender) = channel(&place.path);
    send(&mut sender, b"1234567");
    assert_eq!(in_time(&mut mailbox), b"1234567");
    until("the descriptor is quiet", || {
        assert_empty(&mut mailbox);
        is_quiet(&mut mailbox)
    });
    let dropping = thread::spawn(|| {
        until_others_sleep();
        drop(sender);
    });
    assert_eq!(wait(std::slice::from_ref(&mailbox), AMPLE), 1);
    dropping.join().expect("dropped");
    has_no_sender(&mut mailbox);
}

#[test]
fn sends_to_closed_mailbox_end_with_error() {
    alone!();
    let place = place();
    for (is_accepted, count) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let (mut mailbox, mut sender) = channel(&place.path);
        (0..count).for_each(|_| send(&mut sender, b"1234567"));
        if is_accepted {
            until("the lane is accepted", || {
                let _ = mailbox.try_recv();
                mailbox.sender_count() == 1
            });
        }
        drop(mailbox);
        has_no_receiver(&mut sender);
    }
    // The mailbox closes while the sender sends.
    let (mailbox, mut sender) = channel(&place.path);
    let sent = AtomicU32::new(0);
    thread::scope(|threads| {
        let sent = &sent;
        threads.spawn(move || {
            until("messages are queued", || sent.load(Ordering::Relaxed) >= 50);
            drop(mailbox);
        });
        while sender.send_timeout(b"1234567", AMPLE).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
    });
    has_no_receiver(&mut sender);
}

fn has_no_receiver(sender: &mut Sender) {
    let mut errors = (0..u32::MAX).filter_map(|_| sender.send_timeout(b"1234567", AMPLE).err());
    assert_eq!(errors.next().expect("an error").errno(), libc::EPIPE);
    assert!(matches!(sender.try_clone(), Err(Error::NoMailbox { .. })));
}

#[test]
fn mailboxes_of_concurrent_senders_get_all_in_order() {
    alone!();
    const MAILBOXES: usize = 5;
    const MESSAGES: usize = 100;
    let (_place, mut mailboxes, senders) = channels(MAILBOXES);
    let message = |index: usize, number: usize| {
        bytes((number * 99_991 + index * 90_001) % 16_381, (index * 16) as u8)
    };
    let mut received = [0; MAILBOXES];
    thread::scope(|threads| {
        for (index, mut sender) in senders.into_iter().enumerate() {
            threads.spawn(move || {
                (0..MESSAGES).for_each(|number| send(&mut sender, &message(index, number)));
            });
        }
        while received != [MESSAGES; MAILBOXES] {
            let news = select(&mut mailboxes, AMPLE);
            assert_ne!(news, [], "received {received:?}");
            for (index, bytes) in news {
                assert!(bytes == message(index, received[index]), "{index}: {received:?}");
                received[index] += 1;
            }
        }
    });
    mailboxes.iter_mut().for_each(has_no_sender);
}

/// A stop interrupts the system call that a receiver waits in.
#[test]
fn wait_continues_after_stop_of_receiver() {
    alone!();
    for receive in [blocking, in_time, on_descriptor] {
        let place = place();
        let inner = numbered(&place, 0);
        let mut outer = Mailbox::bind(&place.path).expect("binds");
        let child = fork(|| {
            let mut mailbox = Mailbox::bind(&inner).expect("binds");
            let mut sender = Sender::connect(&place.path).expect("connects");
            send(&mut sender, b"waits");
            assert_eq!(receive(&mut mailbox), b"wakes");
            assert_empty(&mut mailbox);
            send(&mut sender, b"woken");
        });
        assert_eq!(in_time(&mut outer), b"waits");
        let mut sender = Sender::connect(&inner).expect("connects");
        until_asleep(child);
        signal(child, libc::SIGSTOP);
        let pid = Pid::from_raw(child);
        let stopped = waitpid(pid, WaitOptions::UNTRACED).expect("waited").expect("a status");
        assert!(stopped.1.stopped());
        signal(child, libc::SIGCONT);
        send(&mut sender, b"wakes");
        assert_eq!(in_time(&mut outer), b"woken");
        assert_eq!(reap(child), 0);
    }
}

/// Variable that names the mailbox of the process that started this one.
const SERVER: &str = "TONTINE_TEST_SERVER";

/// Sends the name of a mailbox to the server, and what arrives there to both of the server's.
fn answer(server: &Path) {
    let inner = server.with_extension("inner");
    let mut mailbox = Mailbox::bind(&inner).expect("binds");
    let mut sender = Sender::connect(server).expect("connects");
    send(&mut sender, inner.display().to_string().as_bytes());
    let message = in_time(&mut mailbox);
    send(&mut sender, &message);
    let second = server.with_extension("second");
    send(&mut Sender::connect(second).expect("connects"), &message);
}

#[test]
fn other_process_is_reached_by_name_it_sent() {
    alone!();
    if let Some(server) = std::env::var_os(SERVER) {
        return answer(Path::new(&server));
    }
    let place = place();
    for is_forked in [true, false] {
        let mut server = Mailbox::bind(&place.path).expect("binds");
        let mut second = Mailbox::bind(place.path.with_extension("second")).expect("binds");
        let mut started = None;
        let pid = if is_forked {
            fork(|| answer(&place.path))
        } else {
            let mut command = Command::new(std::env::current_exe().expect("an executable"));
            command.args(std::env::args_os().skip(1)).env(SERVER, &place.path);
            started.insert(command.spawn().expect("starts")).id().cast_signed()
        };
        let message = server.recv().expect("a message");
        assert_eq!(message.peer().pid, Some(pid.cast_unsigned()));
        let name = String::from_utf8(message.to_vec()).expect("text");
        send(&mut Sender::connect(name).expect("connects"), b"there and back");
        assert_eq!(reap(pid), 0);
        // The other process has ended, and its messages remain.
        for mailbox in [&mut server, &mut second] {
            assert_eq!(blocking(mailbox), b"there and back");
        }
    }
}

/// Has several methods of one name for a type that is `Sync`, so that a call does not compile.
trait NotSync<A> {
    fn check() {}
}
impl<T> NotSync<()> for T {}
impl<T: Sync> NotSync<u8> for T {}

#[test]
fn ends_move_between_threads_but_are_not_shared() {
    fn moves<T: Send>() {}
    moves::<Mailbox>();
    moves::<Sender>();
    <Mailbox as NotSync<_>>::check();
    <Sender as NotSync<_>>::check();
}
