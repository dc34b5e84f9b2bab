//! Every variant at a few kills; who wedges and who does not; what is torn and lost is seen.

use tontine_host::peer::in_a_process_of_its_own;

use super::message::{Claim, Message, message};
use super::player::{End, Ended};
use super::*;

const KILLS: usize = 4;

/// Long: a busy machine must not decide a test.
const PATIENT: Duration = Duration::from_secs(1);

/// The fates of a variant, or nothing where it is skipped.
fn fates(variant: &str) -> std::result::Result<Option<Vec<Fate>>, String> {
    match measure(variant, KILLS, PATIENT) {
        Ok(fates) => Ok(Some(fates)),
        Err(Trouble::Skipped(_)) => Ok(None),
        Err(trouble) => Err(format!("{variant}: {trouble}")),
    }
}

/// A claim inside a process whose panics nobody would see.
fn claim(holds: bool, what: impl std::fmt::Debug) -> std::result::Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what:?}")) }
}

fn plan() -> Plan {
    let allowed = pin::allowed().expect("affinity");
    let processors = [allowed[0], allowed[allowed.len() - 1]];
    let clock = Clock::calibrated();
    Plan { count: KILLS, processors, spins: false, deadline: PATIENT, clock }
}

#[test]
fn every_variant_has_a_fate_for_each_kill_and_tears_nothing() {
    in_a_process_of_its_own(|| {
        for variant in VARIANTS {
            let Some(fates) = fates(variant.name)? else { continue };
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
fn who_waits_for_memory_wedges_and_who_waits_for_a_connection_does_not() {
    in_a_process_of_its_own(|| {
        for wedges in ["semaphore-process", "futex", "eventfd", "posix-mq", "condvar"] {
            let fates = fates(wedges)?;
            let wedged = |fates: &Vec<Fate>| fates.iter().all(|fate| fate.notice_ns.is_none());
            claim(fates.as_ref().is_none_or(wedged), (wedges, &fates))?;
        }
        for notices in ["pipe", "unix-stream", "unix-seqpacket", "tcp-loopback"] {
            let fates = fates(notices)?;
            let noticed = |fates: &Vec<Fate>| fates.iter().all(|fate| fate.notice_ns.is_some());
            claim(fates.as_ref().is_none_or(noticed), (notices, &fates))?;
        }
        Ok(())
    });
}

#[test]
fn an_unknown_variant_fails() {
    let found = measure("pigeon", 1, PATIENT).expect_err("there are no pigeons");
    assert!(found.why().contains("pigeon"), "{found}");
}

#[test]
fn nobody_is_left_behind() {
    in_a_process_of_its_own(|| {
        let children = || {
            let own = std::process::id();
            std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()
        };
        let before = children();
        measure("futex", KILLS, PATIENT).map_err(|trouble| trouble.to_string())?;
        // Where the kernel does not list children there is nothing to compare.
        claim(children() == before, (before, children()))
    });
}

/// Carries messages through a pipe, cut short or swallowed from a number on.
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

impl<E: End> End for Bad<E> {
    fn send(&mut self, number: u64, whole: &Message) -> std::result::Result<(), Ended> {
        if number < self.from {
            return self.pipe.send(number, whole);
        }
        match self.what {
            What::Tears => {
                let mut mixed = message(number - 1);
                mixed[..8].copy_from_slice(&whole[..8]);
                self.pipe.send(number, &mixed)
            }
            What::Swallows => Ok(()),
        }
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        self.pipe.receive()
    }
}

/// The fates of pairs whose ends do that from message 11 on: late enough for the referee to see
/// the game begin.
fn fates_of(what: What) -> std::result::Result<Vec<Fate>, String> {
    let bad = |pipe| Bad { pipe, from: 11, what };
    let pair = || descriptor::pipes().map(|(one, two)| (bad(one), bad(two)));
    kills(&plan(), pair).map_err(|trouble| trouble.to_string())
}

#[test]
fn a_torn_message_is_seen() {
    in_a_process_of_its_own(|| {
        let fates = fates_of(What::Tears)?;
        claim(fates.iter().any(|fate| fate.torn), fates)
    });
}

#[test]
fn a_message_that_was_sent_and_never_came_is_lost() {
    in_a_process_of_its_own(|| {
        let fates = fates_of(What::Swallows)?;
        let lost = |fate: &Fate| fate.lost_with_sender || fate.lost_with_receiver;
        claim(fates.iter().any(lost), fates)
    });
}
