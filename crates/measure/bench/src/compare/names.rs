//! Rows that older builds named otherwise: [`rename`] gives the rows of an old file their present
//! names, and [`earlier`] names a task as an old program does.

use crate::engine::invoked::MetricSummary;
use crate::schema::Results;
use crate::task::InvocationTask;

/// An experiment that became a part of another. Each pair is an old and a present name; a name that
/// is not listed has not changed.
struct Renamed {
    experiment: [&'static str; 2],
    variants: &'static [[&'static str; 2]],
    metrics: &'static [[&'static str; 2]],
    /// Parameters that the rows have only today.
    added: &'static [(&'static str, &'static str)],
}

const RENAMED: &[Renamed] = &[
    Renamed {
        experiment: ["spawn", "thread-vs-process"],
        variants: &[["vfork", "clone-vfork"], ["clone3", "clone3-exit"]],
        metrics: &[["spawn", "create_join"]],
        added: &[("parent", "small")],
    },
    Renamed {
        experiment: ["queue-with-check", "throughput"],
        variants: &[
            ["dummy", "checked-dummy"],
            ["load", "checked-load"],
            ["futex-word", "checked-futex-word"],
            ["life-word", "checked-life-word"],
            ["own-robust-list", "checked-own-robust-list"],
            ["lock-cmpxchg", "checked-lock-cmpxchg"],
            ["mutex-trylock", "checked-mutex-trylock"],
            ["epoll-empty", "checked-epoll-empty"],
            ["epoll-socket", "checked-epoll-socket"],
            ["poll-socket", "checked-poll-socket"],
            ["select-socket", "checked-select-socket"],
            ["kill-0", "checked-kill-0"],
            ["pidfd-signal-0", "checked-pidfd-signal-0"],
            ["procfs-faccessat", "checked-procfs-faccessat"],
            ["polling-thread", "checked-polling-thread"],
        ],
        metrics: &[],
        added: &[],
    },
    Renamed {
        experiment: ["many-senders", "throughput"],
        variants: &[
            ["mailbox-idle", "mailbox-idle"],
            ["mailbox-streams", "mailbox-streams"],
            ["dead-send", "dead-send"],
        ],
        metrics: &[],
        added: &[],
    },
];

/// Returns the other name in the column `to` of `names`.
fn other(names: &[[&'static str; 2]], name: &str, to: usize) -> String {
    let found = names.iter().find(|pair| pair[1 - to] == name);
    found.map_or(name, |pair| pair[to]).to_owned()
}

/// Gives the rows of an old file their present names.
pub(super) fn rename(results: &mut Results) {
    for Renamed { experiment: [old, present], variants, metrics, added } in RENAMED {
        for cell in results.cells.iter_mut().filter(|cell| cell.experiment == *old) {
            cell.experiment = (*present).to_owned();
            cell.variant = other(variants, &cell.variant, 1);
            cell.metric = other(metrics, &cell.metric, 1);
            cell.params.extend(added.iter().map(|(name, of)| ((*name).into(), (*of).into())));
        }
        for ratio in results.ratios.iter_mut().filter(|ratio| ratio.experiment == *old) {
            ratio.experiment = (*present).to_owned();
            let names = ratio.name.split(" / ").map(|name| other(variants, name, 1));
            ratio.name = names.collect::<Vec<_>>().join(" / ");
        }
        if let Some(seconds) = results.ledger.remove(*old) {
            *results.ledger.entry((*present).to_owned()).or_default() += seconds;
        }
    }
}

/// Returns a task by the names of an old program, and the function that gives the metrics of its
/// figures their present names. Returns `None` if the task was never renamed.
pub(super) fn earlier(
    task: &InvocationTask,
) -> Option<(InvocationTask, impl Fn(MetricSummary) -> MetricSummary + use<>)> {
    let has = |(name, of): &(&str, &str)| task.params.get(*name).is_some_and(|value| value == of);
    let renamed =
        RENAMED.iter().filter(|one| one.experiment[1] == task.experiment).find(|one| {
            // An experiment without added parameters lists all its variants.
            let listed = one.variants.iter().any(|pair| pair[1] == task.variant);
            if one.added.is_empty() { listed } else { one.added.iter().all(has) }
        })?;
    let mut old = task.clone();
    old.experiment = renamed.experiment[0].to_owned();
    old.variant = other(renamed.variants, &task.variant, 0);
    old.params.retain(|name, _| renamed.added.iter().all(|(added, _)| name != added));
    let present = move |mut figure: MetricSummary| {
        figure.metric = other(renamed.metrics, &figure.metric, 1);
        figure
    };
    Some((old, present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;
    use crate::task::params;

    #[test]
    fn task_gets_old_names_and_rows_get_present_names() {
        let task = |experiment: &str, variant: &str, params| {
            InvocationTask::new(experiment, variant, params, Size::Quick)
        };
        let small = params([("parent", "small"), ("placement", "same-core")]);
        let (old, present) = earlier(&task("thread-vs-process", "clone-vfork", small.clone()))
            .expect("it was renamed");
        assert_eq!(old, task("spawn", "vfork", params([("placement", "same-core")])));
        let figure = MetricSummary::of(&crate::observe::Series::ns("spawn", vec![1.0]));
        assert_eq!(present(figure).metric, "create_join");
        let large = params([("parent", "1 MiB")]);
        assert!(earlier(&task("thread-vs-process", "fork", large)).is_none());

        let mut results = crate::fixture::run();
        let cell = &mut results.cells[0];
        (cell.experiment, cell.variant) = ("spawn".into(), "clone3".into());
        (cell.metric, cell.params) = ("spawn".into(), params([("placement", "same-core")]));
        results.ledger = [("spawn".to_owned(), 2.0)].into();
        rename(&mut results);
        let cell = &results.cells[0];
        assert_eq!((&*cell.experiment, &*cell.variant), ("thread-vs-process", "clone3-exit"));
        assert_eq!((&*cell.metric, &cell.params), ("create_join", &small));
        assert_eq!(results.ledger["thread-vs-process"], 2.0);
    }

    #[test]
    fn variants_of_throughput_have_their_old_experiments() {
        let mut run = crate::fixture::run();
        let is_old = |name: &str| ["queue-with-check", "many-senders"].contains(&name);
        assert!(run.cells.iter().any(|cell| is_old(&cell.experiment)));
        rename(&mut run);
        assert!(!run.cells.iter().any(|cell| is_old(&cell.experiment)));
        let old = |variant: &str| {
            let task = InvocationTask::new("throughput", variant, params([]), Size::Quick);
            earlier(&task).map(|(task, _)| task.to_string())
        };
        assert_eq!(old("checked-kill-0").as_deref(), Some("queue-with-check/kill-0"));
        assert_eq!(old("dead-send").as_deref(), Some("many-senders/dead-send"));
        assert_eq!(old("pipe"), None);
    }
}
