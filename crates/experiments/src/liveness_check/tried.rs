//! The result of each check after an event that is really caused: [`try_all`].
//!
//! Each event happens to a fresh process, which the check must first report as alive. No result is
//! derived from documentation. If an event cannot be caused, the answer is `skipped: …`; if it is
//! meaningless for a mechanism, the answer is `n/a: …`.
//!
//! Neighbours: [`super::monitored`] starts the process, [`super::check`] contains the checks.

#![allow(unsafe_code, reason = "clone3 with a chosen process id")]

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid,
};
use tontine_bench::observe::ObservedEvent;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::exit_at_once;

use super::check::{Check, means_of};
use super::monitored::{Home, Means, MonitorCommand, Monitored};
use crate::with_check;

/// An event in the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The process exits and is reaped.
    Exit,
    /// The process is killed with SIGKILL and reaped.
    Killed,
    /// The process is killed and not reaped.
    Zombie,
    /// The process calls exec to run another program.
    Exec,
    /// The process ends and is reaped, and another process receives its id.
    ReusedPid,
    /// The process is stopped.
    Stopped,
    /// The process lives in another PID namespace.
    OtherPidNamespace,
    /// The process lived in another PID namespace and has ended.
    OtherPidNamespaceEnded,
    /// The thread that registered ends; the process lives on.
    ThreadEnded,
    /// The process unlocks the mutex and ends, and the monitor's own trylock succeeds.
    MonitorOwns,
}

impl ProcessEvent {
    /// All events, in the order in which they are reported.
    pub const ALL: [Self; 10] = [
        Self::Exit,
        Self::Killed,
        Self::Zombie,
        Self::Exec,
        Self::ReusedPid,
        Self::Stopped,
        Self::OtherPidNamespace,
        Self::OtherPidNamespaceEnded,
        Self::ThreadEnded,
        Self::MonitorOwns,
    ];

    /// Returns the name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Killed => "killed",
            Self::Zombie => "zombie",
            Self::Exec => "exec",
            Self::ReusedPid => "reused-pid",
            Self::Stopped => "stopped",
            Self::OtherPidNamespace => "other-pid-namespace",
            Self::OtherPidNamespaceEnded => "other-pid-namespace-ended",
            Self::ThreadEnded => "thread-ended",
            Self::MonitorOwns => "monitor-owns",
        }
    }

    /// Returns the answer of an ideal mechanism. After an exec that answer is "dead", because the
    /// program that registered no longer runs.
    pub fn truth(self) -> &'static str {
        match self {
            Self::Stopped | Self::OtherPidNamespace | Self::ThreadEnded => "alive",
            _ => "dead",
        }
    }

    fn home(self) -> Home {
        match self {
            Self::OtherPidNamespace | Self::OtherPidNamespaceEnded => Home::OtherPidNamespace,
            _ => Home::Here,
        }
    }

    /// Returns `true` if the process lives in another PID namespace. In that case the first check
    /// is part of the event rather than a precondition.
    fn is_there_from_the_start(self) -> bool {
        self.home() == Home::OtherPidNamespace
    }
}

/// Causes every event and checks with `variant` after each event.
pub fn try_all(variant: &str) -> Vec<ObservedEvent> {
    ProcessEvent::ALL.into_iter().map(|event| try_one(variant, event)).collect()
}

/// Causes one event and checks with `variant`.
pub fn try_one(variant: &str, event: ProcessEvent) -> ObservedEvent {
    let says = match meaningless(variant, event) {
        Some(why) => format!("n/a: {why}"),
        None => match asked(variant, event) {
            Ok(says) => says,
            Err(MeasureError::Skipped(why)) => format!("skipped: {why}"),
            Err(MeasureError::Failed(why)) => format!("error: {why}"),
        },
    };
    ObservedEvent { event: event.name().into(), truth: event.truth().into(), says }
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

fn asked(variant: &str, event: ProcessEvent) -> Result<String> {
    let means = means_of(variant)
        .ok_or_else(|| MeasureError::fail(format!("no such variant: {variant}")))?;
    let monitored = Monitored::start(means, event.home())?;
    with_check!(variant, &monitored, |check| {
        // In another namespace, an error can be the mechanism's true answer.
        if !event.is_there_from_the_start() {
            check.probe()?;
        }
        let before = answer(&check)?;
        if before != "alive" && !event.is_there_from_the_start() {
            return Err(MeasureError::fail(format!(
                "the check reported a living process as {before:?}"
            )));
        }
        let _impostor = bring_about(event, &monitored)?;
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
fn bring_about(event: ProcessEvent, monitored: &Monitored) -> Result<Option<Impostor>> {
    let mut child = monitored.child();
    match event {
        ProcessEvent::OtherPidNamespace => {}
        ProcessEvent::Exit | ProcessEvent::OtherPidNamespaceEnded => {
            monitored.order(MonitorCommand::Exit)?;
            child.wait()?;
        }
        ProcessEvent::Killed => {
            child.kill()?;
        }
        ProcessEvent::Zombie => {
            child.signal(Signal::KILL).during("kill")?;
            until(child.pid(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        }
        ProcessEvent::Exec => monitored.order(MonitorCommand::Exec)?,
        ProcessEvent::ReusedPid => {
            let pid = child.pid();
            child.kill()?;
            return Impostor::with_id(pid).map(Some);
        }
        ProcessEvent::Stopped => {
            child.signal(Signal::STOP).during("kill")?;
            until(child.pid(), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT)?;
        }
        ProcessEvent::ThreadEnded => monitored.order(MonitorCommand::EndThread)?,
        ProcessEvent::MonitorOwns => {
            monitored.order(MonitorCommand::LetGo)?;
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
    fn futex_word_reveals_every_end_of_its_owner_thread() {
        expect("futex-word", &ENDS, &[Stopped, OtherPidNamespace, MonitorOwns]);
    }

    #[test]
    fn life_word_reveals_every_end_of_its_owner_thread() {
        expect("life-word", &ENDS, &[Stopped, OtherPidNamespace]);
        assert!(says("life-word", MonitorOwns).starts_with("n/a: "));
    }

    /// Regression: the monitor held the lock and unmapped the page without unlocking it. The
    /// thread's robust list then pointed to unmapped memory, and the next robust mutex that it
    /// locked caused a segmentation fault.
    #[test]
    fn monitors_lock_is_released_before_the_page_is_unmapped() {
        let monitored = Monitored::start(Means::Mutex, Home::Here).expect("a process");
        bring_about(MonitorOwns, &monitored).expect("the monitor takes the lock");
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
    fn own_robust_list_outlives_the_registering_thread() {
        expect("own-robust-list", &[Killed, Exec, OtherPidNamespaceEnded], &[ThreadEnded]);
        assert!(says("own-robust-list", MonitorOwns).starts_with("n/a: "));
    }

    #[test]
    fn kill_0_reports_zombies_and_reused_ids_as_alive() {
        expect("kill-0", &[Killed], &[Zombie, Exec, ReusedPid, Stopped, ThreadEnded]);
    }

    #[test]
    fn pidfd_and_procfs_detect_reused_ids_but_not_exec() {
        for variant in ["pidfd-signal-0", "procfs-faccessat"] {
            expect(variant, &[Killed, ReusedPid, OtherPidNamespaceEnded], &[Zombie, Exec]);
        }
    }

    #[test]
    fn connections_detect_exit_and_exec() {
        for variant in ["epoll-socket", "poll-socket", "select-socket"] {
            expect(variant, &[Killed, Exec], &[Stopped]);
        }
    }

    #[test]
    fn every_variant_answers_every_event() {
        for variant in super::super::VARIANTS {
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
