//! Signals that are blocked and taken: refusals, the information, and the restored state.
//!
//! Each test runs in a single-threaded child, because the harness's own threads block no signal.

#![allow(unsafe_code, reason = "timers, tgkill, waitpid")]

use crate::child;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine::signal::handler::SignalCounter;
use tontine::signal::{self, Blocked, Signal, SignalError, SignalInfo, SignalSet};

use crate::child::Child;
use crate::shared::*;

/// Starts a thread that lives until the returned sender is dropped; also returns its id.
fn thread(name: &str, first: impl FnOnce() + Send + 'static) -> (u32, mpsc::Sender<()>) {
    let (stay, gone) = mpsc::channel::<()>();
    let (say, said) = mpsc::channel();
    let body = move || {
        first();
        // SAFETY: `gettid` takes no arguments.
        say.send(unsafe { libc::gettid() }.cast_unsigned()).expect("sent");
        let _ = gone.recv();
    };
    std::thread::Builder::new().name(name.into()).spawn(body).expect("a thread");
    (said.recv().expect("a thread id"), stay)
}

fn take(blocked: &Blocked) -> SignalInfo {
    blocked.wait(Some(LONG)).expect("waits").expect("a signal")
}

fn nothing(blocked: &Blocked) {
    assert_eq!(blocked.wait(Some(SHORT)), Ok(None));
}

#[test]
fn blocking_fails_and_names_thread_with_signal_unblocked() {
    in_own_process!();
    let (id, _stay) = thread("unaware", || signals_blocked(Signal::USR1));
    let error =
        Blocked::new([Signal::TERM, Signal::USR1]).expect_err("a thread does not block the signal");
    let expected =
        SignalError::Unblocked { thread: id, name: "unaware".into(), signals: Signal::TERM.into() };
    assert_eq!(error, expected);
    let text = error.to_string();
    assert!(text.contains(&format!("thread {id} (unaware) runs with SIGTERM unb")), "{text}");
    assert!(text.contains("before the first thread or runtime starts"), "{text}");
    assert_eq!(mask("SigBlk"), 0, "what was blocked is unblocked again");
}

/// Blocks one signal in this thread through the C library.
fn signals_blocked(signal: Signal) {
    // SAFETY: the pointers are to live locals, for which zero is valid.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal.as_raw());
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()), 0);
    }
}

#[test]
fn blocking_accepts_threads_that_block_or_have_ended() {
    in_own_process!();
    let (_, stay) = thread("aware", || signals_blocked(Signal::TERM));
    let blocked = Blocked::new(Signal::TERM).expect("all block it");
    drop((blocked, stay));
    assert!(child::eventually(|| threads() == 1), "the thread ends");
    Blocked::new(Signal::USR1).expect("the thread has ended");
}

#[test]
fn blocking_is_inherited_and_ignores_starting_threads() {
    in_own_process!();
    let blocked = Blocked::new([Signal::TERM, realtime(3)]).expect("blocked");
    let inherited = std::thread::spawn(|| mask("SigBlk")).join().expect("joined");
    assert_eq!(inherited, mask("SigBlk"));
    assert!(is_in(inherited, Signal::TERM) && is_in(inherited, realtime(3)));
    let stop = Arc::new(AtomicBool::new(false));
    let its_stop = Arc::clone(&stop);
    let starts = std::thread::spawn(move || {
        while !its_stop.load(Ordering::Relaxed) {
            std::thread::spawn(|| ()).join().expect("joined");
        }
    });
    for _ in 0..50 {
        Blocked::new(Signal::TERM).expect("every thread blocks it");
    }
    stop.store(true, Ordering::Relaxed);
    starts.join().expect("joined");
    drop(blocked);
    assert_eq!(mask("SigBlk"), 0);
}

#[test]
fn untakeable_signals_are_refused_with_reason() {
    alone!();
    let thread_directed = [Signal::SEGV, Signal::BUS, Signal::FPE, Signal::ILL, Signal::SYS];
    for (signals, reason) in [
        (&[Signal::KILL, Signal::STOP][..], "no program can block"),
        (&thread_directed[..], "the thread whose instruction caused it"),
        (&[Signal::from_raw(32).expect("a number")][..], "the C library uses it"),
    ] {
        for &signal in signals {
            let error = Blocked::new([Signal::TERM, signal]).expect_err("refused");
            assert!(
                matches!(error, SignalError::CannotTake { signal: named, .. } if named == signal)
            );
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
    assert_eq!(Blocked::new(SignalSet::new()).expect_err("empty"), SignalError::EmptySet);
}

#[test]
fn taken_signal_reports_sender_and_value() {
    in_own_process!();
    let queued = realtime(1);
    let blocked = Blocked::new([Signal::USR1, queued]).expect("blocked");
    nothing(&blocked);
    // SAFETY: `getuid` takes no arguments.
    let uid = unsafe { libc::getuid() };
    let mut sender = Child::fork(|pipe| {
        let to = pipe.receive_pid().as_raw_nonzero().get();
        kill(to, Signal::USR1);
        queue(to, queued, -7);
    });
    let (pid, own) = (sender.pid().as_raw_nonzero().get(), own_pid());
    sender.pipe.send_pid(rustix::process::Pid::from_raw(own).expect("a pid"));
    assert_eq!(sender.wait(), 0);
    let one = take(&blocked);
    assert_eq!((one.signal(), one.code(), one.value()), (Signal::USR1, libc::SI_USER, None));
    assert_eq!((one.pid(), one.uid()), (Some(pid.cast_unsigned()), Some(uid)));
    let two = take(&blocked);
    assert_eq!((two.signal(), two.code(), two.value()), (queued, libc::SI_QUEUE, Some(-7)));
    assert_eq!((two.pid(), two.coalesced()), (Some(pid.cast_unsigned()), 0));
    // The kernel keeps one instance of each standard signal, with the information of the first.
    for _ in 0..5 {
        kill_self(Signal::USR1);
    }
    assert_eq!(take(&blocked).coalesced(), 0, "the kernel reports no count");
    nothing(&blocked);
}

#[test]
fn no_real_time_signal_of_several_senders_is_lost() {
    in_own_process!();
    const SENDERS: i32 = 4;
    const EACH: i32 = 500;
    let signal = realtime(2);
    let blocked = Blocked::new(signal).expect("blocked");
    let to = own_pid();
    let mut senders: Vec<Child> = (0..SENDERS)
        .map(|sender| {
            Child::fork(move |_| {
                for number in 0..EACH {
                    while !try_queue(to, signal, sender * EACH + number) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            })
        })
        .collect();
    let pids: Vec<u32> =
        senders.iter().map(|one| one.pid().as_raw_nonzero().get().cast_unsigned()).collect();
    let mut next = [0; SENDERS as usize];
    for _ in 0..SENDERS * EACH {
        let one = take(&blocked);
        let value = one.value().expect("a value");
        let sender = (value / EACH) as usize;
        assert_eq!(one.pid(), Some(pids[sender]));
        assert_eq!(value % EACH, next[sender], "in order, none lost, none twice");
        next[sender] += 1;
    }
    nothing(&blocked);
    assert!(senders.iter_mut().all(|sender| sender.wait() == 0));
}

#[test]
fn wait_keeps_timeout_despite_handlers() {
    in_own_process!();
    let blocked = Blocked::new(Signal::TERM).expect("blocked");
    let alarms = SignalCounter::install(Signal::ALRM).expect("a handler");
    let every = libc::timeval { tv_sec: 0, tv_usec: 10_000 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    while alarms.get() < 2 {
        let since = Instant::now();
        let time = Duration::from_millis(100);
        assert_eq!(blocked.wait(Some(time)), Ok(None));
        assert!(since.elapsed() >= time, "{:?}", since.elapsed());
    }
    // Without a timeout, the wait continues after each handler.
    let (before, pid) = (alarms.get(), own_pid());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let handled = child::eventually(|| alarms.get() >= before + 3);
            kill(pid, Signal::TERM);
            assert!(handled, "no handler ran");
        });
        let one = blocked.wait(None).expect("waits");
        assert_eq!(one.map(|one| one.signal()), Some(Signal::TERM));
    });
}

#[test]
fn timer_signal_reports_overruns() {
    in_own_process!();
    let signal = realtime(4);
    let blocked = Blocked::new(signal).expect("blocked");
    let every = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the pointers are to live locals, for which zero is valid; the timer ends with the
    // process.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal.as_raw();
        event.sigev_value.sival_ptr = 77 as *mut libc::c_void;
        let mut timer = std::ptr::null_mut();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
        let times = libc::itimerspec { it_interval: every, it_value: every };
        assert_eq!(libc::timer_settime(timer, 0, &times, std::ptr::null_mut()), 0);
    }
    for descriptor in [false, true] {
        std::thread::sleep(SHORT);
        let one = match descriptor {
            false => take(&blocked),
            true => {
                blocked.signal_fd().expect("made").read_signal().expect("read").expect("a signal")
            }
        };
        assert!(one.coalesced() >= 10, "{descriptor}: {one:?}");
        assert_eq!((one.value(), one.pid(), one.uid()), (Some(77), None, None));
    }
    // The timer keeps running: unblocked, its signal would end this process.
    std::mem::forget(blocked);
}

fn child_that_exits(status: i32) -> i32 {
    // SAFETY: the child exits immediately.
    match unsafe { libc::fork() } {
        // SAFETY: `_exit` only ends the child.
        0 => unsafe { libc::_exit(status) },
        pid => pid,
    }
}

#[test]
fn child_exit_is_reported_under_any_disposition() {
    alone!();
    let reaped = |pid| {
        // SAFETY: the call only takes numbers and a null pointer.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) == pid }
    };
    for (handler, flags) in [
        (libc::SIG_DFL, 0),
        (libc::SIG_DFL, libc::SA_NOCLDWAIT),
        (libc::SIG_IGN, 0),
        (libc::SIG_DFL, libc::SA_NOCLDWAIT | libc::SA_NOCLDSTOP),
    ] {
        in_a_process(|| {
            dispose(Signal::CHLD, handler, flags);
            let before = disposition(Signal::CHLD);
            let blocked = Blocked::new(Signal::CHLD).expect("blocked");
            let again = Blocked::new(Signal::CHLD).expect("blocked twice");
            let pid = child_that_exits(7);
            let one = take(&blocked);
            assert_eq!(
                one.child_status(),
                Some(signal::ChildStatus::Exited(7)),
                "{handler} {flags:#x}"
            );
            assert_eq!(one.pid(), Some(pid.cast_unsigned()));
            assert!(reaped(pid), "the child can be waited for");
            let killed = Child::fork(|_| std::thread::sleep(LONG));
            let descriptor = blocked.signal_fd().expect("made");
            killed.signal(rustix::process::Signal::KILL);
            readable(&descriptor, true);
            let one = descriptor.read_signal().expect("read").expect("a signal");
            assert_eq!(
                one.child_status(),
                Some(signal::ChildStatus::Killed { signal: Signal::KILL, core_dumped: false })
            );
            drop(descriptor);
            drop(blocked);
            if flags & libc::SA_NOCLDWAIT != 0 || handler == libc::SIG_IGN {
                assert_ne!(
                    disposition(Signal::CHLD),
                    before,
                    "the second handle still needs the block"
                );
            }
            drop(again);
            assert_eq!(disposition(Signal::CHLD), before, "given back");
        });
    }
}

/// Regression: a program ignored SIGCHLD, blocked it, and installed its own handler. When it
/// unblocked the signal, the ignoring disposition was restored instead of the handler, because the
/// drop did not check which disposition it replaced.
#[test]
fn drop_of_sigchld_block_keeps_newer_handler() {
    alone!();
    extern "C" fn newer(_: libc::c_int) {}
    in_a_process(|| {
        dispose(Signal::CHLD, libc::SIG_IGN, 0);
        let blocked = Blocked::new(Signal::CHLD).expect("blocked");
        assert_eq!(disposition(Signal::CHLD).0, libc::SIG_DFL);
        dispose(Signal::CHLD, newer as *const () as usize, 0);
        drop(blocked);
        assert_eq!(disposition(Signal::CHLD).0, newer as *const () as usize);
    });
}

#[test]
fn blocked_signal_is_taken_under_any_disposition() {
    in_own_process!();
    let all = [Signal::HUP, Signal::WINCH, Signal::USR1];
    dispose(Signal::HUP, libc::SIG_IGN, 0);
    let blocked = Blocked::new(all).expect("blocked");
    for signal in all {
        kill_self(signal);
        assert_eq!(take(&blocked).signal(), signal);
    }
    kill_self(Signal::USR1);
    dispose(Signal::USR1, libc::SIG_IGN, 0);
    nothing(&blocked);
}

fn readable(descriptor: &impl AsFd, wanted: bool) {
    let time = Timespec { tv_sec: if wanted { 30 } else { 0 }, tv_nsec: 50_000_000 };
    let found = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&time));
    assert_eq!(found, Ok(usize::from(wanted)));
}

#[test]
fn signal_descriptor_is_readable_while_signal_is_pending() {
    in_own_process!();
    let blocked = Blocked::new([Signal::USR1, realtime(0)]).expect("blocked");
    let descriptor = blocked.signal_fd().expect("made");
    let flags = rustix::io::fcntl_getfd(&descriptor).expect("flags");
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    readable(&descriptor, false);
    assert_eq!(descriptor.read_signal(), Ok(None), "the call does not wait");
    queue(own_pid(), realtime(0), 1 << 20);
    kill_self(Signal::USR1);
    readable(&descriptor, true);
    let one = descriptor.read_signal().expect("read").expect("a signal");
    assert_eq!((one.signal(), one.value()), (Signal::USR1, None));
    assert_eq!(one.pid(), Some(std::process::id()));
    let two = descriptor.read_signal().expect("read").expect("a signal");
    assert_eq!((two.code(), two.value()), (libc::SI_QUEUE, Some(1 << 20)));
    assert_eq!(descriptor.read_signal(), Ok(None));
    readable(&descriptor, false);
}

#[test]
fn started_program_begins_with_previous_mask() {
    in_own_process!();
    dispose(Signal::CHLD, libc::SIG_IGN, 0);
    signals_blocked(Signal::USR2);
    let blocked = Blocked::new([Signal::TERM, Signal::USR2, Signal::CHLD]).expect("blocked");
    let status = |command: &mut Command| {
        let output = command.arg("/proc/self/status").output().expect("cat");
        let text = String::from_utf8(output.stdout).expect("text");
        let line = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(line.expect("the line").trim(), 16).expect("a mask")
        };
        (line("SigBlk:"), line("SigIgn:"))
    };
    let (blocks, ignores) = status(&mut Command::new("cat"));
    assert!(is_in(blocks, Signal::TERM) && !is_in(ignores, Signal::CHLD), "as it is without");
    let (blocks, ignores) = status(blocked.unblock_in(&mut Command::new("cat")));
    assert!(!is_in(blocks, Signal::TERM) && !is_in(blocks, Signal::CHLD), "{blocks:x}");
    assert!(is_in(blocks, Signal::USR2), "blocked before this program blocked it");
    assert!(is_in(ignores, Signal::CHLD), "as it was before");
}

#[test]
fn drop_unblocks_only_signals_not_blocked_elsewhere() {
    in_own_process!();
    signals_blocked(Signal::HUP);
    let before = mask("SigBlk");
    let outer = Blocked::new([Signal::HUP, Signal::TERM]).expect("blocked");
    let inner = Blocked::new([Signal::TERM, Signal::INT]).expect("blocked");
    drop(outer);
    assert!(is_in(mask("SigBlk"), Signal::TERM), "the inner handle still holds the signal");
    drop(inner);
    assert_eq!(mask("SigBlk"), before);
}

#[test]
fn pending_signal_takes_effect_on_drop_unless_discarded() {
    alone!();
    let dropped = |discard: bool| {
        status_of(|| {
            let blocked = Blocked::new([Signal::TERM, realtime(0)]).expect("blocked");
            kill_self(Signal::TERM);
            queue(own_pid(), realtime(0), 1);
            queue(own_pid(), realtime(0), 2);
            if discard {
                assert_eq!(blocked.discard(), Ok(3));
                assert_eq!(blocked.discard(), Ok(0));
            }
        })
    };
    assert_eq!(dropped(false), 128 + libc::SIGTERM);
    assert_eq!(dropped(true), 0);
}

#[test]
fn terminate_process_ends_with_status_of_taken_signal() {
    alone!();
    for (signal, status) in
        [(Signal::TERM, 128 + 15), (Signal::USR1, 128 + 10), (realtime(5), 128 + 39)]
    {
        let died = status_of(|| {
            dispose(signal, libc::SIG_IGN, 0);
            let blocked = Blocked::new(signal).expect("blocked");
            kill_self(signal);
            take(&blocked).terminate_process()
        });
        assert_eq!(died, status, "{signal}");
    }
    // The default of these signals would stop the process, or have no effect. The process
    // nevertheless exits, with status 128 plus the signal's number.
    for signal in [Signal::CHLD, Signal::TSTP] {
        let mut child = Child::fork(|_| {
            let blocked = Blocked::new(signal).expect("blocked");
            kill_self(signal);
            take(&blocked).terminate_process()
        });
        assert_eq!(child.wait(), 128 + signal.as_raw(), "{signal}");
    }
}

#[test]
fn forked_child_inherits_mask_but_no_taker() {
    in_own_process!();
    let blocked = Blocked::new([Signal::TERM, Signal::USR1]).expect("blocked");
    let channel = blocked.channel(4).expect("a thread");
    let thread = blocked.thread(|_| ()).expect("a thread");
    kill_self(Signal::USR1);
    let mut child = Child::fork(|_| {
        assert!(is_in(mask("SigBlk"), Signal::TERM), "the child inherits the mask");
        assert_eq!(channel.recv(), Err(SignalError::Forked));
        assert_eq!(channel.try_recv(), Err(SignalError::Forked));
        assert!(thread.is_finished(), "the code runs in the parent");
        assert_eq!(
            blocked.wait(Some(Duration::ZERO)),
            Ok(None),
            "the parent's signal does not arrive in the child"
        );
        // These drops must neither hang nor stop the parent's threads.
        drop((channel, thread));
        kill_self(Signal::TERM);
        assert_eq!(take(&blocked).signal(), Signal::TERM, "the child may take its own signals");
    });
    assert_eq!(child.wait(), 0);
    // The closure moved the handles of the threads, which in the child have already ended.
    blocked.discard().expect("the signal would end the process");
}
