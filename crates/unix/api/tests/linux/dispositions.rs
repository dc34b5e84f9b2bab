//! Initial dispositions of a process, which do not depend on the dispositions that the host (the
//! program that embeds the backend) has set.
#![allow(unsafe_code, reason = "sets dispositions as a library of the host would")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use tontine_unix::{
    Disposition, Errno, Linux, SigAction, SigSet, SigStack, Signal, SpawnRequest, Sys, WaitStatus,
};

use crate::scene::end;

/// Exit status of a host whose assertions held. It differs from the status of a test program that
/// found no test.
const HOST_HELD: i32 = 42;

/// Name of the environment variable that makes a test run as the host.
const AS_HOST: &str = "TONTINE_UNIX_TEST_AS_HOST";

/// Runs `host` in a new process of this program, in which only Rust's runtime has changed
/// dispositions, and returns the exit status of that process. `test` is the name of the calling
/// test.
fn in_host(test: &str, host: impl FnOnce(&dyn Sys)) -> ExitStatus {
    if std::env::var_os(AS_HOST).is_some() {
        host(&Linux::new().expect("pidfds and clone3"));
        std::process::exit(HOST_HELD);
    }
    let test = format!("dispositions::{test}");
    Command::new(std::env::current_exe().expect("the test has an executable"))
        .args([test.as_str(), "--exact", "--test-threads=1", "--nocapture"])
        .env(AS_HOST, "1")
        .stdout(Stdio::null())
        .status()
        .expect("the test can be started")
}

fn disposition(sys: &dyn Sys, signal: Signal) -> Disposition {
    sys.sigaction(signal, None).expect("every signal has an action").disposition
}

extern "C" fn caught(_: libc::c_int) {}

/// Sets a disposition without the backend, as a library of the host would.
fn set_disposition_directly(signal: Signal, does: libc::sighandler_t) {
    // SAFETY: `caught` does nothing; the other values are not functions.
    unsafe { libc::signal(signal.number(), does) };
}

/// Regression: Rust's runtime ignores SIGPIPE and handles SIGSEGV and SIGBUS, and programs that the
/// backend ran inherited these dispositions. A program that wrote to a pipe without a reader was
/// not terminated, and each test had to reset the disposition.
#[test]
fn child_of_host_begins_with_default_dispositions() {
    let status = in_host("child_of_host_begins_with_default_dispositions", |sys| {
        assert_eq!(disposition(sys, Signal::PIPE), Disposition::Ignore, "ignored by the runtime");
        assert_ne!(disposition(sys, Signal::SEGV), Disposition::Default, "handled by the runtime");
        set_disposition_directly(Signal::USR2, caught as *const () as libc::sighandler_t);
        set_disposition_directly(Signal::HUP, libc::SIG_IGN);
        sys.sigaction(Signal::USR1, Some(SigAction::IGNORE)).unwrap();
        let handler = SigAction::handler(|_, _| {});
        sys.sigaction(Signal::BUS, Some(handler.clone())).unwrap();
        let child = sys.fork(move |sys| {
            for signal in [Signal::PIPE, Signal::SEGV] {
                assert_eq!(disposition(sys, signal), Disposition::Default, "{signal}");
            }
            // The handler remains, because its library relies on it and would not install it again.
            assert_ne!(
                disposition(sys, Signal::USR2),
                Disposition::Default,
                "the library's handler"
            );
            assert_eq!(disposition(sys, Signal::HUP), Disposition::Ignore, "as under nohup");
            assert_eq!(
                disposition(sys, Signal::USR1),
                Disposition::Ignore,
                "ignored by the program"
            );
            assert_eq!(disposition(sys, Signal::BUS), handler.disposition, "the program's handler");
            assert_eq!(sys.sigstack(None), Ok(SigStack::default()));
            // Children inherit dispositions that a program sets without the backend, as after any
            // fork.
            set_disposition_directly(Signal::USR2, caught as *const () as libc::sighandler_t);
            let grandchild =
                sys.fork(|sys| i32::from(disposition(sys, Signal::USR2) == Disposition::Default));
            end(sys, grandchild.unwrap()).exited().unwrap_or(2)
        });
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
        // The host is not changed.
        assert_eq!(disposition(sys, Signal::PIPE), Disposition::Ignore);
        for signal in [Signal::SEGV, Signal::USR2] {
            assert_ne!(disposition(sys, signal), Disposition::Default, "{signal}");
        }
    });
    assert_eq!(status.code(), Some(HOST_HELD), "{status}");
}

/// Regression: a child of the host survived a write to a pipe without a reader. Its first
/// `fault(SEGV)` had no effect, because the runtime's handler took the signal.
#[test]
fn child_of_host_is_killed_by_sigpipe_and_first_fault() {
    let status = in_host("child_of_host_is_killed_by_sigpipe_and_first_fault", |sys| {
        let writer = sys.fork(|sys| {
            let (from, to) = sys.pipe().unwrap();
            sys.close(from).unwrap();
            sys.write(to, b"x").map_or(1, |_| 0)
        });
        assert_eq!(end(sys, writer.unwrap()).signaled(), Some(Signal::PIPE));
        for signal in tontine_unix::FAULTS.iter() {
            let faulty = sys.fork(move |sys| sys.fault(signal).map_or(1, |()| 0));
            assert_eq!(end(sys, faulty.unwrap()).signaled(), Some(signal));
        }
    });
    assert_eq!(status.code(), Some(HOST_HELD), "{status}");
}

/// Regression: programs that the host spawned ignored SIGPIPE.
#[test]
fn spawned_program_ignores_sigpipe_only_if_host_requests_it() {
    let status = in_host("spawned_program_ignores_sigpipe_only_if_host_requests_it", |sys| {
        let killed = || SpawnRequest::new("/bin/sh", &["sh", "-c", "kill -PIPE $$"]);
        let child = sys.spawn(&killed()).unwrap();
        assert_eq!(end(sys, child).signaled(), Some(Signal::PIPE));
        sys.sigaction(Signal::PIPE, Some(SigAction::IGNORE)).unwrap();
        let child = sys.spawn(&killed()).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
        let defaults = SigSet::of(&[Signal::PIPE]);
        let child = sys.spawn(&SpawnRequest { defaults, ..killed() }).unwrap();
        assert_eq!(end(sys, child).signaled(), Some(Signal::PIPE));
        let child =
            sys.fork(|sys| i32::from(disposition(sys, Signal::PIPE) == Disposition::Ignore));
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(1));
    });
    assert_eq!(status.code(), Some(HOST_HELD), "{status}");
}

/// Regression: if the host ran a program in its own process by exec, the program ignored SIGPIPE.
#[test]
fn program_after_exec_of_host_is_killed_by_sigpipe() {
    let status = in_host("program_after_exec_of_host_is_killed_by_sigpipe", |sys| {
        assert_eq!(sys.exec("/nowhere", &["it"]).err(), Some(Errno::ENOENT));
        assert_eq!(disposition(sys, Signal::PIPE), Disposition::Ignore, "the host continues");
        let error = sys.exec("/bin/sh", &["sh", "-c", "kill -PIPE $$"]);
        panic!("{error:?}");
    });
    assert_eq!(status.signal(), Some(libc::SIGPIPE), "{status}");
}

/// For a fault that is not a stack overflow, the runtime's handler restores the default action and
/// returns, so that the instruction faults again. A sent fault does not recur by itself.
#[test]
fn first_fault_kills_host() {
    let status = in_host("first_fault_kills_host", |sys| {
        sys.fault(Signal::SEGV).unwrap();
    });
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
}

/// Regression: the reset also removed a library's handler of SIGPIPE, although it should only have
/// undone the SIG_IGN of the runtime.
#[test]
fn child_of_host_keeps_the_library_handler_of_sigpipe() {
    let status = in_host("child_of_host_keeps_the_library_handler_of_sigpipe", |sys| {
        set_disposition_directly(Signal::PIPE, caught as *const () as libc::sighandler_t);
        let child =
            sys.fork(|sys| i32::from(disposition(sys, Signal::PIPE) == Disposition::Default));
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
    });
    assert_eq!(status.code(), Some(HOST_HELD), "{status}");
}
