//! Receiving calls that another thread ends: `Mailbox::waker`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::*;
use tontine::Error;
use tontine::mailbox::{AsyncMailbox, Mailbox, MailboxSet, Options, Sender, WaitStrategy, Waker};

const STRATEGIES: [WaitStrategy; 3] =
    [WaitStrategy::Sleep, WaitStrategy::Spin, WaitStrategy::Adaptive];

/// Calls that block, with the length of what each receives.
fn receive(mailbox: &mut Mailbox, call: usize) -> Result<usize, Error> {
    match call {
        0 => mailbox.recv().map(|message| message.len()),
        1 => mailbox.recv_timeout(AMPLE).map(|message| message.len()),
        _ => mailbox.recv_batch(1, |_| ()),
    }
}

#[test]
fn wake_ends_each_blocking_call_once_in_every_strategy() {
    alone!();
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    for (call, strategy) in (0..3).flat_map(|call| STRATEGIES.map(|strategy| (call, strategy))) {
        let (place, mut mailbox) = bound_with(&Options::new().wait_strategy(strategy));
        let mut sender = Sender::connect(&place.path).expect("connects");
        let waker = mailbox.waker().expect("a waker");
        is_shared(&waker);
        // Before the call, more than once: one token.
        waker.wake().expect("woken");
        mailbox.waker().expect("another handle").wake().expect("woken");
        assert_eq!(receive(&mut mailbox, call), Err(Error::Woken), "{call} {strategy:?}");
        assert_eq!(mailbox.recv_timeout(SHORT).expect_err("one token"), Error::TimedOut);
        // During the call.
        let other = waker.clone();
        let wakes = thread::spawn(move || {
            thread::sleep(SHORT);
            other.wake()
        });
        assert_eq!(receive(&mut mailbox, call), Err(Error::Woken), "{call} {strategy:?}");
        wakes.join().expect("no panic").expect("woken");
        // Nothing is lost or received twice.
        sender.send(b"7 bytes").expect("sent");
        waker.wake().expect("woken");
        let mut results = [(); 2].map(|()| receive(&mut mailbox, call));
        results.sort_by_key(Result::is_err);
        let length = if call == 2 { 1 } else { 7 };
        assert_eq!(results, [Ok(length), Err(Error::Woken)]);
        assert_eq!(mailbox.recv_timeout(SHORT).expect_err("nothing"), Error::TimedOut);
    }
}

/// Checks that a thread that wakes and a receiver that begins to wait miss each other neither way:
/// `receive` returns each token before the next is set.
fn race(waker: &Waker, mut receive: impl FnMut() -> Error) {
    const ROUNDS: u32 = 20_000;
    let returned = AtomicU32::new(0);
    thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..ROUNDS {
                for _ in 0..round % 512 {
                    std::hint::spin_loop();
                }
                waker.wake().expect("woken");
                while returned.load(Ordering::Acquire) == round {
                    thread::yield_now();
                }
            }
        });
        for round in 0..ROUNDS {
            let woken = receive();
            // The other thread ends also if the check fails.
            returned
                .store(if woken == Error::Woken { round + 1 } else { ROUNDS }, Ordering::Release);
            assert_eq!(woken, Error::Woken, "round {round}");
        }
    });
}

#[test]
fn no_wake_is_lost_at_any_moment_of_wait() {
    alone!();
    for strategy in STRATEGIES {
        let mut mailbox = Options::new().wait_strategy(strategy).unbound().expect("opens");
        let waker = mailbox.waker().expect("a waker");
        race(&waker, || mailbox.recv_timeout(AMPLE).expect_err("no message"));
    }
}

/// Regression: a wake between the set's first look at the token and the processing of its event
/// was noticed only with the next message.
#[test]
fn set_loses_no_wake_at_any_moment_of_wait() {
    alone!();
    let mut set = MailboxSet::new();
    let wakers = [(); 2].map(|()| {
        let mut mailbox = Mailbox::unbound().expect("opens");
        let waker = mailbox.waker().expect("a waker");
        set.add(mailbox);
        waker
    });
    for waker in &wakers {
        race(waker, || set.recv_timeout(AMPLE).expect_err("no message"));
    }
}

/// Regression: like that of the set.
#[test]
fn awaited_recv_loses_no_wake_at_any_moment() {
    alone!();
    let mut mailbox = Mailbox::unbound().expect("opens");
    let waker = mailbox.waker().expect("a waker");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut mailbox = {
        let _entered = runtime.enter();
        AsyncMailbox::new(mailbox).expect("registered")
    };
    race(&waker, || {
        let received = async { tokio::time::timeout(AMPLE, mailbox.recv()).await.map(Result::err) };
        match runtime.block_on(received) {
            Ok(error) => error.expect("no message"),
            Err(_) => Error::TimedOut,
        }
    });
}

/// A receiver that never has to wait is woken, too.
#[test]
fn wake_ends_recv_although_messages_never_end() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    let waker = mailbox.waker().expect("a waker");
    thread::scope(|threads| {
        let sends = threads.spawn(move || while sender.send(b"more").is_ok() {});
        for _ in 0..10_000 {
            let _ = mailbox.recv_timeout(AMPLE).expect("a message");
        }
        waker.wake().expect("woken");
        until("the call is woken", || mailbox.recv().is_err_and(|error| error == Error::Woken));
        drop(mailbox);
        sends.join().expect("no panic");
    });
}

#[test]
fn calls_that_do_not_block_leave_token_alone() {
    alone!();
    let (_place, mut mailbox) = bound();
    let waker = mailbox.waker().expect("a waker");
    assert!(mailbox.arm().expect("arms"));
    waker.wake().expect("woken");
    assert!(is_readable(&mailbox, AMPLE), "the descriptor reports the wake");
    for _ in 0..100 {
        assert_eq!(mailbox.try_recv().expect_err("no message"), Error::WouldBlock);
    }
    assert_eq!(mailbox.recv().expect_err("the token"), Error::Woken);
}

#[test]
fn wake_in_forked_child_does_not_wake_parent() {
    alone!();
    let (_place, mut mailbox) = bound();
    let waker = mailbox.waker().expect("a waker");
    let child = bare_fork(|| {
        assert_eq!(waker.wake(), Err(Error::Forked));
        assert_eq!(mailbox.waker().err(), Some(Error::Forked));
    });
    assert_eq!(reap(child), 0);
    assert_eq!(mailbox.recv_timeout(SHORT).expect_err("not woken"), Error::TimedOut);
    drop(mailbox);
    assert_eq!(waker.wake(), Ok(()), "there is nothing to wake");
}

#[test]
fn wake_ends_awaited_recv() {
    alone!();
    let (_place, mut mailbox) = bound();
    let waker: Waker = mailbox.waker().expect("a waker");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        let mut mailbox = AsyncMailbox::new(mailbox).expect("registered");
        for delay in [Duration::ZERO, SHORT] {
            let waker = waker.clone();
            let wakes = thread::spawn(move || {
                thread::sleep(delay);
                waker.wake()
            });
            assert_eq!(mailbox.recv().await.expect_err("no message"), Error::Woken);
            wakes.join().expect("no panic").expect("woken");
        }
    });
}
