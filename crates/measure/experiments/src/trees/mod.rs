//! Real builds and sessions, repeated in the virtual Unix: [`TreeLoad`]. Their cells: [`cells`].
//!
//! `cargo xtask trees` traces one `make` and one session of a pseudo-user ([`tree`]). Each traced
//! process becomes a virtual process that makes the same calls in the same order, and computes in
//! between. The traced computing includes the time of the real forks and exits: if the costs of a
//! model make these longer than the library's do, each process computes for that much less. No data
//! passes from process to process (a read finds a byte that the process itself wrote), and no disk
//! is shared.

mod tree;

use std::sync::Arc;
use std::time::Duration;

use tontine_unix::{Errno, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys};
use tontine_unix_sim::{CostKind, CostModel, LockStatistics, LockingMode};

use crate::levels::{self, crowd, levels};
use crate::modes::{self, Found, System, TimeSource};
use crate::prelude::*;
use tree::{RecordedTree, TraceOp};

const PROGRAM: &str = "tree";
/// Delay between the starts of two sessions, as with real sessions.
const DELAY: Duration = Duration::from_millis(10);
/// Maximum number of this machine's processors for a load.
const MOST_PROCESSORS: usize = 16;
/// The parameter for the processors on which the trees begin. With the value [`OFF_MASTER`], none
/// begins on processor 0.
pub(super) const PLACEMENT: &str = "placement";
/// Trees begin on all processors but the first, which is the master in mode `master`.
pub(super) const OFF_MASTER: &str = "off-master";
/// The parameter for the fraction of the real computing time that is used.
const COMPUTING: &str = "computing";
/// Prefix of the denominator of that fraction.
const ONE_OF: &str = "1/";

/// Returns the lock statistics, as rows of the paper's section 9: for each lock, the fraction of
/// acquisitions that waited, and the fraction of these that blocked.
pub(super) fn of_locks(locks: &LockStatistics) -> Vec<Series> {
    let taken = locks.rows.iter().filter(|row| row.acquisitions > 0);
    let shares = taken.flat_map(|row| {
        let share = |metric: &str, part: u64, tries: u64| {
            let share = vec![part as f64 / tries as f64];
            let series = Series::ns(metric, share).in_unit("share").by_mean();
            (tries > 0).then(|| series.batched(tries as usize).at("lock", row.name))
        };
        let waited = share("waited", row.waited, row.acquisitions);
        waited.into_iter().chain(share("blocked", row.blocked, row.waited))
    });
    shares.collect()
}

/// Returns the cells of a mode with levels up to `most`: on this machine's processors, and
/// modelled.
pub(super) fn cells(
    mode: LockingMode,
    size: Size,
    most: usize,
    cell: impl Fn(usize) -> Params + Copy,
) -> Vec<Params> {
    let processors = pin::allowed().map_or(1, |allowed| allowed.len());
    let levels = levels(size, processors, most);
    let measured = levels.into_iter().map(|level| measured(cell(level), size));
    let modelled = |processors| levels::modelled(size, processors, most);
    measured.chain(modes::modelled_cells(Some(mode), size, modelled, cell)).collect()
}

pub(super) fn measured(mut params: Params, size: Size) -> Params {
    let parts = size.computing_parts();
    if parts > 1 {
        params.insert(COMPUTING.to_owned(), format!("{ONE_OF}{parts}"));
    }
    params
}

/// Returns `n` if a cell does one `n`th of its computing.
fn parts(params: &Params) -> Result<u32> {
    let Some(found) = params.get(COMPUTING) else { return Ok(1) };
    let parts = found.strip_prefix(ONE_OF).and_then(|parts| parts.parse().ok());
    parts.filter(|parts| *parts > 0).ok_or_else(|| {
        MeasureError::fail(format!(
            "expected a part of the computing, such as {ONE_OF}8, found `{found}`"
        ))
    })
}

/// Returns the number of signal calls that the shell of the traced session makes, and the number
/// of processes that it starts.
pub(super) fn calls_of_the_shell() -> Result<(usize, usize)> {
    let session = RecordedTree::session()?;
    let shell = session.0.first().map_or(&[][..], Vec::as_slice);
    let count = |is: fn(&TraceOp) -> bool| shell.iter().filter(|step| is(step)).count();
    let calls = count(|step| matches!(step, TraceOp::Action | TraceOp::Mask | TraceOp::Kill));
    Ok((calls, count(|step| matches!(step, TraceOp::Fork(_)))))
}

const NOTE: &str = "the processes of a real one, traced: they fork, call exec, wait, query signals \
                    and compute as it did, share no disk, and do not wait for each other's data";

/// The number of simultaneous builds and sessions.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeLoad {
    pub(super) builds: usize,
    pub(super) sessions: usize,
}

#[derive(Debug)]
pub(super) struct LoadResult {
    pub(super) notes: Vec<String>,
    pub(super) builds: Vec<f64>,
    pub(super) sessions: Vec<f64>,
    pub(super) locks: Option<LockStatistics>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeKind {
    Build,
    Session,
}

impl TreeLoad {
    /// Runs the load that a cell of this mode describes. Counts locks if `counted`.
    pub(super) fn of_a_cell(
        self,
        mode: LockingMode,
        params: &Params,
        counted: bool,
    ) -> Result<LoadResult> {
        let system = System::of_a_cell(mode, params, MOST_PROCESSORS)?;
        let parts = parts(params)?;
        let first = first_processor(params, system.processors)?;
        let mut done = self.run(TreeSetup { system, parts, first }, counted)?;
        done.notes = vec![system.note(), NOTE.to_owned()];
        if parts > 1 {
            done.notes.push(format!(
                "computing is cut to 1/{parts} of the real one's, so calls and locks follow each \
                 other faster"
            ));
        }
        done.notes.extend(crowd(self.builds + self.sessions, system.processors));
        Ok(done)
    }

    fn run(self, setup: TreeSetup, counted: bool) -> Result<LoadResult> {
        let trees = [RecordedTree::build()?, RecordedTree::session()?];
        let shares = [0, 1].map(|kind| setup.computing(&trees[kind]));
        let [builds, sessions] = trees.map(Arc::new);
        let (again, too) = (Arc::clone(&builds), Arc::clone(&sessions));
        let builder =
            setup.system.builder().statistics(counted).program(PROGRAM, move |sys, words| {
                let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
                let (Some(kind), Some(process), Some(from)) = (number(1), number(2), number(3))
                else {
                    return 2;
                };
                let kind = if kind == TreeKind::Build as usize {
                    TreeKind::Build
                } else {
                    TreeKind::Session
                };
                let tree = if kind == TreeKind::Build { &again } else { &too };
                let (watch, share) = (setup.system.watch, shares[kind as usize]);
                live(sys, TreeShared { tree, kind, watch, share }, process, from)
            });
        let program = move |sys: &dyn Sys, found: &Found<(TreeKind, f64)>| {
            self.begin(sys, setup, [(&builds, shares[0]), (&sessions, shares[1])], found)
        };
        let (all, report) = modes::run(builder, program)?;
        let of = |kind| all.iter().filter(|one| one.0 == kind).map(|one| one.1).collect();
        let (builds, sessions) = (of(TreeKind::Build), of(TreeKind::Session));
        Ok(LoadResult { notes: Vec::new(), builds, sessions, locks: report.locks })
    }

    /// Forks one process per tree, which times the tree.
    fn begin(
        self,
        sys: &dyn Sys,
        TreeSetup { system, parts, first }: TreeSetup,
        [builds, sessions]: [(&Arc<RecordedTree>, f64); 2],
        found: &Found<(TreeKind, f64)>,
    ) -> tontine_unix::Result<()> {
        let all = (0..self.builds).map(|_| (TreeKind::Build, builds, Duration::ZERO)).chain(
            (0..self.sessions).map(|n| (TreeKind::Session, sessions, DELAY / parts * n as u32)),
        );
        for (number, (kind, (tree, share), delay)) in all.enumerate() {
            let (tree, found, watch) = (Arc::clone(tree), found.clone(), system.watch);
            sys.place(Some(first + number % (system.processors - first)))?;
            sys.fork(move |sys| {
                if !delay.is_zero() && sys.nanosleep(delay).is_err() {
                    return 1;
                }
                // A session begins like that of a user who logs in.
                if kind == TreeKind::Session && sys.setsid().is_err() {
                    return 1;
                }
                let begun = watch.begin(sys);
                let life = TreeShared { tree: &tree, kind, watch, share };
                let Ok(root) = fork_here(sys, life, 0) else { return 1 };
                let waited = sys.wait();
                let seconds = watch.ns_since(sys, begun) / 1e9;
                found.push((kind, seconds));
                i32::from(!waited.is_ok_and(|waited| waited.pid == root))
            })?;
        }
        modes::reap(sys, self.builds + self.sessions)
    }
}

/// The system of a load, and the places of its trees.
#[derive(Debug, Clone, Copy)]
struct TreeSetup {
    system: System,
    /// Each process does one `parts`th of its computing.
    parts: u32,
    first: usize,
}

impl TreeSetup {
    /// Returns the share of a tree's computing that its processes do.
    fn computing(self, tree: &RecordedTree) -> f64 {
        let longer_s = match self.system.watch {
            TimeSource::Machine(_) => 0.0,
            TimeSource::Model { costs, .. } => {
                let published = CostModel::published();
                let steps = [CostKind::Fork, CostKind::Exit, CostKind::Reap].into_iter();
                let longer_ns = steps.map(|step| costs.ns(step) - published.ns(step)).sum::<f64>();
                tree.0.len() as f64 * longer_ns / 1e9
            }
        };
        (1.0 - longer_s / tree.computing().as_secs_f64()).max(0.0) / f64::from(self.parts)
    }
}

fn first_processor(params: &Params, processors: usize) -> Result<usize> {
    match params.get(PLACEMENT).map(String::as_str) {
        None => Ok(0),
        Some(OFF_MASTER) if processors > 1 => Ok(1),
        Some(OFF_MASTER) => Err(MeasureError::skip("needs a processor besides the master")),
        Some(other) => Err(MeasureError::fail(format!("trees have no placement `{other}`"))),
    }
}

/// Data shared by all processes of a tree.
#[derive(Clone, Copy)]
struct TreeShared<'a> {
    tree: &'a Arc<RecordedTree>,
    kind: TreeKind,
    watch: TimeSource,
    share: f64,
}

/// Forks a child on its parent's processor, where most children run whose parents wait for them
/// immediately. In mode `master` the child would otherwise begin on the master processor.
fn fork_here(sys: &dyn Sys, life: TreeShared<'_>, process: usize) -> tontine_unix::Result<Pid> {
    sys.place(Some(sys.processor()))?;
    let TreeShared { kind, watch, share, .. } = life;
    let tree = Arc::clone(life.tree);
    sys.fork(move |sys| live(sys, TreeShared { tree: &tree, kind, watch, share }, process, 0))
}

/// Runs a process from step `from` on. Returns its exit status.
fn live(sys: &dyn Sys, life: TreeShared<'_>, process: usize, from: usize) -> i32 {
    let TreeShared { tree, kind, watch, share } = life;
    let mut pipe = None;
    let mut children = 0_usize;
    let Some(steps) = tree.0.get(process) else { return 2 };
    for (at, step) in steps.iter().enumerate().skip(from) {
        let done = match *step {
            TraceOp::Compute(duration) => {
                watch.compute(sys, duration.mul_f64(share));
                Ok(())
            }
            TraceOp::Fork(child) => fork_here(sys, life, child).map(|_| children += 1),
            TraceOp::Exec => {
                let words = [kind as usize, process, at + 1].map(|number| number.to_string());
                sys.exec(PROGRAM, &[PROGRAM, &words[0], &words[1], &words[2]]).map(|_| ())
            }
            TraceOp::Wait => match sys.wait() {
                Ok(_) => {
                    children = children.saturating_sub(1);
                    Ok(())
                }
                // The process waited for these children before the exec, whose closure has no
                // record of them.
                Err(Errno::ECHILD) => Ok(()),
                Err(errno) => Err(errno),
            },
            TraceOp::Action => {
                sys.sigaction(Signal::USR2, Some(SigAction::handler(|_, _| {}))).map(|_| ())
            }
            TraceOp::Mask => sys.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY))).map(|_| ()),
            TraceOp::Kill => sys.kill(sys.getpid().into(), None),
            TraceOp::Pipe => sys.pipe().and_then(|(from, to)| {
                sys.close(from)?;
                sys.close(to)
            }),
            TraceOp::Byte => byte(sys, &mut pipe),
            // The process may already lead a group or a session.
            TraceOp::Group => sys.setpgid(Pid::number_only(0), Pid::number_only(0)).or(Ok(())),
            TraceOp::Session => sys.setsid().map(|_| ()).or(Ok(())),
        };
        if done.is_err() {
            return 1;
        }
    }
    while children > 0 && sys.wait().is_ok() {
        children -= 1;
    }
    0
}

/// Writes a byte into one of the process's own pipes, or reads a byte from it.
fn byte(
    sys: &dyn Sys,
    pipe: &mut Option<(tontine_unix::Fd, tontine_unix::Fd, bool)>,
) -> tontine_unix::Result<()> {
    let (from, to, filled) = match *pipe {
        Some(pipe) => pipe,
        None => {
            let (from, to) = sys.pipe()?;
            (from, to, false)
        }
    };
    *pipe = Some((from, to, !filled));
    if filled { sys.read(from, &mut [0]) } else { sys.write(to, &[0]) }.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: TreeLoad = TreeLoad { builds: 1, sessions: 2 };

    fn sum(done: &LoadResult) -> f64 {
        done.sessions.iter().sum()
    }

    #[test]
    fn modelled_load_ends_and_scales_in_every_mode() {
        for mode in LockingMode::ALL {
            let on = |processors| {
                let watch = TimeSource::Model { seed: 1, costs: CostModel::published() };
                let system = System { mode, processors, watch };
                LOAD.run(TreeSetup { system, parts: 1, first: 0 }, true).expect("it ends")
            };
            let alone = on(1);
            assert_eq!((alone.builds.len(), alone.sessions.len()), (1, 2), "{mode}");
            let locks = alone.locks.as_ref().expect("they were counted");
            assert!(locks.rows.iter().any(|row| row.acquisitions > 1000), "{mode}");
            if mode != LockingMode::Uniprocessor {
                assert!(sum(&on(3)) < 0.8 * sum(&alone), "{mode}");
            }
        }
    }

    #[test]
    fn load_on_real_processors_computes_its_full_time() {
        let tree = RecordedTree::session().expect("a tree");
        let alone = tree.computing().as_secs_f64() / 16.0;
        for mode in LockingMode::ALL {
            let processors = if mode == LockingMode::Uniprocessor { 1 } else { 2 };
            let watch = TimeSource::Machine(Clock::calibrated());
            let system = System { mode, processors, watch };
            let setup = TreeSetup { system, parts: 16, first: 0 };
            let done = LOAD.run(setup, true).expect("it ends");
            assert_eq!((done.builds.len(), done.sessions.len()), (1, 2), "{mode}");
            // Each interval is rounded down, by less than a microsecond.
            let long = |seconds: &f64| *seconds > 0.9 * alone;
            assert!(done.sessions.iter().all(long), "{mode}: {done:?}, {alone}");
            let locks = done.locks.expect("they were counted");
            assert!(locks.rows.iter().any(|row| row.acquisitions > 1000), "{mode}");
        }
    }

    #[test]
    fn session_takes_as_long_with_longer_forks_and_exits() {
        let of = |costs: &str, placement: &str| {
            let cell = [("modelled", "4 processors"), ("costs", costs), (PLACEMENT, placement)];
            let params = cell.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let load = TreeLoad { builds: 0, sessions: 1 };
            load.of_a_cell(LockingMode::Parallel, &params, false).map(|done| sum(&done))
        };
        let own = of("fork=337.502", OFF_MASTER).expect("a session");
        let longer = of("fork=100000 exit=30000 reap=20000", OFF_MASTER).expect("a session");
        assert!((longer / own - 1.0).abs() < 0.02, "{own} {longer}");
        assert!(of("fork=337.502", "on-the-moon").expect_err("no place").why().contains("moon"));
    }

    #[test]
    fn tree_cells_state_model_and_computing_part() {
        let cell = |level: usize| Params::from([("builds".to_owned(), level.to_string())]);
        for mode in LockingMode::ALL {
            let quick = cells(mode, Size::Quick, 8, cell);
            assert!(quick.len() >= 3, "{mode}");
            for params in quick {
                let modelled = params.contains_key("modelled");
                assert_eq!(parts(&params).expect("a part") == 1, modelled, "{mode}: {params:?}");
            }
            let full = cells(mode, Size::Full, 8, cell);
            assert!(full.iter().all(|params| parts(params).is_ok_and(|parts| parts == 1)));
        }
        for wrong in ["1/0", "all", "2/3"] {
            let params = Params::from([(COMPUTING.to_owned(), wrong.to_owned())]);
            assert!(parts(&params).expect_err("no part").why().contains(wrong));
        }
    }
}
