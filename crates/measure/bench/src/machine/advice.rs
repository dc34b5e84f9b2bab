//! Advice on facts that spoil measurements, with their remedies: [`advice`].
//!
//! Each rule is a row of [`RULES`], whose finding is a pure function of the [`MachineFacts`]; no
//! rule reads or changes the system. An unknown fact causes no advice.

use serde::Serialize;

use super::MachineFacts;

/// Lowest kernel version that this project supports: major and minor. A remedy names it.
const LOWEST_KERNEL: (u32, u32) = (5, 10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Figures of this machine are not reliable until the problem is fixed.
    Spoils,
    /// Figures are valid for a machine with this property, which matters in comparisons.
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The topic to which the fact belongs, as in [`MachineFacts`].
    pub topic: &'static str,
    pub severity: Severity,
    pub finding: String,
    pub effect: &'static str,
    /// The remedy, as a command if possible.
    pub remedy: &'static str,
}

/// Share of busy time above which stolen time spoils figures.
const STOLEN_SHARE: f64 = 0.001;
/// Share of the processors that may be busy with other work.
const BUSY_SHARE: f64 = 0.25;
/// Pressure, as a percentage of time, above which tasks wait noticeably.
const PRESSURE: f64 = 5.0;
/// Wake-up time of an idle state, in µs, above which it affects every blocking row. A remedy names
/// it.
const DEEP_WAKE_US: u64 = 20;
/// Number of descriptors that the largest experiments open, plus a margin. A remedy names it.
const OPEN_FILES: u64 = 1024;
/// Number of processes and threads that the largest experiments start, plus a margin. A remedy
/// names it.
const PROCESSES: u64 = 512;

/// A rule: what to state if it has a finding on a machine.
struct Rule {
    severity: Severity,
    topic: &'static str,
    finding: fn(&MachineFacts) -> Option<String>,
    effect: &'static str,
    remedy: &'static str,
}

const fn spoils(
    topic: &'static str,
    finding: fn(&MachineFacts) -> Option<String>,
    effect: &'static str,
    remedy: &'static str,
) -> Rule {
    Rule { severity: Severity::Spoils, topic, finding, effect, remedy }
}

const fn note(
    topic: &'static str,
    finding: fn(&MachineFacts) -> Option<String>,
    effect: &'static str,
    remedy: &'static str,
) -> Rule {
    Rule { severity: Severity::Note, topic, finding, effect, remedy }
}

/// Returns the findings on `machine`, the most severe first.
pub fn advice(machine: &MachineFacts) -> Vec<Advice> {
    let advise = |rule: &Rule| {
        let Rule { severity, topic, finding, effect, remedy } = *rule;
        Some(Advice { topic, severity, finding: finding(machine)?, effect, remedy })
    };
    let mut found: Vec<Advice> = RULES.iter().filter_map(advise).collect();
    found.sort_by_key(|advice| advice.severity);
    found
}

/// Returns a finding that needs no figure, if `applies`.
fn when(applies: bool, finding: &str) -> Option<String> {
    applies.then(|| finding.to_owned())
}

/// Returns `true` if the kernel keeps time by a source that takes no system call.
fn is_fast(source: &str) -> bool {
    ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"].contains(&source)
}

const ONE_PROCESSOR: &str = "one processor for both ends";
const ONE_PROCESSOR_EFFECT: &str =
    "nothing runs in parallel: spinning rows measure the scheduler, some are skipped";
const UNTRACED_EFFECT: &str = "rows that trace their own children are skipped";

fn untraced(machine: &MachineFacts, scope: u8) -> Option<String> {
    let found = machine.kernel.ptrace_scope?;
    (found == scope)
        .then(|| format!("tracing of processes is forbidden (kernel.yama.ptrace_scope = {scope})"))
}

const RULES: &[Rule] = &[
    spoils(
        "kernel",
        |m| {
            let (major, minor) = m.kernel.version().filter(|found| *found < LOWEST_KERNEL)?;
            Some(format!("Linux {major}.{minor} is older than the lowest supported kernel"))
        },
        "system calls that the experiments need are missing; their rows are skipped or fail",
        "run Linux 5.10 or newer",
    ),
    spoils(
        "build",
        |m| when(m.build.debug?, "built with debug assertions"),
        "short operations are measured together with overflow and assertion checks",
        "build with `--release`",
    ),
    spoils(
        "clock",
        |m| {
            let invariant = m.clock.invariant_counter?;
            when(!invariant, "the processor does not guarantee a counter of constant rate")
        },
        "stamps come from clock_gettime, which is coarser and takes longer",
        "in a virtual machine, pass the host's counter through (QEMU: `-cpu host,+invtsc`)",
    ),
    spoils(
        "clock",
        |m| {
            let offset = m.clock.offset.filter(|it| it.ticks.low > 0 || it.ticks.high < 0)?;
            Some(format!(
                "counters of processors {} and {} are {:.0} to {:.0} ns apart",
                offset.here, offset.there, offset.low_ns, offset.high_ns
            ))
        },
        "differences of stamps from two processors carry this offset; round trips do not",
        "rely on rows that stamp on one processor; update the firmware",
    ),
    spoils(
        "clock",
        |m| {
            let source = m.clock.system_source.as_deref().filter(|source| !is_fast(source))?;
            Some(format!("the kernel keeps time by {source}"))
        },
        "clock_gettime becomes a system call or a slow device access",
        "find out why the kernel rejected the counter (`dmesg | grep -i clocksource`); boot with \
         `tsc=reliable` if it is sound",
    ),
    note(
        "clock",
        |m| {
            let has_counter = m.clock.system_sources.as_ref()?.iter().any(|other| other == "tsc");
            when(
                m.clock.system_source.as_deref()? == "kvm-clock" && has_counter,
                "the kernel keeps time by kvm-clock although it has the counter",
            )
        },
        "clock_gettime takes a little longer, and the conversion may be adjusted",
        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    spoils(
        "processor",
        |m| {
            let fenced = m.processor.online.is_some_and(|online| online > 1);
            when(m.processor.allowed? == 1 && fenced, ONE_PROCESSOR)
        },
        ONE_PROCESSOR_EFFECT,
        "allow more: `taskset --cpu-list 0-1 …`, `docker run --cpuset-cpus 0-1 …`",
    ),
    spoils(
        "processor",
        |m| {
            let fenced = m.processor.online.is_some_and(|online| online > 1);
            when(m.processor.allowed? == 1 && !fenced, ONE_PROCESSOR)
        },
        ONE_PROCESSOR_EFFECT,
        "use a machine with two processors or more",
    ),
    spoils(
        "scheduling",
        |m| {
            let (quota, periods) = (m.scheduling.quota?, m.scheduling.throttled_periods);
            let periods = periods.unwrap_or(0);
            Some(format!(
                "the cgroup grants {quota:.2} processors; throttled in {periods} periods so far"
            ))
        },
        "a busy experiment is stopped for tens of milliseconds at a time",
        "run outside the limited cgroup; with Docker, without `--cpus`",
    ),
    spoils(
        "power",
        |m| {
            let governors = m.power.governors.iter().flatten().map(String::as_str);
            let slow: Vec<&str> = governors.filter(|governor| *governor != "performance").collect();
            (!slow.is_empty()).then(|| format!("frequency governor {}", slow.join(", ")))
        },
        "the clock rate follows the load: short and blocking rows are measured at a low one",
        "sudo cpupower frequency-set --governor performance",
    ),
    spoils(
        "virtualisation",
        |m| {
            let share = m.virtualisation.stolen_share.filter(|share| *share >= STOLEN_SHARE)?;
            let percent = share * 100.0;
            Some(format!("the hypervisor took {percent:.1} % of the processor time since boot"))
        },
        "samples contain pauses of milliseconds: other virtual machines set the tails and maxima",
        "measure on a dedicated machine or on dedicated processors; check each row's stolen time",
    ),
    spoils(
        "load",
        |m| {
            let most = m.processor.online? as f64 * BUSY_SHARE;
            let load = m.load.last_minute.filter(|load| *load > most)?;
            Some(format!("{load:.2} tasks were runnable over the last minute"))
        },
        "experiments compete for processors and caches",
        "stop other programs (`ps -eo pcpu,comm --sort -pcpu | head`), and wait a minute",
    ),
    spoils(
        "load",
        |m| {
            let waited = m.load.processor_pressure.filter(|waited| *waited >= PRESSURE)?;
            Some(format!("tasks waited for a processor in {waited:.1} % of the last ten seconds"))
        },
        "wake-ups queue behind other work",
        "stop other programs (`ps -eo pcpu,comm --sort -pcpu | head`)",
    ),
    spoils(
        "load",
        |m| {
            let waited = m.load.memory_pressure.filter(|waited| *waited >= PRESSURE)?;
            Some(format!("tasks waited for memory in {waited:.1} % of the last ten seconds"))
        },
        "samples contain page faults and reclaim",
        "free memory (`ps -eo rss,comm --sort -rss | head`)",
    ),
    note(
        "virtualisation",
        |m| Some(format!("virtual machine ({})", m.virtualisation.hypervisor.as_deref()?)),
        "idling, timers and interrupts between processors exit to the hypervisor and cost more \
         than on bare metal",
        "compare only with figures of the same kind of machine",
    ),
    note(
        "processor",
        |m| {
            let other = m.processor.architecture.as_deref().filter(|name| *name != "x86_64")?;
            Some(format!("architecture {other}: supported, not tested"))
        },
        "stamps and memory orders follow its manual, and have not been checked on it",
        "compare a few rows with another tool, and report the result",
    ),
    note(
        "scheduling",
        |m| {
            let (allowed, online) = (m.processor.allowed?, m.processor.online?);
            (1 < allowed && allowed < online)
                .then(|| format!("this process may use {allowed} of {online} processors"))
        },
        "placements and curves stay within them; the load of the others is not visible",
        "to use all: `taskset --all-tasks --cpu-list 0-… …`, or lift the cpuset",
    ),
    note(
        "processor",
        |m| {
            let siblings = m.processor.siblings.as_ref().filter(|all| !all.is_empty())?;
            Some(format!("cores run several hardware threads ({})", siblings.join("; ")))
        },
        "a task on the sibling takes up to half of the core",
        "echo off | sudo tee /sys/devices/system/cpu/smt/control",
    ),
    note(
        "power",
        |m| when(m.power.turbo?, "turbo is on"),
        "the rate depends on temperature and on how many cores are busy",
        "Intel: `echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`; others: `echo \
         0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`",
    ),
    note(
        "power",
        |m| {
            let wake_us = m.power.deepest_wake_us().filter(|us| *us > DEEP_WAKE_US)?;
            Some(format!("idle processors may sleep so deeply that waking takes {wake_us} µs"))
        },
        "blocking rows grow with the pause between messages",
        "sudo cpupower idle-set --disable-by-latency 20",
    ),
    note(
        "memory",
        |m| {
            let to_all = m.memory.huge_pages.as_deref()? == "always";
            when(to_all, "huge pages are given to all processes")
        },
        "a fault may clear 2 MiB, and background merging moves memory: fork and allocator rows \
         vary",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    note(
        "memory",
        |m| when(m.memory.merging?, "the kernel merges equal pages"),
        "its scanner takes processor time, and a write to a merged page faults",
        "echo 0 | sudo tee /sys/kernel/mm/ksm/run",
    ),
    note(
        "kernel",
        |m| when(m.kernel.address_randomisation? == 0, "address layout is not randomised"),
        "every invocation repeats one layout: intervals do not include the effect of others",
        "sudo sysctl kernel.randomize_va_space=2",
    ),
    note(
        "virtualisation",
        |m| {
            let filters = m.virtualisation.call_filters.filter(|filters| *filters > 0)?;
            Some(format!("every system call passes {filters} filter(s)"))
        },
        "each call takes longer than without, and some are refused",
        "run outside the sandbox; with Docker, `--security-opt seccomp=unconfined`",
    ),
    note(
        "kernel",
        |m| {
            let all = m.kernel.mitigations.as_ref()?.values();
            let active = all.filter(|text| text.starts_with("Mitigation")).count();
            (active > 0)
                .then(|| format!("{active} mitigation(s) of processor weaknesses are active"))
        },
        "system calls and context switches take longer than on a machine without",
        "leave them on; compare only with machines that have the same",
    ),
    note(
        "limits",
        |m| {
            let soft = m.limits.open_files?.soft.filter(|soft| *soft < OPEN_FILES)?;
            Some(format!("{soft} descriptors per process"))
        },
        "rows that open more are skipped",
        "ulimit -n 1024",
    ),
    note(
        "limits",
        |m| {
            let soft = m.limits.processes?.soft.filter(|soft| *soft < PROCESSES)?;
            (!m.limits.root?).then(|| format!("{soft} processes per user"))
        },
        "rows that start more are skipped",
        "ulimit -u 512",
    ),
    note(
        "memory",
        |m| when(!m.memory.shared_by_name?, "there is no /dev/shm"),
        "rows that share memory or semaphores by name are skipped",
        "sudo mkdir -p /dev/shm && sudo mount -t tmpfs tmpfs /dev/shm",
    ),
    note(
        "kernel",
        |m| untraced(m, 2).filter(|_| m.limits.root == Some(false)),
        UNTRACED_EFFECT,
        "sudo sysctl kernel.yama.ptrace_scope=1",
    ),
    note("kernel", |m| untraced(m, 3), UNTRACED_EFFECT, "reboot: 3 cannot be lowered"),
];

#[cfg(test)]
mod tests;
