//! Power management: governor, turbo, frequencies, idle states.

use crate::os::files::Files;
use serde::Serialize;

/// Facts about power management. In a virtual machine most of them belong to the host and are
/// unknown.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Power {
    /// Driver that sets the frequency.
    pub frequency_driver: Option<String>,
    /// Governors in use, each once.
    pub governors: Option<Vec<String>>,
    /// Lowest and highest frequencies that the governor may choose, in kHz.
    pub frequency_khz: Option<(u64, u64)>,
    /// `true` if the processor may run above its nominal frequency.
    pub turbo: Option<bool>,
    /// Driver that puts idle processors to sleep.
    pub idle_driver: Option<String>,
    /// Idle states of the first processor, lightest first.
    pub idle_states: Option<Vec<IdleState>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdleState {
    pub name: String,
    /// Time to wake from the state, in µs, as stated by the driver.
    pub wake_us: Option<u64>,
    /// `true` if an administrator disabled the state.
    pub disabled: bool,
}

const CPUS: &str = "sys/devices/system/cpu";

impl Power {
    pub fn look(files: &Files) -> Self {
        let policies: Vec<String> = files
            .names(&format!("{CPUS}/cpufreq"))
            .into_iter()
            .filter(|name| name.starts_with("policy"))
            .map(|name| format!("{CPUS}/cpufreq/{name}"))
            .collect();
        let first = policies.first();
        let of_first = |name: &str| files.text(&format!("{}/{name}", first?));
        let khz = |name: &str| of_first(name)?.parse().ok();
        let mut governors: Vec<String> = policies
            .iter()
            .filter_map(|policy| files.text(&format!("{policy}/scaling_governor")))
            .collect();
        governors.sort();
        governors.dedup();
        Self {
            frequency_driver: of_first("scaling_driver"),
            governors: (!governors.is_empty()).then_some(governors),
            frequency_khz: khz("scaling_min_freq").zip(khz("scaling_max_freq")),
            turbo: turbo(files),
            idle_driver: files
                .text(&format!("{CPUS}/cpuidle/current_driver"))
                .filter(|driver| driver != "none"),
            idle_states: idle_states(files),
        }
    }

    /// Returns the longest time, in µs, to wake from an enabled idle state.
    pub fn deepest_wake_us(&self) -> Option<u64> {
        let states = self.idle_states.as_ref()?.iter();
        states.filter(|state| !state.disabled).filter_map(|state| state.wake_us).max()
    }
}

/// Returns `true` if turbo is on. Intel's driver has its own switch; all other drivers share one.
fn turbo(files: &Files) -> Option<bool> {
    let no_turbo: Option<u8> = files.number(&format!("{CPUS}/intel_pstate/no_turbo"));
    let boost: Option<u8> = files.number(&format!("{CPUS}/cpufreq/boost"));
    no_turbo.map(|off| off == 0).or(boost.map(|on| on == 1))
}

fn idle_states(files: &Files) -> Option<Vec<IdleState>> {
    let folder = format!("{CPUS}/cpu0/cpuidle");
    let mut numbers: Vec<u32> = files
        .names(&folder)
        .iter()
        .filter_map(|name| name.strip_prefix("state")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let states: Vec<IdleState> = numbers
        .into_iter()
        .filter_map(|number| {
            let state = format!("{folder}/state{number}");
            Some(IdleState {
                name: files.text(&format!("{state}/name"))?,
                wake_us: files.number(&format!("{state}/latency")),
                disabled: files.number::<u8>(&format!("{state}/disable")) == Some(1),
            })
        })
        .collect();
    (!states.is_empty()).then_some(states)
}
