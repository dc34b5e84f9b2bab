//! The ends of a mechanism in processes or threads of their own, pinned: [`in_processes`] (with
//! [`in_two_processes`]) and [`in_threads`]. A [`ReportingChild`] is a forked process that reports
//! its error.
//!
//! The calling thread is one end and runs `main`. If several ends fail, the returned error is the
//! one that came first: an end that is left alone fails only because another one has ended.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use tontine_bench::error::{MeasureError, Result};
use tontine_bench::os::child::Child;
use tontine_bench::os::pin::{self, Pinned};
use tontine_bench::os::shared::SharedMapping;
use tontine_bench::peer::{ChildError, Pass, PeerHandle, PeriodicSignal, TellEnd, wait_until};

/// Timeout for the other processes to exit once `main` has returned.
const FAREWELL: Duration = Duration::from_secs(5);

/// A forked process that reports its error to its parent.
#[derive(Debug)]
pub struct ReportingChild {
    /// The process.
    pub child: Child,
    error: SharedMapping<ChildError>,
}

impl ReportingChild {
    /// Forks a process that runs `body`.
    pub fn fork(body: impl FnOnce() -> Result<()>) -> Result<Self> {
        let error = ChildError::new()?;
        let child = Child::fork(|| match body() {
            Ok(()) => 0,
            Err(found) => {
                error.say(&found);
                1
            }
        })?;
        Ok(Self { child, error })
    }

    /// Returns a handle for liveness checks.
    pub fn peer(&self) -> PeerHandle<'static> {
        PeerHandle::Child(self.child.pid())
    }

    /// Returns the error that the process has reported.
    pub fn error(&self) -> Option<MeasureError> {
        self.error.heard()
    }

    /// Returns the process's error if it has reported one or has ended.
    pub fn check(&self) -> Result<()> {
        self.error().map_or(Ok(()), Err)?;
        // The process may have reported its error in the meantime.
        self.peer().check().map_err(|end| self.error().unwrap_or(end))
    }

    /// Waits as [`wait_until`] does. An error that the process has reported takes precedence.
    pub fn until(&self, pass: Pass, what: &str, so: impl FnMut() -> bool) -> Result<()> {
        wait_until(&self.child, pass, what, so).map_err(|end| self.error().unwrap_or(end))
    }
}

/// Runs each of `others` in a child process on its processor, and `main` here, on processor `here`.
/// The children must exit with status 0 soon after `main` has returned. A `main` that blocks in
/// calls without a timeout needs a [`PeriodicSignal`], to check the children in between.
pub fn in_processes<T, F: FnOnce(PeerHandle<'static>) -> Result<()>>(
    here: usize,
    others: impl IntoIterator<Item = (usize, F)>,
    main: impl FnOnce(&[PeerHandle<'static>]) -> Result<T>,
) -> Result<T> {
    let fork = |(cpu, body): (usize, F)| {
        ReportingChild::fork(|| {
            pin::pin_to(cpu)?;
            body(PeerHandle::Parent)
        })
    };
    let mut workers = others.into_iter().map(fork).collect::<Result<Vec<_>>>()?;
    let peers: Vec<PeerHandle<'static>> = workers.iter().map(ReportingChild::peer).collect();
    let done = Pinned::to(here).and_then(|_pinned| main(&peers));
    let (began, timeout) = (Instant::now(), if done.is_ok() { FAREWELL } else { FAREWELL / 20 });
    let mut end = None;
    for (peer, worker) in peers.iter().zip(&mut workers) {
        let ended = until_ended(*peer, began + timeout);
        let failed = worker.child.kill()?.exit_status() != Some(0);
        let late = || MeasureError::fail("the other process did not exit after the last message");
        end = end.or(match ended {
            Some(end) => failed.then_some(end),
            None => done.is_ok().then(late),
        });
    }
    if let Some(error) = workers.iter().find_map(ReportingChild::error) {
        return Err(error);
    }
    match (done, end) {
        (Ok(value), None) => Ok(value),
        (Ok(_), Some(end)) => Err(end),
        (Err(error), None) => Err(error),
        (Err(error), Some(end)) if error == end => Err(end),
        (Err(error), Some(end)) => {
            Err(MeasureError::fail(format!("{}; {}", end.why(), error.why())))
        }
    }
}

/// Runs `main` here and `other` in a child process. Each has its half, and drops the other's, so
/// that a death appears as an end of file.
pub fn in_two_processes<A, B, T>(
    [here, there]: [usize; 2],
    (ours, theirs): (A, B),
    main: impl FnOnce(A, PeerHandle<'static>) -> Result<T>,
    other: impl FnOnce(B, PeerHandle<'static>) -> Result<()>,
) -> Result<T> {
    let (ours, theirs) = (Cell::new(Some(ours)), Cell::new(Some(theirs)));
    let other = |peer| {
        drop(ours.take());
        other(theirs.take().expect("each process opens its half once"), peer)
    };
    in_processes(here, [(there, other)], |peers| {
        drop(theirs.take());
        main(ours.take().expect("each process opens its half once"), peers[0])
    })
}

/// Runs each of `others` in a thread on its processor, and `main` in the calling thread, on
/// processor `here`.
pub fn in_threads<T>(
    here: usize,
    others: Vec<(usize, impl FnOnce(PeerHandle<'_>) -> Result<()> + Send)>,
    main: impl FnOnce(&[PeerHandle<'_>]) -> Result<T>,
) -> Result<T> {
    let main_ended = AtomicBool::new(false);
    let ended: Vec<AtomicBool> = others.iter().map(|_| AtomicBool::new(false)).collect();
    let peers: Vec<PeerHandle<'_>> = ended.iter().map(PeerHandle::Thread).collect();
    // An end records its error before it reports that it has ended.
    let first = OnceLock::new();
    let record = |error: &MeasureError| drop(first.set(error.clone()));
    thread::scope(|scope| {
        let (main_ended, record) = (&main_ended, &record);
        let others = others.into_iter().zip(&ended).map(|((cpu, body), ended)| {
            scope.spawn(move || {
                let _ended = TellEnd(ended);
                let done = pin::pin_to(cpu).and_then(|()| {
                    let _signal = PeriodicSignal::this_thread()?;
                    body(PeerHandle::Thread(main_ended))
                });
                drop(done.inspect_err(record));
            })
        });
        let others: Vec<_> = others.collect();
        let done = {
            let _ended = TellEnd(main_ended);
            let done = Pinned::to(here).and_then(|_pinned| {
                let _signal = PeriodicSignal::this_thread()?;
                main(&peers)
            });
            done.inspect_err(record)
        };
        if others.into_iter().any(|thread| thread.join().is_err()) {
            return Err(MeasureError::fail("a thread panicked"));
        }
        done.map_err(|own| first.get().cloned().unwrap_or(own))
    })
}

/// Waits until a process has ended, and returns how; returns `None` at the deadline.
fn until_ended(peer: PeerHandle<'_>, deadline: Instant) -> Option<MeasureError> {
    loop {
        if let Err(end) = peer.check() {
            return Some(end);
        }
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use tontine_bench::os::child::exit_at_once;
    use tontine_bench::peer::spin_until;

    fn cpus() -> [usize; 2] {
        let allowed = pin::allowed().expect("affinity");
        [allowed[0], allowed[allowed.len() - 1]]
    }

    fn never_answered(_: (), peer: PeerHandle<'_>) -> Result<()> {
        spin_until(&[peer], true, || false)
    }

    fn error_of(other: impl FnOnce((), PeerHandle<'static>) -> Result<()>) -> String {
        let found = in_two_processes(cpus(), ((), ()), never_answered, other);
        found.expect_err("no process answers").to_string()
    }

    #[test]
    fn first_error_of_two_threads_is_returned() {
        let [here, there] = cpus();
        let first = || MeasureError::skip("this came first");
        let late = |peer: PeerHandle<'_>| spin_until(&[peer], true, || false);
        let failing = |_: PeerHandle<'_>| Err(first());
        let found = in_threads(here, vec![(there, failing)], |peers| late(peers[0]));
        assert_eq!(found.err(), Some(first()));
        let found = in_threads::<()>(here, vec![(there, late)], |_| Err(first()));
        assert_eq!(found.err(), Some(first()));
    }

    #[test]
    fn peer_exit_during_spinning_reports_its_status() {
        let why = error_of(|(), _| exit_at_once(7));
        assert!(why.contains("exited with status 7"), "{why}");
    }

    #[test]
    fn error_of_the_other_process_is_returned() {
        let why = error_of(|(), _| Err(MeasureError::skip("no such thing here")));
        assert!(why.contains("skipped: no such thing here"), "{why}");
    }

    #[test]
    fn peer_kill_during_blocked_call_reports_its_signal() {
        let (mut read, write) = std::io::pipe().expect("pipe");
        // The write end stays open here, so only the periodic signal reveals the death.
        let blocked = |(), peer: PeerHandle<'_>| {
            let _signal = PeriodicSignal::this_thread()?;
            loop {
                // `read_exact` would hide the interruption.
                match read.read(&mut [0]) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                        peer.check()?
                    }
                    other => return Err::<(), _>(MeasureError::fail(format!("read: {other:?}"))),
                }
            }
        };
        let found = in_two_processes(cpus(), ((), ()), blocked, |(), _| {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL)
                .map_err(|error| MeasureError::fail(error.to_string()))
        });
        let why = found.expect_err("no process answers").to_string();
        assert!(why.contains("killed by signal 9"), "{why}");
        drop(write);
    }
}
