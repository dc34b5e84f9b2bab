//! The verdicts on the paper's claims, decided from the curves that a run has measured:
//! [`verdicts`].

use std::collections::BTreeMap;

use super::section_9::{LockFindings, LockUse, PooledRuns};
use super::{FITTING_PAIRS, RealForks};
use crate::as_published::verdict::{Claim, Verdict};
use crate::trees;

/// The levels of a curve that have a figure.
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

/// The curves of one figure.
#[derive(Debug, Default)]
pub(super) struct Figure {
    /// The last level on the paper's axis.
    pub(super) most: u64,
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
        Some(curve.get(&self.most)? / curve.get(&1)?)
    }
}

/// All measurements of a run.
#[derive(Debug)]
pub(super) struct CurveFindings {
    /// Signals, forks, builds and sessions.
    pub(super) figures: [Figure; 4],
    /// The new kernel's signals with switches that take no time, at the last level at which all
    /// processes have a processor and at the last one.
    pub(super) unswitched: [Option<f64>; 2],
    pub(super) real: Option<RealForks>,
    pub(super) locks: LockFindings,
}

/// Returns the verdicts, in the order of the paper's lines.
pub(super) fn verdicts(found: &CurveFindings) -> Vec<(Claim, Verdict)> {
    let [signals, forks, builds, sessions] = &found.figures;
    let claim = |line, text| Claim { line, text };
    let decided = [
        (claim(332, "significant increase in system-wide throughput"), throughput(signals, forks)),
        (claim(332, "measurable gain of a single thread that uses these calls"), single(signals)),
        (claim(332, "a shell makes several signal calls for each command"), shell()),
        (claim(349, "old kernel: signals per receiver inverse to the receivers"), inverse(signals)),
        (claim(349, "new kernel: falls with more than five pairs"), beyond_five(signals)),
        (claim(349, "probably because of context switches"), because_of_switches(found)),
        (claim(360, "forks gain noticeably, but less than signals"), less_gain(forks, signals)),
        (claim(360, "a single process: locks do not slow forks"), locks_cost_nothing(forks)),
        (claim(371, "builds gain even less than forks"), less_time(builds, forks)),
        (claim(371, "new kernel: builds degrade because of the disk, not of locks"), disk(builds)),
        (claim(379, "sessions are less well ordered than the others"), unordered(found)),
        (claim(384, "in general, the new kernel runs the sessions faster"), faster(sessions)),
        (claim(388, "the new kernel degrades more gracefully in figures 1 to 3"), grace(found)),
        (claim(388, "the curves of the sessions have a similar shape"), shape(sessions)),
        (claim(388, "sessions: consistently better by a noticeable factor"), factor(found)),
        (claim(390, "proc_relation_lock is the most noticeable bottleneck"), bottleneck(found)),
        (claim(392, "proc_relation_lock: well under 2 % of the acquisitions wait"), waits(found)),
        (claim(392, "10 % of these waits block, 90 % are very short"), blocked(found)),
        (claim(394, "its contention is above the median of the other locks"), median(found)),
        (claim(394, "but not among the most heavily contended"), most_contended(found)),
        (claim(394, "the lock might limit much larger systems"), larger(found)),
        (claim(399, "no compelling evidence for locks of each process"), evidence(found)),
    ];
    decided
        .into_iter()
        .map(|(claim, verdict)| {
            let missing = || Verdict::NotComparable("a point of it was not measured".into());
            (claim, verdict.unwrap_or_else(missing))
        })
        .collect()
}

/// Returns a verdict with the same evidence either way.
fn decide(holds: bool, evidence: String) -> Option<Verdict> {
    Some(if holds { Verdict::Reproduced(evidence) } else { Verdict::NotReproduced(evidence) })
}

fn last(curve: &KernelCurve) -> Option<(u64, f64)> {
    curve.last_key_value().map(|(level, value)| (*level, *value))
}

fn throughput(signals: &Figure, forks: &Figure) -> Option<Verdict> {
    let [(pairs, signals), (processes, forks)] = [last(&signals.ratios())?, last(&forks.ratios())?];
    let text = format!(
        "{signals:.1} times the signals with {pairs} pairs, {forks:.1} times the forks with \
         {processes} processes"
    );
    decide(signals.min(forks) > 1.0 + NOTICEABLE, text)
}

fn single(signals: &Figure) -> Option<Verdict> {
    let ratio = signals.ratio(1)?;
    let text = format!("one pair exchanges {ratio:.1} times the signals of the old kernel");
    decide(ratio > 1.0 + EQUAL, text)
}

fn shell() -> Option<Verdict> {
    let (calls, commands) = trees::calls_of_the_shell().ok()?;
    let each = calls as f64 / commands as f64;
    let text = format!(
        "in the traced session sh makes {calls} signal calls and starts {commands} processes"
    );
    Some(match each >= SEVERAL {
        true => Verdict::Reproduced(text),
        false => Verdict::NotComparable(format!("the traced shell is not interactive: {text}")),
    })
}

fn inverse(signals: &Figure) -> Option<Verdict> {
    let products: Vec<f64> = signals.old.iter().map(|(level, rate)| *level as f64 * rate).collect();
    let (most, _) = last(&signals.old)?;
    let mean = products.iter().sum::<f64>() / products.len() as f64;
    let apart = products.iter().map(|product| (product / mean - 1.0).abs()).fold(0.0, f64::max);
    let text =
        format!("rate × pairs is {mean:.0} within {:.1} % from 1 to {most} pairs", 100.0 * apart);
    decide(apart < NOTICEABLE, text)
}

/// Returns the drop of a curve from its value at the last level at which all processes have a
/// processor to its value at the last level.
fn drop_beyond_five(fitting: f64, crowded: f64) -> f64 {
    1.0 - crowded / fitting
}

fn beyond_five(signals: &Figure) -> Option<Verdict> {
    let highest = signals.new.values().copied().fold(0.0, f64::max);
    let level_until = signals.new.iter().rfind(|(_, rate)| **rate > (1.0 - EQUAL) * highest)?.0;
    let crowded = signals.new.get(&signals.most)?;
    let drop = drop_beyond_five(*signals.new.get(&FITTING_PAIRS)?, *crowded);
    let text = format!(
        "the rate is within {:.0} % of its highest up to {level_until} pairs, and {:.0} % lower \
         with {} than with {FITTING_PAIRS}",
        100.0 * EQUAL,
        100.0 * drop,
        signals.most
    );
    // The sixth pair alone need not lower the mean of all.
    decide((FITTING_PAIRS..FITTING_PAIRS + 3).contains(level_until) && drop > NOTICEABLE, text)
}

fn because_of_switches(found: &CurveFindings) -> Option<Verdict> {
    let signals = &found.figures[0];
    let with =
        drop_beyond_five(*signals.new.get(&FITTING_PAIRS)?, *signals.new.get(&signals.most)?);
    let without = drop_beyond_five(found.unswitched[0]?, found.unswitched[1]?);
    let [with_percent, without_percent] = [with, without].map(|drop| 100.0 * drop);
    let text = format!(
        "the drop from {FITTING_PAIRS} to {} pairs is {with_percent:.0} %, and \
         {without_percent:.0} % in a model whose switches take no time",
        signals.most
    );
    let text = if without > with / 2.0 {
        text + ": twenty processes share ten processors, however fast they switch"
    } else {
        text
    };
    decide(without <= with / 2.0, text)
}

fn less_gain(forks: &Figure, signals: &Figure) -> Option<Verdict> {
    let (level, gain) = last(&forks.ratios())?;
    let other = signals.ratio(level)?;
    let text =
        format!("{gain:.1} times with {level} processes; signals with {level} pairs {other:.1}");
    decide(gain > 1.0 + NOTICEABLE && other > gain, text)
}

fn locks_cost_nothing(forks: &Figure) -> Option<Verdict> {
    let ratio = forks.ratio(1)?;
    decide(ratio > 1.0 - EQUAL, format!("{ratio:.2} times the forks of the old kernel"))
}

fn less_time(builds: &Figure, forks: &Figure) -> Option<Verdict> {
    let (level, ratio) = last(&builds.ratios())?;
    let (_, gain) = last(&forks.ratios())?;
    let text = format!(
        "with {level} builds the new kernel takes {ratio:.3} of the old one's time; forks gain \
         {gain:.1} times"
    );
    decide(ratio < 1.0 && 1.0 / ratio < gain, text)
}

fn disk(builds: &Figure) -> Option<Verdict> {
    // A value rounded to zero is not negative.
    let grown = (1e3 * (builds.growth(&builds.new)? - 1.0)).round() / 10.0 + 0.0;
    Some(Verdict::NotComparable(format!(
        "the modelled builds share no disk; without one the new kernel's time grows by {grown:.1} \
         % from 1 to {} builds, which is what its locks contribute",
        builds.most
    )))
}

/// Returns the levels at which the time falls although the load has grown.
fn falls(curve: &KernelCurve) -> Vec<u64> {
    let levels: Vec<(&u64, &f64)> = curve.iter().collect();
    let pairs = levels.windows(2).filter(|pair| pair[1].1 < pair[0].1);
    pairs.map(|pair| *pair[1].0).collect()
}

fn unordered(found: &CurveFindings) -> Option<Verdict> {
    let [_, _, builds, sessions] = &found.figures;
    let (few, many) = (falls(&builds.linux), falls(&sessions.linux));
    last(&builds.linux).and(last(&sessions.linux))?;
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

fn faster(sessions: &Figure) -> Option<Verdict> {
    let ratios = sessions.ratios();
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

fn shape(sessions: &Figure) -> Option<Verdict> {
    let [old, new] = [&sessions.old, &sessions.new].map(|curve| sessions.growth(curve));
    let (old, new) = (old?, new?);
    let text = format!(
        "from 1 to {} sessions the old kernel's time grows to {old:.2}, the new one's to {new:.2}",
        sessions.most
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
    let sessions = &found.figures[3];
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

/// Returns the locks by falling share of waits.
fn ranked(pooled: &PooledRuns) -> Vec<(&str, &LockUse)> {
    let mut locks: Vec<_> = pooled.locks.iter().map(|(name, lock)| (name.as_str(), lock)).collect();
    locks.sort_by(|(_, a), (_, b)| b.share().total_cmp(&a.share()));
    locks
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn bottleneck(found: &CurveFindings) -> Option<Verdict> {
    let pooled = &found.locks.pooled[0];
    let (name, most) = pooled.locks.iter().max_by_key(|(_, lock)| lock.waited)?;
    let waited = pooled.relations().waited;
    let text = format!("threads waited {waited} times for it in {} modelled runs, ", pooled.runs);
    if waited == most.waited {
        return Some(Verdict::Reproduced(text + "most of all locks"));
    }
    Some(Verdict::NotReproduced(text + &format!("and {} times for {name}", most.waited)))
}

fn waits(found: &CurveFindings) -> Option<Verdict> {
    let pooled = &found.locks.pooled[0];
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
        return Some(if high - low < DECISIVE {
            Verdict::Reproduced(text)
        } else {
            Verdict::NotComparable(format!("there are too few waits: {text}"))
        });
    }
    let micros = |ns: f64| ns / 1e3;
    text += &format!(
        ": a thread spins for {:.1} µs, and the longest hold took {:.2} µs",
        micros(usual.spin_ns),
        micros(lock.longest_hold_ns as f64)
    );
    let shorter = short.relations();
    if shorter.waited > 0 {
        text += &format!(
            ". If it spun for {:.2} µs, {} of {} would block",
            micros(short.spin_ns),
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
    let pooled = &found.locks.pooled[0];
    let share = pooled.relations().share();
    let locks = ranked(pooled);
    (pooled.relations().acquisitions > 0)
        .then(|| (1 + locks.iter().filter(|(_, lock)| lock.share() > share).count(), locks.len()))
}

fn median(found: &CurveFindings) -> Option<Verdict> {
    let (rank, locks) = rank(found)?;
    let text = format!("it has rank {rank} of the {locks} locks that the load takes");
    decide(2 * rank < locks, text)
}

fn most_contended(found: &CurveFindings) -> Option<Verdict> {
    let (rank, locks) = rank(found)?;
    let (first, lock) = ranked(&found.locks.pooled[0]).first().copied()?;
    Some(Verdict::NotComparable(format!(
        "the paper compares it with the locks elsewhere in the kernel; this kernel has only the \
         {locks} of processes and signals, without virtual memory, files, network and disks. Among \
         them it has rank {rank}; {first} has the most waits, {}",
        percent(lock.share())
    )))
}

fn larger(found: &CurveFindings) -> Option<Verdict> {
    let (processors, (gains, waited)) = found.locks.gains.last_key_value()?;
    let best = gains.iter().map(|gain| gain.share).fold(f64::NEG_INFINITY, f64::max);
    let text = format!(
        "on {processors} modelled processors {} of its acquisitions wait; locks of each process \
         gain at most {:.1} %",
        percent(*waited),
        100.0 * best
    );
    decide(best > EQUAL, text)
}

fn evidence(found: &CurveFindings) -> Option<Verdict> {
    let (gains, _) = found.locks.gains.get(&super::PAPERS_PROCESSORS)?;
    let [sessions, builds, forks] = gains.map(|gain| 100.0 * gain.share);
    let text = format!(
        "on ten modelled processors they gain {sessions:.1} % for sessions, {builds:.1} % for \
         builds, {forks:.1} % for forks alone"
    );
    decide(gains.iter().all(|gain| gain.share < EQUAL), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: &[f64]) -> KernelCurve {
        (1..).zip(values.iter().copied()).collect()
    }

    fn figure(old: &[f64], new: &[f64]) -> Figure {
        let most = old.len() as u64;
        Figure { most, old: curve(old), new: curve(new), ..Figure::default() }
    }

    fn holds(verdict: Option<Verdict>) -> bool {
        matches!(verdict, Some(Verdict::Reproduced(_)))
    }

    fn fails(verdict: Option<Verdict>) -> bool {
        matches!(verdict, Some(Verdict::NotReproduced(_)))
    }

    #[test]
    fn inverse_curve_is_told_from_a_steeper_one() {
        let of = |power: f64| -> Vec<f64> {
            (1..=10).map(|level| 500e3 / f64::from(level).powf(power)).collect()
        };
        assert!(holds(inverse(&figure(&of(1.0), &[]))));
        assert!(fails(inverse(&figure(&of(1.4), &[]))));
        let mut dropping = of(1.0);
        dropping[9] /= 2.0;
        assert!(fails(inverse(&figure(&dropping, &[]))));
    }

    #[test]
    fn drop_must_begin_beyond_five_pairs() {
        let level = [2.6, 2.6, 2.6, 2.6, 2.6];
        let falling = [2.4, 2.3, 2.2, 2.1, 2.0];
        let new = [&level[..], &falling[..]].concat();
        assert!(holds(beyond_five(&figure(&[], &Vec::new()).with_new(&new))));
        assert!(fails(beyond_five(&figure(&[], &[]).with_new(&[2.6; 10]))));
        let early: Vec<f64> = (1..=10).map(|level| 2.6 / f64::from(level)).collect();
        assert!(fails(beyond_five(&figure(&[], &[]).with_new(&early))));
    }

    impl Figure {
        fn with_new(self, new: &[f64]) -> Self {
            Self { most: new.len() as u64, new: curve(new), ..self }
        }
    }

    #[test]
    fn times_decide_by_the_other_direction() {
        let forks = figure(&[2.5, 0.2], &[2.5, 1.5]);
        assert!(holds(less_time(&figure(&[1.0, 1.1], &[1.0, 1.0]), &forks)));
        assert!(fails(less_time(&figure(&[1.0, 1.0], &[1.0, 1.1]), &forks)));
        assert!(fails(less_time(&figure(&[1.0, 20.0], &[1.0, 1.0]), &forks)));
        assert!(holds(faster(&figure(&[1.0, 1.1], &[0.9, 1.0]))));
        assert!(fails(faster(&figure(&[1.0, 1.0], &[1.1, 1.2]))));
    }

    #[test]
    fn level_at_which_time_falls_is_found() {
        assert_eq!(falls(&curve(&[0.55, 0.49, 0.59, 0.58])), [2, 4]);
        assert!(falls(&curve(&[1.0, 1.0, 2.0])).is_empty());
    }

    fn with_waits(waited: u64, blocked: u64) -> CurveFindings {
        let lock = LockUse { acquisitions: 100_000, waited, blocked, longest_hold_ns: 280 };
        let locks = [("proc_relation_lock".to_owned(), lock)].into();
        let pooled = PooledRuns { runs: 3, spin_ns: 2486.2, locks };
        let locks = LockFindings { pooled: [pooled.clone(), pooled], ..LockFindings::default() };
        let (figures, unswitched, real) = Default::default();
        CurveFindings { figures, unswitched, real, locks }
    }

    #[test]
    fn blocked_share_needs_enough_waits() {
        assert!(holds(blocked(&with_waits(400, 40))));
        assert!(fails(blocked(&with_waits(400, 0))));
        assert!(fails(blocked(&with_waits(100, 95))));
        let few = blocked(&with_waits(6, 0));
        assert!(matches!(few, Some(Verdict::NotComparable(_))), "{few:?}");
        assert_eq!(blocked(&with_waits(0, 0)), None);
    }

    #[test]
    fn wilson_interval_has_known_ends() {
        // Wilson's 95 % interval of 10 in 100, from the literature.
        let (low, high) = wilson(10, 100);
        assert!((low - 0.0552).abs() < 1e-3 && (high - 0.1744).abs() < 1e-3, "{low} {high}");
    }
}
