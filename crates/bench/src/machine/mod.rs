//! Facts about this machine, [`MachineFacts`], and advice on facts that spoil measurements,
//! [`advice::advice`].
//!
//! [`MachineFacts::look`] collects the facts, with one module per topic. A fact that cannot be read
//! is `None` (`null` in results). [`mod@advice`] draws conclusions from the facts alone,
//! [`mod@card`] formats them as rows for a terminal and a page, and [`topology`] finds the pairs of
//! processors that experiments use.
//!
//! The module neither changes the machine nor prints.

pub mod advice;
pub mod build;
pub mod card;
pub mod compiler;
pub mod kernel;
pub mod limits;
pub mod load;
pub mod memory;
pub mod power;
pub mod processor;
pub mod scheduling;
pub mod timing;
pub mod topology;
pub mod virtualisation;

use serde::Serialize;
use tontine_host::os::files::Files;

pub use card::card;
use topology::Topology;

/// Facts about the machine, by topic.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MachineFacts {
    /// Model, number of processors, caches.
    pub processor: processor::ProcessorFacts,
    /// Clocks and their quality.
    pub clock: timing::Timing,
    /// Affinity, policy, quota.
    pub scheduling: scheduling::Scheduling,
    /// Governor, turbo, idle states.
    pub power: power::Power,
    /// Version, preemption, tick, mitigations.
    pub kernel: kernel::KernelFacts,
    /// Amounts and pages.
    pub memory: memory::MemoryFacts,
    /// Hypervisor, container, stolen time.
    pub virtualisation: virtualisation::Virtualisation,
    /// Other work of the machine.
    pub load: load::LoadFacts,
    /// Limits of this process.
    pub limits: limits::LimitFacts,
    /// Build of this program.
    pub build: build::Build,
}

impl MachineFacts {
    /// Reads the facts of this machine. Never fails. Takes about 50 ms, mostly to measure the
    /// clocks.
    pub fn look() -> Self {
        let files = Files::of_this_machine();
        let before = load::Counters::read(&files);
        Self {
            processor: processor::ProcessorFacts::look(&files),
            clock: timing::Timing::look(&files, &Topology::of_this_machine()),
            scheduling: scheduling::Scheduling::look(&files),
            power: power::Power::look(&files),
            kernel: kernel::KernelFacts::look(&files),
            memory: memory::MemoryFacts::look(&files),
            virtualisation: virtualisation::Virtualisation::look(&files),
            limits: limits::LimitFacts::look(),
            build: build::Build::look(),
            load: load::LoadFacts::look(&files, before),
        }
    }

    /// Returns a one-line description of the machine for headings, such as `AMD EPYC, 2 of 2
    /// processors, KVM, Linux 6.18.44`.
    pub fn one_line(&self) -> String {
        let architecture = || self.processor.architecture.clone();
        let model = self.processor.model.clone().or_else(architecture);
        let count = match (self.processor.allowed, self.processor.online) {
            (Some(allowed), Some(online)) => Some(format!("{allowed} of {online} processors")),
            (Some(count), None) | (None, Some(count)) => Some(format!("{count} processors")),
            (None, None) => None,
        };
        let kernel = match self.kernel.short_release() {
            Some(release) => format!("Linux {release}"),
            None => "Linux".to_owned(),
        };
        [model, count, self.virtualisation.hypervisor.clone(), Some(kernel)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Returns the time that the hypervisor gave to others while this system was ready to run, in ms
/// since boot, summed over all processors. Returns `None` if `/proc/stat` cannot be read.
pub fn stolen_ms() -> Option<f64> {
    virtualisation::ProcessorTimes::read(&Files::of_this_machine()).map(|times| times.stolen_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_machine_have_all_topics() {
        let machine = MachineFacts::look();
        assert!(machine.processor.online.is_some_and(|online| online > 0));
        assert!(machine.kernel.version().is_some());
        assert!(stolen_ms().is_some());
        let json = serde_json::to_value(&machine).expect("facts become JSON");
        let topics: Vec<&String> = json.as_object().expect("an object").keys().collect();
        assert_eq!(topics.len(), 10, "{topics:?}");
    }

    #[test]
    fn one_line_contains_the_known_facts() {
        let mut machine = MachineFacts::default();
        assert_eq!(machine.one_line(), "Linux");
        machine.processor.model = Some("AMD EPYC".to_owned());
        machine.processor.allowed = Some(2);
        machine.processor.online = Some(4);
        machine.virtualisation.hypervisor = Some("KVM".to_owned());
        machine.kernel.release = Some("6.18.44-cloud".to_owned());
        let line = "AMD EPYC, 2 of 4 processors, KVM, Linux 6.18.44";
        assert_eq!(machine.one_line(), line);
    }
}
