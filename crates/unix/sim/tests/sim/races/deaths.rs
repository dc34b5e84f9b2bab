//! Deaths of programs: by a panic, in a handler, during an unwinding that the program catches,
//! while asleep in each kind of call, and with many threads.

use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use tontine_unix::{
    Children, Errno, Fd, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions, WaitStatus,
    WaitedChild,
};
use tontine_unix_sim::{Executor, LockingMode, Virtual};

use crate::children::{await_set, end_of, forked, pauses, send, threaded};
use crate::systems::{assert_success, everywhere, of, run};

/// Runs a program on each system of [`everywhere`]. Asserts success, the number of processes that
/// panicked, and the number of those that were abandoned.
#[track_caller]
fn everywhere_with_losses(losses: [usize; 2], program: fn(&dyn Sys) -> i32) {
    for (on, system) in everywhere() {
        let report = run(system, program);
        assert_success(&on, &report);
        assert_eq!([report.panicked.len(), report.abandoned], losses, "{on}");
    }
}

const ABORTED: WaitStatus = WaitStatus::Signaled(Signal::ABRT, true);
const KILLED: WaitStatus = WaitStatus::Signaled(Signal::KILL, false);

#[test]
fn panic_kills_only_its_process_with_sigabrt() {
    everywhere_with_losses([1, 0], |sys| {
        let healthy = forked(sys, |sys| {
            (0..20).for_each(|_| sys.sched_yield());
            3
        });
        let ill = forked(sys, |_| panic!("on purpose"));
        assert_eq!(end_of(sys, ill), ABORTED);
        assert_eq!(end_of(sys, healthy), WaitStatus::Exited(3));
        0
    });
}

/// Recurses without end; each call uses more of the stack.
#[inline(never)]
pub(super) fn descend(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { descend(depth + 1) + frame[(depth % 64) as usize] }
}

#[test]
fn stack_overflow_kills_only_its_process_with_sigsegv() {
    everywhere_with_losses([0, 1], |sys| {
        let healthy = forked(sys, |sys| {
            (0..50).for_each(|_| sys.sched_yield());
            3
        });
        let ill = forked(sys, |sys| {
            threaded(sys, |sys| {
                let _ = sys.pause();
            });
            descend(0) as i32
        });
        assert_eq!(end_of(sys, ill), WaitStatus::Signaled(Signal::SEGV, true));
        assert_eq!(end_of(sys, healthy), WaitStatus::Exited(3));
        0
    });
}

#[test]
fn panic_in_handler_kills_its_program() {
    everywhere_with_losses([1, 0], |sys| {
        let child = forked(sys, |sys| {
            let panics = SigAction::handler(|_, _| panic!("on purpose"));
            sys.sigaction(Signal::USR1, Some(panics)).expect("permitted");
            sys.raise(Signal::USR1).expect("the caller exists");
            0
        });
        i32::from(end_of(sys, child) != ABORTED)
    });
}

#[test]
fn program_that_catches_its_unwinding_is_abandoned() {
    everywhere_with_losses([0, 1], |sys| {
        let ready = Arc::new(AtomicBool::new(false));
        let says = ready.clone();
        let child = forked(sys, move |sys| {
            loop {
                says.store(true, Ordering::Relaxed);
                let _ = catch_unwind(AssertUnwindSafe(|| sys.pause()));
            }
        });
        await_set(sys, &ready);
        send(sys, child, Signal::KILL);
        i32::from(end_of(sys, child) != KILLED)
    });
}

/// Makes system calls when dropped.
struct Calls<'a>(&'a dyn Sys, Arc<AtomicI32>);

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        let Self(sys, refused) = self;
        let mut byte = [0];
        let results = [
            sys.kill(sys.getpid().into(), Some(Signal::TERM)),
            sys.wait().map(drop),
            sys.fork(|_| 0).map(drop),
            sys.read(Fd(0), &mut byte).map(drop),
            sys.nanosleep(Duration::from_secs(1)).map_err(|(errno, _)| errno),
        ];
        let errors = results.iter().filter(|result| **result == Err(Errno::EINTR)).count();
        refused.store(errors as i32, Ordering::Relaxed);
        sys.sched_yield();
        sys.poll();
        let nothing = (Pid::number_only(0), 0, SigSet::EMPTY);
        assert_eq!((sys.getppid(), sys.alarm(7), sys.sigpending()), nothing);
    }
}

#[test]
fn calls_in_destructors_of_a_killed_program_are_refused() {
    for (on, system) in everywhere() {
        let refused = Arc::new(AtomicI32::new(0));
        let seen = refused.clone();
        let report = run(system, move |sys| {
            for panics in [false, true] {
                let refused = seen.clone();
                let child = forked(sys, move |sys| {
                    let _calls = Calls(sys, refused);
                    if panics {
                        panic!("on purpose");
                    }
                    sys.pause();
                    0
                });
                sys.sched_yield();
                if !panics {
                    while seen.load(Ordering::Relaxed) == 0 {
                        send(sys, child, Signal::KILL);
                        match sys.waitpid(child.into(), WaitOptions::NOHANG) {
                            Ok(None) => {}
                            // The child was killed before it began.
                            _ => break,
                        }
                    }
                    continue;
                }
                assert_eq!(end_of(sys, child), ABORTED);
                assert_eq!(seen.load(Ordering::Relaxed), 5);
            }
            0
        });
        assert_success(&on, &report);
    }
}

/// Name of the environment variable that makes a test's process abort.
const ABORTS: &str = "TONTINE_DEATH_ABORTS";

/// Exits when dropped.
struct Exits<'a>(&'a dyn Sys);

impl Drop for Exits<'_> {
    fn drop(&mut self) {
        self.0.exit(0);
    }
}

/// Aborting is the only possible outcome, because the destructor may neither return nor unwind.
#[test]
fn exit_in_a_destructor_during_unwinding_aborts_the_host() {
    if std::env::var_os(ABORTS).is_some() {
        let system = Virtual::builder().executor(Executor::Simulated { seed: 1 });
        let _ = system.build().expect("a system").run(|sys| {
            let _exits = Exits(sys);
            let _ = sys.kill(sys.getpid().into(), Some(Signal::KILL));
            0
        });
        return;
    }
    let test = "races::deaths::exit_in_a_destructor_during_unwinding_aborts_the_host";
    let output = Command::new(std::env::current_exe().expect("the test has an executable"))
        .args([test, "--exact", "--nocapture"])
        .env(ABORTS, "1")
        .output()
        .expect("the test can be started");
    assert_eq!(output.status.signal(), Some(Signal::ABRT.number()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("process 2: exit in a destructor"), "{said}");
}

type Sleep = fn(&dyn Sys);

/// Calls that sleep without end, each with its name.
const SLEEPS: [(&str, Sleep); 9] = [
    ("sigsuspend", |sys| {
        let _ = sys.sigsuspend(SigSet::ALL);
    }),
    ("pause", |sys| {
        let _ = sys.pause();
    }),
    ("wait", |sys| {
        forked(sys, pauses);
        let _ = sys.wait();
    }),
    ("read", |sys| {
        let (reader, _writer) = sys.pipe().expect("within the limits");
        let _ = sys.read(reader, &mut [0]);
    }),
    ("write", |sys| {
        let (_reader, writer) = sys.pipe().expect("within the limits");
        let _ = sys.write(writer, &[0; 100_000]);
    }),
    ("nanosleep", |sys| {
        let _ = sys.nanosleep(Duration::from_secs(3600));
    }),
    ("join", |sys| {
        let thread = threaded(sys, |sys| {
            let _ = sys.pause();
        });
        let _ = sys.join(thread);
    }),
    ("sigtimedwait", |sys| {
        let _ = sys.sigtimedwait(SigSet::of(&[Signal::USR2]), None);
    }),
    ("stopped", |sys| sys.raise(Signal::STOP).expect("the caller exists")),
];

#[test]
fn thread_asleep_in_any_call_can_be_killed() {
    for (name, sleep) in SLEEPS {
        for (on, system) in everywhere() {
            let report = run(system, move |sys| {
                sys.set_subreaper(true).expect("permitted");
                let ready = Arc::new(AtomicBool::new(false));
                let says = ready.clone();
                let child = forked(sys, move |sys| {
                    says.store(true, Ordering::Relaxed);
                    sleep(sys);
                    sys.exit(9);
                });
                await_set(sys, &ready);
                (0..20).for_each(|_| sys.sched_yield());
                let before = sys.now();
                send(sys, child, Signal::KILL);
                assert_eq!(end_of(sys, child), KILLED);
                assert!(sys.now() - before < Duration::from_secs(60));
                // The child forked here is still asleep.
                0
            });
            assert_success(&format!("{name}: {on}"), &report);
            assert_eq!(report.abandoned, 0, "{name}: {on}");
        }
    }
}

#[test]
fn process_killed_while_stopping_makes_no_further_call() {
    for mode in LockingMode::ALL {
        let report = run(of(mode, Executor::Parallel), |sys| {
            for round in 0..1500 {
                let ready = Arc::new(AtomicBool::new(false));
                let says = ready.clone();
                let child = forked(sys, move |sys| {
                    says.store(true, Ordering::Relaxed);
                    sys.raise(Signal::STOP).expect("the caller exists");
                    9
                });
                await_set(sys, &ready);
                (0..round % 32).for_each(|_| sys.sched_yield());
                send(sys, child, Signal::KILL);
                assert_eq!(end_of(sys, child), KILLED, "round {round}");
            }
            0
        });
        assert_success(&mode.to_string(), &report);
    }
}

#[test]
fn handler_of_sigcont_runs_before_the_stopped_call_returns() {
    for mode in LockingMode::ALL {
        let report = run(of(mode, Executor::Parallel), |sys| {
            let child = forked(sys, |sys| {
                let handled = Arc::new(AtomicI32::new(0));
                let counter = handled.clone();
                let count = SigAction::handler(move |_, _| {
                    counter.fetch_add(1, Ordering::Relaxed);
                });
                sys.sigaction(Signal::CONT, Some(count)).expect("permitted");
                for round in 0..5000 {
                    let before = handled.load(Ordering::Relaxed);
                    sys.raise(Signal::STOP).expect("the caller exists");
                    assert_ne!(handled.load(Ordering::Relaxed), before, "round {round}");
                }
                0
            });
            let news = WaitOptions::STOPPED | WaitOptions::NOHANG;
            loop {
                match sys.waitpid(child.into(), news).expect("a child of the caller") {
                    Some(WaitedChild { status: WaitStatus::Stopped(_), .. }) => {
                        send(sys, child, Signal::CONT);
                    }
                    Some(ended) => return i32::from(ended.status != WaitStatus::Exited(0)),
                    None => sys.sched_yield(),
                }
            }
        });
        assert_success(&mode.to_string(), &report);
    }
}

#[test]
fn exit_terminates_threads_in_any_state() {
    everywhere_with_losses([0, 0], |sys| {
        let child = forked(sys, |sys| {
            for (nth, (_, sleep)) in SLEEPS.iter().enumerate() {
                // If one thread stopped, all of them would stop.
                if nth != SLEEPS.len() - 1 {
                    threaded(sys, sleep);
                }
                threaded(sys, |sys| {
                    loop {
                        sys.sched_yield();
                    }
                });
            }
            (0..5).for_each(|_| sys.sched_yield());
            sys.exit(5)
        });
        i32::from(end_of(sys, child) != WaitStatus::Exited(5))
    });
}

#[test]
fn exec_in_second_thread_terminates_first() {
    for (on, system) in everywhere() {
        let system = system.program("alone", |sys, arguments| {
            let before: i32 = arguments[0].parse().expect("a number");
            let same = sys.getpid().number() == before;
            let quiet = sys.waitpid(Children::Any, WaitOptions::NOHANG) == Err(Errno::ECHILD);
            if same && quiet { 6 } else { 7 }
        });
        let report = run(system, |sys| {
            let child = forked(sys, |sys| {
                let me = sys.getpid().number().to_string();
                threaded(sys, move |sys| {
                    let _ = sys.exec("alone", &[&me]);
                });
                sys.sigprocmask(Some((SigmaskHow::Set, SigSet::ALL))).expect("permitted");
                loop {
                    sys.pause();
                }
            });
            i32::from(end_of(sys, child) != WaitStatus::Exited(6))
        });
        assert_success(&on, &report);
        assert_eq!(report.abandoned, 0, "{on}");
    }
}
