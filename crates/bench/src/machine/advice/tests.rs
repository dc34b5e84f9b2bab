//! Tests of every rule of advice with invented facts: one machine to which the rule applies, and
//! one to which it does not.

use std::collections::{BTreeMap, BTreeSet};

use tontine_host::clock::offset::Band;

use super::super::limits::Limit;
use super::super::power::IdleState;
use super::super::timing::Offset;
use super::*;

/// Words of one rule's finding, facts to which the rule applies, and similar facts to which it does
/// not.
struct Case {
    says: &'static str,
    severity: Severity,
    bad: fn(&mut MachineFacts),
    good: fn(&mut MachineFacts),
}

const fn case(
    says: &'static str,
    severity: Severity,
    bad: fn(&mut MachineFacts),
    good: fn(&mut MachineFacts),
) -> Case {
    Case { says, severity, bad, good }
}

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

fn weakness(text: &str) -> Option<BTreeMap<String, String>> {
    Some(BTreeMap::from([("meltdown".to_owned(), text.to_owned())]))
}

use Severity::{Note, Spoils};

const CASES: [Case; 30] = [
    case(
        "older than",
        Spoils,
        |m| m.kernel.release = Some("5.9.16".into()),
        |m| {
            m.kernel.release = Some("5.10.0".into());
        },
    ),
    case(
        "older than",
        Spoils,
        |m| m.kernel.release = Some("4.19.0-6".into()),
        |m| {
            m.kernel.release = Some("6.1.0".into());
        },
    ),
    case("assertions", Spoils, |m| m.build.debug = Some(true), |m| m.build.debug = Some(false)),
    case(
        "constant rate",
        Spoils,
        |m| m.clock.invariant_counter = Some(false),
        |m| {
            m.clock.invariant_counter = Some(true);
        },
    ),
    case(
        "ns apart",
        Spoils,
        |m| m.clock.offset = offset(5, 90),
        |m| {
            m.clock.offset = offset(-40, 90);
        },
    ),
    case(
        "ns apart",
        Spoils,
        |m| m.clock.offset = offset(-90, -5),
        |m| {
            m.clock.offset = offset(0, 0);
        },
    ),
    case(
        "by hpet",
        Spoils,
        |m| m.clock.system_source = Some("hpet".into()),
        |m| {
            m.clock.system_source = Some("tsc".into());
        },
    ),
    case(
        "by kvm-clock",
        Note,
        |m| {
            m.clock.system_source = Some("kvm-clock".into());
            m.clock.system_sources = words(&["kvm-clock", "tsc"]);
        },
        |m| {
            m.clock.system_source = Some("kvm-clock".into());
            m.clock.system_sources = words(&["kvm-clock"]);
        },
    ),
    case(
        "one processor",
        Spoils,
        |m| m.processor.allowed = Some(1),
        |m| {
            m.processor.allowed = Some(2);
        },
    ),
    case(
        "cgroup grants 1.50",
        Spoils,
        |m| m.scheduling.quota = Some(1.5),
        |m| {
            m.scheduling.quota = None;
        },
    ),
    case(
        "governor powersave",
        Spoils,
        |m| m.power.governors = words(&["performance", "powersave"]),
        |m| m.power.governors = words(&["performance"]),
    ),
    case(
        "took 2.0 %",
        Spoils,
        |m| m.virtualisation.stolen_share = Some(0.02),
        |m| {
            m.virtualisation.stolen_share = Some(0.0005);
        },
    ),
    case(
        "last minute",
        Spoils,
        |m| (m.processor.online, m.load.last_minute) = (Some(4), Some(1.5)),
        |m| (m.processor.online, m.load.last_minute) = (Some(8), Some(1.5)),
    ),
    case(
        "for a processor",
        Spoils,
        |m| m.load.processor_pressure = Some(7.0),
        |m| {
            m.load.processor_pressure = Some(0.5);
        },
    ),
    case(
        "for memory",
        Spoils,
        |m| m.load.memory_pressure = Some(7.0),
        |m| {
            m.load.memory_pressure = Some(0.5);
        },
    ),
    case(
        "virtual machine (KVM)",
        Note,
        |m| m.virtualisation.hypervisor = Some("KVM".into()),
        |m| {
            m.virtualisation.hypervisor = None;
        },
    ),
    case(
        "not tested",
        Note,
        |m| m.processor.architecture = Some("aarch64".into()),
        |m| {
            m.processor.architecture = Some("x86_64".into());
        },
    ),
    case(
        "2 of 8",
        Note,
        |m| (m.processor.allowed, m.processor.online) = (Some(2), Some(8)),
        |m| (m.processor.allowed, m.processor.online) = (Some(8), Some(8)),
    ),
    case(
        "hardware threads",
        Note,
        |m| m.processor.siblings = words(&["0,4"]),
        |m| {
            m.processor.siblings = Some(vec![]);
        },
    ),
    case("turbo", Note, |m| m.power.turbo = Some(true), |m| m.power.turbo = Some(false)),
    case(
        "takes 133 µs",
        Note,
        |m| m.power.idle_states = idle(133, false),
        |m| {
            m.power.idle_states = idle(133, true);
        },
    ),
    case(
        "takes 21 µs",
        Note,
        |m| m.power.idle_states = idle(21, false),
        |m| {
            m.power.idle_states = idle(20, false);
        },
    ),
    case(
        "to all processes",
        Note,
        |m| m.memory.huge_pages = Some("always".into()),
        |m| {
            m.memory.huge_pages = Some("madvise".into());
        },
    ),
    case("merges", Note, |m| m.memory.merging = Some(true), |m| m.memory.merging = Some(false)),
    case(
        "layout",
        Note,
        |m| m.kernel.address_randomisation = Some(0),
        |m| {
            m.kernel.address_randomisation = Some(2);
        },
    ),
    case(
        "filter(s)",
        Note,
        |m| m.virtualisation.call_filters = Some(1),
        |m| {
            m.virtualisation.call_filters = Some(0);
        },
    ),
    case(
        "mitigation(s)",
        Note,
        |m| m.kernel.mitigations = weakness("Mitigation: PTI"),
        |m| {
            m.kernel.mitigations = weakness("Vulnerable");
        },
    ),
    case(
        "256 descriptors",
        Note,
        |m| m.limits.open_files = limit(Some(256)),
        |m| {
            m.limits.open_files = limit(None);
        },
    ),
    case(
        "100 processes",
        Note,
        |m| (m.limits.processes, m.limits.root) = (limit(Some(100)), Some(false)),
        |m| (m.limits.processes, m.limits.root) = (limit(Some(100)), Some(true)),
    ),
    case(
        "/dev/shm",
        Note,
        |m| m.memory.shared_by_name = Some(false),
        |m| {
            m.memory.shared_by_name = Some(true);
        },
    ),
];

#[test]
fn each_rule_matches_only_its_bad_machine() {
    for Case { says, severity, bad, good } in CASES {
        let (mut spoilt, mut sound) = (MachineFacts::default(), MachineFacts::default());
        bad(&mut spoilt);
        good(&mut sound);
        let found = advice(&spoilt);
        let matching: Vec<_> = found.iter().filter(|one| one.finding.contains(says)).collect();
        assert_eq!(matching.len(), 1, "{says}: {found:?}");
        assert_eq!(matching[0].severity, severity, "{says}");
        assert_eq!(advice(&sound), [], "{says}: found on the sound machine");
    }
}

#[test]
fn tracing_advice_depends_on_scope_and_privilege() {
    let says = |scope, root| {
        let mut machine = MachineFacts::default();
        machine.kernel.ptrace_scope = Some(scope);
        machine.limits.root = Some(root);
        advice(&machine).len()
    };
    assert_eq!((says(1, false), says(2, false), says(2, true), says(3, true)), (0, 1, 0, 1));
}

#[test]
fn unknown_facts_give_no_advice() {
    assert_eq!(advice(&MachineFacts::default()), []);
}

#[test]
fn advice_is_sorted_by_severity_with_known_topics() {
    let mut machine = MachineFacts::default();
    for Case { bad, .. } in CASES {
        bad(&mut machine);
    }
    let found = advice(&machine);
    assert!(found.is_sorted_by_key(|one| one.severity));
    let facts = serde_json::to_value(&machine).expect("facts become JSON");
    let topics: BTreeSet<&str> = found.iter().map(|one| one.topic).collect();
    for topic in topics {
        assert!(facts.get(topic).is_some(), "{topic}");
    }
}
