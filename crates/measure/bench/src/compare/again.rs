//! The second stage, which measures flagged rows again in pairs: [`measure`].
//!
//! A pair is one invocation of each program, one right after the other, in random order. A block is
//! one pair of each row, in random order. A disturbance that lasts longer than a pair affects both
//! invocations. An invocation has the smallest size that contains the row, so that a pair is short;
//! [`super::tasks`] determines the task and its duration.
//!
//! The number of first pairs is the minimum for an interval that is corrected for the number of
//! rows ([`resolution::fewest_pairs`]). Their spread determines how many more pairs are needed to
//! resolve half of the difference that the screen found, up to a limit. The number depends only on
//! the spread, never on the middle, so evaluating the first pairs favours no finding.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::arm::{FigureSource, Missing};
use super::listener::CompareListener;
use super::tasks::{InvocationCost, Tasks};
use super::{Change, ComparedRow, Comparison, SecondStage, Settled};
use crate::engine::invoked::MetricSummary;
use crate::engine::stop::StopRequest;
use crate::size::Size;
use crate::stats::interval::CONFIDENCE;
use crate::stats::{many, order::quantile_interval, resolution};
use crate::task::InvocationTask;

/// Number of failures after which a row is not tried again.
const STRIKES: usize = 3;
/// The smallest difference that the second stage tries to resolve: 0.5 %.
const FINEST: f64 = 0.005;

/// Returns the figure that belongs to `row`: that of its metric, at the row's own point if the
/// samples of one invocation belong to several points.
fn figure_of<'a>(
    row: &ComparedRow,
    task: &InvocationTask,
    figures: &'a [MetricSummary],
) -> Option<&'a MetricSummary> {
    figures.iter().find(|figure| {
        let mut params = task.params.clone();
        params.extend(figure.at.clone());
        figure.metric == row.metric && params == row.params
    })
}

/// The bounds of the second stage.
#[derive(Debug, Clone, Copy)]
pub struct SecondStageLimits {
    /// Maximum number of pairs per row, unless the minimum is larger.
    pub most_pairs: usize,
    /// Seed of the random order.
    pub order_seed: u64,
}

/// Measures the flagged rows again and judges the comparison again. If `stop` ends this early,
/// keeps the settled rows and marks the comparison incomplete.
pub fn measure(
    comparison: &mut Comparison,
    [base, new]: [&dyn FigureSource; 2],
    limits: SecondStageLimits,
    pace: &InvocationCost,
    stop: &StopRequest,
    listener: &mut dyn CompareListener,
) {
    let flagged = comparison.flagged();
    let confidence = many::each(CONFIDENCE, flagged.len());
    let fewest = resolution::fewest_pairs(confidence);
    // Every row is in both files, so the smaller of the two sizes contains it.
    let largest = comparison.base.size.min(comparison.new.size);
    let mut courses = courses(&pace.tasks, &comparison.rows, &flagged, largest, fewest);
    let mut random = ChaCha8Rng::seed_from_u64(limits.order_seed);
    let each: Option<f64> = courses.iter().map(|course| pace.seconds(&course.task)).sum();
    let seconds = each.map(|each| each * (2 * fewest) as f64);
    listener.began(flagged.len(), courses.len() * fewest, seconds);
    'all: loop {
        let mut block: Vec<usize> = (0..courses.len()).filter(|&i| courses[i].lasts()).collect();
        if block.is_empty() {
            break;
        }
        block.shuffle(&mut random);
        for index in block {
            let course = &mut courses[index];
            let base_first = random.random();
            match course.pair([base, new], base_first, &comparison.rows, stop) {
                PairAttempt::Stopped => break 'all,
                // The same pair is repeated at a larger size.
                PairAttempt::Larger => {}
                PairAttempt::Failed(why) => listener.paired(&course.task, Some(&why)),
                PairAttempt::Made => {
                    listener.paired(&course.task, None);
                    if course.made == fewest {
                        course.extend(&comparison.rows, confidence, limits.most_pairs.max(fewest));
                        listener.needs(&course.task, course.planned - fewest);
                    }
                }
            }
        }
    }
    listener.ended();
    for course in courses {
        course.settle(&mut comparison.rows, confidence);
    }
    comparison.complete = !stop.requested();
    comparison.again =
        SecondStage::Made { base: base.name(), new: new.name(), order_seed: limits.order_seed };
    comparison.judge();
}

/// A task in progress, with the flagged rows that its invocations produce.
struct Course {
    task: InvocationTask,
    /// The smaller of the two runs' sizes, at which every row is available.
    largest: Size,
    rows: Vec<Flagged>,
    made: usize,
    planned: usize,
    strikes: usize,
    /// Number of attempts in which A's program returned figures and B's failed.
    failed_alone: usize,
    why: Option<String>,
}

/// The result of an attempt to make a pair.
#[derive(Debug, PartialEq, Eq)]
enum PairAttempt {
    Made,
    Failed(String),
    Larger,
    Stopped,
}

struct Flagged {
    index: usize,
    /// Differences of the pairs made so far.
    differences: Vec<f64>,
    /// Minimum number of samples of an invocation.
    tries: usize,
    /// The side that returned no figure for this row in the last pair.
    without: Option<&'static str>,
}

impl Flagged {
    fn new(index: usize) -> Self {
        Self { index, differences: Vec::new(), tries: usize::MAX, without: None }
    }

    /// Adds a pair if both sides have a figure for this row.
    fn add(&mut self, row: &ComparedRow, pair: [Option<&MetricSummary>; 2]) {
        self.without = match pair {
            [None, None] => Some("neither program gives a figure"),
            [None, _] => Some("A's program gives no figure"),
            [_, None] => Some("B's program gives no figure"),
            _ => None,
        };
        if let [Some(base), Some(new)] = pair {
            self.tries = self.tries.min(base.summary.tries()).min(new.summary.tries());
            let [base, new] =
                [base, new].map(|one| row.scale.place(one.summary.figure(one.statistic)));
            self.differences.extend(Some(new - base).filter(|one| one.is_finite()));
        }
    }

    fn settled(&self, row: &ComparedRow, confidence: f64) -> Option<Settled> {
        let (scale, pairs) = (row.scale, self.differences.len());
        let interval = quantile_interval(&self.differences, 0.5, confidence)?;
        let smallest = resolution::paired(&self.differences, confidence);
        // If a share never varied, the spread does not determine what could have been resolved.
        let least = resolution::share(self.tries, pairs).filter(|_| row.unit == "share");
        Some(Settled {
            change: Change {
                estimate: scale.change(interval.estimate),
                low: scale.change(interval.low),
                high: scale.change(interval.high),
                confidence,
            },
            pairs,
            smallest: smallest.map(|distance| scale.amount(distance).max(least.unwrap_or(0.0))),
        })
    }
}

/// Creates one course per task, regardless of the number of the task's rows.
fn courses(
    tasks: &Tasks,
    rows: &[ComparedRow],
    flagged: &[usize],
    largest: Size,
    fewest: usize,
) -> Vec<Course> {
    let mut courses: Vec<Course> = Vec::new();
    for &index in flagged {
        let row = &rows[index];
        let task = tasks.task(&row.experiment, &row.variant, &row.params, largest);
        match courses.iter_mut().find(|course| course.task == task) {
            Some(course) => course.rows.push(Flagged::new(index)),
            None => courses.push(Course {
                task,
                largest,
                rows: vec![Flagged::new(index)],
                made: 0,
                planned: fewest,
                strikes: 0,
                failed_alone: 0,
                why: None,
            }),
        }
    }
    courses
}

impl Course {
    fn lasts(&self) -> bool {
        let wanted = self.made == 0 || self.rows.iter().any(|flagged| flagged.without.is_none());
        wanted && self.made < self.planned && self.strikes < STRIKES
    }

    /// Tries to make one pair.
    fn pair(
        &mut self,
        sides: [&dyn FigureSource; 2],
        base_first: bool,
        rows: &[ComparedRow],
        stop: &StopRequest,
    ) -> PairAttempt {
        let mut both = [Vec::new(), Vec::new()];
        let mut reasons = Vec::new();
        let mut new_failed = false;
        for side in if base_first { [0, 1] } else { [1, 0] } {
            let (name, why) = match sides[side].figures(&self.task, stop) {
                Ok(figures) => {
                    both[side] = figures;
                    continue;
                }
                Err(Missing::Stopped) => return PairAttempt::Stopped,
                Err(Missing::Skipped(why)) => ("skipped", why),
                Err(Missing::Failed(why)) => {
                    new_failed |= side == 1;
                    ("failed", why)
                }
            };
            reasons.push(format!("{}'s program {name}: {why}", ["A", "B"][side]));
        }
        if !reasons.is_empty() {
            reasons.sort();
            self.strikes += 1;
            self.failed_alone += usize::from(new_failed && reasons.len() == 1);
            let why = reasons.join("; ");
            self.why = Some(why.clone());
            return PairAttempt::Failed(why);
        }
        let pairs: Vec<[Option<&MetricSummary>; 2]> = self
            .rows
            .iter()
            .map(|flagged| {
                both.each_ref().map(|figures| figure_of(&rows[flagged.index], &self.task, figures))
            })
            .collect();
        let lacks = pairs.iter().flatten().any(Option::is_none);
        if lacks && self.made == 0 {
            let larger = Size::ALL.into_iter().find(|&size| size > self.task.size);
            if let Some(larger) = larger.filter(|&size| size <= self.largest) {
                self.task.size = larger;
                return PairAttempt::Larger;
            }
        }
        self.made += 1;
        for (flagged, pair) in self.rows.iter_mut().zip(pairs) {
            flagged.add(&rows[flagged.index], pair);
        }
        PairAttempt::Made
    }

    /// Plans as many pairs as the spread of the first pairs requires.
    fn extend(&mut self, rows: &[ComparedRow], confidence: f64, most: usize) {
        let needed = self.rows.iter().filter(|flagged| flagged.without.is_none()).map(|flagged| {
            let target = target(&rows[flagged.index]);
            resolution::pairs_for(target, &flagged.differences, confidence)
        });
        self.planned = needed.max().unwrap_or(0).clamp(self.made, most.max(self.made));
    }

    fn settle(self, rows: &mut [ComparedRow], confidence: f64) {
        let fails = self.made == 0 && self.failed_alone == STRIKES;
        for flagged in &self.rows {
            let row = &mut rows[flagged.index];
            row.fails = fails;
            row.again = flagged.settled(row, confidence);
            row.notes.extend(self.said(flagged, row));
        }
    }

    /// Returns the remark on a row.
    fn said(&self, flagged: &Flagged, row: &ComparedRow) -> Option<String> {
        let strikes = self.strikes;
        let tries = self.made + strikes;
        if row.fails {
            let why = self.why.as_deref().unwrap_or_default();
            return Some(format!("in all {tries} attempts to measure it again, {why}"));
        }
        let failed = |why| format!("{strikes} of {tries} pairs failed: {why}");
        let failed = self.why.as_ref().map(failed);
        if row.again.is_some() {
            return failed;
        }
        if let Some(who) = flagged.without {
            let size = self.task.size.name();
            return Some(format!("not measured again: at the {size} size {who} of this row"));
        }
        let made = flagged.differences.len();
        let few = match made {
            0 => "not measured again".to_owned(),
            _ => format!("{made} pairs are too few to settle it"),
        };
        Some([Some(few), failed].into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}

/// Returns the difference to resolve: half of the difference that the screen found.
fn target(row: &ComparedRow) -> f64 {
    let seen = row.scale.place(row.new) - row.scale.place(row.base);
    let finest = match row.scale {
        super::ChangeScale::Quotient => FINEST,
        super::ChangeScale::Difference if row.unit == "share" => FINEST,
        super::ChangeScale::Difference => FINEST * row.base.abs().max(row.new.abs()),
    };
    (seen.abs() / 2.0).max(finest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::RowVerdict;
    use crate::compare::arm::Arm;
    use crate::compare::read::RunFiles;
    use crate::compare::screen::screen;
    use crate::engine::invoked::{InvocationFigures, InvocationReply, InvocationResult};
    use crate::fixture::{self, suite::SUITE};
    use crate::observe::Series;
    use std::fs;
    use std::path::Path;

    /// Pauses, and the time of a message after each. One invocation returns several.
    type Points<'a> = &'a [(u64, f64)];

    const LIMITS: SecondStageLimits = SecondStageLimits { most_pairs: 100, order_seed: 7 };

    /// Returns two runs of `wake-up` with every pause flagged.
    fn flagged(pauses: &[u64], size: Size) -> Comparison {
        let mut run = fixture::run();
        run.size = size;
        run.cells.truncate(1);
        let cell = run.cells.remove(0);
        for pause in pauses {
            let mut cell = cell.clone();
            cell.experiment = "wake-up".into();
            cell.variant = "futex".into();
            cell.params = [("placement", "cross-core".into()), ("pause_us", pause.to_string())]
                .map(|(key, value)| (key.to_owned(), value))
                .into();
            run.cells.push(cell);
        }
        let side = RunFiles { path: "results.json".into(), results: run };
        let mut comparison = screen(&side, &side, 0.0);
        for row in &mut comparison.rows {
            row.screen.flagged = true;
        }
        comparison
    }

    fn reply(outcome: InvocationResult) -> String {
        serde_json::to_string(&InvocationReply::of(outcome)).expect("JSON")
    }

    fn measured(points: Points<'_>) -> String {
        let figure = |&(pause, ns): &(u64, f64)| {
            MetricSummary::of(&Series::ns("one_way", vec![ns; 50]).at("pause_us", pause))
        };
        let figures = points.iter().map(figure).collect();
        let measured = InvocationFigures { figures, ..InvocationFigures::default() };
        reply(InvocationResult::Measured(measured))
    }

    /// Returns a program that answers a request of the quick size with `quick` and all other
    /// requests with `other`.
    fn arm(folder: &Path, name: &str, quick: &str, other: &str) -> Arm {
        for (size, text) in [("quick", quick), ("other", other)] {
            fs::write(folder.join(format!("{name}-{size}")), text).expect("a file");
        }
        let script = format!(
            "case $(cat) in *'\"size\":\"quick\"'*) size=quick;; *) size=other;; esac
             cat {}/{name}-$size",
            folder.display()
        );
        Arm::new(Path::new("/bin/sh"), vec!["-c".into(), script.into()])
    }

    /// A listener that counts the attempts.
    #[derive(Default)]
    struct Heard {
        pairs: usize,
        tasks: Vec<InvocationTask>,
    }

    impl CompareListener for Heard {
        fn paired(&mut self, task: &InvocationTask, _why: Option<&str>) {
            self.pairs += 1;
            if !self.tasks.contains(task) {
                self.tasks.push(task.clone());
            }
        }
    }

    fn measure_again(comparison: &mut Comparison, base: &Arm, new: &Arm) -> Heard {
        let mut heard = Heard::default();
        let stop = StopRequest::never().expect("descriptors");
        let none = RunFiles { path: "results.json".into(), results: fixture::small() };
        let pace = InvocationCost::of(Tasks::of_this_machine(&SUITE), &none, &none);
        measure(comparison, [base, new], LIMITS, &pace, &stop, &mut heard);
        heard
    }

    fn verdicts(comparison: &Comparison) -> Vec<RowVerdict> {
        comparison.rows.iter().map(|row| row.verdict).collect()
    }

    /// An invocation measures all pauses, and some are missing at the quick size. Each row is
    /// judged by its own pause, and all rows by the same pairs, at the size that has all pauses.
    #[test]
    fn one_slower_parameter_marks_only_its_row_worse() {
        let folder = tempfile::tempdir().expect("a folder");
        let quick = measured(&[(1, 900.0), (10_000, 9_000.0)]);
        let base = measured(&[(1, 1_000.0), (10, 2_000.0), (10_000, 9_000.0)]);
        let slower = measured(&[(1, 1_000.0), (10, 2_400.0), (10_000, 9_000.0)]);
        let base = arm(folder.path(), "base", &quick, &base);
        let new = arm(folder.path(), "new", &quick, &slower);
        let mut comparison = flagged(&[1, 10, 10_000], Size::Default);
        let heard = measure_again(&mut comparison, &base, &new);
        let expected = [RowVerdict::NotConfirmed, RowVerdict::Worse, RowVerdict::NotConfirmed];
        assert_eq!(verdicts(&comparison), expected, "{:?}", comparison.rows);
        let change = comparison.rows[1].change().expect("measured");
        assert!((change.estimate - 1.2).abs() < 1e-9, "{change:?}");
        assert_eq!(comparison.regressions, 1);
        let [task] = &heard.tasks[..] else { panic!("one task: {:?}", heard.tasks) };
        assert_eq!((task.size, task.params.len()), (Size::Default, 1), "{task:?}");
        let fewest = resolution::fewest_pairs(many::each(CONFIDENCE, 3));
        assert_eq!(heard.pairs, fewest, "one pair serves three rows");
    }

    #[test]
    fn row_without_figures_is_not_measured_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let quick = measured(&[(1, 1_000.0), (10_000, 9_000.0)]);
        let slower = measured(&[(1, 1_500.0), (10_000, 9_000.0)]);
        let base = arm(folder.path(), "base", &quick, "");
        let new = arm(folder.path(), "new", &slower, "");
        let mut comparison = flagged(&[1, 10, 10_000], Size::Quick);
        measure_again(&mut comparison, &base, &new);
        assert_eq!(verdicts(&comparison)[0], RowVerdict::Worse);
        let lacking = &comparison.rows[1];
        assert_eq!((lacking.again.as_ref(), lacking.fails), (None, false));
        let notes = lacking.notes.join(" ");
        let said = "not measured again: at the quick size neither program gives a figure";
        assert!(notes.contains(said), "{notes}");
    }

    #[test]
    fn failure_of_the_new_program_only_is_a_regression() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = measured(&[(1, 1_000.0)]);
        let failing = reply(InvocationResult::Failed("it broke".into()));
        let skipping = reply(InvocationResult::Skipped("no such thing here".into()));
        let arms = [("good", &good), ("failing", &failing), ("skipping", &skipping)]
            .map(|(name, text)| arm(folder.path(), name, text, text));
        let [good, failing, skipping] = &arms;
        for (base, new, regressions) in [
            (good, failing, 1),
            (failing, good, 0),
            (failing, failing, 0),
            (good, skipping, 0),
            (skipping, failing, 0),
        ] {
            let mut comparison = flagged(&[1], Size::Quick);
            let heard = measure_again(&mut comparison, base, new);
            assert_eq!((heard.pairs, comparison.regressions), (STRIKES, regressions));
            let row = &comparison.rows[0];
            assert_eq!(row.verdict == RowVerdict::Failed, regressions == 1, "{row:?}");
            let notes = row.notes.join(" ");
            let said = match regressions {
                0 => "not measured again; 3 of 3 pairs failed: ",
                _ => "in all 3 attempts to measure it again, B's program failed: it broke",
            };
            assert!(notes.contains(said), "{notes}");
        }
    }

    #[test]
    fn occasional_failure_is_not_a_regression() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = measured(&[(1, 1_000.0)]);
        let base = arm(folder.path(), "base", &good, &good);
        // The program fails only in its first attempt.
        let script = format!(
            "cd {} && cat > order && test -e tried && exec cat base-quick; touch tried; exit 3",
            folder.path().display()
        );
        let new = Arm::new(Path::new("/bin/sh"), vec!["-c".into(), script.into()]);
        let mut comparison = flagged(&[1], Size::Quick);
        measure_again(&mut comparison, &base, &new);
        let row = &comparison.rows[0];
        assert_eq!((row.verdict, row.fails), (RowVerdict::NotConfirmed, false), "{row:?}");
        assert!(
            row.notes.join(" ").contains("1 of 21 pairs failed: B's program failed"),
            "{row:?}"
        );
    }
}
