//! Destinations of signals (a function, a channel, another process, a stream) and their end.
//!
//! Each test runs in a single-threaded child, because the harness's own threads block no signal.

use crate::child;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine::life::Life;
use tontine::mailbox::{Mailbox, Sender};
use tontine::signal::{self, Blocked, Signal, SignalChannel, SignalError, SignalInfo};

use crate::asleep::until_others_sleep;
use crate::child::Child;
use crate::shared::*;

fn next(channel: &SignalChannel<'_>) -> SignalInfo {
    channel.recv_timeout(LONG).expect("no error").expect("a signal")
}

#[test]
fn signal_thread_delivers_each_signal_and_ends_on_drop() {
    in_own_process!();
    let blocked = Blocked::new([Signal::USR1, realtime(0)]).expect("blocked");
    let (say, said) = mpsc::channel();
    let thread = blocked.thread(move |one| say.send(one).expect("sent")).expect("a thread");
    kill_self(Signal::USR1);
    let one = said.recv_timeout(LONG).expect("delivered");
    assert_eq!((one.signal(), one.pid()), (Signal::USR1, Some(std::process::id())));
    for value in 0..1000 {
        queue(own_pid(), realtime(0), value);
    }
    for value in 0..1000 {
        assert_eq!(said.recv_timeout(LONG).expect("delivered").value(), Some(value));
    }
    assert!(!thread.is_finished() && threads() == 2);
    drop(thread);
    assert!(child::eventually(|| threads() == 1));
    assert!(said.recv().is_err(), "a signal was delivered that was not sent");
    // The next taker receives a signal that arrives now.
    kill_self(Signal::USR1);
    assert!(blocked.wait(Some(LONG)).expect("waits").is_some());
}

#[test]
fn wake_up_signal_of_signal_thread_is_not_delivered() {
    in_own_process!();
    for set in [vec![Signal::TERM], vec![realtime(0)], vec![Signal::HUP, realtime(3)]] {
        let blocked =
            Blocked::new(set.into_iter().collect::<signal::SignalSet>()).expect("blocked");
        let count = Arc::new(AtomicU32::new(0));
        for _ in 0..200 {
            let counts = Arc::clone(&count);
            let deliver = move |_| {
                counts.fetch_add(1, Ordering::Relaxed);
            };
            drop(blocked.thread(deliver).expect("a thread"));
        }
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert_eq!(blocked.wait(Some(Duration::ZERO)), Ok(None), "and no signal is left");
    }
}

#[test]
fn drop_waits_for_delivery_and_keeps_other_signals_pending() {
    in_own_process!();
    let blocked = Blocked::new([Signal::TERM, realtime(0)]).expect("blocked");
    let (say, said) = mpsc::channel();
    let done = Arc::new(AtomicU32::new(0));
    let its_done = Arc::clone(&done);
    let slow = move |_: SignalInfo| {
        say.send(()).expect("sent");
        until_others_sleep();
        its_done.fetch_add(1, Ordering::Relaxed);
    };
    let thread = blocked.thread(slow).expect("a thread");
    for value in 0..5 {
        queue(own_pid(), realtime(0), value);
    }
    said.recv_timeout(LONG).expect("the first signal");
    // The signal that is pending already could coalesce with a wake-up of the same number.
    kill_self(Signal::TERM);
    drop(thread);
    assert_eq!(done.load(Ordering::Relaxed), 1, "the wait was over");
    assert_eq!(blocked.discard(), Ok(5), "the rest is pending: no signal lost or invented");
}

#[test]
fn delivery_without_values_works_at_zero_queue_limit() {
    in_own_process!();
    forbid_queueing();
    for set in [signal::SignalSet::from(Signal::USR1), realtime(0).into()] {
        let blocked = Blocked::new(set).expect("blocked");
        let (say, said) = mpsc::channel();
        let thread = blocked.thread(move |one| say.send(one).expect("sent")).expect("made");
        if set.contains(Signal::USR1) {
            kill_self(Signal::USR1);
            let one = said.recv_timeout(LONG).expect("delivered");
            assert_eq!(one.signal(), Signal::USR1);
        }
        let since = Instant::now();
        drop(thread);
        assert!(since.elapsed() < LONG / 2, "the thread was not woken");
        assert!(said.recv().is_err(), "the signal that woke the thread was delivered");
    }
}

#[test]
fn panic_in_delivery_reaches_stop() {
    in_own_process!();
    std::panic::set_hook(Box::new(|_| ()));
    let blocked = Blocked::new(Signal::USR1).expect("blocked");
    let thread = blocked.thread(|_| panic!("a bad day")).expect("a thread");
    kill_self(Signal::USR1);
    assert!(child::eventually(|| thread.is_finished()));
    let panic = catch_unwind(AssertUnwindSafe(|| thread.stop())).expect_err("a panic");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bad day"));
}

#[test]
fn channel_coalesces_and_counts_standard_signals() {
    in_own_process!();
    let blocked = Blocked::new([Signal::USR1, Signal::USR2]).expect("blocked");
    let channel = blocked.channel(1).expect("a thread");
    assert_eq!(channel.try_recv(), Ok(None));
    assert_eq!(channel.recv_timeout(SHORT), Ok(None));
    let pending = || mask("ShdPnd") != 0;
    for _ in 0..5 {
        kill_self(Signal::USR1);
        assert!(child::eventually(|| !pending()), "the thread takes it");
    }
    kill_self(Signal::USR2);
    let one = next(&channel);
    assert_eq!((one.signal(), one.coalesced()), (Signal::USR1, 4));
    let two = next(&channel);
    assert_eq!((two.signal(), two.coalesced()), (Signal::USR2, 0));
    assert_eq!(channel.try_recv(), Ok(None));
}

/// Regression: a program that shared one channel among several threads, as the documentation
/// permits, did not compile, because the handle of the signal thread contained a receiver that only
/// one thread may use.
#[test]
fn channel_shared_by_threads_delivers_each_signal_once() {
    in_own_process!();
    const COUNT: i32 = 200;
    let signal = realtime(0);
    let blocked = Blocked::new(signal).expect("blocked");
    let channel = blocked.channel(8).expect("a thread");
    let mut values: Vec<i32> = std::thread::scope(|scope| {
        let takers: [_; 4] = std::array::from_fn(|_| {
            scope.spawn(|| {
                let mut values = Vec::new();
                loop {
                    match next(&channel).value().expect("a value") {
                        0 => break values,
                        value => values.push(value),
                    }
                }
            })
        });
        (1..=COUNT).for_each(|value| queue(own_pid(), signal, value));
        takers.iter().for_each(|_| queue(own_pid(), signal, 0));
        takers.into_iter().flat_map(|taker| taker.join().expect("joined")).collect()
    });
    values.sort_unstable();
    assert_eq!(values, (1..=COUNT).collect::<Vec<_>>());
    assert_eq!(channel.try_recv(), Ok(None));
}

#[test]
fn full_channel_takes_only_standard_signals() {
    in_own_process!();
    const SENT: i32 = 50;
    let signal = realtime(0);
    for with_standard in [true, false] {
        let mut set = signal::SignalSet::from(signal);
        if with_standard {
            set = set.with(Signal::TERM);
        }
        let blocked = Blocked::new(set).expect("blocked");
        let channel = blocked.channel(4).expect("a thread");
        for value in 0..SENT {
            queue(own_pid(), signal, value);
        }
        until_others_sleep();
        assert!(is_in(mask("ShdPnd"), signal), "the channel took a signal without space for it");
        let mut values = Vec::new();
        if with_standard {
            kill_self(Signal::TERM);
            assert!(child::eventually(|| !is_in(mask("ShdPnd"), Signal::TERM)), "taken");
            values.extend((0..4).map(|_| next(&channel).value().expect("a value")));
        }
        let mut terms = 0;
        while values.len() < SENT as usize {
            let one = next(&channel);
            match one.value() {
                Some(value) => values.push(value),
                None => terms += 1,
            }
        }
        assert_eq!(values, (0..SENT).collect::<Vec<i32>>(), "all signals, in order");
        assert_eq!(terms, usize::from(with_standard));
        assert_eq!(channel.try_recv(), Ok(None));
    }
}

#[test]
fn full_channel_can_be_dropped() {
    in_own_process!();
    for standard in [None, Some(Signal::TERM)] {
        let set = [realtime(0)].into_iter().chain(standard).collect::<signal::SignalSet>();
        let blocked = Blocked::new(set).expect("blocked");
        let channel = blocked.channel(1).expect("a thread");
        (0..5).for_each(|value| queue(own_pid(), realtime(0), value));
        until_others_sleep();
        drop(channel);
        assert_eq!(blocked.discard(), Ok(4));
    }
}

/// Starts a process that receives signals through a mailbox until one has the value 0.
fn reader(path: &std::path::Path, takes: bool) -> Child {
    let child = Child::fork(|pipe| {
        Life::register().expect("a life");
        let mut mailbox = Mailbox::bind(path).expect("bound");
        pipe.send_byte(1);
        if !takes {
            pipe.receive_byte();
            return;
        }
        let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero().get();
        for value in (0..100).rev() {
            let message = mailbox.recv().expect("a message");
            let one = SignalInfo::from_bytes(&message).expect("a signal");
            assert_eq!((one.signal(), one.value()), (realtime(0), Some(value)));
            assert_eq!((one.code(), one.pid()), (libc::SI_QUEUE, Some(parent.cast_unsigned())));
        }
    });
    assert_eq!(child.pipe.receive_byte(), 1);
    child
}

#[test]
fn mailbox_delivers_signals_to_other_process() {
    alone!();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("signals");
    in_a_process(|| {
        let blocked = Blocked::new(realtime(0)).expect("blocked");
        let mut reader = reader(&path, true);
        Life::register().expect("a life");
        let sender = Sender::connect(path.as_path()).expect("connected");
        let (say, said) = mpsc::channel();
        let thread = blocked.mailbox(sender, move |one, error| drop(say.send((one, error))));
        let thread = thread.expect("a thread");
        (0..100).rev().for_each(|value| queue(own_pid(), realtime(0), value));
        assert_eq!(reader.wait(), 0, "the thread received all signals, in order");
        // The receiver has ended, so a signal that cannot be sent is undelivered.
        queue(own_pid(), realtime(0), 5);
        let (one, error) = said.recv_timeout(LONG).expect("handed back");
        assert_eq!(one.value(), Some(5));
        assert!(
            matches!(error, tontine::Error::OwnerDied { .. } | tontine::Error::Closed { .. }),
            "{error}"
        );
        drop(thread);
    });
}

#[test]
fn full_mailbox_does_not_delay_drop() {
    alone!();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("signals");
    in_a_process(|| {
        let blocked = Blocked::new(realtime(0)).expect("blocked");
        let mut idle = reader(&path, false);
        Life::register().expect("a life");
        let options = tontine::mailbox::Options::new().lane_cap(8192);
        let sender = options.connect(path.as_path()).expect("connected");
        let (say, said) = mpsc::channel();
        let undelivered = move |one: SignalInfo, error| drop(say.send((one.value(), error)));
        let thread = blocked.mailbox(sender, undelivered).expect("a thread");
        (0..1000).for_each(|value| queue(own_pid(), realtime(0), value));
        let pending = || is_in(mask("ShdPnd"), realtime(0));
        until_others_sleep();
        assert!(
            pending() && said.try_recv().is_err(),
            "one signal waits in the channel, and the rest in the kernel"
        );
        drop(thread);
        let (value, error) = said.try_recv().expect("the received signal is handed back");
        assert_eq!(error, tontine::Error::TimedOut);
        let rest = blocked.wait(Some(LONG)).expect("waits").expect("a signal").value();
        assert_eq!(rest, value.map(|value| value + 1), "none is lost");
        blocked.discard().expect("the other signals would end the process");
        idle.pipe.send_byte(1);
        assert_eq!(idle.wait(), 0);
    });
}

#[cfg(feature = "tokio")]
#[test]
fn signal_stream_works_on_one_thread_and_on_several() {
    in_own_process!();
    use std::pin::Pin;

    use futures_core::Stream as _;
    use tokio::runtime::Builder;

    let blocked = Blocked::new([Signal::TERM, realtime(0)]).expect("blocked");
    let one = Builder::new_current_thread().enable_all().build();
    let several = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    for runtime in [one, several] {
        runtime.expect("a runtime").block_on(async {
            let mut stream = blocked.stream().expect("a stream");
            let early = tokio::time::timeout(SHORT, stream.next()).await;
            assert!(early.is_err(), "nothing was sent");
            let pid = own_pid();
            let sending = std::thread::spawn(move || {
                for value in 0..500 {
                    queue(pid, realtime(0), value);
                    if value % 50 == 0 {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
                kill(pid, Signal::TERM);
            });
            let mut terms = 0;
            for value in 0..500 {
                let mut received = tokio::time::timeout(LONG, stream.next());
                let mut one = received.await.expect("in time").expect("read");
                if one.signal() == Signal::TERM {
                    terms += 1;
                    received = tokio::time::timeout(LONG, stream.next());
                    one = received.await.expect("in time").expect("read");
                }
                assert_eq!(one.value(), Some(value));
            }
            sending.join().expect("joined");
            if terms == 0 {
                let polled =
                    std::future::poll_fn(|context| Pin::new(&mut stream).poll_next(context));
                let last = tokio::time::timeout(LONG, polled).await.expect("in time");
                let last = last.expect("the stream continues").expect("read");
                assert_eq!(last.signal(), Signal::TERM);
            }
        });
    }
    assert_eq!(blocked.wait(Some(Duration::ZERO)), Ok(None));
}

#[test]
fn first_interruption_is_noticed() {
    in_own_process!();
    let interrupted = signal::interrupted().expect("blocked");
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let readable =
        || poll(&mut [PollFd::new(&interrupted, PollFlags::IN)], Some(&at_once)) == Ok(1);
    assert!(!interrupted.is_set() && !readable());
    assert_eq!(interrupted.wait(Some(SHORT)), Ok(None));
    // `timeout` sends the signals like this: to the child, then to its group.
    kill_self(Signal::TERM);
    assert!(interrupted.wait(Some(LONG)).expect("waits").is_some());
    kill_self(Signal::TERM);
    assert!(child::eventually(readable) && interrupted.is_set());
    assert!(child::eventually(|| interrupted.received().is_some_and(|one| one.coalesced() == 1)));
    let mut child = Child::fork(|_| {
        assert_eq!(interrupted.wait(None), Err(SignalError::Forked));
        // The check does not touch the parent's state, which a thread of the parent may have
        // locked.
        assert!(!interrupted.is_set() && interrupted.received().is_none());
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(interrupted.blocked().set().to_string(), "SIGINT, SIGTERM");
}

#[test]
fn second_interruption_ends_program() {
    alone!();
    let second = status_of(|| {
        let interrupted = signal::interrupted().expect("blocked");
        kill_self(Signal::TERM);
        interrupted.wait(None).expect("waits");
        std::thread::sleep(Duration::from_millis(150));
        kill_self(Signal::INT);
        std::thread::sleep(LONG);
    });
    assert_eq!(second, 128 + libc::SIGINT);
    let dropped = status_of(|| {
        // A shell's background job ignores SIGINT.
        dispose(Signal::INT, libc::SIG_DFL, 0);
        drop(signal::interrupted().expect("blocked"));
        kill_self(Signal::INT);
    });
    assert_eq!(dropped, 128 + libc::SIGINT);
    let died = status_of(|| {
        let interrupted = signal::interrupted().expect("blocked");
        kill_self(Signal::TERM);
        interrupted.wait(None).expect("waits").expect("a signal").terminate_process();
    });
    assert_eq!(died, 128 + libc::SIGTERM);
}
