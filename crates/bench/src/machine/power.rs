//! Power management: governor, turbo, frequencies, idle states.

use serde::Serialize;
use tontine_host::os::files::Files;

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

/// One idle state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// Name of the state, such as `C6`.
    pub name: String,
    /// Time to wake from the state, in µs, as stated by the driver.
    pub wake_us: Option<u64>,
    /// `true` if an administrator disabled the state.
    pub disabled: bool,
}

const CPUS: &str = "sys/devices/system/cpu";

impl Power {
    /// Reads the facts.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::os::files::TempTree;

    #[test]
    fn governors_frequencies_and_idle_states_are_read() {
        let tree = TempTree::empty();
        for (policy, governor) in [("policy0", "powersave"), ("policy1", "powersave")] {
            let folder = format!("{CPUS}/cpufreq/{policy}");
            tree.write(&format!("{folder}/scaling_governor"), governor);
            tree.write(&format!("{folder}/scaling_driver"), "intel_pstate");
            tree.write(&format!("{folder}/scaling_min_freq"), "400000");
            tree.write(&format!("{folder}/scaling_max_freq"), "4800000");
        }
        tree.write(&format!("{CPUS}/intel_pstate/no_turbo"), "0");
        for (number, name, wake, disable) in
            [(0, "POLL", "0", "0"), (1, "C1", "2", "0"), (10, "C10", "890", "1")]
        {
            let state = format!("{CPUS}/cpu0/cpuidle/state{number}");
            tree.write(&format!("{state}/name"), name);
            tree.write(&format!("{state}/latency"), wake);
            tree.write(&format!("{state}/disable"), disable);
        }
        let power = Power::look(&tree.files());
        assert_eq!(power.governors, Some(vec!["powersave".to_owned()]));
        assert_eq!(power.frequency_khz, Some((400_000, 4_800_000)));
        assert_eq!(power.turbo, Some(true));
        assert_eq!(power.deepest_wake_us(), Some(2), "C10 is switched off");
    }

    #[test]
    fn turbo_is_read_from_boost_or_unknown() {
        let tree = TempTree::empty();
        assert_eq!(Power::look(&tree.files()), Power::default());
        tree.write(&format!("{CPUS}/cpufreq/boost"), "0");
        assert_eq!(Power::look(&tree.files()).turbo, Some(false));
    }
}
