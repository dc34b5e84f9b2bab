//! Tests of tracing one process by another.

use tontine_unix::{Errno, Pid, Ptrace, Signal, WaitOptions, WaitStatus};

use crate::scene::{change, end, play, sleeper};

#[test]
fn tracer_replaces_or_suppresses_signal_of_tracee() {
    play(|sys| {
        let child = sys.fork(|sys| {
            sys.ptrace(Ptrace::TraceMe).unwrap();
            sys.raise(Signal::USR1).unwrap();
            sys.raise(Signal::USR2).unwrap();
            0
        });
        let child = child.unwrap();
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::USR1));
        sys.ptrace(Ptrace::Continue(child, None)).unwrap();
        assert_eq!(
            change(sys, child),
            WaitStatus::Trapped(Signal::USR2),
            "the first signal was suppressed"
        );
        sys.ptrace(Ptrace::Continue(child, Some(Signal::TERM))).unwrap();
        assert_eq!(end(sys, child).signaled(), Some(Signal::TERM));
        assert_eq!(sys.ptrace(Ptrace::Continue(child, None)), Err(Errno::ESRCH));
    });
}

#[test]
fn ptrace_attaches_detaches_and_kills_a_process() {
    play(|sys| {
        let child = sleeper(sys);
        assert_eq!(sys.ptrace(Ptrace::Continue(child, None)), Err(Errno::ESRCH), "not a tracee");
        sys.ptrace(Ptrace::Attach(child)).unwrap();
        assert_eq!(sys.ptrace(Ptrace::Attach(child)), Err(Errno::EPERM), "already traced");
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::STOP));
        sys.ptrace(Ptrace::Detach(child, None)).unwrap();
        assert_eq!(sys.waitpid(child.into(), WaitOptions::NOHANG), Ok(None), "the process lives");
        sys.ptrace(Ptrace::Attach(child)).unwrap();
        assert_eq!(change(sys, child), WaitStatus::Trapped(Signal::STOP));
        sys.ptrace(Ptrace::Kill(child)).unwrap();
        assert_eq!(end(sys, child).signaled(), Some(Signal::KILL));
    });
}

#[test]
fn attach_to_self_or_missing_process_fails_on_linux() {
    play(|sys| {
        let missing = Pid::number_only(i32::MAX);
        assert_eq!(sys.ptrace(Ptrace::Attach(sys.getpid())), Err(Errno::EPERM));
        assert_eq!(sys.ptrace(Ptrace::Attach(missing)), Err(Errno::ESRCH));
    });
}
