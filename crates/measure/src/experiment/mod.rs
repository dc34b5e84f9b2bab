//! The registry: what can be measured, by name.
//!
//! An [`Experiment`] names its [`Variant`]s and lists, for one machine, the [`Task`]s to run. Names
//! are the contract with scripts: add more, rename none.
//!
//! Neighbours: [`crate::engine`] runs tasks in fresh processes; [`crate::published`] knows what the
//! sources found.

pub mod allocators;
pub mod builds;
pub mod death_notice;
pub mod explanation;
pub mod false_sharing;
pub mod fork_throughput;
pub(crate) mod levels;
pub mod liveness_check;
pub mod lost_signals;
pub mod many_senders;
mod modes;
pub mod queue_with_check;
pub mod reentrancy;
pub mod round_trip;
pub mod sessions;
pub mod shared_heaps;
pub mod signal_delivery;
pub mod signal_throughput;
pub mod spawn;
pub mod survival;
pub mod thread_local;
pub mod thread_vs_process;
pub mod throughput;
mod trees;
pub mod wake_up;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::topology::{Placement, Topology};
use crate::observe::Observed;
use crate::size::Size;
use crate::trouble::{Result, Trouble};
use explanation::{Explanation, Topic};

/// One thing that can be measured in several ways.
pub trait Experiment: Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;
    /// One line: the question that it answers.
    fn summary(&self) -> &'static str;
    /// The page of the report that it belongs to.
    fn topic(&self) -> Topic;
    /// What it is, for somebody who meets the topic for the first time.
    fn explanation(&self) -> &'static Explanation;
    /// The ways in which it is measured.
    fn variants(&self) -> &'static [Variant];
    /// What `variant` is asked on this machine in a run of this size: one parameter set a cell. A
    /// combination that the machine lacks is simply not listed; one that every user expects is
    /// listed and skips with its reason when run.
    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params>;
    /// Measures one task, in the process that calls it.
    ///
    /// # Errors
    /// [`crate::trouble::Trouble`]: skipped or failed, with the reason.
    fn run(&self, task: &Task) -> Result<Observed>;
    /// How many operations one invocation of `variant` makes at `size`; its time grows linearly
    /// with them.
    fn operations(&self, variant: &str, size: Size) -> usize;
    /// How many invocations a cell of `variant` gets at `size`, where the user names no number.
    fn invocations(&self, _variant: &str, size: Size) -> usize {
        size.invocations()
    }
    /// Ratios between variants worth printing, as (numerator, denominator) of variant names; they
    /// are taken block by block, between cells that have the same parameters.
    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

/// One way of measuring an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// One line: what is done.
    pub summary: &'static str,
}

/// Parameters of a cell, such as `placement` → `cross-core`.
pub type Params = BTreeMap<String, String>;

/// One invocation's work order; it crosses to the fresh process as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the variant.
    pub variant: String,
    /// Parameters.
    pub params: Params,
    /// How much to measure.
    pub size: Size,
}

/// `experiment/variant` and its parameters in short.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.experiment, self.variant)?;
        short(&self.params).try_for_each(|word| write!(f, " {word}"))
    }
}

/// Parameters in short: the value alone where it speaks for itself, `cross-core`; with its name
/// where it is a number, `senders 2`.
pub fn short(params: &Params) -> impl DoubleEndedIterator<Item = String> {
    params.iter().map(|(name, value)| match value.parse::<u64>() {
        Ok(_) => format!("{name} {value}"),
        Err(_) => value.clone(),
    })
}

/// All experiments, in the order in which they are listed.
pub fn all() -> &'static [&'static dyn Experiment] {
    &[
        &round_trip::RoundTrip,
        &throughput::Throughput,
        &many_senders::ManySenders,
        &survival::Survival,
        &death_notice::DeathNotice,
        &liveness_check::LivenessCheck,
        &queue_with_check::QueueWithCheck,
        &signal_delivery::SignalDelivery,
        &lost_signals::LostSignals,
        &reentrancy::Reentrancy,
        &wake_up::WakeUp,
        &false_sharing::FalseSharing,
        &allocators::Allocators,
        &shared_heaps::SharedHeaps,
        &thread_vs_process::ThreadVsProcess,
        &thread_local::ThreadLocal,
        &builds::Builds,
        &sessions::Sessions,
        &signal_throughput::SignalThroughput,
        &fork_throughput::ForkThroughput,
        &spawn::Spawn,
    ]
}

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    all().iter().copied().find(|experiment| experiment.name() == name)
}

/// The placement that a cell's parameters name.
///
/// # Errors
/// Skipped, where this machine has no such placement.
pub(crate) fn placement_of(params: &Params) -> Result<Placement> {
    let name = params.get("placement").map_or("", String::as_str);
    Topology::of_this_machine()
        .placement(name)
        .ok_or_else(|| Trouble::skip(format!("this machine has no placement `{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_among_the_parameters_is_shown_with_its_name() {
        let task = Task {
            experiment: "throughput".into(),
            variant: "pipe".into(),
            params: Params::from([
                ("placement".into(), "cross-core".into()),
                ("senders".into(), "2".into()),
            ]),
            size: Size::Quick,
        };
        assert_eq!(task.to_string(), "throughput/pipe cross-core senders 2");
    }

    /// Scripts read the parameters by these names.
    #[test]
    fn every_parameter_is_documented() {
        let page = include_str!("../../../../docs/results.md");
        let row = page.lines().find(|line| line.starts_with("| `params` |")).expect("the row");
        let topology = Topology::of_this_machine();
        for experiment in all() {
            for variant in experiment.variants() {
                let cells = experiment.params(variant.name, &topology, Size::Full);
                for name in cells.iter().flat_map(Params::keys) {
                    let (of, tick) = (experiment.name(), format!("`{name}`"));
                    assert!(row.contains(&tick), "{of}: {name} is missing in docs/results.md");
                }
            }
        }
    }
}
