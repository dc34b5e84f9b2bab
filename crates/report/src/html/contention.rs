//! Section 9 of source 001 on the page: [`contention`] shows the lock statistics under that
//! section's load, one table per machine, and the resulting answer to its open question.
//!
//! The text comes from [`tontine_bench::contention`]; the figures behind each share are in the
//! tables of its metric.

use std::collections::BTreeMap;

use maud::{Markup, html};
use tontine_bench::contention::{ContentionTable, Gain, answer};
use tontine_bench::format;
use tontine_bench::schema::{Cell, Results, Status};
use tontine_bench::task::Params;

use super::{paper, words};

/// The parameter that names a lock.
const LOCK: &str = "lock";
/// The parameter for the number of modelled processors.
const MODELLED: &str = "modelled";
/// Value for a model with one processor.
const ONE: &str = "1 processor";
/// The parameter that names the work alongside the sessions in the load of section 9.
const LOAD_PARAM: &str = "beside";
/// The modes that the question compares: one lock for all relations, and per-process locks.
const ASKED: [&str; 2] = ["parallel", "per-process"];

/// The cells of both modes, each with its level.
type ContentionCells<'a> = [Option<(usize, &'a Cell)>; 2];

/// Returns `true` if the metric is a lock statistic.
pub(super) fn is_of_locks(metric: &str) -> bool {
    matches!(metric, "waited" | "blocked")
}

/// Returns the tables of `cells`, which are the cells of an experiment that have a figure, and the
/// answer that the run gives. Returns nothing if no cell is a lock statistic.
pub(super) fn contention(results: &Results, cells: &[&Cell]) -> Markup {
    let tables = tables(cells);
    html! {
        @if !tables.is_empty() {
            h3 { "Section 9 of the paper: how locks were taken" }
            p.hint {
                "Percent of all acquisitions that had to wait; in brackets, percent of these in \
                 which the thread blocked; a dash if a mode has no such lock or no thread took \
                 it. The paper reports for proc_relation_lock: well under two percent, and ten."
            }
            @for (load, table) in &tables { (drawn(load, table)) }
            (the_question(results))
        }
    }
}

/// Returns a named table for each load and machine. If a mode supports only one processor, its
/// modelled figures are shown next to the other figures of their load.
fn tables(cells: &[&Cell]) -> Vec<(String, ContentionTable)> {
    let of_locks = || cells.iter().filter(|cell| cell.params.contains_key(LOCK));
    let name = |cell: &Cell| {
        let mut params = cell.params.clone();
        params.remove(LOCK);
        match paper::label(cell) {
            Some(label) => format!("{}: {label}", words::params(&params)),
            None => words::params(&params),
        }
    };
    let is_one = |cell: &Cell| cell.params.get(MODELLED).is_some_and(|found| found == ONE);
    let several = |cell: &Cell| cell.params.contains_key(MODELLED) && !is_one(cell);
    let any = of_locks().any(|cell| several(cell));
    let mut tables: Vec<(String, ContentionTable)> = Vec::new();
    for cell in of_locks().filter(|cell| !(any && is_one(cell))) {
        let name = name(cell);
        if tables.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let mut table = ContentionTable::default();
        let here = |other: &Cell| self::same(cell, other) || several(cell) && is_one(other);
        for other in of_locks().filter(|other| here(other)) {
            let (lock, share) = (&other.params[LOCK], other.estimate.unwrap_or(f64::NAN));
            table.note(&other.variant, lock, &other.metric, share);
        }
        tables.push((name, table));
    }
    tables
}

/// Returns `true` if two cells differ in the lock only.
fn same(one: &Cell, other: &Cell) -> bool {
    let rest = |cell: &Cell| {
        let mut params: Params = cell.params.clone();
        params.remove(LOCK);
        params
    };
    rest(one) == rest(other)
}

fn drawn(load: &str, table: &ContentionTable) -> Markup {
    html! {
        div.scroll role="region" tabindex="0" aria-label={ "Table: locks, " (load) } {
            table.locks {
                caption { (load) }
                thead { tr {
                    th scope="col" { "lock" }
                    @for mode in table.modes() { th.figure scope="col" { (mode) } }
                } }
                tbody {
                    @for (lock, shares) in table.rows() {
                        tr {
                            th scope="row" { code { (lock) } }
                            @for share in shares { td.figure { (share) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the answer to whether per-process locks are worth it, to the extent that this run shows.
fn the_question(results: &Results) -> Markup {
    let of = |experiment: &str, metric: &str, loaded: bool| {
        let cells = results.cells.iter().filter(move |cell| {
            cell.experiment == experiment
                && cell.metric == metric
                && cell.status == Status::Ok
                && cell.params.contains_key(LOAD_PARAM) == loaded
        });
        gains(&cells.collect::<Vec<_>>())
    };
    let all = [
        ("sessions with builds", of("sessions", "iteration", true)),
        ("these builds", of("sessions", "build", true)),
        ("forks alone", of("fork-throughput", "forked", false)),
    ];
    html! {
        p {
            b {
                "Its open question: would per-process locks be worth it, instead of \
                 proc_relation_lock?"
            }
        }
        ul {
            @for (what, (modelled, here)) in &all {
                li {
                    "For " (what) ", in the model: "
                    (answer(modelled).as_deref().unwrap_or("unknown, this run has no such cells"))
                    ". On this machine's processors: "
                    (here.as_deref().unwrap_or("not measured")) "."
                }
            }
        }
    }
}

/// Returns the gain from per-process locks, by number of modelled processors, and in words for this
/// machine's processors. If several levels were measured, the highest one counts.
fn gains(cells: &[&Cell]) -> (Vec<Gain>, Option<String>) {
    let mut found: BTreeMap<Option<usize>, ContentionCells<'_>> = BTreeMap::new();
    for cell in cells {
        let Some(asked) = ASKED.iter().position(|mode| cell.variant == *mode) else { continue };
        let number = |words: &String| words.split(' ').next()?.parse::<usize>().ok();
        let processors = cell.params.get(MODELLED).and_then(number);
        let level = cell.params.get("processes").and_then(number).unwrap_or(0);
        let best = &mut found.entry(processors).or_default()[asked];
        if best.is_none_or(|(known, _)| level > known) {
            *best = Some((level, cell));
        }
    }
    let (mut modelled, mut here) = (Vec::new(), None);
    for (processors, [one, own]) in found {
        let Some(((level, one), (other, own))) = one.zip(own) else { continue };
        let Some((first, second)) = one.estimate.zip(own.estimate) else { continue };
        if level != other {
            continue;
        }
        let is_rate = one.unit.ends_with("/s");
        let gain = if is_rate { Gain::of_rate } else { Gain::of_time };
        match processors {
            Some(processors) => modelled.push(gain(processors, first, second)),
            None => here = Some(measured(gain(0, first, second), one, own)),
        }
    }
    (modelled, here)
}

/// Returns the measured gain if the intervals do not overlap.
fn measured(gain: Gain, one: &Cell, own: &Cell) -> String {
    let apart = format::ends(one).zip(format::ends(own));
    let apart = apart.is_some_and(|(one, own)| one.1 < own.0 || own.1 < one.0);
    if apart {
        format!("a gain of {:+.1} %", 100.0 * gain.share)
    } else {
        "no difference resolved".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::fixture;

    fn cell(variant: &str, metric: &str, estimate: f64, params: &[(&str, &str)]) -> Cell {
        let mut cell = fixture::small().cells.remove(0);
        (cell.experiment, cell.variant) = ("sessions".into(), variant.into());
        (cell.metric, cell.estimate) = (metric.into(), Some(estimate));
        (cell.low, cell.high) = (Some(estimate * 0.99), Some(estimate * 1.01));
        cell.unit = if metric == "waited" { "share" } else { "s" }.into();
        cell.params = params.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        cell
    }

    #[test]
    fn lock_table_per_machine_includes_one_processor_model() {
        let ten = ("modelled", "10 processors");
        let cells = [
            cell("parallel", "waited", 0.001, &[("lock", "pg_lock")]),
            cell("uniprocessor", "waited", 0.0, &[("lock", "pg_lock"), ("modelled", ONE)]),
            cell("parallel", "waited", 0.02, &[("lock", "pg_lock"), ten]),
            cell("parallel", "blocked", 0.1, &[("lock", "pg_lock"), ten]),
            cell("parallel", "iteration", 2.0, &[ten]),
        ];
        let found = tables(&cells.iter().collect::<Vec<_>>());
        let [(_, here), (name, modelled)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(here.modes(), ["parallel"]);
        assert_eq!(name, "in a model of 10 processors");
        assert_eq!(modelled.modes(), ["uniprocessor", "parallel"]);
        let rows: Vec<_> = modelled.rows().collect();
        assert_eq!(rows, [("pg_lock", vec!["0".to_owned(), "2.00 (10)".to_owned()])]);
    }

    #[test]
    fn lock_question_answers_from_model_and_from_measurement() {
        let loaded = ("beside", "8 builds");
        let ten = ("modelled", "10 processors");
        let mut results = fixture::small();
        results.cells = vec![
            cell("parallel", "iteration", 2.0, &[loaded]),
            cell("per-process", "iteration", 1.0, &[loaded]),
            cell("parallel", "iteration", 1.1, &[loaded, ten]),
            cell("per-process", "iteration", 1.0, &[loaded, ten]),
            cell("parallel", "waited", 0.02, &[loaded, ten, ("lock", "pg_lock")]),
        ];
        let cells: Vec<&Cell> = results.cells.iter().collect();
        let text = contention(&results, &cells).into_string();
        assert!(
            text.contains("sessions with builds, in the model: yes, from 10 processors on"),
            "{text}"
        );
        assert!(text.contains("On this machine's processors: a gain of +100.0 %"), "{text}");
        assert!(text.contains("forks alone, in the model: unknown"), "{text}");
        let without: Vec<&Cell> = cells.iter().copied().take(4).collect();
        assert!(contention(&results, &without).into_string().is_empty());
    }
}
