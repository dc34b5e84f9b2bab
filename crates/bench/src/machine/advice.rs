//! Advice on facts that spoil measurements, with their remedies: [`advice`].
//!
//! Each rule is a pure function of the [`MachineFacts`]; no rule reads or changes the system. An
//! unknown fact causes no advice.

use serde::Serialize;

use super::MachineFacts;

/// Lowest kernel version that this project supports: major and minor.
pub const LOWEST_KERNEL: (u32, u32) = (5, 10);

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Figures of this machine are not reliable until the problem is fixed.
    Spoils,
    /// Figures are valid for a machine with this property, which matters in comparisons.
    Note,
}

/// A finding and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The topic to which the fact belongs, as in [`MachineFacts`].
    pub topic: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// The finding.
    pub finding: String,
    /// Effect on figures.
    pub effect: &'static str,
    /// The remedy, as a command if possible.
    pub mend: String,
}

/// Share of busy time above which stolen time spoils figures.
const STOLEN_SHARE: f64 = 0.001;
/// Share of the processors that may be busy with other work.
const BUSY_SHARE: f64 = 0.25;
/// Pressure, as a percentage of time, above which tasks wait noticeably.
const PRESSURE: f64 = 5.0;
/// Wake-up time of an idle state, in µs, above which it affects every blocking row.
const DEEP_WAKE_US: u64 = 20;
/// Number of descriptors that the largest experiments open, plus a margin.
const OPEN_FILES: u64 = 1024;
/// Number of processes and threads that the largest experiments start, plus a margin.
const PROCESSES: u64 = 512;

type Rule = fn(&MachineFacts) -> Option<Advice>;

const RULES: [Rule; 27] = [
    kernel_too_old,
    debug_build,
    counter_not_invariant,
    counters_apart,
    system_clock_slow,
    one_processor,
    quota,
    governor,
    stolen,
    busy,
    processor_pressure,
    memory_pressure,
    virtual_machine,
    architecture_untested,
    affinity,
    siblings,
    turbo,
    deep_idle,
    huge_pages,
    merging,
    layout_fixed,
    call_filters,
    mitigations,
    few_files,
    few_processes,
    no_shared_memory,
    tracing_forbidden,
];

/// Returns the findings on `machine`, the most severe first.
pub fn advice(machine: &MachineFacts) -> Vec<Advice> {
    let mut found: Vec<Advice> = RULES.iter().filter_map(|rule| rule(machine)).collect();
    found.sort_by_key(|advice| advice.severity);
    found
}

fn spoils(
    topic: &'static str,
    finding: impl Into<String>,
    effect: &'static str,
    mend: impl Into<String>,
) -> Option<Advice> {
    let (severity, finding, mend) = (Severity::Spoils, finding.into(), mend.into());
    Some(Advice { topic, severity, finding, effect, mend })
}

fn note(
    topic: &'static str,
    finding: impl Into<String>,
    effect: &'static str,
    mend: impl Into<String>,
) -> Option<Advice> {
    let severity = Severity::Note;
    spoils(topic, finding, effect, mend).map(|advice| Advice { severity, ..advice })
}

fn kernel_too_old(machine: &MachineFacts) -> Option<Advice> {
    let (major, minor) = machine.kernel.version()?;
    ((major, minor) < LOWEST_KERNEL).then(|| {
        spoils(
            "kernel",
            format!("Linux {major}.{minor} is older than the lowest supported kernel"),
            "system calls that the experiments need are missing; their rows are skipped or fail",
            format!("run Linux {}.{} or newer", LOWEST_KERNEL.0, LOWEST_KERNEL.1),
        )
    })?
}

fn debug_build(machine: &MachineFacts) -> Option<Advice> {
    (machine.build.debug?).then(|| {
        spoils(
            "build",
            "built with debug assertions",
            "short operations are measured together with overflow and assertion checks",
            "build with `cargo run --release`",
        )
    })?
}

fn counter_not_invariant(machine: &MachineFacts) -> Option<Advice> {
    (!machine.clock.invariant_counter?).then(|| {
        spoils(
            "clock",
            "the processor does not guarantee a counter of constant rate",
            "stamps come from clock_gettime, which is coarser and takes longer",
            "in a virtual machine, pass the host's counter through (QEMU: `-cpu host,+invtsc`)",
        )
    })?
}

fn counters_apart(machine: &MachineFacts) -> Option<Advice> {
    let offset = machine.clock.offset?;
    (offset.ticks.low > 0 || offset.ticks.high < 0).then(|| {
        spoils(
            "clock",
            format!(
                "counters of processors {} and {} are {:.0} to {:.0} ns apart",
                offset.here, offset.there, offset.low_ns, offset.high_ns
            ),
            "differences of stamps from two processors carry this offset; round trips do not",
            "rely on rows that stamp on one processor; update the firmware",
        )
    })?
}

fn system_clock_slow(machine: &MachineFacts) -> Option<Advice> {
    let source = machine.clock.system_source.as_deref()?;
    let fast = ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"];
    if !fast.contains(&source) {
        return spoils(
            "clock",
            format!("the kernel keeps time by {source}"),
            "clock_gettime becomes a system call or a slow device access",
            "find out why the kernel rejected the counter (`dmesg | grep -i clocksource`); boot \
             with `tsc=reliable` if it is sound",
        );
    }
    let others = machine.clock.system_sources.as_ref()?;
    (source == "kvm-clock" && others.iter().any(|other| other == "tsc")).then(|| {
        note(
            "clock",
            "the kernel keeps time by kvm-clock although it has the counter",
            "clock_gettime takes a little longer, and the conversion may be adjusted",
            "echo tsc | sudo tee \
             /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
    })?
}

fn one_processor(machine: &MachineFacts) -> Option<Advice> {
    (machine.processor.allowed? == 1).then(|| {
        let fenced = machine.processor.online.is_some_and(|online| online > 1);
        spoils(
            "processor",
            "one processor for both ends",
            "nothing runs in parallel: spinning rows measure the scheduler, some are skipped",
            if fenced {
                "allow more: `taskset --cpu-list 0-1 …`, `docker run --cpuset-cpus 0-1 …`"
            } else {
                "use a machine with two processors or more"
            },
        )
    })?
}

fn quota(machine: &MachineFacts) -> Option<Advice> {
    let quota = machine.scheduling.quota?;
    let periods = machine.scheduling.throttled_periods.unwrap_or(0);
    spoils(
        "scheduling",
        format!("the cgroup grants {quota:.2} processors; throttled in {periods} periods so far"),
        "a busy experiment is stopped for tens of milliseconds at a time",
        "run outside the limited cgroup; with Docker, without `--cpus`",
    )
}

fn governor(machine: &MachineFacts) -> Option<Advice> {
    let governors = machine.power.governors.as_ref()?;
    let slow: Vec<&str> = governors
        .iter()
        .map(String::as_str)
        .filter(|governor| *governor != "performance")
        .collect();
    (!slow.is_empty()).then(|| {
        spoils(
            "power",
            format!("frequency governor {}", slow.join(", ")),
            "the clock rate follows the load: short and blocking rows are measured at a low one",
            "sudo cpupower frequency-set --governor performance",
        )
    })?
}

fn stolen(machine: &MachineFacts) -> Option<Advice> {
    let share = machine.virtualisation.stolen_share?;
    (share >= STOLEN_SHARE).then(|| {
        spoils(
            "virtualisation",
            format!("the hypervisor took {:.1} % of the processor time since boot", share * 100.0),
            "samples contain pauses of milliseconds: other virtual machines set the tails and \
             maxima",
            "measure on a dedicated machine or on dedicated processors; check each row's stolen \
             time",
        )
    })?
}

fn busy(machine: &MachineFacts) -> Option<Advice> {
    let load = machine.load.last_minute?;
    (load > machine.processor.online? as f64 * BUSY_SHARE).then(|| {
        spoils(
            "load",
            format!("{load:.2} tasks were runnable over the last minute"),
            "experiments compete for processors and caches",
            "stop other programs (`ps -eo pcpu,comm --sort -pcpu | head`), and wait a minute",
        )
    })?
}

fn processor_pressure(machine: &MachineFacts) -> Option<Advice> {
    let pressure = machine.load.processor_pressure?;
    (pressure >= PRESSURE).then(|| {
        spoils(
            "load",
            format!("tasks waited for a processor in {pressure:.1} % of the last ten seconds"),
            "wake-ups queue behind other work",
            "stop other programs (`ps -eo pcpu,comm --sort -pcpu | head`)",
        )
    })?
}

fn memory_pressure(machine: &MachineFacts) -> Option<Advice> {
    let pressure = machine.load.memory_pressure?;
    (pressure >= PRESSURE).then(|| {
        spoils(
            "load",
            format!("tasks waited for memory in {pressure:.1} % of the last ten seconds"),
            "samples contain page faults and reclaim",
            "free memory (`ps -eo rss,comm --sort -rss | head`)",
        )
    })?
}

fn virtual_machine(machine: &MachineFacts) -> Option<Advice> {
    let hypervisor = machine.virtualisation.hypervisor.as_deref()?;
    note(
        "virtualisation",
        format!("virtual machine ({hypervisor})"),
        "idling, timers and interrupts between processors exit to the hypervisor and cost more \
         than on bare metal",
        "compare only with figures of the same kind of machine",
    )
}

fn architecture_untested(machine: &MachineFacts) -> Option<Advice> {
    let architecture = machine.processor.architecture.as_deref()?;
    (architecture != "x86_64").then(|| {
        note(
            "processor",
            format!("architecture {architecture}: supported, not tested"),
            "stamps and memory orders follow its manual, and have not been checked on it",
            "compare a few rows with another tool, and report the result",
        )
    })?
}

fn affinity(machine: &MachineFacts) -> Option<Advice> {
    let (allowed, online) = (machine.processor.allowed?, machine.processor.online?);
    (1 < allowed && allowed < online).then(|| {
        note(
            "scheduling",
            format!("this process may use {allowed} of {online} processors"),
            "placements and curves stay within them; the load of the others is not visible",
            "to use all: `taskset --all-tasks --cpu-list 0-… …`, or lift the cpuset",
        )
    })?
}

fn siblings(machine: &MachineFacts) -> Option<Advice> {
    let siblings = machine.processor.siblings.as_ref()?;
    (!siblings.is_empty()).then(|| {
        note(
            "processor",
            format!("cores run several hardware threads ({})", siblings.join("; ")),
            "a task on the sibling takes up to half of the core",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control",
        )
    })?
}

fn turbo(machine: &MachineFacts) -> Option<Advice> {
    (machine.power.turbo?).then(|| {
        note(
            "power",
            "turbo is on",
            "the rate depends on temperature and on how many cores are busy",
            "Intel: `echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`; others: \
             `echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`",
        )
    })?
}

fn deep_idle(machine: &MachineFacts) -> Option<Advice> {
    let wake_us = machine.power.deepest_wake_us()?;
    (wake_us > DEEP_WAKE_US).then(|| {
        note(
            "power",
            format!("idle processors may sleep so deeply that waking takes {wake_us} µs"),
            "blocking rows grow with the pause between messages",
            format!("sudo cpupower idle-set --disable-by-latency {DEEP_WAKE_US}"),
        )
    })?
}

fn huge_pages(machine: &MachineFacts) -> Option<Advice> {
    (machine.memory.huge_pages.as_deref()? == "always").then(|| {
        note(
            "memory",
            "huge pages are given to all processes",
            "a fault may clear 2 MiB, and background merging moves memory: fork and allocator \
             rows vary",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    })?
}

fn merging(machine: &MachineFacts) -> Option<Advice> {
    (machine.memory.merging?).then(|| {
        note(
            "memory",
            "the kernel merges equal pages",
            "its scanner takes processor time, and a write to a merged page faults",
            "echo 0 | sudo tee /sys/kernel/mm/ksm/run",
        )
    })?
}

fn layout_fixed(machine: &MachineFacts) -> Option<Advice> {
    (machine.kernel.address_randomisation? == 0).then(|| {
        note(
            "kernel",
            "address layout is not randomised",
            "every invocation repeats one layout: intervals do not include the effect of others",
            "sudo sysctl kernel.randomize_va_space=2",
        )
    })?
}

fn call_filters(machine: &MachineFacts) -> Option<Advice> {
    let filters = machine.virtualisation.call_filters?;
    (filters > 0).then(|| {
        note(
            "virtualisation",
            format!("every system call passes {filters} filter(s)"),
            "each call takes longer than without, and some are refused",
            "run outside the sandbox; with Docker, `--security-opt seccomp=unconfined`",
        )
    })?
}

fn mitigations(machine: &MachineFacts) -> Option<Advice> {
    let all = machine.kernel.mitigations.as_ref()?;
    let active = all.values().filter(|text| text.starts_with("Mitigation")).count();
    (active > 0).then(|| {
        note(
            "kernel",
            format!("{active} mitigation(s) of processor weaknesses are active"),
            "system calls and context switches take longer than on a machine without",
            "leave them on; compare only with machines that have the same",
        )
    })?
}

fn few_files(machine: &MachineFacts) -> Option<Advice> {
    let soft = machine.limits.open_files?.soft?;
    (soft < OPEN_FILES).then(|| {
        note(
            "limits",
            format!("{soft} descriptors per process"),
            "rows that open more are skipped",
            format!("ulimit -n {OPEN_FILES}"),
        )
    })?
}

fn few_processes(machine: &MachineFacts) -> Option<Advice> {
    let soft = machine.limits.processes?.soft?;
    (soft < PROCESSES && !machine.limits.root?).then(|| {
        note(
            "limits",
            format!("{soft} processes per user"),
            "rows that start more are skipped",
            format!("ulimit -u {PROCESSES}"),
        )
    })?
}

fn no_shared_memory(machine: &MachineFacts) -> Option<Advice> {
    (!machine.memory.shared_by_name?).then(|| {
        note(
            "memory",
            "there is no /dev/shm",
            "rows that share memory or semaphores by name are skipped",
            "sudo mkdir -p /dev/shm && sudo mount -t tmpfs tmpfs /dev/shm",
        )
    })?
}

fn tracing_forbidden(machine: &MachineFacts) -> Option<Advice> {
    let scope = machine.kernel.ptrace_scope?;
    (scope >= 2 && !(scope == 2 && machine.limits.root?)).then(|| {
        note(
            "kernel",
            format!("tracing of processes is forbidden (kernel.yama.ptrace_scope = {scope})"),
            "rows that trace their own children are skipped",
            if scope == 2 {
                "sudo sysctl kernel.yama.ptrace_scope=1"
            } else {
                "reboot: 3 cannot be lowered"
            },
        )
    })?
}

#[cfg(test)]
mod tests;
