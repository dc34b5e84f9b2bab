//! Tests of every variant with a few kills, of mechanisms that wedge and of mechanisms that notify,
//! and of the detection of torn and lost messages.

use tontine_host::peer::{PeerHandle, in_a_process_of_its_own};
use tontine_mechanisms::about::{AfterKill, Carries, Death};
use tontine_mechanisms::end::{Inlet, Outlet, TransferError, TwoWay};
use tontine_mechanisms::pipe::Pipe;

use super::message::message;
use super::*;

const KILLS: usize = 4;

/// Runs a test in a new process of the test program. iceoryx2 keeps state of the process that first
/// uses it, as another test may have done, and a forked child would inherit that state.
fn in_a_new_process(name: &str, test: fn() -> std::result::Result<(), String>) {
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

/// A deadline for survivors that must be notified, which none reaches.
const LONG: Duration = Duration::from_secs(60);
/// A deadline for survivors that are not notified, or need not be.
const SHORT: Duration = Duration::from_millis(50);

/// Returns the fates of a variant, or `None` if it is skipped.
fn fates(
    variant: &str,
    deadline: Duration,
) -> std::result::Result<Option<Vec<KillOutcome>>, String> {
    match measure(variant, KILLS, deadline) {
        Ok(fates) => Ok(Some(fates)),
        Err(MeasureError::Skipped(_)) => Ok(None),
        Err(trouble) => Err(format!("{variant}: {trouble}")),
    }
}

/// Makes an assertion in a process whose panics would not be seen.
fn claim(holds: bool, what: impl std::fmt::Debug) -> std::result::Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what:?}")) }
}

fn plan() -> KillPlan {
    let allowed = pin::allowed().expect("affinity");
    let processors = [allowed[0], allowed[allowed.len() - 1]];
    let clock = Clock::calibrated();
    KillPlan {
        count: KILLS,
        processors,
        spins: false,
        promises_notice: false,
        carries: Carries::Messages,
        deadline: SHORT,
        clock,
    }
}

#[test]
fn every_kill_has_an_outcome_and_tears_no_message() {
    in_a_process_of_its_own(|| {
        for variant in VARIANTS.iter() {
            let Some(fates) = fates(variant.name, SHORT)? else { continue };
            let seen = (variant.name, &fates);
            claim(fates.len() == KILLS && fates.iter().all(|fate| !fate.torn), seen)?;
            claim(fates.iter().all(|fate| fate.notice_ns.is_none_or(|ns| ns > 0.0)), seen)?;
            let noticed = fates.iter().any(|fate| fate.notice_ns.is_some());
            let series = observed(&fates).series;
            claim(series.len() == 4 + usize::from(noticed), seen)?;
            claim(series[0].samples.len() == KILLS, seen)?;
        }
        Ok(())
    });
}

#[test]
fn survivor_is_notified_as_its_mechanism_documents() {
    in_a_new_process("survivor_is_notified_as_its_mechanism_documents", || {
        let mut tried = 0;
        for (mechanism, _) in registry::rows(Asked::Survival) {
            let Death::LeavesOne { survivor, .. } = mechanism.death else { continue };
            if survivor == AfterKill::Either {
                continue;
            }
            let (expected, deadline) =
                if survivor == AfterKill::Told { (KILLS, LONG) } else { (0, SHORT) };
            let Some(fates) = fates(mechanism.name, deadline)? else { continue };
            tried += 1;
            let told = fates.iter().filter(|fate| fate.notice_ns.is_some()).count();
            claim(told == expected, (mechanism.name, &fates))?;
        }
        // Pipes, UNIX sockets, futexes and eventfds exist on every machine.
        claim(tried >= 4, tried)
    });
}

/// The end of the names of rows that ask a liveness API.
const MONITORED: &str = "-monitored";

#[test]
fn monitored_row_follows_its_plain_row() {
    let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    let monitored = names.iter().enumerate().filter_map(|(at, name)| {
        let plain = name.strip_suffix(MONITORED)?;
        Some((at.checked_sub(1).map(|before| names[before]), plain))
    });
    let pairs: Vec<_> = monitored.collect();
    assert_eq!(pairs.len(), 4, "{pairs:?}");
    assert!(pairs.iter().all(|(before, plain)| *before == Some(plain)), "{pairs:?}");
}

/// The peers whose documentation promises a notification must always give one. A robust mutex and a
/// file lock always show the death, but a wait for a condition variable may not return to the
/// check: in Boost's queue after one in eight kills.
#[test]
fn monitored_survivor_is_notified_and_its_plain_twin_is_not() {
    in_a_new_process("monitored_survivor_is_notified_and_its_plain_twin_is_not", || {
        for variant in VARIANTS.iter() {
            let Some(plain) = variant.name.strip_suffix(MONITORED) else { continue };
            let told = |fates: &[KillOutcome]| {
                fates.iter().filter(|fate| fate.notice_ns.is_some()).count()
            };
            let promised = ["iceoryx2", "zmq-ipc"].contains(&plain);
            let (least, deadline) = if promised { (KILLS, LONG) } else { (1, SHORT * 10) };
            let Some(mut with) = fates(variant.name, deadline)? else { continue };
            for _ in 0..20 {
                if promised || told(&with) >= least {
                    break;
                }
                with.extend(fates(variant.name, deadline)?.into_iter().flatten());
            }
            claim(told(&with) >= least, (variant.name, &with))?;
            let Some(without) = fates(plain, SHORT)? else { continue };
            claim(told(&without) == 0, (plain, &without))?;
        }
        Ok(())
    });
}

#[test]
fn unknown_survival_variant_fails() {
    let found = measure("pigeon", 1, SHORT).expect_err("there are no pigeons");
    assert!(found.why().contains("pigeon"), "{found}");
}

#[test]
fn survival_leaves_no_children() {
    in_a_process_of_its_own(|| {
        let children = || {
            let own = std::process::id();
            std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()
        };
        let before = children();
        measure("futex", KILLS, SHORT).map_err(|trouble| trouble.to_string())?;
        // If the kernel does not list children, no comparison is possible.
        claim(children() == before, (before, children()))
    });
}

/// An end that carries messages through a pipe, and tears or drops them after a certain number.
struct Bad<E> {
    pipe: E,
    from: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Tears,
    Swallows,
}

impl<E: TwoWay> Outlet for Bad<E> {
    fn send(
        &mut self,
        whole: &[u8],
        peers: &[PeerHandle<'_>],
    ) -> std::result::Result<(), TransferError> {
        let number = u64::from_ne_bytes(*whole.first_chunk().expect("a message"));
        if number < self.from {
            return self.pipe.send(whole, peers);
        }
        match self.what {
            What::Tears => {
                let mut mixed = message(number - 1);
                mixed[..8].copy_from_slice(&whole[..8]);
                self.pipe.send(&mixed, peers)
            }
            What::Swallows => Ok(()),
        }
    }
}

impl<E: TwoWay> Inlet for Bad<E> {
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> std::result::Result<R, TransferError> {
        self.pipe.receive(peers, look)
    }
}

impl<E: TwoWay> TwoWay for Bad<E> {}

/// Kills pairs whose ends misbehave from message 11 on, until a fate is as `expected`. By message
/// 11 the referee has seen messages pass, but on a busy machine it may kill before that message.
fn is_seen(what: What, expected: impl Fn(&KillOutcome) -> bool) -> std::result::Result<(), String> {
    let open = |half| Ok(Bad { pipe: Pipe::open::<BYTES>(half, &[])?, from: 11, what });
    for _ in 0..100 {
        let fates = kills(&plan(), || Pipe::pair(BYTES), open);
        if fates.map_err(|trouble| trouble.to_string())?.iter().any(&expected) {
            return Ok(());
        }
    }
    Err("not seen in a hundred attempts".into())
}

#[test]
fn torn_message_is_detected() {
    in_a_process_of_its_own(|| is_seen(What::Tears, |fate| fate.torn));
}

#[test]
fn dropped_message_counts_as_lost() {
    in_a_process_of_its_own(|| {
        is_seen(What::Swallows, |fate| fate.lost_with_sender || fate.lost_with_receiver)
    });
}
