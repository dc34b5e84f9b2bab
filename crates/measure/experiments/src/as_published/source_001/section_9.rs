//! Section 9 of source 001: lock statistics under the paper's own load, and the answer to its open
//! question: [`measure`].
//!
//! The load is eight sessions and eight builds at the same time, in each mode. To answer the
//! question, the model runs the load on increasing numbers of processors, and counts how many
//! acquisitions of the one lock of all relations wait: locks of each process can gain only these
//! waits (decision record 26 has the gains of a mode that had such locks).
//!
//! One modelled run has few waits, so the share of those that block comes from several runs, each
//! with another seed: [`PooledRuns`]. On this machine's processors the runs are listed one by one,
//! because in some of them almost all waits block, and in others none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tontine_unix_sim::{CostKind, CostModel, LockingMode};

use super::{NEW, PAPERS_MACHINE, PAPERS_PROCESSORS};
use crate::as_published::points::{Reproduction, reply};
use crate::modes::{self, COSTS};
use crate::prelude::*;
use crate::trees::{self, TreeLoad};

/// Number of sessions, and of builds, in the paper's load.
const PAPERS_LOAD: usize = 8;
const PROCESSORS: [usize; 7] = [2, 4, 8, PAPERS_PROCESSORS, 16, 32, 64];
const QUICK_PROCESSORS: [usize; 3] = [2, PAPERS_PROCESSORS, 64];
const RELATIONS: &str = "proc_relation_lock";
/// Number of runs that [`PooledRuns`] adds up, in a quick and in a whole run.
const RUNS: [usize; 2] = [3, 10];
const RUNS_HERE: usize = 6;
/// Cost of one spin on a blocking lock, in ns, if a thread is to block after a fiftieth of the
/// usual time.
const SHORT_SPIN_NS: f64 = 0.5;
/// Number of attempts to acquire a blocking lock before the thread blocks.
const SPINS: f64 = 100.0;
const PAPER: &str = "The paper on proc_relation_lock: well under 2 % of its acquisitions waited; \
     10 % of those waits blocked, 90 % ended while the thread still spun. Above the median of the \
     kernel's other locks, and not among the most contended.";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LockUse {
    pub(super) acquisitions: u64,
    pub(super) waited: u64,
    pub(super) blocked: u64,
    pub(super) longest_hold_ns: u64,
}

pub(super) type LockTable = BTreeMap<String, LockUse>;

/// Statistics of the new kernel's locks in several runs of the paper's load.
#[derive(Debug, Clone, Default)]
pub(super) struct PooledRuns {
    pub(super) runs: usize,
    /// Time in ns after which a thread blocks.
    pub(super) spin_ns: f64,
    pub(super) locks: LockTable,
}

#[derive(Debug, Default)]
pub(super) struct LockFindings {
    /// On the paper's machine: with the usual spinning, and with short spinning.
    pub(super) pooled: [PooledRuns; 2],
    /// The lock of all relations on this machine's processors, in each run.
    pub(super) here: Vec<LockUse>,
    pub(super) processors: usize,
    /// Share of the acquisitions of the lock of all relations that waited, by number of processors.
    pub(super) waits: BTreeMap<usize, f64>,
}

impl PooledRuns {
    pub(super) fn relations(&self) -> LockUse {
        self.locks.get(RELATIONS).cloned().unwrap_or_default()
    }
}

impl LockUse {
    pub(super) fn share(&self) -> f64 {
        self.waited as f64 / self.acquisitions.max(1) as f64
    }

    fn add(&mut self, other: &Self) {
        self.acquisitions += other.acquisitions;
        self.waited += other.waited;
        self.blocked += other.blocked;
        self.longest_hold_ns = self.longest_hold_ns.max(other.longest_hold_ns);
    }
}

/// Measures one run of the load that a task describes, in the calling process: the statistics of
/// all locks that were taken.
pub(in super::super) fn own_point(task: &InvocationTask) -> Result<Observed> {
    let mode = modes::mode(&task.variant)
        .ok_or_else(|| MeasureError::fail(format!("there is no mode {}", task.variant)))?;
    let load = TreeLoad { builds: PAPERS_LOAD, sessions: PAPERS_LOAD };
    let done = load.of_a_cell(mode, &task.params, true)?;
    let rows = done.locks.into_iter().flat_map(|locks| locks.rows);
    let taken = rows.filter(|row| row.acquisitions > 0).map(|row| {
        let found = LockUse {
            acquisitions: row.acquisitions,
            waited: row.waited,
            blocked: row.blocked,
            longest_hold_ns: row.held_max_ns,
        };
        (row.name.to_owned(), found)
    });
    reply(&taken.collect::<LockTable>())
}

/// Measures and writes the statistics and the answer. A quick run uses fewer numbers of processors.
pub(super) fn measure(processors: usize, points: &mut Reproduction<'_, '_>) -> LockFindings {
    points.say(format_args!(
        "\nSection 9: how locks are taken, eight sessions and eight builds at once"
    ));
    let title = format!("modelled with {}, uniprocessor with one", PAPERS_MACHINE.1);
    table(&title, true, points);
    table(&format!("virtual Unix on {processors} processors"), false, points);
    let spin = CostModel::published().ns(CostKind::Spin);
    let pooled = [spin, SHORT_SPIN_NS].map(|spin_ns| pool(spin_ns, points));
    for pooled in &pooled {
        let LockUse { acquisitions, waited, blocked, .. } = pooled.relations();
        let (runs, spin_us) = (pooled.runs, pooled.spin_ns / 1e3);
        points.wrap(&format!(
            "\n{RELATIONS} in {runs} modelled runs, if a thread blocks after {spin_us:.2} µs: \
             {waited} of {acquisitions} acquisitions waited, {blocked} of these blocked"
        ));
    }
    let here = runs_here(points);
    let runs = here.iter().map(|LockUse { waited, blocked, .. }| format!("{blocked} of {waited}"));
    let runs = runs.collect::<Vec<_>>().join(", ");
    let acquisitions: u64 = here.iter().map(|lock| lock.acquisitions).sum();
    points.wrap(&format!(
        "\n{RELATIONS} on {processors} real processors, waits that blocked, run by run: {runs} \
         (of {acquisitions} acquisitions)"
    ));
    points.wrap(&format!("\n{PAPER}"));
    let numbers: &[usize] = if points.quick { &QUICK_PROCESSORS } else { &PROCESSORS };
    let waits = question(numbers, points);
    LockFindings { pooled, here, processors, waits }
}

/// Adds up several runs of the paper's load in the new kernel, on a model of the paper's machine in
/// which one spin takes this time.
fn pool(spin_ns: f64, points: &mut Reproduction<'_, '_>) -> PooledRuns {
    let mut pooled = PooledRuns { spin_ns: spin_ns * SPINS, ..PooledRuns::default() };
    for _ in 0..RUNS[usize::from(!points.quick)] {
        let costs = format!("{}={spin_ns}", CostKind::Spin.name());
        let params = params([PAPERS_MACHINE, (COSTS, &costs)]);
        let Ok(run) = points.own::<LockTable>(NEW.variant, params) else { continue };
        pooled.runs += 1;
        for (lock, found) in run {
            pooled.locks.entry(lock).or_default().add(&found);
        }
    }
    pooled
}

/// Runs the paper's load in the new kernel on this machine's processors, with a part of its
/// computing, and returns the statistics of the lock of all relations in each run.
fn runs_here(points: &mut Reproduction<'_, '_>) -> Vec<LockUse> {
    let mut run = |_| {
        let params = trees::measured(Params::new(), Size::Quick);
        points.own::<LockTable>(NEW.variant, params).ok()?.remove(RELATIONS)
    };
    // All are attempted, so that their number does not depend on their results.
    (0..RUNS_HERE).filter_map(&mut run).collect()
}

/// Writes the locks for which threads waited under the paper's load in every mode, modelled or not.
fn table(title: &str, modelled: bool, points: &mut Reproduction<'_, '_>) {
    points.say(format_args!(
        "\n{title}\n{:<20} {:<12} {:>12} {:>9} {:>9} {:>9}",
        "lock", "mode", "acquisitions", "waited", "", "blocked"
    ));
    // For each lock, whether a thread waited for it in any mode.
    let mut contended = BTreeMap::new();
    for mode in LockingMode::ALL.map(|mode| mode.to_string()) {
        let params = if modelled {
            let machine = if mode == "uniprocessor" { "1 processor" } else { PAPERS_MACHINE.1 };
            params([(PAPERS_MACHINE.0, machine)])
        } else {
            trees::measured(Params::new(), points.size())
        };
        let locks = match points.own::<LockTable>(&mode, params) {
            Ok(locks) => locks,
            Err(error) => {
                points.say(format_args!("{:<20} {mode:<12} {error}", ""));
                continue;
            }
        };
        for (lock, found) in locks {
            let LockUse { acquisitions, waited, blocked, .. } = found;
            if waited > 0 {
                let blocked = 100.0 * blocked as f64 / waited as f64;
                let share = 100.0 * found.share();
                points.say(format_args!(
                    "{lock:<20} {mode:<12} {acquisitions:>12} {waited:>9} {share:>7.2} % \
                     {blocked:>7.1} %"
                ));
            }
            *contended.entry(lock).or_insert(false) |= waited > 0;
        }
    }
    let free = contended.into_iter().filter_map(|(lock, waited)| (!waited).then_some(lock));
    let free = free.collect::<Vec<_>>().join(", ");
    points.wrap(&format!(
        "(waited: number, and share of the acquisitions; blocked: share of those that waited. No \
         thread waited for {free})"
    ));
}

/// Answers whether per-process locks would be worth it, with models of these numbers of processors.
/// Returns the shares of the acquisitions of the one lock that waited.
fn question(processors: &[usize], points: &mut Reproduction<'_, '_>) -> BTreeMap<usize, f64> {
    points.wrap(&format!(
        "\nIts open question: are locks of each process, instead of {RELATIONS}, worth it? They \
         can save only its waits; modelled:\n"
    ));
    points.say(format_args!("{:>10} {:>9} {:>9}", "processors", "load", "waited"));
    let mut all = BTreeMap::new();
    for &processors in processors {
        // A tree stays on one processor, so fewer trees would leave some processors idle.
        let each = PAPERS_LOAD.max(processors / 2);
        match waited_on(processors, each, points) {
            Ok(share) => {
                let (load, percent) = (format!("{each} + {each}"), 100.0 * share);
                points.say(format_args!("{processors:>10} {load:>9} {percent:>7.2} %"));
                all.insert(processors, share);
            }
            Err(error) => points.say(format_args!("{processors:>10} {error}")),
        }
    }
    all
}

/// Returns the share of the acquisitions of the lock of all relations that waited under `each`
/// sessions and as many builds.
fn waited_on(processors: usize, each: usize, points: &mut Reproduction<'_, '_>) -> Result<f64> {
    let params = params([
        ("sessions", &each.to_string()),
        ("beside", &format!("{each} builds")),
        (PAPERS_MACHINE.0, &format!("{processors} processors")),
    ]);
    let task = InvocationTask::new("sessions", NEW.variant, params, Size::Full);
    let figures = points.cell(&task)?;
    let found = figures.figures.iter().find(|figure| {
        figure.metric == "waited" && figure.at.get("lock").is_some_and(|name| name == RELATIONS)
    });
    Ok(found.ok_or_else(|| MeasureError::fail("no thread took the lock"))?.summary.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::as_published::points::{in_this_process, with_points};
    use tontine_bench::engine::invoked::InvocationFigures;

    #[test]
    fn lock_table_of_papers_machine_has_every_lock_once() {
        let ((), text) = in_this_process("001", |points| table("modelled", true, points));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let (rows, free) = text.split_once("(waited: ").expect("a legend");
        for lock in ["proc_relation_lock", "pg_lock", "p_lock"] {
            let rows = rows.lines().filter(|line| line.split(' ').next() == Some(lock)).count();
            let words = free.split(|letter: char| letter != '_' && !letter.is_alphanumeric());
            let is_free = words.filter(|word| *word == lock).count();
            assert!((rows > 0) != (is_free == 1), "{lock}: {text}");
        }
        assert!(!text.contains("failed"), "{text}");
    }

    /// The number of acquisitions grows from run to run, and the longest hold is that of the first.
    #[test]
    fn pooled_runs_add_up_their_locks() {
        let mut run = 0;
        let mut measure = |_: &InvocationTask| {
            run += 1;
            let lock = LockUse {
                acquisitions: 10 * run,
                waited: 2,
                blocked: 1,
                longest_hold_ns: 100 / run,
            };
            let table = LockTable::from([(RELATIONS.to_owned(), lock)]);
            let notes = vec![serde_json::to_string(&table).expect("JSON")];
            Ok(InvocationFigures::of(Observed { notes, ..Observed::default() }))
        };
        let (pooled, _) = with_points("001", &mut measure, |points| pool(SHORT_SPIN_NS, points));
        assert_eq!((pooled.runs, pooled.spin_ns), (RUNS[0], SPINS * SHORT_SPIN_NS));
        let all = LockUse { acquisitions: 60, waited: 6, blocked: 3, longest_hold_ns: 100 };
        assert_eq!(pooled.relations(), all);
    }

    #[test]
    #[ignore = "takes long: computes on real processors"]
    fn real_runs_count_acquisitions_of_the_relations() {
        in_a_process_of_its_own(|| {
            let (runs, _) = in_this_process("001", runs_here);
            let counted = runs.iter().all(|lock| {
                lock.acquisitions > 1_000
                    && lock.acquisitions >= lock.waited
                    && lock.waited >= lock.blocked
            });
            if runs.len() == RUNS_HERE && counted { Ok(()) } else { Err(format!("{runs:?}")) }
        });
    }

    #[test]
    fn lock_question_counts_waits_of_the_one_lock() {
        let (waits, text) = in_this_process("001", |points| question(&[2], points));
        assert!(waits[&2] < 0.05, "{waits:?}");
        let row = text.lines().find(|line| line.starts_with("         2     8 + 8 "));
        assert!(row.expect("a row of two processors").ends_with(" %"), "{text}");
    }
}
