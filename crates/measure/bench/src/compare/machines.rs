//! A check that two runs were made on the same machine in the same state: [`differences`].
//!
//! Only facts that affect figures are compared: the processor, the kernel and its settings, and the
//! permissions of the process. Load and clock readings differ from run to run and are omitted. The
//! build of the program is compared separately ([`builds`]), because most comparisons are of two
//! builds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub fact: String,
    pub base: String,
    pub new: String,
}

/// Facts of the machine, as pointers into `machine`.
const MACHINE: [(&str, &str); 20] = [
    ("/processor/architecture", "architecture"),
    ("/processor/model", "processor"),
    ("/processor/online", "processors online"),
    ("/processor/allowed", "processors allowed"),
    ("/processor/sockets", "sockets"),
    ("/processor/caches", "caches"),
    ("/clock/stamps", "stamps from"),
    ("/scheduling/policy", "scheduling policy"),
    ("/scheduling/quota", "quota"),
    ("/power/governors", "governor"),
    ("/power/turbo", "turbo"),
    ("/kernel/release", "kernel release"),
    ("/kernel/preemption", "preemption"),
    ("/kernel/hz", "tick, Hz"),
    ("/kernel/mitigations", "mitigations"),
    ("/kernel/address_randomisation", "address randomisation"),
    ("/memory/huge_pages", "huge pages"),
    ("/virtualisation/hypervisor", "hypervisor"),
    ("/virtualisation/container", "container"),
    ("/virtualisation/call_filters", "system-call filters"),
];

/// Facts of the build.
const BUILD: [(&str, &str); 7] = [
    ("/build/version", "version"),
    ("/build/rustc", "rustc"),
    ("/build/target", "target"),
    ("/build/processor_features", "processor features"),
    ("/build/debug", "debug assertions"),
    ("/build/libc", "C library"),
    ("/build/peers", "libraries measured"),
];

/// Returns the facts that differ between two machines, except facts that are unknown on either
/// side.
pub fn differences(base: &Value, new: &Value) -> Vec<Difference> {
    among(&MACHINE, base, new)
}

/// Like [`differences`], but for the build of the program.
pub fn builds(base: &Value, new: &Value) -> Vec<Difference> {
    among(&BUILD, base, new)
}

fn among(facts: &[(&str, &str)], base: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    for (pointer, name) in facts {
        let known =
            |machine: &Value| machine.pointer(pointer).filter(|fact| !fact.is_null()).cloned();
        let (Some(base), Some(new)) = (known(base), known(new)) else { continue };
        if base == new {
            continue;
        }
        match (&base, &new) {
            // Only the entries of a map that differ are listed, so that they are easy to find.
            (Value::Object(ours), Value::Object(theirs)) => {
                let keys = ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(*key)));
                for key in keys.filter(|key| ours.get(*key) != theirs.get(*key)) {
                    found.push(Difference {
                        fact: format!("{name}: {key}"),
                        base: ours.get(key).map_or_else(|| "none".into(), said),
                        new: theirs.get(key).map_or_else(|| "none".into(), said),
                    });
                }
            }
            _ => {
                found.push(Difference { fact: (*name).into(), base: said(&base), new: said(&new) })
            }
        }
    }
    found
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(values) => values.iter().map(said).collect::<Vec<_>>().join(", "),
        Value::Object(entries) => {
            let each = entries.iter().map(|(name, value)| format!("{name} {}", said(value)));
            each.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn same_machine_yields_all_facts_and_no_differences() {
        let look = || crate::engine::machine_facts(&crate::machine::MachineFacts::look());
        let [one, other] = [look(), look()];
        assert_eq!(differences(&one, &other), []);
        assert_eq!(builds(&one, &other), []);
        for (pointer, name) in MACHINE.iter().chain(&BUILD) {
            assert!(one.pointer(pointer).is_some(), "{name}: no fact {pointer}");
        }
    }

    #[test]
    fn differing_facts_are_listed_and_unknown_ones_are_not() {
        let base = json!({ "kernel": { "release": "6.1", "hz": 250, "mitigations": { "x": "on" } },
            "load": { "last_minute": 0.1 }, "build": { "debug": false } });
        let new = json!({ "kernel": { "release": "6.2", "hz": null, "mitigations": { "x": "no" } },
            "load": { "last_minute": 9.0 }, "build": { "debug": true } });
        let found = differences(&base, &new);
        let names: Vec<&str> = found.iter().map(|one| one.fact.as_str()).collect();
        assert_eq!(names, ["kernel release", "mitigations: x"]);
        assert_eq!((found[1].base.as_str(), found[1].new.as_str()), ("on", "no"));
        assert_eq!(builds(&base, &new)[0].new, "yes");
    }
}
