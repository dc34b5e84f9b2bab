//! Signal handlers that run during a blocking call.

#![allow(unsafe_code, reason = "handlers, and signals to one thread")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tontine::Error;
use tontine::mailbox::{Options, WaitStrategy};

use crate::common::{AMPLE, connect, place};

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Calls `call` while another thread sends SIGUSR1 to this one, until `call` has returned.
fn with_signals<T>(call: impl FnOnce() -> T) -> T {
    // The handler restarts system calls; `epoll_wait` and `poll` return EINTR all the same.
    // SAFETY: zeros are a valid `sigaction`, and `count` calls only what a handler may call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    // SAFETY: the call has no precondition.
    let caller = unsafe { libc::pthread_self() };
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !returned.load(Ordering::Relaxed) {
                // SAFETY: the scope's owner, which is the caller, has not ended.
                unsafe { libc::pthread_kill(caller, libc::SIGUSR1) };
                thread::sleep(Duration::from_millis(5));
            }
        });
        let result = call();
        returned.store(true, Ordering::Relaxed);
        result
    })
}

fn sleeping(interruptible: bool) -> Options {
    Options::new().wait_strategy(WaitStrategy::Sleep).interruptible(interruptible)
}

#[test]
fn handler_ends_receive_of_interruptible_mailbox() {
    alone!();
    let place = place();
    let mut mailbox = sleeping(true).bind(&place.path).expect("binds");
    let result = with_signals(|| mailbox.recv_timeout(AMPLE).map(|message| message.to_vec()));
    assert_eq!(result, Err(Error::Interrupted));
    let mut sender = connect(&Options::new(), &place.path);
    sender.send(b"later").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"later");
}

#[test]
fn handler_does_not_end_receive_by_default() {
    alone!();
    let place = place();
    let mut mailbox = sleeping(false).bind(&place.path).expect("binds");
    let mut sender = connect(&Options::new(), &place.path);
    let result = with_signals(|| {
        thread::scope(|scope| {
            scope.spawn(|| {
                while HANDLED.load(Ordering::Relaxed) < 5 {
                    thread::sleep(Duration::from_millis(1));
                }
                sender.send(b"after the handlers").expect("sent");
            });
            mailbox.recv_timeout(AMPLE).map(|message| message.to_vec())
        })
    });
    assert_eq!(result.expect("a message"), b"after the handlers");
}

#[test]
fn handler_ends_waits_of_interruptible_sender() {
    alone!();
    let place = place();
    let _mailbox = Options::new().bind(&place.path).expect("binds");
    let mut sender = connect(&sleeping(true).lane_cap(4096), &place.path);
    sender.send(&[1; 500]).expect("sent");
    assert_eq!(with_signals(|| sender.wait_acked(Some(AMPLE))), Err(Error::Interrupted));
    let filled = with_signals(|| (0..100).find_map(|_| sender.send(&[1; 500]).err()));
    assert_eq!(filled, Some(Error::Interrupted), "the lane is full");
}

#[test]
fn handler_does_not_end_waits_of_sender_by_default() {
    alone!();
    let place = place();
    let _mailbox = Options::new().bind(&place.path).expect("binds");
    let mut sender = connect(&sleeping(false), &place.path);
    sender.send(b"unread").expect("sent");
    with_signals(|| {
        while HANDLED.load(Ordering::Relaxed) < 5 {
            let timeout = Duration::from_millis(50);
            assert_eq!(sender.wait_acked(Some(timeout)), Err(Error::TimedOut));
        }
    });
}
