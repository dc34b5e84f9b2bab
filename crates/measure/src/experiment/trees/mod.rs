//! Real builds and sessions as the virtual Unix does them again: [`Tree`], [`Load`].
//!
//! `cargo xtask trees` traces one `make` and one session of a pseudo-user and writes `builds.txt`
//! and `sessions.txt`, a process a line. Here each is a virtual process that forks, executes,
//! waits, asks about signals and moves bytes through pipes as often and in the same order, and
//! computes in between. What it does not do: pass data from process to process (a read finds a byte
//! of its own, and waits for nobody), or share a disk.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tontine_unix::{Errno, How, LockStatistics, Pid, SigAction, SigSet, Signal, Sys};

use crate::experiment::Params;
use crate::experiment::modes::{self, System};
use crate::observe::Series;
use crate::trouble::{Result, Trouble};

const BUILDS: &str = include_str!("builds.txt");
const SESSIONS: &str = include_str!("sessions.txt");
/// The program that goes on with a process after its exec.
const PROGRAM: &str = "tree";
/// How much later than the one before it a session starts, as real ones do.
const DELAY: Duration = Duration::from_millis(10);

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Compute(Duration),
    Fork(usize),
    Exec,
    Wait,
    Action,
    Mask,
    Kill,
    Pipe,
    Byte,
    Group,
    Session,
}

/// The processes of one real thing, the first one first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree(Vec<Vec<Step>>);

impl Tree {
    /// Reads a file of processes.
    ///
    /// # Errors
    /// What is wrong with it.
    fn read(text: &str) -> std::result::Result<Self, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let process = |line: &str| {
            let (_, words) = line.split_once(':').ok_or(format!("no process: `{line}`"))?;
            let steps =
                words.split_whitespace().map(step).collect::<std::result::Result<Vec<_>, _>>()?;
            Ok::<_, String>(steps.into_iter().flatten().collect())
        };
        lines.map(process).collect::<std::result::Result<Vec<_>, _>>().map(Self)
    }
}

/// The steps that a word means: `c120`, `f3`, `2*a`.
fn step(word: &str) -> std::result::Result<Vec<Step>, String> {
    let unknown = || format!("no step: `{word}`");
    let (times, name) = word.split_once('*').unwrap_or(("1", word));
    let times = times.parse().map_err(|_| unknown())?;
    let number = || name[1..].parse::<u64>().map_err(|_| unknown());
    let step = match name.as_bytes().first() {
        Some(b'c') => Step::Compute(Duration::from_micros(number()?)),
        Some(b'f') => Step::Fork(number()? as usize),
        _ => match name {
            "x" => Step::Exec,
            "w" => Step::Wait,
            "a" => Step::Action,
            "m" => Step::Mask,
            "k" => Step::Kill,
            "p" => Step::Pipe,
            "b" => Step::Byte,
            "g" => Step::Group,
            "s" => Step::Session,
            _ => return Err(unknown()),
        },
    };
    Ok(vec![step; times])
}

/// How the locks were taken, as rows of the paper's section 9: of each, the share of acquisitions
/// that waited, and of those that were blocked.
pub(super) fn of_locks(locks: &LockStatistics) -> Vec<Series> {
    let taken = locks.rows.iter().filter(|row| row.acquisitions > 0);
    let shares = taken.flat_map(|row| {
        let share = |metric: &str, percent: f64| Series {
            at: Params::from([("lock".to_owned(), row.name.to_owned())]),
            ..Series::ns(metric, vec![percent / 100.0]).in_unit("share").by_mean()
        };
        let waited = row.waited_percent().map(|percent| share("waited", percent));
        waited.into_iter().chain(row.blocked_percent().map(|percent| share("blocked", percent)))
    });
    shares.collect()
}

/// What a tree is.
pub(super) const NOTE: &str = "the processes of a real one, traced: they fork, execute, wait, ask \
     about signals and compute as it did, share no disk, and wait for no data of each other";

/// So many builds and sessions at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) builds: usize,
    pub(super) sessions: usize,
}

/// How a load went.
#[derive(Debug)]
pub(super) struct Done {
    /// Seconds of each build.
    pub(super) builds: Vec<f64>,
    /// Seconds of each session.
    pub(super) sessions: Vec<f64>,
    /// How the locks were taken.
    pub(super) locks: Option<LockStatistics>,
}

/// Which of the two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Build,
    Session,
}

impl Load {
    /// Brings it about in a system; locks are counted if `counted`.
    ///
    /// # Errors
    /// Failed, where the system does not end as it should.
    pub(super) fn run(self, system: System, counted: bool) -> Result<Done> {
        let trees = [BUILDS, SESSIONS].map(|text| Tree::read(text).map(Arc::new));
        let [builds, sessions] = trees;
        let (builds, sessions) = (builds.map_err(Trouble::fail)?, sessions.map_err(Trouble::fail)?);
        let (again, too) = (Arc::clone(&builds), Arc::clone(&sessions));
        let unix = system
            .builder()
            .statistics(counted)
            .program(PROGRAM, move |sys, words| {
                let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
                let (Some(kind), Some(process), Some(from)) = (number(1), number(2), number(3))
                else {
                    return 2;
                };
                let tree = if kind == Kind::Build as usize { &again } else { &too };
                live(sys, tree, if kind == 0 { Kind::Build } else { Kind::Session }, process, from)
            })
            .build()
            .map_err(|error| Trouble::fail(error.to_string()))?;
        let seconds: Arc<Mutex<Vec<(Kind, f64)>>> = Arc::default();
        let seen = Arc::clone(&seconds);
        let report =
            unix.run(move |sys| match self.begin(sys, system, [&builds, &sessions], &seen) {
                Ok(()) => 0,
                Err(_) => 1,
            });
        modes::ran(&report)?;
        let all = std::mem::take(&mut *seconds.lock().unwrap_or_else(PoisonError::into_inner));
        let of = |kind| all.iter().filter(|one| one.0 == kind).map(|one| one.1).collect();
        Ok(Done { builds: of(Kind::Build), sessions: of(Kind::Session), locks: report.locks })
    }

    /// Forks a process for each, which times it.
    fn begin(
        self,
        sys: &dyn Sys,
        system: System,
        [builds, sessions]: [&Arc<Tree>; 2],
        seen: &Arc<Mutex<Vec<(Kind, f64)>>>,
    ) -> tontine_unix::Result<()> {
        let all = (0..self.builds)
            .map(|_| (Kind::Build, builds, Duration::ZERO))
            .chain((0..self.sessions).map(|n| (Kind::Session, sessions, DELAY * n as u32)));
        for (number, (kind, tree, delay)) in all.enumerate() {
            let (tree, seen, watch) = (Arc::clone(tree), Arc::clone(seen), system.watch);
            sys.place(Some(number % system.processors))?;
            sys.fork(move |sys| {
                if !delay.is_zero() && sys.nanosleep(delay).is_err() {
                    return 1;
                }
                let begun = watch.begin(sys);
                let Ok(root) = fork_here(sys, &tree, kind, 0) else { return 1 };
                let waited = sys.wait();
                let seconds = watch.ns_since(sys, begun) / 1e9;
                seen.lock().unwrap_or_else(PoisonError::into_inner).push((kind, seconds));
                i32::from(!waited.is_ok_and(|waited| waited.pid == root))
            })?;
        }
        let mut failed = false;
        for _ in 0..self.builds + self.sessions {
            failed |= sys.wait()?.status.exited() != Some(0);
        }
        if failed { Err(Errno::EIO) } else { Ok(()) }
    }
}

/// A child stays on its parent's processor, as one that is waited for at once mostly does; in mode
/// `master` it would begin on the master's.
fn fork_here(
    sys: &dyn Sys,
    tree: &Arc<Tree>,
    kind: Kind,
    process: usize,
) -> tontine_unix::Result<Pid> {
    sys.place(Some(sys.processor()))?;
    let tree = Arc::clone(tree);
    sys.fork(move |sys| live(sys, &tree, kind, process, 0))
}

/// A process's life from one of its steps on; its exit status.
fn live(sys: &dyn Sys, tree: &Arc<Tree>, kind: Kind, process: usize, from: usize) -> i32 {
    let mut pipe = None;
    let mut children = 0_usize;
    let Some(steps) = tree.0.get(process) else { return 2 };
    for (at, step) in steps.iter().enumerate().skip(from) {
        let done = match *step {
            Step::Compute(duration) => {
                sys.compute(duration);
                Ok(())
            }
            Step::Fork(child) => fork_here(sys, tree, kind, child).map(|_| children += 1),
            Step::Exec => {
                let words = [kind as usize, process, at + 1].map(|number| number.to_string());
                sys.exec(PROGRAM, &[PROGRAM, &words[0], &words[1], &words[2]]).map(|_| ())
            }
            Step::Wait => match sys.wait() {
                Ok(_) => {
                    children = children.saturating_sub(1);
                    Ok(())
                }
                // Those whom an exec's closure forgot were waited for before.
                Err(Errno::ECHILD) => Ok(()),
                Err(errno) => Err(errno),
            },
            Step::Action => {
                sys.sigaction(Signal::USR2, Some(SigAction::handler(|_, _| {}))).map(|_| ())
            }
            Step::Mask => sys.sigprocmask(Some((How::Set, SigSet::EMPTY))).map(|_| ()),
            Step::Kill => sys.kill(sys.getpid().into(), None),
            Step::Pipe => sys.pipe().and_then(|(from, to)| {
                sys.close(from)?;
                sys.close(to)
            }),
            Step::Byte => byte(sys, &mut pipe),
            // It may lead a group or a session already.
            Step::Group => sys.setpgid(Pid::number_only(0), Pid::number_only(0)).or(Ok(())),
            Step::Session => sys.setsid().map(|_| ()).or(Ok(())),
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

/// A byte into a pipe of the process's own, or out of it.
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
    use crate::experiment::modes::Watch;
    use tontine_unix::{Costs, Mode};

    #[test]
    fn the_files_hold_real_trees() {
        for (text, root) in [(BUILDS, "make:"), (SESSIONS, "sh:")] {
            let tree = Tree::read(text).expect("a tree");
            let first = text.lines().find(|line| !line.starts_with('#')).expect("a process");
            assert!(first.starts_with(root), "{first}");
            let forks = tree.0.iter().flatten().filter(|step| matches!(step, Step::Fork(_)));
            assert_eq!(forks.count(), tree.0.len() - 1);
            assert!(tree.0.iter().flatten().any(|step| *step == Step::Exec));
        }
        assert_eq!(step("2*a"), Ok(vec![Step::Action; 2]));
        assert!(step("c").is_err() && step("z").is_err() && step("fx").is_err());
    }

    #[test]
    fn a_load_ends_in_every_mode_and_more_processors_make_it_shorter() {
        for mode in Mode::ALL {
            let on = |processors| {
                let watch = Watch::Model { seed: 1, costs: Costs::published() };
                let load = Load { builds: 1, sessions: 2 };
                load.run(System { mode, processors, watch }, true).expect("it ends")
            };
            let alone = on(1);
            assert_eq!((alone.builds.len(), alone.sessions.len()), (1, 2), "{mode}");
            let locks = alone.locks.as_ref().expect("they were counted");
            assert!(locks.rows.iter().any(|row| row.acquisitions > 1000), "{mode}");
            if mode != Mode::Uniprocessor {
                let three = on(3);
                let sum = |done: &Done| done.sessions.iter().sum::<f64>();
                assert!(sum(&three) < 0.8 * sum(&alone), "{mode}");
            }
        }
    }
}
