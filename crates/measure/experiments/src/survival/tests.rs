//! Tests of every variant with a few kills, of mechanisms that wedge and of mechanisms that notify,
//! and of the detection of torn and lost messages.

use std::time::Duration;

use tontine_mechanisms::end::{Inlet, Outlet, TransferError, TwoWay};
use tontine_mechanisms::pipe::Pipe;

use super::message::message;
use super::*;

const KILLS: usize = 4;
/// A deadline for survivors that must be notified, which none reaches.
const LONG: Duration = Duration::from_secs(60);
/// A deadline for survivors that are not notified, or need not be.
const SHORT: Duration = Duration::from_millis(50);

/// Runs a test in a new process of the test program. iceoryx2 keeps state of the process that first
/// uses it, as another test may have done, and a forked child would inherit that state.
fn in_a_new_process(name: &str, test: fn()) {
    const MARK: &str = "TONTINE_NEW_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return in_a_process_of_its_own(test);
    }
    let program = std::env::current_exe().expect("the test program");
    let mut command = std::process::Command::new(program);
    command.args(["--exact", "--nocapture", &format!("survival::tests::{name}")]).env(MARK, "");
    let output = command.output().expect("the test program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the outcomes of a variant, or `None` if it is skipped.
fn outcomes(variant: &str, deadline: Duration) -> Option<Vec<KillOutcome>> {
    unless_skipped(measure(variant, KILLS, deadline), variant)
}

/// Returns the number of survivors that noticed.
fn noticed(outcomes: &[KillOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.notice_ns.is_some()).count()
}

#[test]
fn every_kill_has_an_outcome_and_tears_no_message() {
    in_a_process_of_its_own(|| {
        for variant in Survival.variants() {
            let Some(outcomes) = outcomes(variant.name, SHORT) else { continue };
            assert!(outcomes.iter().all(|outcome| !outcome.torn), "{variant:?} {outcomes:?}");
            let observed = observed(&outcomes);
            let timed = usize::from(noticed(&outcomes) > 0);
            assert_eq!(metrics(&observed).len(), 4 + timed, "{variant:?} {outcomes:?}");
            assert_eq!(series(&observed, "wedged").samples.len(), KILLS);
        }
    });
}

#[test]
fn survivor_is_notified_as_its_mechanism_documents() {
    in_a_new_process("survivor_is_notified_as_its_mechanism_documents", || {
        let mut tried = 0;
        for (mechanism, _) in registry::rows(RowKind::Survival) {
            let Death::LeavesOne { survivor, .. } = mechanism.death else { continue };
            let (expected, deadline) = match survivor {
                AfterKill::Either => continue,
                AfterKill::Notified => (KILLS, LONG),
                _ => (0, SHORT),
            };
            let Some(outcomes) = outcomes(mechanism.name, deadline) else { continue };
            tried += 1;
            assert_eq!(noticed(&outcomes), expected, "{} {outcomes:?}", mechanism.name);
        }
        // Pipes, UNIX sockets, futexes and eventfds exist on every machine.
        assert!(tried >= 4, "{tried}");
    });
}

/// The end of the names of rows that ask a liveness API.
const MONITORED: &str = "-monitored";

#[test]
fn monitored_row_follows_its_plain_row() {
    let names: Vec<&str> = Survival.variants().iter().map(|variant| variant.name).collect();
    let follows = |pair: &[&str]| pair[1].strip_suffix(MONITORED) == Some(pair[0]);
    assert_eq!(names.windows(2).filter(|pair| follows(pair)).count(), 4, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.ends_with(MONITORED)).count(), 4, "{names:?}");
}

/// The peers whose documentation promises a notification must always give one. A robust mutex and a
/// file lock always show the death, but a wait for a condition variable may not return to the
/// check: in Boost's queue after one in eight kills.
#[test]
fn monitored_survivor_is_notified_and_its_plain_twin_is_not() {
    in_a_new_process("monitored_survivor_is_notified_and_its_plain_twin_is_not", || {
        for variant in Survival.variants() {
            let Some(plain) = variant.name.strip_suffix(MONITORED) else { continue };
            let promised = ["iceoryx2", "zmq-ipc"].contains(&plain);
            let (least, deadline) = if promised { (KILLS, LONG) } else { (1, SHORT * 10) };
            let Some(mut with) = outcomes(variant.name, deadline) else { continue };
            for _ in 0..20 {
                if promised || noticed(&with) >= least {
                    break;
                }
                with.extend(outcomes(variant.name, deadline).into_iter().flatten());
            }
            assert!(noticed(&with) >= least, "{} {with:?}", variant.name);
            let without = outcomes(plain, SHORT);
            assert_eq!(without.as_deref().map_or(0, noticed), 0, "{plain} {without:?}");
        }
    });
}

#[test]
fn survival_leaves_no_children() {
    in_a_process_of_its_own(|| {
        // If the kernel does not list children, no comparison is possible.
        let children = || {
            let own = std::process::id();
            std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()
        };
        let before = children();
        measure("futex", KILLS, SHORT).expect("kills");
        assert_eq!(children(), before);
    });
}

/// An end that carries messages through a pipe, and tears or drops them from message 11 on. By then
/// the parent has seen messages pass.
struct Bad<E> {
    pipe: E,
    tears: bool,
}

impl<E: TwoWay> Outlet for Bad<E> {
    fn send(&mut self, whole: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        let number = u64::from_ne_bytes(*whole.first_chunk().expect("a message"));
        if number <= 10 {
            return self.pipe.send(whole, peers);
        }
        let mut mixed = message(number - 1);
        mixed[..8].copy_from_slice(&whole[..8]);
        if self.tears { self.pipe.send(&mixed, peers) } else { Ok(()) }
    }
}

impl<E: TwoWay> Inlet for Bad<E> {
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        self.pipe.receive(peers, look)
    }
}

impl<E: TwoWay> TwoWay for Bad<E> {}

/// Kills pairs whose ends misbehave, until an outcome is as `expected`: on a busy machine the
/// parent may kill before the first bad message.
fn is_seen(tears: bool, expected: impl Fn(&KillOutcome) -> bool) {
    in_a_process_of_its_own(|| {
        let allowed = pin::allowed().expect("affinity");
        let plan = KillPlan {
            count: KILLS,
            processors: [allowed[0], allowed[allowed.len() - 1]],
            spins: false,
            promises_notice: false,
            carries: tontine_mechanisms::about::Carries::Messages,
            deadline: SHORT,
            clock: Clock::calibrated(),
        };
        let open = |half| Ok(Bad { pipe: Pipe::open::<BYTES>(half, &[])?, tears });
        let outcomes = || kills(&plan, || Pipe::pair(BYTES), open).expect("kills");
        assert!((0..100).any(|_| outcomes().iter().any(&expected)), "not seen in 100 attempts");
    });
}

#[test]
fn torn_message_is_detected() {
    is_seen(true, |outcome| outcome.torn);
}

#[test]
fn dropped_message_counts_as_lost() {
    is_seen(false, |outcome| outcome.lost_with_sender || outcome.lost_with_receiver);
}
