//! Both ends on tokio, on one thread and on several.

#![cfg(feature = "tokio")]
#![allow(unsafe_code, reason = "a kill")]

use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::asleep::until_others_sleep;
use crate::common::*;
use crate::raw;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tontine::Error;
use tontine::mailbox::{AsyncMailbox, AsyncSender, Message, OnDeath, Options, Sender};

/// The cap of the smallest lane that can grow, whose sender often waits for space.
const NARROW: u64 = 8192;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn both() -> [Runtime; 2] {
    let several = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    [one_thread(), several.expect("a runtime")]
}

fn mailbox(options: &Options, path: &Path) -> AsyncMailbox {
    AsyncMailbox::new(options.bind(path).expect("binds")).expect("is watched")
}

fn sender(options: &Options, path: &Path) -> AsyncSender {
    AsyncSender::new(options.connect(path).expect("connects"))
}

/// Serves senders that have sent nothing; returns `true` if the mailbox has accepted all of them.
fn all_are_welcomed(senders: &mut [Sender]) -> bool {
    senders.iter_mut().all(|sender| {
        sender.service().expect("the receiver lives");
        sender.peer().is_some()
    })
}

fn connected(count: usize, path: &Path) -> Vec<Sender> {
    (0..count).map(|_| Sender::connect(path).expect("connects")).collect()
}

/// Returns the next message, which must arrive.
async fn one(mailbox: &mut AsyncMailbox) -> Message<'_> {
    timeout(AMPLE, mailbox.recv()).await.expect("in time").expect("a message")
}

/// Awaits one `recv`, during which no message may arrive, until `is_done` returns `true`.
async fn nothing_until(mailbox: &mut AsyncMailbox, mut is_done: impl FnMut() -> bool) {
    let mut recv = pin!(mailbox.recv());
    let wait = async {
        while !is_done() {
            let came = timeout(Duration::from_millis(1), recv.as_mut()).await;
            assert!(came.is_err(), "expected no message, found one");
        }
    };
    timeout(AMPLE, wait).await.expect("in time");
}

/// Waits until a sender that adds to `sent` has sent `least` messages and sends nothing more.
fn until_blocked(sent: &AtomicU32, least: u32) {
    let mut before = 0;
    until("the sender is blocked", || {
        thread::sleep(Duration::from_millis(10));
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now && now >= least
    });
}

/// Awaits `recv` for `duration`, during which no message may arrive.
async fn nothing(mailbox: &mut AsyncMailbox, duration: Duration) {
    let came = timeout(duration, mailbox.recv()).await;
    assert!(came.is_err(), "expected no message, found one");
}

#[test]
fn async_messages_of_several_senders_arrive_in_order() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(NARROW);
    for runtime in both() {
        runtime.block_on(async {
            let mut mailbox = mailbox(&options, &place.path);
            let mut sending = Vec::new();
            for name in 0..4_u32 {
                let mut sender = sender(&options, &place.path);
                sending.push(tokio::spawn(async move {
                    for number in 0..5_000_u32 {
                        let message = [name.to_le_bytes(), number.to_le_bytes()].concat();
                        sender.send(&message).await.expect("sent");
                    }
                    sender
                }));
            }
            let mut expected = [0_u32; 4];
            for _ in 0..20_000 {
                let message = one(&mut mailbox).await;
                let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
                assert_eq!(word(4), expected[word(0) as usize]);
                expected[word(0) as usize] += 1;
            }
            for task in sending {
                task.await.expect("the sender's task");
            }
            assert!(mailbox.get_mut().take_errors().is_empty());
        });
    }
}

/// Counts the calls of a waker.
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn pending_recv_is_woken_once_by_message() {
    alone!();
    let place = place();
    for runtime in both() {
        runtime.block_on(async {
            let mut mailbox = mailbox(&Options::new(), &place.path);
            let mut sender = connected(1, &place.path);
            nothing_until(&mut mailbox, || all_are_welcomed(&mut sender)).await;
            let wakes = Arc::new(Wakes(AtomicU32::new(0)));
            let waker = Waker::from(wakes.clone());
            let mut context = Context::from_waker(&waker);
            let mut recv = pin!(mailbox.recv());
            assert!(recv.as_mut().poll(&mut context).is_pending());
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            sender[0].send(&[5]).expect("sent");
            while wakes.0.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let Poll::Ready(message) = recv.as_mut().poll(&mut context) else {
                panic!("woken without a message");
            };
            assert_eq!(*message.expect("a message"), [5]);
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        });
    }
}

#[test]
fn dropped_recv_future_loses_no_message() {
    alone!();
    let place = place();
    for runtime in both() {
        runtime.block_on(async {
            let mut mailbox = mailbox(&Options::new(), &place.path);
            let path = place.path.clone();
            let drops = Arc::new(AtomicU32::new(0));
            let seen = drops.clone();
            let sending = thread::spawn(move || {
                let mut sender = Sender::connect(&path).expect("connects");
                for number in 0..2_000_u32 {
                    if number % 16 == 0 {
                        let before = seen.load(Ordering::Relaxed);
                        until("a future is dropped", || seen.load(Ordering::Relaxed) > before);
                    }
                    sender.send(&number.to_le_bytes()).expect("sent");
                }
                sender
            });
            let mut expected = 0;
            while expected < 2_000_u32 {
                match timeout(Duration::from_micros(300), mailbox.recv()).await {
                    Ok(message) => {
                        assert_eq!(*message.expect("a message"), expected.to_le_bytes());
                        expected += 1;
                    }
                    Err(_) => drop(drops.fetch_add(1, Ordering::Relaxed)),
                }
            }
            sending.join().expect("the sender's thread");
        });
    }
}

#[test]
fn dropped_send_future_has_sent_nothing() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(NARROW);
    for runtime in both() {
        runtime.block_on(async {
            let mut mailbox = mailbox(&options, &place.path);
            let mut sender = sender(&options, &place.path);
            let drops = Arc::new(AtomicU32::new(0));
            let counts = drops.clone();
            let sending = tokio::spawn(async move {
                for number in 0..1_000_u32 {
                    let message = number.to_le_bytes().repeat(50);
                    loop {
                        let wait = Duration::from_millis(1);
                        match timeout(wait, sender.send(&message)).await {
                            Ok(sent) => break sent.expect("sent"),
                            Err(_) => drop(counts.fetch_add(1, Ordering::Relaxed)),
                        }
                    }
                }
                sender
            });
            for number in 0..1_000_u32 {
                // The lane has no space for 50 messages, so the sender waits, and gives up.
                let before = drops.load(Ordering::Relaxed);
                while number % 50 == 0 && drops.load(Ordering::Relaxed) == before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let message = one(&mut mailbox).await;
                assert_eq!(*message, number.to_le_bytes().repeat(50));
            }
            let _sender = sending.await.expect("the sender's task");
            // A message received here would have arrived twice.
            nothing(&mut mailbox, Duration::from_millis(20)).await;
        });
    }
}

#[test]
fn awaited_send_fails_when_receiver_dies() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(NARROW);
    let (path, connected) = (place.path.clone(), Signal::new());
    let reader = fork(|| {
        let mut mailbox = Options::new().lane_cap(NARROW).bind(&path).expect("binds");
        let _ = mailbox.recv().expect("the first message");
        // After the receiver is killed, its child keeps the connection open, so only the pidfd
        // reports the death.
        connected.give(fork(sleep_indefinitely));
        sleep_indefinitely();
    });
    one_thread().block_on(async {
        let mut sender = AsyncSender::new(connect(&options, &place.path));
        let sent = Arc::new(AtomicU32::new(0));
        let filling = async {
            loop {
                if let Err(error) = sender.send(&[1; 500]).await {
                    break error;
                }
                sent.fetch_add(1, Ordering::Relaxed);
            }
        };
        let counted = sent.clone();
        let killing = tokio::task::spawn_blocking(move || {
            let child = connected.take();
            until_blocked(&counted, 6);
            kill(reader);
            child
        });
        let error = timeout(AMPLE, filling).await.expect("the future ends");
        assert!(matches!(error, Error::OwnerDied { .. }), "{error}");
        let child = killing.await.expect("killed");
        // SAFETY: the receiver started this process, which no process of the test reaps.
        unsafe { libc::kill(child, libc::SIGKILL) };
        assert!(sender.get_mut().take_unread().expect("the unread messages").len() > 3);
    });
}

#[test]
fn awaited_send_finds_live_successor() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(NARROW).on_death(OnDeath::WaitForSuccessor);
    let reader = fork(|| {
        let mut mailbox = Options::new().lane_cap(NARROW).bind(&place.path).expect("binds");
        let _ = mailbox.recv().expect("the first message");
        sleep_indefinitely();
    });
    one_thread().block_on(async {
        let mut sender = AsyncSender::new(connect(&options, &place.path));
        let sent = Arc::new(AtomicU32::new(0));
        let counts = sent.clone();
        let sending = tokio::spawn(async move {
            for number in 0..100_u32 {
                sender.send(&number.to_le_bytes().repeat(100)).await.expect("sent");
                counts.fetch_add(1, Ordering::Relaxed);
            }
            sender
        });
        let killing = tokio::task::spawn_blocking(move || {
            until_blocked(&sent, 5);
            kill(reader);
        });
        killing.await.expect("killed");
        tokio::time::sleep(Duration::from_millis(30)).await;
        let mut mailbox = mailbox(&Options::new().lane_cap(NARROW), &place.path);
        // The first message was handed out and never acknowledged.
        for number in 0..100_u32 {
            let message = one(&mut mailbox).await;
            assert_eq!(*message, number.to_le_bytes().repeat(100));
        }
        sending.await.expect("the sender's task");
    });
}

#[test]
fn more_hang_ups_than_one_scan_handles_are_all_noticed() {
    alone!();
    let place = place();
    one_thread().block_on(async {
        let mut mailbox = mailbox(&Options::new(), &place.path);
        // A busy machine may need more time; if the mailbox leaves some, no time is enough.
        for milliseconds in [100, 500, 5_000, 30_000] {
            let mut senders = connected(200, &place.path);
            nothing_until(&mut mailbox, || all_are_welcomed(&mut senders)).await;
            assert!(mailbox.get_ref().sender_count() >= 200);
            drop(senders);
            nothing(&mut mailbox, Duration::from_millis(milliseconds)).await;
            if mailbox.get_ref().sender_count() == 0 {
                return;
            }
        }
        panic!("{} senders have ended unnoticed", mailbox.get_ref().sender_count());
    });
}

#[test]
fn silent_connection_is_dropped_while_recv_is_awaited() {
    alone!();
    let place = place();
    one_thread().block_on(async {
        let options = Options::new().handshake_timeout(Duration::from_millis(50));
        let mut mailbox = mailbox(&options, &place.path);
        let silent = raw::dial(&place.path);
        rustix::io::ioctl_fionbio(&silent, true).expect("set");
        let is_dropped = || rustix::io::read(&silent, &mut [0; 1]) == Ok(0);
        nothing_until(&mut mailbox, is_dropped).await;
    });
}

/// Polls a future that must be pending.
fn poll_pending<T>(future: Pin<&mut impl Future<Output = T>>) {
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "expected a pending future, found a ready one");
}

/// Polls a future in a forked child. The poll must fail immediately.
fn poll_forked<T>(future: Pin<&mut impl Future<Output = tontine::Result<T>>>) {
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    let std::task::Poll::Ready(Err(error)) = polled else { panic!("expected an error") };
    assert_eq!(error, Error::Forked);
}

/// Regression: a program forked while a `recv` was pending, and the child dropped or polled its
/// copy of the future. SIGSEGV killed the child, because it cleared a word on a page that a child
/// does not inherit. The drop also removed the parent's descriptor from the runtime's epoll set,
/// which both share, and no message woke the parent any more.
#[test]
fn pending_recv_in_forked_child_fails_and_parent_is_woken() {
    alone!();
    for polls in [false, true] {
        for runtime in both() {
            let place = place();
            runtime.block_on(async {
                let mut mailbox = mailbox(&Options::new(), &place.path);
                let mut recv = Some(Box::pin(mailbox.recv()));
                poll_pending(recv.as_mut().expect("the future").as_mut());
                let child = bare_fork(|| {
                    let mut recv = recv.take().expect("the child's copy");
                    if polls {
                        poll_forked(recv.as_mut());
                    }
                });
                assert_eq!(reap(child), 0, "polls: {polls}");
                let path = place.path.clone();
                let sending = thread::spawn(move || {
                    until_others_sleep();
                    Sender::connect(&path).expect("connects").send(b"one").expect("sent");
                });
                let received = timeout(AMPLE, recv.expect("the parent's")).await;
                assert_eq!(&*received.expect("in time").expect("a message"), b"one");
                sending.join().expect("the sender's thread");
                let child = bare_fork(|| drop(mailbox));
                assert_eq!(reap(child), 0, "the mailbox dropped in a child");
            });
        }
    }
}

/// Regression: a program forked while a `send` waited for space, and the child dropped or polled
/// its copy of the future. SIGSEGV killed the child, because it wrote to the lane's chunks, which a
/// child does not inherit.
#[test]
fn pending_send_in_forked_child_fails_and_parent_is_woken() {
    alone!();
    for polls in [false, true] {
        for runtime in both() {
            let place = place();
            let options = Options::new().lane_cap(NARROW);
            runtime.block_on(async {
                let mut mailbox = options.bind(&place.path).expect("binds");
                let mut sender = sender(&options, &place.path);
                sender.send(&[0; 1000]).await.expect("sent");
                assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), 1000);
                while sender.get_mut().try_send(&[1; 1000]).is_ok() {}
                let mut send = Some(Box::pin(sender.send(&[2; 1000])));
                poll_pending(send.as_mut().expect("the future").as_mut());
                let child = bare_fork(|| {
                    let mut send = send.take().expect("the child's copy");
                    if polls {
                        poll_forked(send.as_mut());
                    }
                });
                assert_eq!(reap(child), 0, "polls: {polls}");
                let receiving = thread::spawn(move || {
                    until_others_sleep();
                    let mut last = 0;
                    while last != 2 {
                        last = mailbox.recv_timeout(AMPLE).expect("a message")[0];
                    }
                });
                let sent = timeout(AMPLE, send.expect("the parent's")).await;
                sent.expect("in time").expect("sent");
                receiving.join().expect("the receiver's thread");
            });
        }
    }
}
