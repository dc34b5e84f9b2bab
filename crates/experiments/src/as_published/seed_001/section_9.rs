//! Section 9 of source 001: lock statistics under the paper's own load, and the answer to its open
//! question: [`tell_all`].
//!
//! The load is eight sessions and eight builds at the same time, in each mode: on a model of the
//! paper's machine, and on this machine's processors. To answer the question, the model runs the
//! load twice, with per-process locks and with the one lock of all relations, on increasing numbers
//! of processors. Once eight trees of each kind no longer occupy all processors, it runs more of
//! both.
//!
//! One modelled run has few waits, so the share of those that block comes from several runs, each
//! with another seed: [`PooledRuns`]. On this machine's processors the runs are listed one by one,
//! because in some of them almost all waits block, and in others none.

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Deserialize, Serialize};
use tontine_bench::contention::{Gain, answer};
use tontine_bench::engine::invoked::InvocationFigures;
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{MeasureError, Result};
use tontine_unix_sim::{CostKind, CostModel};

use super::super::points::{SourcePoints, reply};
use super::{NEW, PAPERS_MACHINE, PAPERS_PROCESSORS, mean, say, tell};
use crate::modes::{self, COSTS};
use crate::trees::{self, TreeLoad};

/// Number of sessions, and of builds, in the paper's load.
const PAPERS_LOAD: usize = 8;
/// Numbers of processors of the models that answer the question.
const PROCESSORS: [usize; 7] = [2, 4, 8, PAPERS_PROCESSORS, 16, 32, 64];
/// Numbers of processors of the models in a quick run.
const QUICK_PROCESSORS: [usize; 3] = [2, PAPERS_PROCESSORS, 64];
/// The mode with one lock for all relations, and the name of that lock.
const GLOBAL: (&str, &str) = (NEW.variant, "proc_relation_lock");
/// The mode with per-process locks instead, and the name of such a lock.
const OWN: (&str, &str) = ("per-process", "p_family_lock");
/// Number of runs that [`PooledRuns`] adds up, in a quick and in a whole run.
const RUNS: [usize; 2] = [3, 10];
/// Number of runs on this machine's processors.
const RUNS_HERE: usize = 6;
/// Cost of one spin on a blocking lock, in ns, if a thread is to block after a fiftieth of the
/// usual time.
const SHORT_SPIN_NS: f64 = 0.5;
/// Number of attempts to acquire a blocking lock before the thread blocks.
const SPINS: f64 = 100.0;
/// The paper's statement.
const PAPER: &str = "The paper on proc_relation_lock: well under 2 % of its acquisitions waited; \
     10 % of those waits blocked, 90 % ended while the thread still spun. Above the median of the \
     kernel's other locks, and not among the most contended.";

/// Statistics of one lock in one or several runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LockUse {
    pub(super) acquisitions: u64,
    pub(super) waited: u64,
    pub(super) blocked: u64,
    pub(super) longest_hold_ns: u64,
}

/// Statistics by lock.
pub(super) type LockTable = BTreeMap<String, LockUse>;

/// Statistics of the new kernel's locks in several runs of the paper's load.
#[derive(Debug, Clone, Default)]
pub(super) struct PooledRuns {
    pub(super) runs: usize,
    /// Time in ns after which a thread blocks.
    pub(super) spin_ns: f64,
    pub(super) locks: LockTable,
}

/// The results of this section.
#[derive(Debug, Default)]
pub(super) struct LockFindings {
    /// On the paper's machine: with the usual spinning, and with short spinning.
    pub(super) pooled: [PooledRuns; 2],
    /// The lock of all relations on this machine's processors, in each run.
    pub(super) here: Vec<LockUse>,
    pub(super) processors: usize,
    /// Gains of per-process locks for sessions, builds and forks, by number of processors, and the
    /// percentages of the acquisitions of the one lock that waited.
    pub(super) gains: BTreeMap<usize, ([Gain; 3], f64)>,
}

impl PooledRuns {
    /// Returns the statistics of the lock of all relations.
    pub(super) fn relations(&self) -> LockUse {
        self.locks.get(GLOBAL.1).cloned().unwrap_or_default()
    }
}

impl LockUse {
    /// Returns the share of the acquisitions that waited.
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
///
/// # Errors
/// Returns `Failed` if `out` cannot be written.
pub(super) fn tell_all(
    processors: usize,
    points: &mut SourcePoints<'_, '_>,
    out: &mut dyn Write,
) -> Result<LockFindings> {
    say(
        out,
        format_args!("\nSection 9: how locks are taken, eight sessions and eight builds at once"),
    )?;
    table(
        &format!("modelled with {}, uniprocessor with one", PAPERS_MACHINE.1),
        true,
        points,
        out,
    )?;
    table(&format!("virtual Unix on {processors} processors"), false, points, out)?;
    let spin = CostModel::published().ns(CostKind::Spin);
    let pooled = [spin, SHORT_SPIN_NS].map(|spin_ns| pool(spin_ns, points));
    for pooled in &pooled {
        let LockUse { acquisitions, waited, blocked, .. } = pooled.relations();
        let PooledRuns { runs, spin_ns, .. } = pooled;
        tell(
            out,
            &format!(
                "\n{} in {runs} modelled runs, if a thread blocks after {:.2} µs: {waited} of \
                 {acquisitions} acquisitions waited, {blocked} of these blocked",
                GLOBAL.1,
                spin_ns / 1e3
            ),
        )?;
    }
    let here = runs_here(points);
    let runs = here.iter().map(|LockUse { waited, blocked, .. }| format!("{blocked} of {waited}"));
    tell(
        out,
        &format!(
            "\n{} on {processors} real processors, waits that blocked, run by run: {} (of \
             {} acquisitions)",
            GLOBAL.1,
            runs.collect::<Vec<_>>().join(", "),
            here.iter().map(|lock| lock.acquisitions).sum::<u64>()
        ),
    )?;
    tell(out, &format!("\n{PAPER}"))?;
    let numbers: &[usize] = if points.quick() { &QUICK_PROCESSORS } else { &PROCESSORS };
    let gains = question(numbers, points, out)?;
    Ok(LockFindings { pooled, here, processors, gains })
}

/// Adds up several runs of the paper's load in the new kernel, on a model of the paper's machine in
/// which one spin takes this time.
fn pool(spin_ns: f64, points: &mut SourcePoints<'_, '_>) -> PooledRuns {
    let mut pooled = PooledRuns { spin_ns: spin_ns * SPINS, ..PooledRuns::default() };
    for _ in 0..RUNS[usize::from(!points.quick())] {
        let params = Params::from([
            (PAPERS_MACHINE.0.to_owned(), PAPERS_MACHINE.1.to_owned()),
            (COSTS.to_owned(), format!("{}={spin_ns}", CostKind::Spin.name())),
        ]);
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
fn runs_here(points: &mut SourcePoints<'_, '_>) -> Vec<LockUse> {
    let mut run = |_| {
        let params = trees::measured(Params::new(), Size::Quick);
        points.own::<LockTable>(NEW.variant, params).ok()?.remove(GLOBAL.1)
    };
    // All are attempted, so that their number does not depend on their results.
    (0..RUNS_HERE).filter_map(&mut run).collect()
}

/// Writes the locks for which threads waited under the paper's load in every mode, modelled or not.
fn table(
    title: &str,
    modelled: bool,
    points: &mut SourcePoints<'_, '_>,
    out: &mut dyn Write,
) -> Result<()> {
    say(
        out,
        format_args!(
            "\n{title}\n{:<20} {:<12} {:>12} {:>9} {:>9} {:>9}",
            "lock", "mode", "acquisitions", "waited", "", "blocked"
        ),
    )?;
    // For each lock, whether a thread waited for it in any mode.
    let mut contended = BTreeMap::new();
    for variant in modes::VARIANTS {
        let params = if modelled {
            let uniprocessor = variant.name == "uniprocessor";
            let machine = if uniprocessor { "1 processor" } else { PAPERS_MACHINE.1 };
            Params::from([(PAPERS_MACHINE.0.to_owned(), machine.to_owned())])
        } else {
            trees::measured(Params::new(), points.size())
        };
        let locks = match points.own::<LockTable>(variant.name, params) {
            Ok(locks) => locks,
            Err(trouble) => {
                say(out, format_args!("{:<20} {:<12} {trouble}", "", variant.name))?;
                continue;
            }
        };
        for (lock, found) in &locks {
            *contended.entry(lock.clone()).or_insert(false) |= found.waited > 0;
            row(lock, variant.name, found, out)?;
        }
    }
    let free = contended.into_iter().filter_map(|(lock, waited)| (!waited).then_some(lock));
    let free = free.collect::<Vec<_>>().join(", ");
    tell(
        out,
        &format!(
            "(waited: number, and share of the acquisitions; blocked: share of those that waited. \
             No thread waited for {free})"
        ),
    )
}

/// Writes the row of a lock for which threads waited.
fn row(lock: &str, mode: &str, found: &LockUse, out: &mut dyn Write) -> Result<()> {
    let LockUse { acquisitions, waited, blocked, .. } = *found;
    if waited == 0 {
        return Ok(());
    }
    let blocked = 100.0 * blocked as f64 / waited as f64;
    let share = 100.0 * found.share();
    say(
        out,
        format_args!(
            "{lock:<20} {mode:<12} {acquisitions:>12} {waited:>9} {share:>7.2} % {blocked:>7.1} %"
        ),
    )
}

/// Answers whether per-process locks would be worth it, with models of these numbers of processors.
/// Returns the gains.
fn question(
    processors: &[usize],
    points: &mut SourcePoints<'_, '_>,
    out: &mut dyn Write,
) -> Result<BTreeMap<usize, ([Gain; 3], f64)>> {
    tell(
        out,
        &format!(
            "\nIts open question: are locks of each process, instead of the one of all relations, \
             worth it? From {} (`{}`) to {} (`{}`), modelled; in per cent: acquisitions that \
             waited, and gains\n",
            GLOBAL.1, GLOBAL.0, OWN.1, OWN.0,
        ),
    )?;
    say(
        out,
        format_args!(
            "{:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "processors", "load", "one lock", "own locks", "sessions", "builds", "forks"
        ),
    )?;
    let mut all = BTreeMap::new();
    for &processors in processors {
        let LockGain { each, waited, gains } = match gain(processors, points) {
            Ok(gain) => gain,
            Err(trouble) => {
                say(out, format_args!("{processors:>10} {trouble}"))?;
                continue;
            }
        };
        let [one, own] = waited.map(|share| format!("{:.2} %", 100.0 * share));
        // A value rounded to zero is not negative.
        let percent = |gain: Gain| format!("{:+.1} %", (1_000.0 * gain.share).round() / 10.0 + 0.0);
        let [sessions, builds, forks] = gains.map(percent);
        say(
            out,
            format_args!(
                "{processors:>10} {:>9} {one:>9} {own:>9} {sessions:>9} {builds:>9} {forks:>9}",
                format!("{each} + {each}"),
            ),
        )?;
        all.insert(processors, (gains, waited[0]));
    }
    say(out, format_args!("(+: faster with locks of each process)"))?;
    for (at, what) in ["sessions with builds", "these builds", "forks alone"].iter().enumerate() {
        let gains: Vec<Gain> = all.values().map(|(gains, _)| gains[at]).collect();
        let answer = answer(&gains).unwrap_or_else(|| "not known".to_owned());
        tell(out, &format!("for {what}: {answer}"))?;
    }
    Ok(all)
}

/// Gains from per-process locks on a number of processors.
struct LockGain {
    /// Number of sessions, and number of builds.
    each: usize,
    /// Shares of the acquisitions of the one lock, and of the per-process locks, that waited.
    waited: [f64; 2],
    /// Gains for sessions, for builds and for forks.
    gains: [Gain; 3],
}

fn gain(processors: usize, points: &mut SourcePoints<'_, '_>) -> Result<LockGain> {
    // A tree stays on one processor, so fewer trees would leave some processors idle.
    let each = PAPERS_LOAD.max(processors / 2);
    let cell = |pairs: [(&str, String); 2]| {
        let all = pairs.into_iter().chain([(PAPERS_MACHINE.0, format!("{processors} processors"))]);
        all.map(|(name, value)| (name.to_owned(), value)).collect::<Params>()
    };
    let load = cell([("sessions", each.to_string()), ("beside", format!("{each} builds"))]);
    // If the model has no more processors than the paper's machine, use the highest level of the
    // fork curve.
    let most = if processors > PAPERS_PROCESSORS { processors } else { processors.min(7) };
    let forks = Params::from([
        ("processes".to_owned(), most.to_string()),
        (PAPERS_MACHINE.0.to_owned(), format!("{processors} processors")),
    ]);
    let mut measure = |experiment: &str, mode: &str, params: &Params| {
        let (experiment, variant) = (experiment.to_owned(), mode.to_owned());
        let task = InvocationTask { experiment, variant, params: params.clone(), size: Size::Full };
        points.cell(&task)
    };
    // All four are measured, even if one fails.
    let [one, own] = [GLOBAL, OWN].map(|(mode, _)| measure("sessions", mode, &load));
    let [slow, fast] = [GLOBAL, OWN].map(|(mode, _)| measure("fork-throughput", mode, &forks));
    let (one, own, slow, fast) = (one?, own?, slow?, fast?);
    let time = |metric| -> Result<Gain> {
        Ok(Gain::of_time(processors, mean(&one, metric)?, mean(&own, metric)?))
    };
    let forked = Gain::of_rate(processors, mean(&slow, "forked")?, mean(&fast, "forked")?);
    Ok(LockGain {
        each,
        waited: [waited(&one, GLOBAL.1)?, waited(&own, OWN.1)?],
        gains: [time("iteration")?, time("build")?, forked],
    })
}

/// Returns the share of a lock's acquisitions that waited.
fn waited(figures: &InvocationFigures, lock: &str) -> Result<f64> {
    let of_lock = |figure: &&tontine_bench::engine::invoked::MetricSummary| {
        figure.metric == "waited" && figure.at.get("lock").is_some_and(|name| name == lock)
    };
    let found = figures.figures.iter().find(of_lock);
    Ok(found.ok_or_else(|| MeasureError::fail(format!("no thread took {lock}")))?.summary.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::as_published::points::in_this_process;
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn lock_table_of_papers_machine_has_every_lock_once() {
        let mut out = Vec::new();
        in_this_process("001", |points| table("modelled", true, points, &mut out))
            .expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let (rows, free) = text.split_once("(waited: ").expect("a legend");
        for lock in ["coarse_lock", "proc_relation_lock", "p_family_lock", "pg_lock", "p_lock"] {
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
            let table = LockTable::from([(GLOBAL.1.to_owned(), lock)]);
            let notes = vec![serde_json::to_string(&table).expect("JSON")];
            Ok(InvocationFigures::of(Observed { notes, ..Observed::default() }))
        };
        let mut points = SourcePoints { source: "001", quick: true, measure: &mut measure };
        let pooled = pool(SHORT_SPIN_NS, &mut points);
        assert_eq!((pooled.runs, pooled.spin_ns), (RUNS[0], SPINS * SHORT_SPIN_NS));
        let all = LockUse { acquisitions: 60, waited: 6, blocked: 3, longest_hold_ns: 100 };
        assert_eq!(pooled.relations(), all);
    }

    #[test]
    #[ignore = "takes long: computes on real processors"]
    fn real_runs_count_acquisitions_of_the_relations() {
        in_a_process_of_its_own(|| {
            let runs = in_this_process("001", runs_here);
            let counted = runs.iter().all(|lock| {
                lock.acquisitions > 1_000
                    && lock.acquisitions >= lock.waited
                    && lock.waited >= lock.blocked
            });
            if runs.len() == RUNS_HERE && counted { Ok(()) } else { Err(format!("{runs:?}")) }
        });
    }

    #[test]
    fn lock_question_is_answered_for_load_and_for_forks() {
        let mut out = Vec::new();
        let gains = in_this_process("001", |points| question(&[2], points, &mut out));
        assert_eq!(gains.expect("a vector can be written").len(), 1);
        let text = String::from_utf8(out).expect("UTF-8");
        for start in ["for sessions with builds: ", "for these builds: ", "for forks alone: "] {
            let answer = text.lines().find_map(|line| line.strip_prefix(start));
            let answer = answer.unwrap_or_else(|| panic!("no answer: {text}"));
            let known = ["yes, from ", "no, not on up to ", "not sustained: "];
            assert!(known.iter().any(|begin| answer.starts_with(begin)), "{answer}");
        }
        let row = text.lines().find(|line| line.starts_with("         2     8 + 8 "));
        let percentages = row.expect("a row of two processors").matches('%').count();
        assert_eq!(percentages, 5, "{text}");
    }
}
