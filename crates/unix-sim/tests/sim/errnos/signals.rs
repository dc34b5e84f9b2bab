//! Errors of calls that send signals and set their actions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{
    ActionFlags, Errno, Pid, Result, SigAction, SigSet, SigStack, SigVec, SigmaskHow, Signal,
    SignalTarget, Sys, Tid,
};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, MISSING, SELF, TERM, demote, leader, no_signal_more, reaped, sleeper,
    sleeping_thread, zombie,
};

/// Reason why a thread id in place of a process id has different results on the two kernels.
pub(crate) const THREADS_NUMBER: &str =
    "Linux finds its process, which no manual page promises; Virtual finds none";

pub(crate) const ROWS: &[Row] = &[
    // kill
    refused("kill(target)", "no process has the number", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::Process(MISSING), TERM)
    }),
    refused("kill(target)", "no process has the number 0", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::Process(SELF), None)
    }),
    refused("kill(target)", "no process has the number −1", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::Process(MINUS_ONE), None)
    }),
    refused("kill(target)", "no process has the lowest number", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::Process(LOWEST), None)
    }),
    refused("kill(target)", "the lowest number, which names no group", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::of(i32::MIN), None)
    }),
    refused("kill(target)", "already reaped", Errno::ESRCH, |sys| {
        sys.kill(reaped(sys).into(), TERM)
    }),
    refused("kill(target)", "already reaped, by number", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::of(reaped(sys).number()), None)
    }),
    refused("kill(target)", "a process of another user", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        sys.kill(child.into(), TERM)
    })
    .as_root(),
    refused("kill(target)", "another user's process, null signal", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        sys.kill(child.into(), None)
    })
    .as_root(),
    allowed("kill(target)", "SIGCONT to another user's process in the session", |sys| {
        let child = sleeper(sys);
        demote(sys);
        sys.kill(child.into(), Some(Signal::CONT))
    })
    .as_root(),
    refused("kill(target)", "a missing group", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::Group(MISSING), TERM)
    }),
    refused("kill(target)", "a process that leads no group", Errno::ESRCH, |sys| {
        sys.kill(SignalTarget::Group(sleeper(sys)), TERM)
    }),
    refused("kill(target)", "a group whose last member was reaped", Errno::ESRCH, |sys| {
        let child = leader(sys);
        sys.kill(child.into(), Some(Signal::KILL)).expect("the target exists");
        sys.wait().expect("a child of the caller");
        sys.kill(SignalTarget::Group(child), TERM)
    }),
    refused("kill(target)", "an invalid group number", Errno::EINVAL, |sys| {
        sys.kill(SignalTarget::Group(MINUS_ONE), None)
    }),
    refused("kill(target)", "a group of other users only", Errno::EPERM, |sys| {
        let group = leader(sys);
        demote(sys);
        sys.kill(SignalTarget::Group(group), TERM)
    })
    .as_root(),
    allowed("kill(target)", "a group with own and other users' processes", |sys| {
        let group = leader(sys);
        sys.setpgid(SELF, group).expect("a group of the session");
        demote(sys);
        sys.kill(SignalTarget::Group(group), Some(Signal::URG))
    })
    .as_root(),
    allowed("kill(target)", "a zombie", |sys| sys.kill(zombie(sys).into(), TERM)),
    allowed("kill(target)", "a thread id", |sys| sys.kill(thread_as_process(sys).into(), None)),
    allowed("kill(target)", "everyone, without permission for any", |sys| {
        demote(sys);
        sys.kill(SignalTarget::Everyone, TERM)
    })
    .on_virtual("on Linux it would reach processes unrelated to the test"),
    allowed("kill(signal)", "beyond the limit, without a value", |sys| {
        no_signal_more(sys);
        sys.kill(sys.getpid().into(), Some(Signal::RTMIN))
    }),
    // killpg
    refused("killpg(group)", "a missing group", Errno::ESRCH, |sys| sys.killpg(MISSING, TERM)),
    refused("killpg(group)", "an invalid number", Errno::EINVAL, |sys| sys.killpg(MINUS_ONE, None)),
    refused("killpg(group)", "the lowest number", Errno::EINVAL, |sys| sys.killpg(LOWEST, None)),
    refused("killpg(group)", "a process that leads no group", Errno::ESRCH, |sys| {
        sys.killpg(sleeper(sys), TERM)
    }),
    refused("killpg(group)", "other users only", Errno::EPERM, |sys| {
        let group = leader(sys);
        demote(sys);
        sys.killpg(group, TERM)
    })
    .as_root(),
    // tgkill
    refused("tgkill(process)", "0", Errno::EINVAL, |sys| sys.tgkill(SELF, sys.gettid(), None)),
    refused("tgkill(process)", "−1", Errno::EINVAL, |sys| {
        sys.tgkill(MINUS_ONE, sys.gettid(), None)
    }),
    refused("tgkill(process)", "the lowest number", Errno::EINVAL, |sys| {
        sys.tgkill(LOWEST, sys.gettid(), None)
    }),
    refused("tgkill(process)", "no process has the number", Errno::ESRCH, |sys| {
        sys.tgkill(MISSING, sys.gettid(), TERM)
    }),
    refused("tgkill(process)", "not the thread's process", Errno::ESRCH, |sys| {
        sys.tgkill(sleeper(sys), sys.gettid(), TERM)
    }),
    refused("tgkill(process)", "already reaped", Errno::ESRCH, |sys| {
        let child = reaped(sys);
        sys.tgkill(child, Tid(child.number()), TERM)
    }),
    refused("tgkill(process)", "a process of another user", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        sys.tgkill(child, Tid(child.number()), TERM)
    })
    .as_root(),
    refused("tgkill(thread)", "0", Errno::EINVAL, |sys| sys.tgkill(sys.getpid(), Tid(0), None)),
    refused("tgkill(thread)", "−1", Errno::EINVAL, |sys| sys.tgkill(sys.getpid(), Tid(-1), None)),
    refused("tgkill(thread)", "the lowest number", Errno::EINVAL, |sys| {
        sys.tgkill(sys.getpid(), Tid(i32::MIN), None)
    }),
    refused("tgkill(thread)", "no thread has the number", Errno::ESRCH, |sys| {
        sys.tgkill(sys.getpid(), Tid(i32::MAX), TERM)
    }),
    refused("tgkill(thread)", "a thread of another process", Errno::ESRCH, |sys| {
        let other = Tid(sleeper(sys).number());
        sys.tgkill(sys.getpid(), other, TERM)
    }),
    refused("tgkill(thread)", "a thread that has ended", Errno::ESRCH, |sys| {
        let thread = sys.thread(|_| {}).expect("within the limits");
        sys.join(thread).expect("it is there");
        sys.tgkill(sys.getpid(), thread, TERM)
    }),
    refused("tgkill(signal)", "beyond the limit of queued signals", Errno::EAGAIN, |sys| {
        no_signal_more(sys);
        sys.tgkill(sys.getpid(), sys.gettid(), Some(Signal::RTMIN))
    }),
    refused("raise(signal)", "beyond the limit of queued signals", Errno::EAGAIN, |sys| {
        no_signal_more(sys);
        sys.raise(Signal::RTMIN)
    }),
    // sigqueue
    refused("sigqueue(process)", "no process has the number", Errno::ESRCH, |sys| {
        sys.sigqueue(MISSING, TERM, 1)
    }),
    refused("sigqueue(process)", "0", Errno::ESRCH, |sys| sys.sigqueue(SELF, None, 1)),
    refused("sigqueue(process)", "−1", Errno::ESRCH, |sys| sys.sigqueue(MINUS_ONE, None, 1)),
    refused("sigqueue(process)", "the lowest number", Errno::ESRCH, |sys| {
        sys.sigqueue(LOWEST, None, 1)
    }),
    refused("sigqueue(process)", "already reaped", Errno::ESRCH, |sys| {
        sys.sigqueue(reaped(sys), TERM, 1)
    }),
    refused("sigqueue(process)", "a process of another user", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        sys.sigqueue(child, TERM, 1)
    })
    .as_root(),
    refused("sigqueue(process)", "another user's process, null signal", Errno::EPERM, |sys| {
        let child = sleeper(sys);
        demote(sys);
        sys.sigqueue(child, None, 1)
    })
    .as_root(),
    refused("sigqueue(signal)", "beyond the limit", Errno::EAGAIN, |sys| {
        no_signal_more(sys);
        sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1)
    }),
    allowed("sigqueue(signal)", "beyond the limit, a standard signal", |sys| {
        no_signal_more(sys);
        sys.sigqueue(sys.getpid(), Some(Signal::URG), 1)
    }),
    allowed("sigqueue(signal)", "beyond the limit, null signal", |sys| {
        no_signal_more(sys);
        sys.sigqueue(sys.getpid(), None, 1)
    }),
    // fault
    refused("fault(signal)", "SIGUSR1", Errno::EINVAL, |sys| sys.fault(Signal::USR1)),
    refused("fault(signal)", "SIGKILL", Errno::EINVAL, |sys| sys.fault(Signal::KILL)),
    refused("fault(signal)", "SIGSTOP", Errno::EINVAL, |sys| sys.fault(Signal::STOP)),
    refused("fault(signal)", "a real-time signal", Errno::EINVAL, |sys| sys.fault(Signal::RTMIN)),
    // sigaction, sigvec
    refused("sigaction(signal)", "SIGKILL caught", Errno::EINVAL, |sys| {
        sys.sigaction(Signal::KILL, Some(SigAction::handler(|_, _| {}))).map(drop)
    }),
    refused("sigaction(signal)", "SIGKILL ignored", Errno::EINVAL, |sys| {
        sys.sigaction(Signal::KILL, Some(SigAction::IGNORE)).map(drop)
    }),
    refused("sigaction(signal)", "SIGKILL set to its default", Errno::EINVAL, |sys| {
        sys.sigaction(Signal::KILL, Some(SigAction::DEFAULT)).map(drop)
    }),
    refused("sigaction(signal)", "SIGSTOP caught", Errno::EINVAL, |sys| {
        sys.sigaction(Signal::STOP, Some(SigAction::handler(|_, _| {}))).map(drop)
    }),
    refused("sigaction(signal)", "SIGSTOP ignored", Errno::EINVAL, |sys| {
        sys.sigaction(Signal::STOP, Some(SigAction::IGNORE)).map(drop)
    }),
    refused("sigaction(signal)", "SIGSTOP set to its default", Errno::EINVAL, |sys| {
        sys.sigaction(Signal::STOP, Some(SigAction::DEFAULT)).map(drop)
    }),
    allowed("sigaction(signal)", "SIGKILL and SIGSTOP, only queried", |sys| {
        sys.sigaction(Signal::KILL, None)?;
        sys.sigaction(Signal::STOP, None).map(drop)
    }),
    allowed("sigaction(action)", "unknown flags, and a full mask", |sys| {
        let action = SigAction::IGNORE.with_flags(ActionFlags::from_bits_retain(1 << 30));
        sys.sigaction(Signal::USR1, Some(action.with_mask(SigSet::ALL))).map(drop)
    }),
    refused("sigvec(signal)", "SIGKILL caught", Errno::EINVAL, |sys| {
        let action = SigAction::handler(|_, _| {});
        sys.sigvec(Signal::KILL, Some(SigVec { action })).map(drop)
    }),
    refused("sigvec(signal)", "SIGSTOP ignored", Errno::EINVAL, |sys| {
        let action = SigAction::IGNORE;
        sys.sigvec(Signal::STOP, Some(SigVec { action })).map(drop)
    }),
    allowed("sigvec(signal)", "SIGKILL and SIGSTOP, only queried", |sys| {
        sys.sigvec(Signal::KILL, None)?;
        sys.sigvec(Signal::STOP, None).map(drop)
    }),
    // Masks
    allowed("sigprocmask(change)", "SIGKILL and SIGSTOP are silently not blocked", |sys| {
        sys.sigprocmask(Some((SigmaskHow::Block, SigSet::ALL)))?;
        let blocked = sys.sigprocmask(None)?;
        assert!(blocked.intersection(SigSet::UNBLOCKABLE).is_empty());
        Ok(())
    }),
    // sigstack
    refused("sigstack(stack)", "one byte", Errno::ENOMEM, |sys| stack_of(sys, 1)),
    refused("sigstack(stack)", "less than MINSIGSTKSZ", Errno::ENOMEM, |sys| stack_of(sys, 2047)),
    refused("sigstack(stack)", "more than the available memory", Errno::ENOMEM, |sys| {
        stack_of(sys, usize::MAX)
    }),
    allowed("sigstack(stack)", "MINSIGSTKSZ", |sys| stack_of(sys, 2048)),
    refused("sigstack(stack)", "a handler runs on it", Errno::EPERM, |sys| {
        stack_of(sys, 1 << 16)?;
        let answer = Arc::new(AtomicI32::new(0));
        let told = Arc::clone(&answer);
        let action = SigAction::handler(move |sys, _| {
            let refused = sys.sigstack(Some(SigStack::default())).err();
            told.store(refused.map_or(0, Errno::raw), Ordering::Relaxed);
        });
        sys.sigaction(Signal::USR1, Some(action.with_flags(ActionFlags::ONSTACK)))?;
        sys.raise(Signal::USR1)?;
        match answer.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        }
    }),
];

fn stack_of(sys: &dyn Sys, size: usize) -> Result<()> {
    sys.sigstack(Some(SigStack { size, on_stack: false })).map(drop)
}

/// Returns the id of a second thread of the caller, as if the id named a process.
pub(crate) fn thread_as_process(sys: &dyn Sys) -> Pid {
    Pid::number_only(sleeping_thread(sys).0)
}

#[test]
fn signal_errors_match_linux() {
    hold(ROWS);
}

/// [`Signal`] cannot hold a number for which kill(2) and related calls return EINVAL.
#[test]
fn signal_type_excludes_invalid_numbers() {
    for wrong in [i32::MIN, -1, 0, 32, 33, 65, i32::MAX] {
        assert_eq!(Signal::new(wrong), None, "{wrong}");
    }
}
