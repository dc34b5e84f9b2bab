//! The result of each check after an event that is really caused: [`try_all`].
//!
//! Each event happens to a fresh process, which the check must first report as alive. No result is
//! derived from documentation. If an event cannot be caused, the answer is `skipped: …`; if it is
//! meaningless for a mechanism, the answer is `n/a: …`.

#![allow(unsafe_code, reason = "clone3 with a chosen process id")]

use rustix::process::{Pid, Signal};

use rustix::process::{WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use tontine_bench::observe::ObservedEvent;

use super::check::{Check, means_of};
use super::monitored::{Home, Means, MonitorCommand, Monitored};
use crate::prelude::*;
use crate::with_check;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEvent {
    Exit,
    Killed,
    Zombie,
    Exec,
    /// The process ends and is reaped, and another process receives its id.
    ReusedPid,
    Stopped,
    OtherPidNamespace,
    /// The process lived in another PID namespace and has ended.
    OtherPidNamespaceEnded,
    /// The thread that registered ends; the process lives on.
    ThreadEnded,
    /// The process unlocks the mutex and ends, and the monitor's own trylock succeeds.
    MonitorOwns,
}

/// All events, in the order in which they are reported, each with its name in results and the
/// answer of an ideal mechanism. After an exec that answer is "dead", because the program that
/// registered no longer runs.
const EVENTS: [(ProcessEvent, &str, &str); 10] = [
    (ProcessEvent::Exit, "exit", "dead"),
    (ProcessEvent::Killed, "killed", "dead"),
    (ProcessEvent::Zombie, "zombie", "dead"),
    (ProcessEvent::Exec, "exec", "dead"),
    (ProcessEvent::ReusedPid, "reused-pid", "dead"),
    (ProcessEvent::Stopped, "stopped", "alive"),
    (ProcessEvent::OtherPidNamespace, "other-pid-namespace", "alive"),
    (ProcessEvent::OtherPidNamespaceEnded, "other-pid-namespace-ended", "dead"),
    (ProcessEvent::ThreadEnded, "thread-ended", "alive"),
    (ProcessEvent::MonitorOwns, "monitor-owns", "dead"),
];

impl ProcessEvent {
    pub(crate) fn name(self) -> &'static str {
        EVENTS[self as usize].1
    }

    fn home(self) -> Home {
        match self {
            Self::OtherPidNamespace | Self::OtherPidNamespaceEnded => Home::OtherPidNamespace,
            _ => Home::Here,
        }
    }
}

/// Causes every event and checks with `variant` after each event.
pub(crate) fn try_all(variant: &str) -> Vec<ObservedEvent> {
    EVENTS.iter().map(|(event, ..)| try_one(variant, *event)).collect()
}

pub(crate) fn try_one(variant: &str, event: ProcessEvent) -> ObservedEvent {
    let says = match meaningless(variant, event) {
        Some(why) => format!("n/a: {why}"),
        None => match answer_after(variant, event) {
            Ok(says) => says,
            Err(MeasureError::Skipped(why)) => format!("skipped: {why}"),
            Err(MeasureError::Failed(why)) => format!("error: {why}"),
        },
    };
    let (_, name, truth) = EVENTS[event as usize];
    ObservedEvent { event: name.into(), truth: truth.into(), says }
}

fn meaningless(variant: &str, event: ProcessEvent) -> Option<&'static str> {
    match variant {
        "dummy" | "load" => Some("a baseline, not a check"),
        "epoll-empty" => Some("the set is empty: a cost, not a check"),
        _ if event == ProcessEvent::MonitorOwns && means_of(variant) != Some(Means::Mutex) => {
            Some("there is no lock to take")
        }
        _ => None,
    }
}

fn answer_after(variant: &str, event: ProcessEvent) -> Result<String> {
    let means = means_of(variant)
        .ok_or_else(|| MeasureError::fail(format!("no such variant: {variant}")))?;
    let home = event.home();
    let monitored = Monitored::start(means, home)?;
    with_check!(variant, &monitored, |check| {
        // In another namespace, the first check is part of the event, and an error can be the
        // mechanism's true answer.
        if home == Home::Here {
            check.probe()?;
            let before = answer(&check)?;
            ensure!(before == "alive", "the check reported a living process as {before:?}");
        }
        let _impostor = cause(event, &monitored)?;
        answer(&check)
    })
}

fn answer(check: &impl Check) -> Result<String> {
    check.settle()?;
    Ok(match check.look() {
        Ok(true) => "alive".into(),
        Ok(false) => "dead".into(),
        Err(error) => format!("error: {error}"),
    })
}

/// Causes an event. The caller keeps the returned value until it has made the check.
fn cause(event: ProcessEvent, monitored: &Monitored) -> Result<Option<Impostor>> {
    let mut child = monitored.child();
    match event {
        ProcessEvent::OtherPidNamespace => {}
        ProcessEvent::Exit | ProcessEvent::OtherPidNamespaceEnded => {
            monitored.command(MonitorCommand::Exit)?;
            child.wait()?;
        }
        ProcessEvent::Killed => {
            child.kill()?;
        }
        ProcessEvent::Zombie => {
            child.signal(Signal::KILL).during("kill")?;
            until(child.pid(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        }
        ProcessEvent::Exec => monitored.command(MonitorCommand::Exec)?,
        ProcessEvent::ReusedPid => {
            let pid = child.pid();
            child.kill()?;
            return Impostor::with_id(pid).map(Some);
        }
        ProcessEvent::Stopped => {
            child.signal(Signal::STOP).during("kill")?;
            until(child.pid(), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT)?;
        }
        ProcessEvent::ThreadEnded => monitored.command(MonitorCommand::EndThread)?,
        ProcessEvent::MonitorOwns => {
            monitored.command(MonitorCommand::Unlock)?;
            child.wait()?;
            match monitored.page().try_lock() {
                0 => {}
                error => {
                    return Err(std::io::Error::from_raw_os_error(error))
                        .during("pthread_mutex_trylock by the monitor");
                }
            }
        }
    }
    Ok(None)
}

fn until(pid: Pid, what: WaitIdOptions) -> Result<()> {
    waitid(WaitId::Pid(pid), what).during("waitid").map(|_| ())
}

/// A process that reuses the id of a dead process. Killed and reaped on drop.
struct Impostor(Pid);

impl Impostor {
    fn with_id(wanted: Pid) -> Result<Self> {
        let ids = [wanted.as_raw_nonzero().get()];
        // SAFETY: `clone_args` consists of integers only.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.exit_signal = libc::SIGCHLD as u64;
        arguments.set_tid = ids.as_ptr() as u64;
        arguments.set_tid_size = 1;
        let parent = rustix::process::getpid();
        // SAFETY: without CLONE_VM this is a fork; the copy makes bare system calls only.
        let made = unsafe {
            libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>())
        };
        match made {
            -1 => Err(std::io::Error::last_os_error())
                .setting_up("clone3 with set_tid (needs CAP_CHECKPOINT_RESTORE)"),
            0 => {
                let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                if rustix::process::getppid() != Some(parent) {
                    exit_at_once(1);
                }
                loop {
                    rustix::event::pause();
                }
            }
            _ => Ok(Self(wanted)),
        }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        // The process is our own child and is not reaped yet, so no other process has the id.
        let _ = kill_process(self.0, Signal::KILL);
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessEvent::*;
    use super::*;

    fn says(variant: &str, event: ProcessEvent) -> String {
        try_one(variant, event).says
    }

    /// Asserts that `variant` answers dead after the events `dead`, and alive after those in
    /// `alive`.
    #[track_caller]
    fn expect(variant: &str, dead: &[ProcessEvent], alive: &[ProcessEvent]) {
        let dead = dead.iter().map(|&event| (event, "dead"));
        for (event, expected) in dead.chain(alive.iter().map(|&event| (event, "alive"))) {
            let said = says(variant, event);
            if said.starts_with("skipped") {
                eprintln!("{variant} on {event:?}: {said}");
            } else {
                assert_eq!(said, expected, "{variant} on {event:?}");
            }
        }
    }

    /// Events that end the holder of a robust mutex. The lock word reveals all of them.
    const ENDS: [ProcessEvent; 7] =
        [Exit, Killed, Zombie, Exec, ReusedPid, OtherPidNamespaceEnded, ThreadEnded];

    #[test]
    fn each_event_is_at_its_own_row() {
        assert!(EVENTS.iter().enumerate().all(|(at, (event, ..))| *event as usize == at));
    }

    #[test]
    fn each_method_answers_as_documented() {
        expect("futex-word", &ENDS, &[Stopped, OtherPidNamespace, MonitorOwns]);
        expect("life-word", &ENDS, &[Stopped, OtherPidNamespace]);
        // The anchor outlives the thread that registered.
        expect("own-robust-list", &[Killed, Exec, OtherPidNamespaceEnded], &[ThreadEnded]);
        for variant in ["life-word", "own-robust-list"] {
            assert!(says(variant, MonitorOwns).starts_with("n/a: "), "{variant}");
        }
        expect("kill-0", &[Killed], &[Zombie, Exec, ReusedPid, Stopped, ThreadEnded]);
        for variant in ["pidfd-signal-0", "procfs-faccessat"] {
            expect(variant, &[Killed, ReusedPid, OtherPidNamespaceEnded], &[Zombie, Exec]);
        }
        for variant in ["epoll-socket", "poll-socket", "select-socket"] {
            expect(variant, &[Killed, Exec], &[Stopped]);
        }
    }

    /// Regression: the monitor held the lock and unmapped the page without unlocking it. The
    /// thread's robust list then pointed to unmapped memory, and the next robust mutex that it
    /// locked caused a segmentation fault.
    #[test]
    fn monitors_lock_is_released_before_the_page_is_unmapped() {
        let monitored = Monitored::start(Means::Mutex, Home::Here).expect("a process");
        cause(MonitorOwns, &monitored).expect("the monitor takes the lock");
        assert!(super::super::word::holds_a_robust_mutex());
        drop(monitored);
        assert!(!super::super::word::holds_a_robust_mutex());

        for variant in ["futex-word", "lock-cmpxchg", "mutex-trylock"] {
            for event in [MonitorOwns, Killed] {
                let says = says(variant, event);
                assert!(!says.starts_with("error"), "{variant} on {event:?}: {says}");
                assert!(!super::super::word::holds_a_robust_mutex(), "{variant} on {event:?}");
            }
        }
    }

    #[test]
    fn every_variant_answers_every_event() {
        for variant in &super::super::methods::ALL {
            for tried in try_all(variant.name) {
                // In another namespace, a process may have an id that belongs to a process here
                // that may not be signalled. In that case the error is the correct answer of kill.
                let abroad = variant.name == "kill-0" && tried.event.starts_with("other-pid");
                assert!(
                    abroad || !tried.says.starts_with("error"),
                    "{} on {}: {}",
                    variant.name,
                    tried.event,
                    tried.says
                );
            }
        }
    }
}
