//! Facts about the kernel: version, preemption, tick, mitigations, address layout.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::os::files::{Files, chosen};
use rustix::time::{ClockId, clock_getres};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct KernelFacts {
    /// Release, as printed by `uname -r`, such as `6.18.44-distribution`.
    pub release: Option<String>,
    /// `none`, `voluntary`, `full`, `lazy` or `real-time`.
    pub preemption: Option<String>,
    /// Ticks per second.
    pub hz: Option<u32>,
    /// The kernel's mitigation of each processor vulnerability. Vulnerabilities that do not affect
    /// this processor are omitted.
    pub mitigations: Option<BTreeMap<String, String>>,
    /// `kernel.randomize_va_space`: 0 off, 1 all but the heap, 2 all.
    pub address_randomisation: Option<u8>,
    /// `kernel.yama.ptrace_scope`, if that module is loaded, from 0 (same user id) to 3 (no
    /// process).
    pub ptrace_scope: Option<u8>,
    pub perf_event_paranoid: Option<i8>,
    /// Words of the kernel's command line that affect timing.
    pub boot_options: Option<Vec<String>>,
}

/// Prefixes of boot options that affect timing.
const TIMING_OPTIONS: [&str; 13] = [
    "clocksource=",
    "cpuidle.",
    "idle=",
    "intel_idle.",
    "intel_pstate=",
    "irqaffinity=",
    "isolcpus=",
    "mitigations=",
    "nohz",
    "nosmt",
    "preempt=",
    "processor.max_cstate=",
    "tsc=",
];

impl KernelFacts {
    pub fn look(files: &Files) -> Self {
        let release = files.text("proc/sys/kernel/osrelease");
        let boot_line = files.text("proc/cmdline");
        let config = release.as_deref().and_then(|release| config(files, release));
        Self {
            preemption: preemption(files, boot_line.as_deref(), config.as_deref()),
            hz: hz(),
            mitigations: mitigations(files),
            address_randomisation: files.number("proc/sys/kernel/randomize_va_space"),
            ptrace_scope: files.number("proc/sys/kernel/yama/ptrace_scope"),
            perf_event_paranoid: files.number("proc/sys/kernel/perf_event_paranoid"),
            boot_options: boot_line.map(|line| {
                let begins = |word: &&str| TIMING_OPTIONS.iter().any(|key| word.starts_with(key));
                line.split_whitespace().filter(begins).map(str::to_owned).collect()
            }),
            release,
        }
    }

    pub fn version(&self) -> Option<(u32, u32)> {
        version(self.release.as_deref()?)
    }

    /// Returns the release without the distribution's suffix, such as `6.18.44`.
    pub fn short_release(&self) -> Option<&str> {
        let release = self.release.as_deref()?;
        release.split(|c: char| !c.is_ascii_digit() && c != '.').next()
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the tick rate. The coarse clock advances once per tick, so its resolution is the length
/// of a tick.
fn hz() -> Option<u32> {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    let hz = 1e9 / tick.tv_nsec as f64;
    (tick.tv_sec == 0 && hz.is_finite()).then(|| hz.round() as u32)
}

/// Returns the kernel's build configuration from the file that contains it.
fn config(files: &Files, release: &str) -> Option<String> {
    let kept = [format!("boot/config-{release}"), format!("usr/lib/modules/{release}/config")];
    kept.iter().find_map(|path| files.text(path)).or_else(|| {
        let packed = files.path("proc/config.gz");
        let unpacked = packed.exists().then(|| {
            Command::new("gzip")
                .args(["--decompress", "--stdout"])
                .arg(packed)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()
        })?;
        String::from_utf8(unpacked.ok()?.stdout).ok()
    })
}

/// Returns the active preemption mode. If it is unknown, returns the mode requested at boot, or
/// else the mode with which the kernel was built.
fn preemption(files: &Files, boot_line: Option<&str>, config: Option<&str>) -> Option<String> {
    let real_time = files.number::<u8>("sys/kernel/realtime") == Some(1)
        || files.text("proc/version").is_some_and(|text| text.contains("PREEMPT_RT"));
    if real_time {
        return Some("real-time".to_owned());
    }
    let in_force =
        || chosen(&files.text("sys/kernel/debug/sched/preempt")?.replace(['(', ')'], ""));
    let at_boot = || {
        let words = boot_line?.split_whitespace().rev();
        words.filter_map(|word| word.strip_prefix("preempt=")).next().map(str::to_owned)
    };
    let built = || {
        let has = |option: &str| config.is_some_and(|text| text.lines().any(|line| line == option));
        [
            ("CONFIG_PREEMPT_NONE=y", "none"),
            ("CONFIG_PREEMPT_VOLUNTARY=y", "voluntary"),
            ("CONFIG_PREEMPT_LAZY=y", "lazy"),
            ("CONFIG_PREEMPT=y", "full"),
        ]
        .into_iter()
        .find(|(option, _)| has(option))
        .map(|(_, name)| name.to_owned())
    };
    in_force().or_else(at_boot).or_else(built)
}

fn mitigations(files: &Files) -> Option<BTreeMap<String, String>> {
    let folder = "sys/devices/system/cpu/vulnerabilities";
    let names = files.names(folder);
    (!names.is_empty()).then(|| {
        names
            .into_iter()
            .filter_map(|name| Some((files.text(&format!("{folder}/{name}"))?, name)))
            .filter(|(text, _)| text != "Not affected")
            .map(|(text, name)| (name, text))
            .collect()
    })
}
