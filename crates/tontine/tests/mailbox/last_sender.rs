//! The end of the last sender, which a mailbox reports on request: `Error::NoSenders`.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::forks::exec_sleep;
use tontine::Error;
use tontine::mailbox::{
    AsyncMailbox, Mailbox, MailboxOptions, MailboxSet, Options, Sender, WaitStrategy,
};

fn reporting() -> MailboxOptions {
    Options::new().report_no_senders(true)
}

/// Calls that wait, with what each returns instead of a message.
fn receive(mailbox: &mut Mailbox, call: usize) -> Result<Vec<u8>, Error> {
    match call {
        0 => mailbox.recv().map(|message| message.to_vec()),
        1 => mailbox.recv_timeout(AMPLE).map(|message| message.to_vec()),
        2 => {
            let mut all = Vec::new();
            mailbox.recv_batch(1, |message| all.extend_from_slice(message)).map(|_| all)
        }
        _ => {
            let mut result = Err(Error::WouldBlock);
            until("the call has a result", || {
                result = mailbox.try_recv().map(|message| message.to_vec());
                result != Err(Error::WouldBlock)
            });
            result
        }
    }
}

#[test]
fn each_call_reports_last_senders_end_after_its_messages() {
    alone!();
    let strategies = [WaitStrategy::Sleep, WaitStrategy::Spin, WaitStrategy::Adaptive];
    for (call, strategy) in (0..4).flat_map(|call| strategies.map(|strategy| (call, strategy))) {
        let (place, mut mailbox) = bound_with(&reporting().wait_strategy(strategy));
        assert_eq!(mailbox.try_recv().expect_err("no sender yet"), Error::WouldBlock);
        let nothing = mailbox.recv_timeout(Duration::ZERO).expect_err("no sender yet");
        assert_eq!(nothing, Error::TimedOut);
        for round in 0..2 {
            let [mut first, mut second] =
                [(); 2].map(|()| Sender::connect(&place.path).expect("connects"));
            first.send(b"one").expect("sent");
            assert_eq!(receive(&mut mailbox, call), Ok(b"one".to_vec()), "{call}, {round}");
            // The second sender sends and ends while the mailbox waits.
            let ends = thread::spawn(move || {
                drop(first);
                thread::sleep(SHORT);
                second.send(b"two").expect("sent");
            });
            assert_eq!(receive(&mut mailbox, call), Ok(b"two".to_vec()), "{call}, {round}");
            ends.join().expect("sent");
            for _ in 0..2 {
                assert_eq!(receive(&mut mailbox, call), Err(Error::NoSenders), "{call}, {round}");
            }
            assert_eq!(mailbox.arm(), Ok(false), "there is something to report");
        }
    }
}

#[test]
fn senders_death_is_reported_like_its_end() {
    alone!();
    let (place, mut mailbox) = bound_with(&reporting());
    let sender = fork(|| {
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.send(b"sent").expect("sent");
        sleep_indefinitely();
    });
    assert_eq!(&*mailbox.recv().expect("a message"), b"sent");
    kill(sender);
    assert_eq!(mailbox.recv().expect_err("no sender is left"), Error::NoSenders);
}

/// Regression: a call whose last poll removed the lane slept, although nothing was left to wake it.
#[test]
fn end_is_reported_whichever_part_of_wait_finds_it() {
    alone!();
    // The number of messages decides which part of the next call processes the hang-up.
    for (messages, micros) in (1..5).flat_map(|messages| (1..40).map(move |time| (messages, time)))
    {
        let strategy = WaitStrategy::SpinThenSleep(Duration::from_micros(micros));
        let (place, mut mailbox) = bound_with(&reporting().wait_strategy(strategy));
        let mut sender = Sender::connect(&place.path).expect("connects");
        for _ in 0..messages {
            sender.send(b"sent").expect("sent");
            assert_eq!(&*mailbox.recv().expect("a message"), b"sent");
        }
        drop(sender);
        // The next call finds a service of the connections due.
        thread::sleep(Duration::from_millis(6));
        let began = Instant::now();
        assert_eq!(mailbox.recv_timeout(AMPLE).expect_err("no sender is left"), Error::NoSenders);
        assert!(began.elapsed() < AMPLE, "{messages} messages, {micros} µs: the call slept");
    }
}

/// Regression: only the liveness word tells the end of a sender that executed another program while
/// its forked child has the connection, and a call that read the word slept all the same.
#[test]
fn end_by_exec_is_reported_although_child_has_connection() {
    alone!();
    for call in 0..3 {
        let (place, mut mailbox) = bound_with(&reporting().wait_strategy(WaitStrategy::Sleep));
        let reported = Signal::new();
        let sender = fork(|| {
            let mut sender = Sender::connect(&place.path).expect("connects");
            sender.send(b"sent").expect("sent");
            reported.give(fork(sleep_indefinitely));
            exec_sleep();
        });
        let id = mailbox.recv_timeout(AMPLE).expect("a message").sender();
        mailbox.ack();
        let child = reported.take();
        until("the sender has ended", || mailbox.is_alive(id) == Some(false));
        let began = Instant::now();
        let error = match call {
            0 => mailbox.recv_timeout(AMPLE).err(),
            1 => {
                let mut set = MailboxSet::new();
                set.add(mailbox);
                set.recv_timeout(AMPLE).err()
            }
            _ => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let mut mailbox = AsyncMailbox::new(mailbox).expect("registered");
                    let received = tokio::time::timeout(AMPLE, mailbox.recv()).await;
                    received.expect("in time").err()
                })
            }
        };
        assert_eq!(error, Some(Error::NoSenders), "{call}");
        assert!(began.elapsed() < AMPLE, "{call}: the call slept");
        kill(sender);
        signal(child, libc::SIGKILL);
    }
}

/// A sender that came and went between two calls is in the queue of the listener.
#[test]
fn messages_of_unaccepted_sender_precede_report() {
    alone!();
    let (place, mut mailbox) = bound_with(&reporting());
    let mut first = Sender::connect(&place.path).expect("connects");
    first.send(b"first").expect("sent");
    assert_eq!(&*mailbox.recv().expect("a message"), b"first");
    drop(first);
    for number in 0..40_u8 {
        Sender::connect(&place.path).expect("connects").send(&[number]).expect("sent");
    }
    let mut received: Vec<u8> = (0..40).map(|_| mailbox.recv().expect("a message")[0]).collect();
    received.sort_unstable();
    assert_eq!(received, (0..40).collect::<Vec<_>>());
    mailbox.requeue();
    assert_eq!(mailbox.recv().expect("a requeued message").len(), 1);
    assert_eq!(mailbox.recv().expect_err("no sender is left"), Error::NoSenders);
}

#[test]
fn adopted_socket_counts_as_sender_until_it_closes() {
    alone!();
    let (place, mut mailbox) = bound_with(&reporting());
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"sent").expect("sent");
    assert_eq!(&*mailbox.recv().expect("a message"), b"sent");
    let (ours, theirs) = crate::raw::pair();
    mailbox.adopt(ours).expect("adopted");
    drop(sender);
    assert_eq!(mailbox.recv_timeout(SHORT).expect_err("it may send"), Error::TimedOut);
    drop(theirs);
    assert_eq!(mailbox.recv().expect_err("no sender is left"), Error::NoSenders);
}

#[test]
fn mailbox_without_the_option_waits_for_next_sender() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    sender.send(b"sent").expect("sent");
    assert_eq!(&*mailbox.recv().expect("a message"), b"sent");
    drop(sender);
    assert_eq!(mailbox.recv_timeout(SHORT).expect_err("no report"), Error::TimedOut);
    assert_eq!(mailbox.try_recv().expect_err("no report"), Error::WouldBlock);
    let mut next = Sender::connect(&place.path).expect("connects");
    next.send(b"next").expect("sent");
    assert_eq!(&*mailbox.recv().expect("a message"), b"next");
}

#[test]
fn async_recv_reports_last_senders_end() {
    alone!();
    let (place, mailbox) = bound_with(&reporting());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        let mut mailbox = AsyncMailbox::new(mailbox).expect("registered");
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.send(b"sent").expect("sent");
        assert_eq!(&*mailbox.recv().await.expect("a message"), b"sent");
        let ends = thread::spawn(move || {
            thread::sleep(SHORT);
            drop(sender);
        });
        assert_eq!(mailbox.recv().await.expect_err("no sender is left"), Error::NoSenders);
        ends.join().expect("ended");
    });
}
