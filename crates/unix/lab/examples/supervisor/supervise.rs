//! The supervisor: [`supervise`] starts [`Service`]s, restarts failed services, and on SIGTERM
//! stops all services with the processes that they left behind.
//!
//! The supervisor is written against `Sys` and does not depend on a backend. [`Groups::ByTheChild`]
//! plants a mistake, for `explored` to find.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tontine_unix::{
    Children, Errno, Fd, Pid, Result, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions,
    WaitStatus, WaitedChild,
};

/// Maximum number of restarts of a service.
const RESTARTS: u32 = 3;

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// The signals for which the supervisor waits: a child changed state, or the supervisor must stop.
const WATCHED: SigSet = SigSet::of(&[Signal::CHLD, Signal::TERM, Signal::INT]);

/// The processes that put a service into its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Groups {
    /// The service and the supervisor, in either order.
    ByBoth,
    /// The service only. This is a mistake: a supervisor that is stopped before the service has run
    /// finds no such group, assumes that the service has ended, and leaves the service behind.
    ByTheChild,
}

/// A program with a name.
#[derive(Clone)]
pub(crate) struct Service {
    name: &'static str,
    run: Arc<Run>,
}

/// The function of a service, which returns its exit status.
type Run = dyn Fn(&dyn Sys) -> i32 + Send + Sync;

impl Service {
    pub(crate) fn new(
        name: &'static str,
        run: impl Fn(&dyn Sys) -> i32 + Send + Sync + 'static,
    ) -> Self {
        Self { name, run: Arc::new(run) }
    }
}

/// Runs the services until all have ended or SIGTERM arrives. Returns 0 on SIGTERM, else 1.
pub(crate) fn supervise(sys: &dyn Sys, services: Vec<Service>, groups: Groups) -> i32 {
    match Supervisor::run(sys, services, groups) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            say(sys, &format!("gave up: {error}"));
            1
        }
    }
}

/// The running services, by process.
struct Supervisor<'a> {
    sys: &'a dyn Sys,
    by: Groups,
    running: BTreeMap<Pid, (Service, u32)>,
    /// Every group that was created, by its leader's handle. The handles are kept because a group
    /// may outlive its leader.
    groups: Vec<Pid>,
}

impl<'a> Supervisor<'a> {
    /// Runs the services, and returns `true` if a signal stopped the supervisor.
    fn run(sys: &'a dyn Sys, services: Vec<Service>, by: Groups) -> Result<bool> {
        sys.set_subreaper(true)?;
        // sigtimedwait takes the signal; an ignored signal would not stay pending for it.
        sys.sigaction(Signal::CHLD, Some(SigAction::handler(|_, _| {})))?;
        let before = sys.sigprocmask(Some((SigmaskHow::Block, WATCHED)))?;
        let mut supervisor = Self { sys, by, running: BTreeMap::new(), groups: Vec::new() };
        for service in services {
            supervisor.start(service, 0, before)?;
        }
        let stopped_by_signal = supervisor.watch(before)?;
        supervisor.stop()?;
        Ok(stopped_by_signal)
    }

    /// Forks the service into its own group.
    fn start(&mut self, service: Service, restarts: u32, mask: SigSet) -> Result<()> {
        let run = Arc::clone(&service.run);
        let child = self.sys.fork(move |sys| {
            // The parent makes the same call; either call may come first.
            let own = Pid::number_only(0);
            let ready = sys
                .setpgid(own, own)
                .and_then(|()| sys.sigaction(Signal::CHLD, Some(SigAction::DEFAULT)).map(drop))
                .and_then(|()| sys.sigprocmask(Some((SigmaskHow::Set, mask))).map(drop));
            ready.map_or(1, |()| run(sys))
        })?;
        if self.by == Groups::ByBoth {
            // The call fails if the child has already ended.
            let _ = self.sys.setpgid(child, child);
        }
        say(self.sys, &format!("{} started", service.name));
        self.groups.push(child);
        self.running.insert(child, (service, restarts));
        Ok(())
    }

    /// Waits until SIGTERM arrives, and returns `true`, or until no service runs, and returns
    /// `false`.
    fn watch(&mut self, mask: SigSet) -> Result<bool> {
        while !self.running.is_empty() {
            match self.sys.sigtimedwait(WATCHED, None) {
                Ok(info) if info.signal == Signal::CHLD => {
                    for (service, restarts) in self.reap()? {
                        self.again(service, restarts, mask)?;
                    }
                }
                Ok(_) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn again(&mut self, service: Service, restarts: u32, mask: SigSet) -> Result<()> {
        if restarts < RESTARTS {
            return self.start(service, restarts + 1, mask);
        }
        say(self.sys, &format!("{} failed {} times: given up", service.name, restarts + 1));
        Ok(())
    }

    /// Reaps all processes that have ended, orphans included. Returns the services that failed.
    fn reap(&mut self) -> Result<Vec<(Service, u32)>> {
        let mut failed = Vec::new();
        loop {
            match self.sys.waitpid(Children::Any, WaitOptions::NOHANG) {
                Ok(Some(waited)) => failed.extend(self.ended(&waited)),
                Ok(None) | Err(Errno::ECHILD) => return Ok(failed),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the service, if the process was a service and failed.
    fn ended(&mut self, waited: &WaitedChild) -> Option<(Service, u32)> {
        let Some((service, restarts)) = self.running.remove(&waited.pid) else {
            say(self.sys, &format!("an orphan {}", waited.status));
            return None;
        };
        say(self.sys, &format!("{} {}", service.name, waited.status));
        (waited.status != WaitStatus::Exited(0)).then_some((service, restarts))
    }

    /// Sends SIGTERM to every group, and SIGKILL after the grace period. Returns when no process is
    /// left.
    fn stop(&mut self) -> Result<()> {
        say(self.sys, "stopping");
        self.signal_all(Signal::TERM);
        self.await_gone(Some(GRACE))?;
        if self.has_members() {
            say(self.sys, "still there after the grace: killing");
            self.signal_all(Signal::KILL);
            // Each killed process ends, but on a busy machine this may take arbitrarily long.
            self.await_gone(None)?;
        }
        say(self.sys, "all stopped");
        Ok(())
    }

    /// Reaps until no process of a group is left, or until `timeout`, if given, has passed.
    fn await_gone(&mut self, timeout: Option<Duration>) -> Result<()> {
        let end = timeout.map(|timeout| self.sys.now() + timeout);
        loop {
            self.reap()?;
            let left = end.map(|end| end.saturating_sub(self.sys.now()));
            if left.is_some_and(|left| left.is_zero()) || !self.has_members() {
                return Ok(());
            }
            match self.sys.sigtimedwait(SigSet::of(&[Signal::CHLD]), left) {
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a signal to all groups. Removes the groups for which the call returns `ESRCH`, because
    /// they have no members.
    fn signal_all(&mut self, signal: Signal) {
        self.groups.retain(|group| self.sys.killpg(*group, Some(signal)) != Err(Errno::ESRCH));
    }

    fn has_members(&self) -> bool {
        self.groups.iter().any(|group| self.sys.killpg(*group, None) != Err(Errno::ESRCH))
    }
}

/// Writes a line to standard output.
fn say(sys: &dyn Sys, text: &str) {
    let _ = sys.write(Fd::STDOUT, format!("{text}\n").as_bytes());
}
