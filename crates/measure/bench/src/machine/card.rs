//! The facts as rows, for a terminal and for a page: [`card`].
//!
//! A fact that could not be read is omitted, as is a topic without facts. Values include their
//! units.

use super::limits::Limit;
use super::{MachineFacts, build, kernel, limits, load, memory, power, processor};
use super::{scheduling, timing, virtualisation};

/// A name and a value.
type CardRow = (String, String);

pub fn card(machine: &MachineFacts) -> Vec<(String, Vec<CardRow>)> {
    [
        ("processor", processor_rows(&machine.processor)),
        ("clock", clock_rows(&machine.clock)),
        ("scheduling", scheduling_rows(&machine.scheduling)),
        ("power", power_rows(&machine.power)),
        ("kernel", kernel_rows(&machine.kernel)),
        ("memory", memory_rows(&machine.memory)),
        ("virtualisation", virtualisation_rows(&machine.virtualisation)),
        ("load", load_rows(&machine.load)),
        ("limits", limits_rows(&machine.limits)),
        ("build", build_rows(&machine.build)),
    ]
    .into_iter()
    .filter(|(_, rows)| !rows.is_empty())
    .map(|(topic, rows)| (topic.to_owned(), rows))
    .collect()
}

/// Returns the rows that have a value.
fn known<const N: usize>(rows: [(&str, Option<String>); N]) -> Vec<CardRow> {
    rows.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn processor_rows(facts: &processor::ProcessorFacts) -> Vec<CardRow> {
    let mut rows = known([
        ("model", facts.model.clone()),
        ("architecture", facts.architecture.clone()),
        ("online", text(facts.online)),
        ("allowed", text(facts.allowed)),
        ("sockets", text(facts.sockets)),
        ("hardware threads of one core", list(facts.siblings.as_deref())),
        ("isolated", list(facts.isolated.as_deref())),
        ("without a periodic tick", list(facts.tickless.as_deref())),
    ]);
    rows.extend(facts.caches.iter().flatten().map(|cache| {
        let line = cache.line_bytes.map(|bytes| format!(", lines of {bytes} bytes"));
        let (level, kind) = (cache.level, cache.kind.to_lowercase());
        (
            format!("level {level} {kind} cache of {}", cache.shared_by),
            format!("{}{}", cache_size(&cache.size), line.unwrap_or_default()),
        )
    }));
    rows
}

fn clock_rows(facts: &timing::Timing) -> Vec<CardRow> {
    let offset = facts.offset.map(|offset| {
        let (low, high) = (offset.low_ns, offset.high_ns);
        format!("{low:.1} to {high:.1} ns, processor {} to {}", offset.here, offset.there)
    });
    known([
        ("stamps from", facts.stamps.clone()),
        ("counter of constant rate", yes(facts.invariant_counter)),
        ("kernel's source", facts.system_source.clone()),
        ("other sources", list(facts.system_sources.as_deref())),
        ("tick", facts.ns_per_tick.map(|ns| format!("{ns:.4} ns"))),
        ("smallest step", nanoseconds(facts.granularity_ns)),
        ("empty pair of stamps", nanoseconds(facts.empty_pair_ns)),
        ("clock_gettime", nanoseconds(facts.clock_gettime_ns)),
        ("offset between counters", offset),
    ])
}

fn scheduling_rows(facts: &scheduling::Scheduling) -> Vec<CardRow> {
    known([
        ("affinity", list(facts.affinity.as_deref())),
        ("policy", facts.policy.clone()),
        ("nice", text(facts.nice)),
        ("cgroup", facts.cgroup.clone()),
        ("quota", facts.quota.map(|quota| format!("{quota:.2} processors"))),
        ("throttled", facts.throttled_periods.map(|periods| format!("{periods} periods"))),
        ("throttled for", facts.throttled_ms.map(|ms| format!("{ms:.0} ms"))),
    ])
}

fn power_rows(facts: &power::Power) -> Vec<CardRow> {
    let range = facts.frequency_khz;
    let range = range.map(|(low, high)| format!("{} to {} MHz", low / 1000, high / 1000));
    let states = facts.idle_states.as_ref().map(|states| {
        let one = |state: &power::IdleState| {
            let wake = state.wake_us.map(|us| format!(" {us} µs")).unwrap_or_default();
            format!("{}{wake}{}", state.name, if state.disabled { " (off)" } else { "" })
        };
        states.iter().map(one).collect::<Vec<_>>().join(", ")
    });
    known([
        ("frequency driver", facts.frequency_driver.clone()),
        ("governor", list(facts.governors.as_deref())),
        ("frequency", range),
        ("turbo", yes(facts.turbo)),
        ("idle driver", facts.idle_driver.clone()),
        ("idle states, time to wake", states),
    ])
}

fn kernel_rows(facts: &kernel::KernelFacts) -> Vec<CardRow> {
    let mut rows = known([
        ("release", facts.release.clone()),
        ("preemption", facts.preemption.clone()),
        ("tick", facts.hz.map(|hz| format!("{hz} Hz"))),
        ("address randomisation", text(facts.address_randomisation)),
        ("ptrace scope", text(facts.ptrace_scope)),
        ("perf paranoia", text(facts.perf_event_paranoid)),
        ("boot options", list(facts.boot_options.as_deref())),
    ]);
    let weaknesses = facts.mitigations.iter().flatten();
    rows.extend(weaknesses.map(|(name, what)| (name.replace('_', " "), what.clone())));
    rows
}

fn memory_rows(facts: &memory::MemoryFacts) -> Vec<CardRow> {
    known([
        ("total", facts.total_bytes.map(binary)),
        ("available", facts.available_bytes.map(binary)),
        ("swap", facts.swap_bytes.map(binary)),
        ("page", facts.page_bytes.map(binary)),
        ("huge pages", facts.huge_pages.clone()),
        ("merging of equal pages", yes(facts.merging)),
        ("nodes", text(facts.nodes)),
        ("/dev/shm", yes(facts.shared_by_name)),
    ])
}

fn virtualisation_rows(facts: &virtualisation::Virtualisation) -> Vec<CardRow> {
    let none_seen = |fact: &Option<String>| fact.clone().or(Some("none seen".to_owned()));
    let share = facts.stolen_share.map(|share| format!("{:.2} %", share * 100.0));
    known([
        ("hypervisor", none_seen(&facts.hypervisor)),
        ("stolen since boot", facts.stolen_ms.map(|ms| format!("{ms:.0} ms"))),
        ("stolen of busy time", share),
        ("container", none_seen(&facts.container)),
        ("system-call filters", text(facts.call_filters)),
        ("Docker engine", none_seen(&facts.docker_engine)),
    ])
}

fn load_rows(facts: &load::LoadFacts) -> Vec<CardRow> {
    let tasks = |load: Option<f64>| load.map(|load| format!("{load:.2} tasks"));
    let waited = |pressure: Option<f64>| pressure.map(|share| format!("{share:.2} % of 10 s"));
    let rate = |rate: Option<f64>| rate.map(|rate| format!("{rate:.0} per second"));
    known([
        ("last minute", tasks(facts.last_minute)),
        ("last five minutes", tasks(facts.last_five_minutes)),
        ("runnable now", text(facts.runnable)),
        ("waited for a processor", waited(facts.processor_pressure)),
        ("waited for memory", waited(facts.memory_pressure)),
        ("waited for input and output", waited(facts.io_pressure)),
        ("interrupts", rate(facts.interrupts_per_s)),
        ("context switches", rate(facts.switches_per_s)),
    ])
}

fn limits_rows(facts: &limits::LimitFacts) -> Vec<CardRow> {
    let count = |limit: Option<Limit>| bounds(limit, |number| number.to_string());
    let bytes = |limit: Option<Limit>| bounds(limit, binary);
    known([
        ("open files", count(facts.open_files)),
        ("processes", count(facts.processes)),
        ("locked memory", bytes(facts.locked_bytes)),
        ("stack", bytes(facts.stack_bytes)),
        ("pending signals", count(facts.pending_signals)),
        ("message queues", bytes(facts.message_queue_bytes)),
        ("real-time priority", count(facts.real_time_priority)),
        ("address space", bytes(facts.address_space_bytes)),
        ("root", yes(facts.root)),
    ])
}

fn build_rows(facts: &build::Build) -> Vec<CardRow> {
    let mut rows = known([
        ("version", facts.version.clone()),
        ("rustc", facts.rustc.clone()),
        ("lowest Rust", facts.lowest_rust.clone()),
        ("target", facts.target.clone()),
        ("processor features", list(facts.processor_features.as_deref())),
        ("debug assertions", yes(facts.debug)),
        ("C library", facts.libc.clone()),
    ]);
    let peers = facts.peers.iter().flatten();
    rows.extend(peers.map(|(name, version)| (name.clone(), version.clone())));
    rows
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn list(values: Option<&[impl ToString]>) -> Option<String> {
    let values: Vec<String> = values?.iter().map(ToString::to_string).collect();
    Some(if values.is_empty() { "none".to_owned() } else { values.join(", ") })
}

fn yes(fact: Option<bool>) -> Option<String> {
    fact.map(|fact| if fact { "yes" } else { "no" }.to_owned())
}

fn nanoseconds(ns: Option<f64>) -> Option<String> {
    ns.map(|ns| format!("{ns:.1} ns"))
}

fn bounds(limit: Option<Limit>, show: impl Fn(u64) -> String) -> Option<String> {
    let one = |bound: Option<u64>| bound.map_or_else(|| "unlimited".to_owned(), &show);
    limit.map(|limit| {
        let (soft, hard) = (one(limit.soft), one(limit.hard));
        if soft == hard { soft } else { format!("{soft}, at most {hard}") }
    })
}

/// Formats a cache size, which the kernel always writes in the form `1024K`.
fn cache_size(size: &str) -> String {
    let kib = size.strip_suffix('K').and_then(|kib| kib.parse::<u64>().ok());
    kib.map_or_else(|| size.to_owned(), |kib| binary(kib * 1024))
}

/// Formats an amount of memory in the largest unit of which it contains at least one.
fn binary(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_facts_have_no_row_and_known_ones_have_units() {
        let mut machine = MachineFacts::default();
        let topics: Vec<String> = card(&machine).into_iter().map(|(topic, _)| topic).collect();
        assert_eq!(topics, ["virtualisation"], "only signs that were looked for in vain");
        machine.kernel.hz = Some(250);
        machine.limits.stack_bytes = Some(Limit { soft: Some(8 << 20), hard: None });
        let rows = card(&machine);
        let of = |wanted: &str| {
            let (_, rows) = rows.iter().find(|(topic, _)| topic == wanted).expect("a topic");
            rows.clone()
        };
        assert_eq!(of("kernel"), [("tick".to_owned(), "250 Hz".to_owned())]);
        let stack = ("stack".to_owned(), "8 MiB, at most unlimited".to_owned());
        assert_eq!(of("limits"), [stack]);
    }

    #[test]
    fn amounts_of_memory_have_binary_units() {
        assert_eq!(binary(0), "0 bytes");
        assert_eq!(binary(4096), "4 KiB");
        assert_eq!(binary(3 << 19), "1.5 MiB");
        assert_eq!(cache_size("1024K"), "1 MiB");
        assert_eq!(cache_size("unknown"), "unknown");
    }
}
