//! The points of the paper's curves as tasks: [`tasks`].

use std::collections::BTreeMap;

use tontine_bench::machine::topology::Topology;
use tontine_bench::size::Size;
use tontine_bench::task::{InvocationTask, Params};

use super::{OLD, PAPERS_MACHINE, PublishedCurve};
use crate::SUITE;

/// Placements in which both processes of a pair run at the same time, as in the paper.
const APART: [&str; 2] = ["cross-core", "spread"];

/// Returns one task for each level of the paper, in ascending order, if the experiment has the
/// variant. The task uses a model of the paper's machine if there is one; otherwise both ends of a
/// pair run on their own processors.
pub(super) fn tasks(curve: &PublishedCurve, variant: &str) -> BTreeMap<u64, InvocationTask> {
    let experiment = SUITE
        .find(curve.experiment)
        .filter(|experiment| experiment.variants().iter().any(|offered| offered.name == variant));
    let Some(experiment) = experiment else {
        return BTreeMap::new();
    };
    let topology = Topology::of_this_machine();
    let task = |params: Params| InvocationTask {
        experiment: curve.experiment.into(),
        variant: variant.into(),
        params,
        size: Size::Full,
    };
    let params = experiment.params(variant, &topology, Size::Full);
    let mut tasks: Vec<InvocationTask> = params.into_iter().map(task).collect();
    let modelled = tasks.iter().any(is_papers);
    tasks.retain(|task| is_papers(task) == modelled);
    tasks.retain(|task| modelled || !task.params.contains_key(PAPERS_MACHINE.0));
    // Sessions with simultaneous builds are a different load, which section 9 measures.
    tasks.retain(|task| !task.params.contains_key("beside"));
    // If a level has two placements, the last one is kept.
    tasks.sort_by_key(|task| {
        task.params.get("placement").is_none_or(|name| APART.contains(&name.as_str()))
    });
    let of_level = |task: InvocationTask| {
        let level: u64 = task.params.get(curve.level)?.parse().ok()?;
        (level <= curve.most).then_some((level, task))
    };
    let mut tasks: BTreeMap<u64, InvocationTask> = tasks.into_iter().filter_map(of_level).collect();
    // A model's cells cover fewer levels than the paper, but the model can also run at the levels
    // in between.
    if let Some(any) = tasks.values().next().filter(|_| modelled).cloned() {
        for level in 1..=curve.most {
            let mut between = any.clone();
            between.params.insert(curve.level.to_owned(), level.to_string());
            tasks.entry(level).or_insert(between);
        }
    }
    if let Some(placement) = curve.old_placement.filter(|_| modelled && variant == OLD.variant) {
        for task in tasks.values_mut() {
            task.params.insert("placement".to_owned(), placement.to_owned());
        }
    }
    tasks
}

/// Returns `true` if a task runs on a model of the paper's machine.
pub(super) fn is_papers(task: &InvocationTask) -> bool {
    task.params.get(PAPERS_MACHINE.0).is_some_and(|found| found == PAPERS_MACHINE.1)
}
