//! The tasks of a run: [`Plan`], created from names by [`select`].

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::machine::topology::Topology;
use crate::size::Size;
use crate::suite::{Experiment, Suite};
use crate::task::{InvocationTask, Params};

/// Tasks, with the number and the order of their invocations.
#[derive(Debug, Clone)]
pub struct Plan {
    pub suite: &'static Suite,
    /// The tasks to run, each at most once per block.
    pub tasks: Vec<InvocationTask>,
    /// Number of invocations of each task, in the order of the tasks.
    invocations: Vec<usize>,
    pub size: Size,
    pub seed: u64,
}

impl Plan {
    /// Creates a plan for `tasks`. Each task has as many invocations as its experiment requests at
    /// `size`.
    pub fn new(suite: &'static Suite, tasks: Vec<InvocationTask>, size: Size, seed: u64) -> Self {
        let wanted = |task: &InvocationTask| {
            suite.find(&task.experiment).map_or(size.invocations(), |experiment| {
                experiment.invocations(&task.variant, size)
            })
        };
        let invocations = tasks.iter().map(wanted).collect();
        Self { suite, tasks, invocations, size, seed }
    }

    /// Creates a plan for the cells of [`Suite::headline`], with the numbers of invocations given
    /// there. On a machine that lacks a parameter of a cell, such as a second processor, the plan
    /// also contains the variant's first cell that the machine has.
    pub fn headline(suite: &'static Suite, size: Size, seed: u64, on: &Topology) -> Self {
        let (mut tasks, mut invocations) = (Vec::new(), Vec::new());
        for cells in suite.headline {
            let experiment = suite.find(cells.experiment).expect("the suite names its experiments");
            let count = cells.invocations[size as usize];
            for variant in cells.variants {
                let size = size.of_headline_invocation();
                let is_requested = |params: &Params| {
                    cells
                        .params
                        .iter()
                        .all(|(name, value)| params.get(*name).is_some_and(|found| found == value))
                };
                let here = experiment.params(variant, on, size);
                let mut requested: Vec<InvocationTask> = tasks_of(experiment, variant, size, on)
                    .filter(|task| is_requested(&task.params))
                    .collect();
                if !here.iter().any(is_requested) {
                    let first = here.into_iter().next();
                    let first = first.map(|params| {
                        InvocationTask::new(experiment.name(), variant, params, size)
                    });
                    requested.extend(first.filter(|first| !requested.contains(first)));
                }
                invocations.extend(requested.iter().map(|_| count));
                tasks.extend(requested);
            }
        }
        Self { suite, tasks, invocations, size, seed }
    }

    #[must_use]
    pub fn with_invocations(self, invocations: usize) -> Self {
        Self { invocations: vec![invocations; self.tasks.len()], ..self }
    }

    /// Returns the number of blocks, which is the maximum number of invocations of any task.
    pub fn blocks(&self) -> usize {
        self.invocations.iter().copied().max().unwrap_or(0)
    }

    pub fn invocations(&self, index: usize) -> usize {
        self.invocations[index]
    }

    /// Returns the number of invocations of all tasks.
    pub fn in_all(&self) -> usize {
        self.invocations.iter().sum()
    }

    /// Returns the order of the tasks in one block, as indices. The same seed gives the same order.
    pub fn order(&self, block: usize) -> Vec<usize> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(block as u64);
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        order.shuffle(&mut random);
        order.retain(|&index| self.takes_part(index, block));
        order
    }

    /// Returns the number of invocations of task number `index` that remain after `block`.
    pub fn left_after(&self, index: usize, block: usize) -> usize {
        (block + 1..self.blocks()).filter(|&later| self.takes_part(index, later)).count()
    }

    /// Returns `true` if the task is in this block. A task with fewer invocations than there are
    /// blocks is spread over the run: each of its invocations is in the middle of an equal share of
    /// the blocks, so that drift of the machine affects it like any other task.
    fn takes_part(&self, index: usize, block: usize) -> bool {
        let (all, own) = (self.blocks(), self.invocations[index]);
        (0..own).any(|number| (2 * number + 1) * all / (2 * own) == block)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} is named '{name}'; {}`tontine-measure list` shows all", offer(.nearest))]
pub struct UnknownName {
    pub kind: String,
    pub name: String,
    pub nearest: Option<String>,
}

fn offer(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |nearest| format!("did you mean '{nearest}'? "))
}

/// Converts names, `experiment` or `experiment/variant`, to tasks for a machine. An empty list
/// selects all tasks. Each task occurs once, in the registry's order, no matter how often it was
/// named.
pub fn select(
    suite: &'static Suite,
    names: &[String],
    size: Size,
    on: &Topology,
) -> Result<Vec<InvocationTask>, UnknownName> {
    let wanted = resolve_all(suite, names)?;
    let mut tasks = Vec::new();
    for experiment in suite.experiments {
        for variant in experiment.variants() {
            let whole = (experiment.name(), None);
            let single = (experiment.name(), Some(variant.name));
            if wanted.is_empty() || wanted.contains(&whole) || wanted.contains(&single) {
                tasks.extend(tasks_of(*experiment, variant.name, size, on));
            }
        }
    }
    Ok(tasks)
}

/// Returns the tasks of a variant. If this process may use one processor only, the tasks that need
/// two are included, so that their rows report what is missing.
fn tasks_of(
    experiment: &'static dyn Experiment,
    variant: &str,
    size: Size,
    on: &Topology,
) -> impl Iterator<Item = InvocationTask> {
    let mut all = experiment.params(variant, on, size);
    if !on.spans_processors() {
        let of_two = experiment.params(variant, &Topology::of_two_cores(), size);
        let missing: Vec<Params> = of_two.into_iter().filter(|one| !all.contains(one)).collect();
        all.extend(missing);
    }
    all.into_iter().map(move |params| InvocationTask::new(experiment.name(), variant, params, size))
}

/// An experiment and one of its variants; `None` for all variants.
pub type VariantName = (&'static str, Option<&'static str>);

pub fn resolve_all(
    suite: &'static Suite,
    names: &[String],
) -> Result<BTreeSet<VariantName>, UnknownName> {
    names.iter().map(|name| resolve(suite, name)).collect()
}

/// Returns a random seed for the order of a run.
pub fn fresh_seed() -> u64 {
    // The seed is stored in JSON, whose numbers are often read as doubles, which preserve only 53
    // bits.
    rand::random::<u64>() >> 11
}

fn resolve(suite: &'static Suite, name: &str) -> Result<VariantName, UnknownName> {
    let (first, second) = match name.split_once('/') {
        Some((first, second)) => (first, Some(second)),
        None => (name, None),
    };
    let Some(experiment) = suite.find(first) else {
        return Err(unknown_experiment(suite, first));
    };
    let Some(second) = second else {
        return Ok((experiment.name(), None));
    };
    let variants = experiment.variants();
    match variants.iter().find(|variant| variant.name == second) {
        Some(variant) => Ok((experiment.name(), Some(variant.name))),
        None => Err(UnknownName {
            kind: format!("variant of {first}"),
            name: second.into(),
            nearest: nearest(second, variants.iter().map(|variant| variant.name.to_owned()))
                .map(|nearest| format!("{first}/{nearest}")),
        }),
    }
}

/// Returns the error for an unknown word, which may be a misspelt experiment or a variant without
/// its experiment.
fn unknown_experiment(suite: &'static Suite, name: &str) -> UnknownName {
    let experiments = suite.experiments.iter().map(|experiment| experiment.name().to_owned());
    let variant = suite.experiments.iter().find_map(|experiment| {
        let has = experiment.variants().iter().any(|variant| variant.name == name);
        has.then(|| format!("{}/{name}", experiment.name()))
    });
    let nearest = variant.or_else(|| nearest(name, experiments));
    UnknownName { kind: "experiment".into(), name: name.into(), nearest }
}

/// Minimum similarity (Jaro and Winkler) of a misspelling. Words with little in common reach 0.6.
const ALIKE: f64 = 0.75;

/// Returns the candidate most similar to `name`, if one is similar enough.
fn nearest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::suite::SUITE;
    use crate::machine::topology::HardwareThread;

    fn chosen(names: &[&str]) -> Result<Vec<InvocationTask>, UnknownName> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        select(&SUITE, &names, Size::Quick, &Topology::of_this_machine())
    }

    #[test]
    fn misspelt_experiment_offers_the_nearest() {
        let error = chosen(&["round-tripp"]).expect_err("misspelt");
        assert_eq!(error.nearest.as_deref(), Some("round-trip"));
        let error = chosen(&["round-trip/futx"]).expect_err("misspelt");
        assert_eq!(error.nearest.as_deref(), Some("round-trip/futex"));
        assert!(error.to_string().contains("did you mean 'round-trip/futex'?"), "{error}");
        let error = chosen(&["futex"]).expect_err("a variant alone");
        assert_eq!(error.nearest.as_deref(), Some("round-trip/futex"));
        // The error once contained "did you mean 'liveness-check'?".
        let error = chosen(&["nosuch"]).expect_err("nothing like it");
        assert_eq!(error.nearest, None);
        assert!(error.to_string().contains("'nosuch'; `tontine-measure list`"), "{error}");
    }

    #[test]
    fn one_processor_lists_also_the_cells_of_two() {
        let one = HardwareThread { cpu: 0, core: 0, cache: None, socket: None };
        let one = Topology::of(&[one]);
        let placements = |tasks: &[InvocationTask]| -> Vec<String> {
            tasks.iter().map(|task| task.params["placement"].clone()).collect()
        };
        let of = |on: &Topology| {
            let names = ["false-sharing/serial".to_owned()];
            placements(&select(&SUITE, &names, Size::Quick, on).expect("exists"))
        };
        assert_eq!(of(&one), ["same-core", "cross-core"]);
        assert_eq!(of(&Topology::of_two_cores()), ["cross-core"]);
        let headline = Plan::headline(&SUITE, Size::Quick, 7, &one);
        assert_eq!(placements(&headline.tasks), ["cross-core", "cross-core"]);
    }

    #[test]
    fn variant_named_twice_is_selected_once() {
        let once = chosen(&["round-trip/pipe"]).expect("exists");
        assert!(!once.is_empty() && once.iter().all(|task| task.variant == "pipe"));
        assert_eq!(chosen(&["round-trip/pipe", "round-trip/pipe"]).expect("exists"), once);
    }

    #[test]
    fn blocks_hold_each_task_once_in_the_order_of_the_seed() {
        let plan = Plan::new(&SUITE, chosen(&[]).expect("all"), Size::Quick, 7).with_invocations(6);
        for block in 0..plan.blocks() {
            let mut order = plan.order(block);
            assert_eq!(order, plan.order(block));
            order.sort_unstable();
            assert_eq!(order, (0..plan.tasks.len()).collect::<Vec<_>>());
        }
        assert_ne!(plan.order(0), plan.order(1), "blocks are shuffled independently");
    }

    #[test]
    fn invocations_fewer_than_blocks_are_spread_evenly() {
        let mut plan =
            Plan::new(&SUITE, chosen(&["round-trip/pipe"]).expect("exists"), Size::Quick, 7);
        plan.tasks = vec![plan.tasks[0].clone(); 4];
        plan.invocations = vec![10, 3, 2, 1];
        assert_eq!((plan.blocks(), plan.in_all()), (10, 16));
        let blocks_of = |index: usize| -> Vec<usize> {
            (0..plan.blocks()).filter(|&block| plan.order(block).contains(&index)).collect()
        };
        assert_eq!(blocks_of(0), (0..10).collect::<Vec<_>>());
        assert_eq!(blocks_of(1), [1, 5, 8]);
        assert_eq!(blocks_of(2), [2, 7]);
        assert_eq!(blocks_of(3), [5]);
        assert_eq!([0, 1, 5, 8].map(|block| plan.left_after(1, block)), [3, 2, 1, 0]);
        for (own, all) in (1..=20).flat_map(|own| (own..=20).map(move |all| (own, all))) {
            plan.invocations = vec![all, own, all, all];
            let parts = (0..all).filter(|&block| plan.takes_part(1, block)).count();
            assert_eq!(parts, own, "of {all} blocks");
        }
    }
}
