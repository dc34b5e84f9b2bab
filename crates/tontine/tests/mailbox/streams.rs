//! The asynchronous ends besides `recv` and `send`: batches, reservations, acknowledgements,
//! streams and sinks.

#![cfg(feature = "tokio")]

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use crate::common::*;
use futures_core::Stream;
use futures_sink::Sink;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tontine::Error;
use tontine::mailbox::{AsyncMailbox, AsyncSender, Mailbox, OnDeath, Options, Sender};

/// The cap of the smallest lane that can grow, whose sender often waits for space.
const NARROW: u64 = 8192;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn next(mailbox: &mut AsyncMailbox) -> Option<Result<Vec<u8>, Error>> {
    let item = poll_fn(|context| Pin::new(&mut *mailbox).poll_next(context));
    timeout(AMPLE, item).await.expect("in time")
}

/// Sends through the sink, and returns as soon as the sink has accepted the message.
async fn feed(sink: &mut AsyncSender, message: &[u8]) -> Result<(), Error> {
    let ready = poll_fn(|context| Sink::<&[u8]>::poll_ready(Pin::new(&mut *sink), context));
    timeout(AMPLE, ready).await.expect("in time")?;
    Pin::new(sink).start_send(message)
}

async fn flush(sink: &mut AsyncSender) -> Result<(), Error> {
    let flushed = poll_fn(|context| Sink::<&[u8]>::poll_flush(Pin::new(&mut *sink), context));
    timeout(AMPLE, flushed).await.expect("in time")
}

/// Everything that a sink accepts arrives in order, although the lane is full most of the time, and
/// the stream ends with the last sender.
#[test]
fn stream_yields_what_sink_accepted_until_last_sender_ends() {
    alone!();
    const MESSAGES: u32 = 3000;
    let place = place();
    let options = Options::new().report_no_senders(true);
    let mailbox = options.bind(&place.path).expect("binds");
    runtime().block_on(async {
        let mut mailbox = AsyncMailbox::new(mailbox).expect("is watched");
        let sender = Options::new().lane_cap(NARROW).connect(&place.path).expect("connects");
        let sends = tokio::spawn(async move {
            let mut sender = AsyncSender::new(sender);
            for number in 0..MESSAGES {
                let message = [number.to_le_bytes(); 50].concat();
                // Whatever the call, messages keep their order.
                match number % 5 {
                    0 => sender.send(&message).await.expect("sent"),
                    1 => {
                        let mut space = sender.reserve(message.len()).await.expect("space");
                        space.copy_from_slice(&message);
                        space.commit().expect("sent");
                    }
                    2 if number % 10 == 2 => flush(&mut sender).await.expect("sent"),
                    _ => {}
                }
                if number % 5 > 1 {
                    feed(&mut sender, &message).await.expect("accepted");
                }
            }
            timeout(AMPLE, sender.wait_acked()).await.expect("in time").expect("acknowledged");
            assert_eq!(sender.get_mut().unread_bytes(), 0);
        });
        for number in 0..MESSAGES {
            let message = next(&mut mailbox).await.expect("not the end").expect("a message");
            assert_eq!(message, [number.to_le_bytes(); 50].concat());
        }
        assert_eq!(next(&mut mailbox).await, None);
        sends.await.expect("no panic");
    });
}

#[test]
fn stream_reports_wake_and_continues() {
    alone!();
    let place = place();
    runtime().block_on(async {
        let mut mailbox =
            AsyncMailbox::new(Mailbox::bind(&place.path).expect("binds")).expect("is watched");
        let waker = mailbox.get_mut().waker().expect("a waker");
        let mut sender = Sender::connect(&place.path).expect("connects");
        let (returns, returned) = std::sync::mpsc::channel();
        let acts = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            waker.wake().expect("woken");
            returned.recv().expect("the error was returned");
            sender.send(b"after").expect("sent");
            sender
        });
        assert_eq!(next(&mut mailbox).await, Some(Err(Error::Woken)));
        returns.send(()).expect("the thread waits");
        assert_eq!(next(&mut mailbox).await, Some(Ok(b"after".to_vec())));
        let mut sender = acts.join().expect("no panic");
        assert_ne!(sender.unread_bytes(), 0, "the next item acknowledges the last one");
        let none = timeout(SHORT, poll_fn(|context| Pin::new(&mut mailbox).poll_next(context)));
        assert!(none.await.is_err(), "there is no other message");
        assert_eq!(sender.unread_bytes(), 0);
        // The dropped wait has taken no message, and recv works as before.
        sender.send(b"again").expect("sent");
        let message = timeout(AMPLE, mailbox.recv()).await.expect("in time");
        assert_eq!(&*message.expect("a message"), b"again");
    });
}

#[test]
fn awaited_batch_passes_queued_messages_once() {
    alone!();
    let place = place();
    runtime().block_on(async {
        let mut mailbox =
            AsyncMailbox::new(Mailbox::bind(&place.path).expect("binds")).expect("is watched");
        assert_eq!(mailbox.recv_batch(0, |_| ()).await, Ok(0));
        let mut sender = Sender::connect(&place.path).expect("connects");
        let nothing = timeout(SHORT, mailbox.recv_batch(9, |_| panic!("no message"))).await;
        assert!(nothing.is_err(), "a dropped batch has passed nothing");
        for number in 0..100_u8 {
            sender.send(&[number]).expect("sent");
        }
        let mut received = Vec::new();
        while received.len() < 100 {
            let batch = mailbox.recv_batch(7, |message| received.extend_from_slice(message));
            let count = timeout(AMPLE, batch).await.expect("in time").expect("a batch");
            assert!((1..=7).contains(&count));
        }
        assert_eq!(received, (0..100).collect::<Vec<_>>());
        assert_eq!(sender.unread_bytes(), 0, "all are acknowledged");
    });
}

/// The errors of a receiver's end reach each call that waits.
#[test]
fn receivers_end_ends_each_awaited_call() {
    alone!();
    let place = place();
    runtime().block_on(async {
        for call in 0..3 {
            let mailbox = Mailbox::bind(&place.path).expect("binds");
            let options = Options::new().lane_cap(4096);
            let mut sender = AsyncSender::new(options.connect(&place.path).expect("connects"));
            while sender.get_mut().try_send(&[7; 500]).is_ok() {}
            let (begins, begun) = std::sync::mpsc::channel();
            let waits = tokio::spawn(async move {
                if call == 2 {
                    feed(&mut sender, &[8; 500]).await.expect("kept in the sink");
                }
                begins.send(()).expect("the test waits");
                let ended = match call {
                    0 => sender.wait_acked().await,
                    1 => sender.reserve(500).await.map(drop),
                    _ => flush(&mut sender).await,
                };
                let unread = sender.get_mut().take_unread().expect("ended").len();
                (ended, unread, flush(&mut sender).await)
            });
            begun.recv_timeout(AMPLE).expect("the task runs");
            tokio::time::sleep(SHORT).await;
            drop(mailbox);
            let waited = timeout(AMPLE, waits).await.expect("in time").expect("no panic");
            let is_end =
                |error: &Error| matches!(error, Error::Closed { .. } | Error::OwnerDied { .. });
            assert!(waited.0.as_ref().is_err_and(is_end), "{call}: {:?}", waited.0);
            assert!(waited.1 > 0, "{call}");
            assert_eq!(waited.2, Ok(()), "a message that cannot be sent is not kept");
        }
    });
}

/// `wait_acked` hands the lane over to a successor, and waits for its acknowledgement.
#[test]
fn awaited_acknowledgement_comes_from_successor() {
    alone!();
    let place = place();
    runtime().block_on(async {
        let first = Mailbox::bind(&place.path).expect("binds");
        let options = Options::new().on_death(OnDeath::WaitThroughRestarts);
        let mut sender = AsyncSender::new(options.connect(&place.path).expect("connects"));
        sender.send(b"inherited").await.expect("sent");
        drop(first);
        let waits = tokio::spawn(async move { sender.wait_acked().await });
        tokio::time::sleep(SHORT).await;
        assert!(!waits.is_finished(), "no receiver has acknowledged it");
        let mut second =
            AsyncMailbox::new(Mailbox::bind(&place.path).expect("binds")).expect("is watched");
        assert_eq!(next(&mut second).await, Some(Ok(b"inherited".to_vec())));
        second.get_mut().ack();
        let waited = timeout(Duration::from_secs(60), waits).await.expect("in time");
        assert_eq!(waited.expect("no panic"), Ok(()));
    });
}
