//! The paper's claims: [`CLAIMS`], judged from the curves that a run has measured
//! ([`CurveFindings`]).

use std::collections::BTreeMap;

use super::section_9::{LockFindings, LockUse, PooledRuns};
use super::{FITTING_PAIRS, PAPERS_PROCESSORS, RealForks};
use crate::as_published::claims::{Claim, Verdict, claim, decide, not_comparable};
use crate::trees;

pub(super) type KernelCurve = BTreeMap<u64, f64>;

/// Relative distance within which two figures of a run count as equal.
const EQUAL: f64 = 0.05;
/// Relative distance beyond which a difference is noticeable.
const NOTICEABLE: f64 = 0.1;
/// The paper's maximum share of the acquisitions of `proc_relation_lock` that waited, and its share
/// of the waits that blocked.
const PAPERS_WAITS: f64 = 0.02;
const PAPERS_BLOCKED: f64 = 0.1;
/// The least number that counts as several.
const SEVERAL: f64 = 2.0;
/// The widest interval of a share that decides anything.
const DECISIVE: f64 = 0.1;
/// Two-sided 95 % quantile of the normal distribution.
const NORMAL: f64 = 1.96;

#[derive(Debug, Default)]
pub(super) struct Figure {
    pub(super) last_level: u64,
    pub(super) old: KernelCurve,
    pub(super) new: KernelCurve,
    pub(super) linux: KernelCurve,
    /// The old and the new kernel with the model's own forks and exits.
    pub(super) own: Option<[KernelCurve; 2]>,
}

impl Figure {
    /// Returns the new kernel's figure as a multiple of the old one's.
    fn ratio(&self, level: u64) -> Option<f64> {
        Some(self.new.get(&level)? / self.old.get(&level)?)
    }

    fn ratios(&self) -> KernelCurve {
        self.old.keys().filter_map(|&level| Some((level, self.ratio(level)?))).collect()
    }

    /// Returns the growth of a kernel's figure from the first level to the last.
    fn growth(&self, curve: &KernelCurve) -> Option<f64> {
        Some(curve.get(&self.last_level)? / curve.get(&1)?)
    }
}

#[derive(Debug, Default)]
pub(super) struct CurveFindings {
    pub(super) figures: [Figure; 4],
    /// The new kernel's signals with switches that take no time, at the last level at which all
    /// processes have a processor and at the last one.
    pub(super) unswitched: [Option<f64>; 2],
    pub(super) real: Option<RealForks>,
    pub(super) locks: LockFindings,
}

pub(super) const CLAIMS: [Claim<CurveFindings>; 22] = [
    claim(332, "significant increase in system-wide throughput", throughput),
    claim(332, "measurable gain of a single thread that uses these calls", |found| {
        let ratio = found.signals().ratio(1)?;
        let text = format!("one pair exchanges {ratio:.1} times the signals of the old kernel");
        decide(ratio > 1.0 + EQUAL, text)
    }),
    claim(332, "a shell makes several signal calls for each command", shell),
    claim(349, "old kernel: signals per receiver inverse to the receivers", inverse),
    claim(349, "new kernel: falls with more than five pairs", beyond_five),
    claim(349, "probably because of context switches", because_of_switches),
    claim(360, "forks gain noticeably, but less than signals", |found| {
        let (level, gain) = last(&found.forks().ratios())?;
        let other = found.signals().ratio(level)?;
        let text = format!(
            "{gain:.1} times with {level} processes; signals with {level} pairs {other:.1}"
        );
        decide(gain > 1.0 + NOTICEABLE && other > gain, text)
    }),
    claim(360, "a single process: locks do not slow forks", |found| {
        let ratio = found.forks().ratio(1)?;
        decide(ratio > 1.0 - EQUAL, format!("{ratio:.2} times the forks of the old kernel"))
    }),
    claim(371, "builds gain even less than forks", less_time),
    claim(371, "new kernel: builds degrade because of the disk, not of locks", disk),
    claim(379, "sessions are less well ordered than the others", unordered),
    claim(384, "in general, the new kernel runs the sessions faster", faster),
    claim(388, "the new kernel degrades more gracefully in figures 1 to 3", grace),
    claim(388, "the curves of the sessions have a similar shape", shape),
    claim(388, "sessions: consistently better by a noticeable factor", factor),
    claim(390, "proc_relation_lock is the most noticeable bottleneck", bottleneck),
    claim(392, "proc_relation_lock: well under 2 % of the acquisitions wait", waits),
    claim(392, "10 % of these waits block, 90 % are very short", blocked),
    claim(394, "its contention is above the median of the other locks", |found| {
        let (rank, locks) = rank(found)?;
        let text = format!("it has rank {rank} of the {locks} locks that the load takes");
        decide(2 * rank < locks, text)
    }),
    claim(394, "but not among the most heavily contended", most_contended),
    claim(394, "the lock might limit much larger systems", |found| {
        let (processors, waited) = found.locks.waits.last_key_value()?;
        let percent = percent(*waited);
        let text =
            format!("on {processors} modelled processors {percent} of its acquisitions wait");
        decide(*waited > PAPERS_WAITS, text)
    }),
    claim(399, "no compelling evidence for locks of each process", |found| {
        let waited = *found.locks.waits.get(&PAPERS_PROCESSORS)?;
        let text = format!(
            "on ten modelled processors {} of the acquisitions of the one lock wait; a mode with \
             such locks, since removed, gained 0.0 % for sessions and builds, 2.5 % for \
             forks alone",
            percent(waited)
        );
        decide(waited < PAPERS_WAITS, text)
    }),
];

impl CurveFindings {
    fn signals(&self) -> &Figure {
        &self.figures[0]
    }

    fn forks(&self) -> &Figure {
        &self.figures[1]
    }

    fn builds(&self) -> &Figure {
        &self.figures[2]
    }

    fn sessions(&self) -> &Figure {
        &self.figures[3]
    }

    /// Returns the statistics of the modelled runs with the usual spinning.
    fn usual(&self) -> &PooledRuns {
        &self.locks.pooled[0]
    }
}

fn last(curve: &KernelCurve) -> Option<(u64, f64)> {
    curve.last_key_value().map(|(level, value)| (*level, *value))
}

fn throughput(found: &CurveFindings) -> Option<Verdict> {
    let (pairs, signals) = last(&found.signals().ratios())?;
    let (processes, forks) = last(&found.forks().ratios())?;
    let text = format!(
        "{signals:.1} times the signals with {pairs} pairs, {forks:.1} times the forks with \
         {processes} processes"
    );
    decide(signals.min(forks) > 1.0 + NOTICEABLE, text)
}

fn shell(_: &CurveFindings) -> Option<Verdict> {
    let (calls, commands) = trees::calls_of_the_shell().ok()?;
    let each = calls as f64 / commands as f64;
    let text = format!(
        "in the traced session sh makes {calls} signal calls and starts {commands} processes"
    );
    if each >= SEVERAL {
        return Some(Verdict::Reproduced(text));
    }
    not_comparable(format!("the traced shell is not interactive: {text}"))
}

fn inverse(found: &CurveFindings) -> Option<Verdict> {
    let signals = found.signals();
    let products: Vec<f64> = signals.old.iter().map(|(level, rate)| *level as f64 * rate).collect();
    let (pairs, _) = last(&signals.old)?;
    let mean = products.iter().sum::<f64>() / products.len() as f64;
    let apart = products.iter().map(|product| (product / mean - 1.0).abs()).fold(0.0, f64::max);
    let text =
        format!("rate × pairs is {mean:.0} within {:.1} % from 1 to {pairs} pairs", 100.0 * apart);
    decide(apart < NOTICEABLE, text)
}

/// Returns the drop of a curve from its value at the last level at which all processes have a
/// processor to its value at the last level.
fn drop_beyond_five(fitting: f64, crowded: f64) -> f64 {
    1.0 - crowded / fitting
}

fn beyond_five(found: &CurveFindings) -> Option<Verdict> {
    let signals = found.signals();
    let highest = signals.new.values().copied().fold(0.0, f64::max);
    let level_until = signals.new.iter().rfind(|(_, rate)| **rate > (1.0 - EQUAL) * highest)?.0;
    let crowded = signals.new.get(&signals.last_level)?;
    let drop = drop_beyond_five(*signals.new.get(&FITTING_PAIRS)?, *crowded);
    let text = format!(
        "the rate is within {:.0} % of its highest up to {level_until} pairs, and {:.0} % lower \
         with {} than with {FITTING_PAIRS}",
        100.0 * EQUAL,
        100.0 * drop,
        signals.last_level
    );
    // The sixth pair alone need not lower the mean of all.
    decide((FITTING_PAIRS..FITTING_PAIRS + 3).contains(level_until) && drop > NOTICEABLE, text)
}

fn because_of_switches(found: &CurveFindings) -> Option<Verdict> {
    let signals = found.signals();
    let with =
        drop_beyond_five(*signals.new.get(&FITTING_PAIRS)?, *signals.new.get(&signals.last_level)?);
    let without = drop_beyond_five(found.unswitched[0]?, found.unswitched[1]?);
    let [with_percent, without_percent] = [with, without].map(|drop| 100.0 * drop);
    let text = format!(
        "the drop from {FITTING_PAIRS} to {} pairs is {with_percent:.0} %, and \
         {without_percent:.0} % in a model whose switches take no time",
        signals.last_level
    );
    let text = if without > with / 2.0 {
        text + ": twenty processes share ten processors, however fast they switch"
    } else {
        text
    };
    decide(without <= with / 2.0, text)
}

fn less_time(found: &CurveFindings) -> Option<Verdict> {
    let (level, ratio) = last(&found.builds().ratios())?;
    let (_, gain) = last(&found.forks().ratios())?;
    let text = format!(
        "with {level} builds the new kernel takes {ratio:.3} of the old one's time; forks gain \
         {gain:.1} times"
    );
    decide(ratio < 1.0 && 1.0 / ratio < gain, text)
}

fn disk(found: &CurveFindings) -> Option<Verdict> {
    let builds = found.builds();
    // A value rounded to zero is not negative.
    let grown = (1e3 * (builds.growth(&builds.new)? - 1.0)).round() / 10.0 + 0.0;
    not_comparable(format!(
        "the modelled builds share no disk; without one the new kernel's time grows by {grown:.1} \
         % from 1 to {} builds, which is what its locks contribute",
        builds.last_level
    ))
}

/// Returns the levels at which the time falls although the load has grown.
fn falls(curve: &KernelCurve) -> Vec<u64> {
    let levels: Vec<(&u64, &f64)> = curve.iter().collect();
    let pairs = levels.windows(2).filter(|pair| pair[1].1 < pair[0].1);
    pairs.map(|pair| *pair[1].0).collect()
}

fn unordered(found: &CurveFindings) -> Option<Verdict> {
    let [builds, sessions] = [&found.builds().linux, &found.sessions().linux];
    last(builds).and(last(sessions))?;
    let (few, many) = (falls(builds), falls(sessions));
    let words = |levels: &[u64]| match levels {
        [] => "none".to_owned(),
        _ => levels.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    let text = format!(
        "on this machine's Linux the time falls, although the load grows, at these levels: {} of \
         the sessions, {} of the builds",
        words(&many),
        words(&few)
    );
    decide(many.len() > few.len(), text)
}

fn faster(found: &CurveFindings) -> Option<Verdict> {
    let ratios = found.sessions().ratios();
    let better = ratios.values().filter(|ratio| **ratio < 1.0).count();
    last(&ratios)?;
    let text = format!("the new kernel takes less time at {better} of {} levels", ratios.len());
    decide(2 * better > ratios.len(), text)
}

fn grace(found: &CurveFindings) -> Option<Verdict> {
    let [signals, forks, builds, _] = &found.figures;
    let mut words = Vec::new();
    let mut holds = true;
    for (what, figure, is_time) in
        [("signals", signals, false), ("forks", forks, false), ("builds", builds, true)]
    {
        let [old, new] = [&figure.old, &figure.new].map(|curve| figure.growth(curve));
        let (old, new) = (old?, new?);
        holds &= if is_time { new <= old } else { new >= old };
        words.push(format!("{what} {new:.2} and {old:.2}"));
    }
    let text = format!("new and old, from the first level to the last: {}", words.join(", "));
    decide(holds, text)
}

fn shape(found: &CurveFindings) -> Option<Verdict> {
    let sessions = found.sessions();
    let [old, new] = [&sessions.old, &sessions.new].map(|curve| sessions.growth(curve));
    let (old, new) = (old?, new?);
    let text = format!(
        "from 1 to {} sessions the old kernel's time grows to {old:.2}, the new one's to {new:.2}",
        sessions.last_level
    );
    if (old / new - 1.0).abs() < NOTICEABLE {
        return Some(Verdict::Reproduced(text));
    }
    Some(Verdict::NotReproduced(
        text + " of its first: the modelled sessions share neither a disk nor memory, which would \
                slow both kernels alike",
    ))
}

fn factor(found: &CurveFindings) -> Option<Verdict> {
    let sessions = found.sessions();
    let ratios = sessions.ratios();
    let worst = ratios.values().copied().fold(0.0, f64::max);
    let ((first, few), (level, many)) = (ratios.first_key_value()?, last(&ratios)?);
    let mut text = format!(
        "the new kernel takes {few:.2} of the old one's time with {first} session, {many:.2} with \
         {level}"
    );
    if worst < 1.0 - NOTICEABLE {
        return Some(Verdict::Reproduced(text));
    }
    text += ": with few sessions the master processor is seldom busy";
    if let (Some(real), Some([old, new])) = (found.real, &sessions.own) {
        let [here, model] = real.micros();
        let least = old.iter().filter_map(|(level, old)| Some(new.get(level)? / old));
        let least = least.fold(f64::INFINITY, f64::min);
        text += &format!(
            ". A call's own time decides: a fork, an exit and a wait take {here:.0} µs here; if \
             they took {model:.2} µs, the new kernel would take at least {least:.2} at every level"
        );
    }
    Some(Verdict::NotReproduced(text))
}

fn ranked(pooled: &PooledRuns) -> Vec<(&str, &LockUse)> {
    let mut locks: Vec<_> = pooled.locks.iter().map(|(name, lock)| (name.as_str(), lock)).collect();
    locks.sort_by(|(_, a), (_, b)| b.share().total_cmp(&a.share()));
    locks
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn bottleneck(found: &CurveFindings) -> Option<Verdict> {
    let pooled = found.usual();
    let (name, first) = pooled.locks.iter().max_by_key(|(_, lock)| lock.waited)?;
    let waited = pooled.relations().waited;
    let text = format!("threads waited {waited} times for it in {} modelled runs, ", pooled.runs);
    if waited == first.waited {
        return Some(Verdict::Reproduced(text + "most of all locks"));
    }
    Some(Verdict::NotReproduced(text + &format!("and {} times for {name}", first.waited)))
}

fn waits(found: &CurveFindings) -> Option<Verdict> {
    let pooled = found.usual();
    let modelled = pooled.relations();
    if modelled.acquisitions == 0 {
        return None;
    }
    let text = format!(
        "{} of {} on ten modelled processors",
        percent(modelled.share()),
        modelled.acquisitions
    );
    let here: Vec<f64> = found.locks.here.iter().map(LockUse::share).collect();
    let bounds = here.iter().copied().reduce(f64::min).zip(here.iter().copied().reduce(f64::max));
    let text = match bounds {
        None => text,
        Some((least, most)) => format!(
            "{text}; {} to {} in {} runs on {} real ones",
            percent(least),
            percent(most),
            here.len(),
            found.locks.processors
        ),
    };
    decide(modelled.share() < PAPERS_WAITS, text)
}

/// Returns the ends of Wilson's 95 % interval of a share.
fn wilson(hits: u64, tries: u64) -> (f64, f64) {
    let (tries, share) = (tries as f64, hits as f64 / tries as f64);
    let square = NORMAL * NORMAL / tries;
    let centre = share + square / 2.0;
    let half = NORMAL * (share * (1.0 - share) / tries + square / (4.0 * tries)).sqrt();
    ((centre - half) / (1.0 + square), (centre + half) / (1.0 + square))
}

fn blocked(found: &CurveFindings) -> Option<Verdict> {
    let [usual, short] = &found.locks.pooled;
    let lock = usual.relations();
    if lock.waited == 0 {
        return None;
    }
    let (low, high) = wilson(lock.blocked, lock.waited);
    let mut text = format!(
        "{} of {} waits blocked in {} modelled runs (95 % interval: {:.0} to {:.0} %)",
        lock.blocked,
        lock.waited,
        usual.runs,
        100.0 * low,
        100.0 * high
    );
    if (low..=high).contains(&PAPERS_BLOCKED) {
        if high - low < DECISIVE {
            return Some(Verdict::Reproduced(text));
        }
        return not_comparable(format!("there are too few waits: {text}"));
    }
    text += &format!(
        ": a thread spins for {:.1} µs, and the longest hold took {:.2} µs",
        usual.spin_ns / 1e3,
        lock.longest_hold_ns as f64 / 1e3
    );
    let shorter = short.relations();
    if shorter.waited > 0 {
        text += &format!(
            ". If it spun for {:.2} µs, {} of {} would block",
            short.spin_ns / 1e3,
            shorter.blocked,
            shorter.waited
        );
    }
    let here = &found.locks.here;
    let most = here.iter().filter(|lock| 2 * lock.blocked > lock.waited).count();
    if most > 0 {
        text += &format!(
            ". On {} real processors most waits blocked in {most} of {} runs: a released lock goes \
             to the first thread that blocked, which holds it until its processor runs it, so \
             others wait longer and block, too",
            found.locks.processors,
            here.len()
        );
    }
    Some(Verdict::NotReproduced(text))
}

/// Returns the rank of the lock of all relations among the locks that were taken, from 1, and their
/// number.
fn rank(found: &CurveFindings) -> Option<(usize, usize)> {
    let pooled = found.usual();
    let share = pooled.relations().share();
    let locks = ranked(pooled);
    (pooled.relations().acquisitions > 0)
        .then(|| (1 + locks.iter().filter(|(_, lock)| lock.share() > share).count(), locks.len()))
}

fn most_contended(found: &CurveFindings) -> Option<Verdict> {
    let (rank, locks) = rank(found)?;
    let (first, lock) = ranked(found.usual()).first().copied()?;
    not_comparable(format!(
        "the paper compares it with the locks elsewhere in the kernel; this kernel has only the \
         {locks} of processes and signals, without virtual memory, files, network and disks. Among \
         them it has rank {rank}; {first} has the most waits, {}",
        percent(lock.share())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: &[f64]) -> KernelCurve {
        (1..).zip(values.iter().copied()).collect()
    }

    fn figures(all: [[&[f64]; 2]; 4]) -> CurveFindings {
        let figures = all.map(|[old, new]| {
            let last_level = old.len().max(new.len()) as u64;
            Figure { last_level, old: curve(old), new: curve(new), ..Figure::default() }
        });
        CurveFindings { figures, ..CurveFindings::default() }
    }

    fn signals(old: &[f64], new: &[f64]) -> CurveFindings {
        figures([[old, new], [&[], &[]], [&[], &[]], [&[], &[]]])
    }

    /// Returns `true` if the claim is reproduced, `false` if it is not, and `None` otherwise.
    fn holds(verdict: Option<Verdict>) -> Option<bool> {
        match verdict? {
            Verdict::Reproduced(_) => Some(true),
            Verdict::NotReproduced(_) => Some(false),
            Verdict::NotComparable(_) => None,
        }
    }

    #[test]
    fn steeper_curve_does_not_pass_as_inverse() {
        let of = |power: f64| -> Vec<f64> {
            (1..=10).map(|level| 500e3 / f64::from(level).powf(power)).collect()
        };
        let mut dropping = of(1.0);
        dropping[9] /= 2.0;
        let found = [of(1.0), of(1.4), dropping].map(|old| holds(inverse(&signals(&old, &[]))));
        assert_eq!(found, [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn drop_must_begin_beyond_five_pairs() {
        let falling = vec![2.6, 2.6, 2.6, 2.6, 2.6, 2.4, 2.3, 2.2, 2.1, 2.0];
        let early = (1..=10).map(|level| 2.6 / f64::from(level)).collect();
        let found = [falling, vec![2.6; 10], early];
        let found = found.map(|new| holds(beyond_five(&signals(&[], &new))));
        assert_eq!(found, [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn times_decide_by_the_other_direction() {
        fn with(builds: [&[f64]; 2], sessions: [&[f64]; 2]) -> CurveFindings {
            figures([[&[], &[]], [&[2.5, 0.2], &[2.5, 1.5]], builds, sessions])
        }
        let builds = |old: &[f64], new: &[f64]| holds(less_time(&with([old, new], [&[], &[]])));
        assert_eq!(builds(&[1.0, 1.1], &[1.0, 1.0]), Some(true));
        assert_eq!(builds(&[1.0, 1.0], &[1.0, 1.1]), Some(false));
        assert_eq!(builds(&[1.0, 20.0], &[1.0, 1.0]), Some(false));
        let sessions = |new: &[f64]| holds(faster(&with([&[], &[]], [&[1.0, 1.1], new])));
        assert_eq!([sessions(&[0.9, 1.0]), sessions(&[1.1, 1.2])], [Some(true), Some(false)]);
    }

    #[test]
    fn level_at_which_time_falls_is_found() {
        assert_eq!(falls(&curve(&[0.55, 0.49, 0.59, 0.58])), [2, 4]);
        assert!(falls(&curve(&[1.0, 1.0, 2.0])).is_empty());
    }

    #[test]
    fn blocked_share_needs_enough_waits() {
        let of = |waited: u64, blocked_of: u64| {
            let lock = LockUse {
                acquisitions: 100_000,
                waited,
                blocked: blocked_of,
                longest_hold_ns: 280,
            };
            let locks = [("proc_relation_lock".to_owned(), lock)].into();
            let pooled = PooledRuns { runs: 3, spin_ns: 2486.2, locks };
            let locks =
                LockFindings { pooled: [pooled.clone(), pooled], ..LockFindings::default() };
            blocked(&CurveFindings { locks, ..CurveFindings::default() })
        };
        let found = [(400, 40), (400, 0), (100, 95)].map(|(waited, one)| holds(of(waited, one)));
        assert_eq!(found, [Some(true), Some(false), Some(false)]);
        assert!(matches!(of(6, 0), Some(Verdict::NotComparable(_))));
        assert_eq!(of(0, 0), None);
    }

    #[test]
    fn wilson_interval_has_known_ends() {
        // Wilson's 95 % interval of 10 in 100, from the literature.
        let (low, high) = wilson(10, 100);
        assert!((low - 0.0552).abs() < 1e-3 && (high - 0.1744).abs() < 1e-3, "{low} {high}");
    }
}
