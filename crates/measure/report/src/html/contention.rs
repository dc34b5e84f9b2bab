//! Section 9 of source 001 on the page: [`contention`] shows the lock statistics under that
//! section's load, one table per machine.
//!
//! The figures behind each share are in the tables of its metric.

use maud::{Markup, html};
use tontine_bench::schema::Cell;
use tontine_bench::task::Params;

use super::{paper, words};
use crate::contention::ContentionTable;

/// The parameter that names a lock.
const LOCK: &str = "lock";
/// The parameter for the number of modelled processors.
const MODELLED: &str = "modelled";
/// Value for a model with one processor.
const ONE: &str = "1 processor";

/// Returns `true` if the metric is a lock statistic.
pub(super) fn is_of_locks(metric: &str) -> bool {
    matches!(metric, "waited" | "blocked")
}

/// Returns the tables of `cells`, which are the cells of an experiment that have a figure. Returns
/// nothing if no cell is a lock statistic.
pub(super) fn contention(cells: &[&Cell]) -> Markup {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

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
}
