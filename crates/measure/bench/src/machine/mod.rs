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

use crate::os::files::Files;
use serde::Serialize;

pub use card::card;
use topology::Topology;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MachineFacts {
    pub processor: processor::ProcessorFacts,
    pub clock: timing::Timing,
    pub scheduling: scheduling::Scheduling,
    pub power: power::Power,
    pub kernel: kernel::KernelFacts,
    pub memory: memory::MemoryFacts,
    pub virtualisation: virtualisation::Virtualisation,
    pub load: load::LoadFacts,
    pub limits: limits::LimitFacts,
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
mod tests;
