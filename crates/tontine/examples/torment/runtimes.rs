//! Tokio runtimes with many lanes, dropped futures and forked children: [`run`].
//!
//! Each case has its own process, because a runtime has threads and the next case forks.

#![allow(unsafe_code, reason = "a process that kills itself")]

use std::future::Future;
use std::path::Path;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tontine::Error;
use tontine::life::Life;
use tontine::mailbox::{AsyncMailbox, AsyncSender, OnDeath, Options};

use super::common::Random;
use super::message::MessageHeader;
use super::slice::{MAX_PAUSE, Slice, SliceCounter};
use super::worker::{self, ForkedWorker};

/// Runs cases until the slice is over.
pub(super) fn run(slice: &Slice) {
    while !slice.is_over() {
        let case = slice.next_case();
        let path = slice.folder.join(format!("mailbox-{case}"));
        let mut worker = ForkedWorker::start("runtime", || play(slice, case, &path));
        let status = worker.wait(3 * MAX_PAUSE);
        slice.check_worker(case, status, &worker);
        slice.add(SliceCounter::Rounds, 1);
    }
}

fn play(slice: &Slice, case: u64, path: &Path) {
    Life::register_anchor_thread().expect("a life");
    let mut random = slice.random(case);
    let threads = random.below(3) as usize;
    let runtime = runtime(threads);
    let cap = 1 << (12 + random.below(4));
    match random.below(4) {
        0 => runtime.block_on(fork_in_recv(slice, case, path, random.below(2) == 0)),
        1 => runtime.block_on(fork_in_send(slice, case, path)),
        2 => runtime.block_on(kill_receiver(slice, case, path, cap)),
        _ => runtime.block_on(exchange(slice, case, path, cap, &mut random)),
    }
}

/// Returns a single-threaded or a multi-threaded runtime.
fn runtime(threads: usize) -> Runtime {
    let mut builder = match threads {
        0 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if threads > 0 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().expect("a runtime")
}

/// Runs several tasks that send and drop their futures; the receiver drops its futures too.
async fn exchange(slice: &Slice, case: u64, path: &Path, cap: u64, random: &mut Random) {
    let options = Options::new().lane_cap(cap);
    let mailbox = options.bind(path).expect("binds");
    let mut mailbox = AsyncMailbox::new(mailbox).expect("watched");
    let (senders, count) = (1 + random.below(6), 50 + random.below(800));
    let mut tasks = Vec::new();
    for name in 0..senders {
        let (options, path) = (options.clone(), path.to_path_buf());
        let mut random = Random(random.next() | 1);
        tasks.push(tokio::spawn(async move {
            let mut sender = AsyncSender::new(options.connect(&path).expect("connects"));
            for number in 0..count {
                let most = sender.get_ref().max_message_len().min(900) as u64;
                let len = random.below(most) as usize;
                let message = MessageHeader { sender: name, incarnation: 0, number }.encode(len);
                loop {
                    let wait = Duration::from_micros(random.below(2_000));
                    match timeout(wait, sender.send(&message)).await {
                        Ok(sent) => break sent.expect("sent"),
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            }
            sender
        }));
    }
    let mut next = vec![0; senders as usize];
    let mut received = 0;
    let mut pauses = 0_u32;
    while received < senders * count && slice.violations() == 0 {
        let wait = Duration::from_micros(random.below(1_000));
        let Ok(message) = timeout(wait, mailbox.recv()).await else {
            pauses += 1;
            // The limit is far longer than any correct pause.
            if pauses > 1_000_000 {
                slice.violate(case, &format!("expected more messages after {received}"));
            }
            continue;
        };
        let message = message.map_err(|error| error.to_string());
        let message = message.and_then(|message| MessageHeader::decode(&message));
        let fits = message.as_ref().is_ok_and(|found| next[found.sender as usize] == found.number);
        slice.check(case, fits, || format!("expected one of {next:?}, found {message:?}"));
        if let Ok(message) = message {
            next[message.sender as usize] += 1;
            received += 1;
        }
    }
    slice.add(SliceCounter::Messages, received);
    for task in tasks {
        if slice.violations() == 0 {
            drop(task.await.expect("the sender's task"));
        }
    }
    let more = timeout(Duration::from_millis(20), mailbox.recv()).await;
    slice.check(case, more.is_err(), || "expected no further message, found one".into());
}

/// Forks a child while `recv` is pending. The child polls or drops the future.
async fn fork_in_recv(slice: &Slice, case: u64, path: &Path, polls: bool) {
    let mut mailbox =
        AsyncMailbox::new(Options::new().bind(path).expect("binds")).expect("watched");
    let status = {
        let mut receiving = Box::pin(mailbox.recv());
        let found = timeout(Duration::from_millis(2), &mut receiving).await;
        assert!(found.is_err(), "expected no message, found one");
        let child = worker::fork(|| {
            if polls {
                let mut context = Context::from_waker(Waker::noop());
                let _ = receiving.as_mut().poll(&mut context);
            }
            drop(receiving);
        });
        worker::reap(child, MAX_PAUSE)
    };
    let what = if polls { "polls and drops" } else { "drops" };
    slice.check_exit(case, status, &format!("a child that {what} a pending recv"));
    // The parent's mailbox must be unchanged.
    let mut sender = Options::new().connect(path).expect("connects");
    let message = MessageHeader { sender: 0, incarnation: 0, number: 7 };
    sender.send(&message.encode(100)).expect("sent");
    let found = timeout(MAX_PAUSE, mailbox.recv()).await.expect("in time").expect("a message");
    assert_eq!(MessageHeader::decode(&found), Ok(message));
    slice.add(SliceCounter::Deaths, 1);
    slice.add(SliceCounter::Messages, 1);
}

/// Forks a child while `send` is pending. The child drops the future.
async fn fork_in_send(slice: &Slice, case: u64, path: &Path) {
    let options = Options::new().lane_cap(4096);
    let mut mailbox = AsyncMailbox::new(options.bind(path).expect("binds")).expect("watched");
    let mut sender = AsyncSender::new(options.connect(path).expect("connects"));
    let mut sent = 0_u64;
    let message = |number| MessageHeader { sender: 0, incarnation: 0, number }.encode(200);
    // The lane is accepted once the first message has been received.
    sender.send(&message(0)).await.expect("sent");
    let _ = mailbox.recv().await.expect("received");
    sent += 1;
    let status = loop {
        let bytes = message(sent);
        let mut sending = Box::pin(sender.send(&bytes));
        match timeout(Duration::from_millis(2), &mut sending).await {
            Ok(done) => done.expect("sent"),
            Err(_) => {
                let child = worker::fork(|| drop(sending));
                break worker::reap(child, MAX_PAUSE);
            }
        }
        sent += 1;
    };
    slice.check_exit(case, status, "a child that drops a pending send");
    for number in 1..sent {
        let found = timeout(MAX_PAUSE, mailbox.recv()).await.expect("in time").expect("a message");
        assert_eq!(MessageHeader::decode(&found).map(|found| found.number), Ok(number));
    }
    slice.add(SliceCounter::Deaths, 1);
    slice.add(SliceCounter::Messages, sent);
}

/// Kills the receiver of a pending `send`.
async fn kill_receiver(slice: &Slice, case: u64, path: &Path, cap: u64) {
    let receiver = worker::fork(|| {
        // The forking thread is the child's main thread.
        Life::register().expect("the main thread");
        let mut mailbox = Options::new().lane_cap(cap).bind(path).expect("binds");
        let _ = mailbox.recv().map(drop);
        std::thread::sleep(Duration::from_millis(5));
        // SAFETY: the call terminates this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    let options = Options::new().lane_cap(cap).on_death(OnDeath::Fail);
    let mut sender = AsyncSender::new(super::common::connect(&options, path));
    let filling = async {
        let mut sent = 0_u64;
        loop {
            let message = MessageHeader { sender: 0, incarnation: 0, number: sent }.encode(300);
            match sender.send(&message).await {
                Ok(()) => sent += 1,
                Err(error) => break (sent, error),
            }
        }
    };
    let Ok((sent, error)) = timeout(MAX_PAUSE, filling).await else {
        return slice.violate(case, "expected send to end with its receiver, found it pending");
    };
    slice.check(case, matches!(error, Error::OwnerDied { .. }), || {
        format!("expected OwnerDied of a killed receiver, found {error}")
    });
    let unread = sender.get_mut().take_unread().map(|unread| unread.len() as u64);
    slice.check(case, unread == Ok(sent), || {
        format!("expected all {sent} messages unread, found {unread:?}")
    });
    let status = worker::reap(receiver, MAX_PAUSE);
    slice.check(case, status == Some(libc::SIGKILL), || {
        format!("expected the receiver to be killed, found {}", worker::describe(status))
    });
    slice.add(SliceCounter::Deaths, 1);
}
