//! Tests of every rule of advice with invented facts: one machine to which the rule applies, and
//! one to which it does not.

use std::collections::BTreeSet;

use Severity::{Note, Spoils};
use serde_json::json;

use super::super::limits::Limit;
use super::super::power::IdleState;
use super::super::timing::Offset;
use super::*;
use crate::clock::offset::Band;

fn words(all: &[&str]) -> Option<Vec<String>> {
    Some(all.iter().map(|&word| word.to_owned()).collect())
}

fn offset(low: i64, high: i64) -> Option<Offset> {
    let (low_ns, high_ns) = (low as f64, high as f64);
    Some(Offset { here: 0, there: 1, ticks: Band { low, high }, low_ns, high_ns })
}

fn idle(wake_us: u64, disabled: bool) -> Option<Vec<IdleState>> {
    Some(vec![IdleState { name: "C6".to_owned(), wake_us: Some(wake_us), disabled }])
}

fn limit(soft: Option<u64>) -> Option<Limit> {
    Some(Limit { soft, hard: None })
}

/// A rule's case: words of its finding, their severity, a machine to which the rule applies, and a
/// similar machine to which it does not apply.
type Case = (&'static str, Severity, MachineFacts, MachineFacts);

/// Sets a fact to its first value on a machine to which the rule applies, and to its second on one
/// to which it does not.
macro_rules! case {
    ($says:literal, $severity:ident, $($topic:ident.$fact:ident: $bad:expr => $good:expr),+) => {{
        let (mut bad, mut good) = (MachineFacts::default(), MachineFacts::default());
        $(
            bad.$topic.$fact = $bad;
            good.$topic.$fact = $good;
        )+
        ($says, $severity, bad, good)
    }};
}

fn cases() -> Vec<Case> {
    let is = |text: &str| Some(text.to_owned());
    let weak = |text: &str| Some([("meltdown".to_owned(), text.to_owned())].into());
    vec![
        case!("older than", Spoils, kernel.release: is("5.9.16") => is("5.10.0")),
        case!("older than", Spoils, kernel.release: is("4.19.0-6") => is("6.1.0")),
        case!("assertions", Spoils, build.debug: Some(true) => Some(false)),
        case!("constant rate", Spoils, clock.invariant_counter: Some(false) => Some(true)),
        case!("ns apart", Spoils, clock.offset: offset(5, 90) => offset(-40, 90)),
        case!("ns apart", Spoils, clock.offset: offset(-90, -5) => offset(0, 0)),
        case!("by hpet", Spoils, clock.system_source: is("hpet") => is("tsc")),
        case!(
            "by kvm-clock", Note,
            clock.system_source: is("kvm-clock") => is("kvm-clock"),
            clock.system_sources: words(&["kvm-clock", "tsc"]) => words(&["kvm-clock"])
        ),
        case!("one processor", Spoils, processor.allowed: Some(1) => Some(2)),
        case!("cgroup grants 1.50", Spoils, scheduling.quota: Some(1.5) => None),
        case!(
            "governor powersave", Spoils,
            power.governors: words(&["performance", "powersave"]) => words(&["performance"])
        ),
        case!("took 2.0 %", Spoils, virtualisation.stolen_share: Some(0.02) => Some(0.0005)),
        case!(
            "last minute", Spoils,
            processor.online: Some(4) => Some(8), load.last_minute: Some(1.5) => Some(1.5)
        ),
        case!("for a processor", Spoils, load.processor_pressure: Some(7.0) => Some(0.5)),
        case!("for memory", Spoils, load.memory_pressure: Some(7.0) => Some(0.5)),
        case!("virtual machine (KVM)", Note, virtualisation.hypervisor: is("KVM") => None),
        case!("not tested", Note, processor.architecture: is("aarch64") => is("x86_64")),
        case!(
            "2 of 8", Note,
            processor.allowed: Some(2) => Some(8), processor.online: Some(8) => Some(8)
        ),
        case!("hardware threads", Note, processor.siblings: words(&["0,4"]) => words(&[])),
        case!("turbo", Note, power.turbo: Some(true) => Some(false)),
        case!("takes 133 µs", Note, power.idle_states: idle(133, false) => idle(133, true)),
        case!("takes 21 µs", Note, power.idle_states: idle(21, false) => idle(20, false)),
        case!("to all processes", Note, memory.huge_pages: is("always") => is("madvise")),
        case!("merges", Note, memory.merging: Some(true) => Some(false)),
        case!("layout", Note, kernel.address_randomisation: Some(0) => Some(2)),
        case!("filter(s)", Note, virtualisation.call_filters: Some(1) => Some(0)),
        case!(
            "mitigation(s)", Note,
            kernel.mitigations: weak("Mitigation: PTI") => weak("Vulnerable")
        ),
        case!("256 descriptors", Note, limits.open_files: limit(Some(256)) => limit(None)),
        case!(
            "100 processes", Note,
            limits.processes: limit(Some(100)) => limit(Some(100)),
            limits.root: Some(false) => Some(true)
        ),
        case!("/dev/shm", Note, memory.shared_by_name: Some(false) => Some(true)),
        case!(
            "ptrace_scope = 2", Note,
            kernel.ptrace_scope: Some(2) => Some(2), limits.root: Some(false) => Some(true)
        ),
        case!(
            "ptrace_scope = 3", Note,
            kernel.ptrace_scope: Some(3) => Some(1), limits.root: Some(true) => Some(false)
        ),
    ]
}

#[test]
fn each_rule_matches_only_its_bad_machine() {
    assert_eq!(advice(&MachineFacts::default()), [], "unknown facts give no advice");
    for (says, severity, bad, good) in cases() {
        let found = advice(&bad);
        let [one] = &found[..] else { panic!("{says}: {found:?}") };
        assert!(one.finding.contains(says), "{says}: {one:?}");
        assert_eq!(one.severity, severity, "{says}");
        assert_eq!(advice(&good), [], "{says}: found on the sound machine");
        assert!(json!(bad).get(one.topic).is_some(), "{}", one.topic);
    }
    let remedies: BTreeSet<&str> = RULES.iter().map(|rule| rule.remedy).collect();
    for bound in [OPEN_FILES, PROCESSES, DEEP_WAKE_US] {
        assert!(remedies.iter().any(|remedy| remedy.ends_with(&bound.to_string())), "{bound}");
    }
    let mut machine = MachineFacts::default();
    machine.power.turbo = Some(true);
    machine.build.debug = Some(true);
    assert!(advice(&machine).is_sorted_by_key(|one| one.severity));
}
