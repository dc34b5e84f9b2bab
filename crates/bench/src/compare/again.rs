//! The second stage: flagged rows measured again, in pairs: [`measure`].
//!
//! A pair is one invocation of each program, right after one another, in random order; a block is
//! one pair of each row, in random order. What disturbs the machine for longer than a pair disturbs
//! both. Invocations are those of the smallest size that has the row, so that a pair is short; the
//! task, and what it may cost, is [`super::tasks`]'s.
//!
//! First come the fewest pairs that an interval corrected for the number of rows can do with
//! ([`resolution::fewest_pairs`]); by their spread so many more as half of the difference that the
//! screen saw asks for, up to a limit. The number depends on the spread alone and never on where
//! the middle lies, so that looking at the first pairs does not favour a finding.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tasks::{Pace, Tasks};
use super::{Change, Comparison, Row, SecondStage, Settled};
use crate::engine::invoked::{Figure, InvocationRequest, InvocationResult};
use crate::engine::launch::{LaunchResult, Launcher};
use crate::engine::stop::Stop;
use crate::observe::Statistic;
use crate::plant::Plant;
use crate::size::Size;
use crate::stats::interval::CONFIDENCE;
use crate::stats::order::quantile_interval;
use crate::stats::{many, resolution};
use crate::task::Task;

/// Failures after which a row is not tried any more.
const STRIKES: usize = 3;
/// No difference smaller than this is asked for: 0.5 %.
const FINEST: f64 = 0.005;

/// One of the two programs.
#[derive(Debug, Clone)]
pub struct Arm {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// What is planted into its invocations: only a trial of the comparison itself plants anything.
    plant: Option<Plant>,
}

impl Arm {
    /// The program at `path`, which serves an invocation when called with `arguments`.
    pub fn new(path: &Path, arguments: Vec<OsString>) -> Self {
        Self { program: path.to_owned(), arguments, plant: None }
    }

    /// The same with something planted.
    #[must_use]
    pub fn planted(&self, plant: Plant) -> Self {
        Self { plant: Some(plant), ..self.clone() }
    }

    /// The program.
    pub fn program(&self) -> &PathBuf {
        &self.program
    }

    /// One invocation of `task`; never empty.
    ///
    /// # Errors
    /// [`Missing`]: stopped, or it gave no figures.
    pub fn figures(&self, task: &Task, stop: &Stop) -> Result<Vec<Figure>, Missing> {
        let order =
            InvocationRequest { task: task.clone(), block: 0, samples: None, plant: self.plant };
        let launcher = Launcher {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            deadline: task.size.deadline(),
        };
        match launcher.launch(&order, stop) {
            LaunchResult::Stopped => Err(Missing::Stopped),
            LaunchResult::Broken(why) => Err(Missing::Failed(why)),
            LaunchResult::Replied(reply) => match reply.outcome {
                InvocationResult::Measured(measured) => Ok(measured.figures),
                InvocationResult::Skipped(why) => Err(Missing::Skipped(why)),
                InvocationResult::Failed(why) => Err(Missing::Failed(why)),
            },
        }
    }
}

/// Why an invocation has no figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// It was stopped.
    Stopped,
    /// The machine lacks something.
    Skipped(String),
    /// Something went wrong.
    Failed(String),
}

/// The figure that stands for an invocation.
pub fn standing(figure: &Figure) -> f64 {
    match figure.statistic {
        Statistic::Median => figure.summary.median,
        Statistic::Mean => figure.summary.mean,
    }
}

/// The figure that belongs to `row`: its metric, at the row's own point where the samples of one
/// invocation are those of several.
fn figure_of<'a>(row: &Row, task: &Task, figures: &'a [Figure]) -> Option<&'a Figure> {
    figures.iter().find(|figure| {
        let mut params = task.params.clone();
        params.extend(figure.at.clone());
        figure.metric == row.metric && params == row.params
    })
}

/// The bounds of the second stage.
#[derive(Debug, Clone, Copy)]
pub struct SecondStageLimits {
    /// Pairs a row at most, where the fewest are not more.
    pub most_pairs: usize,
    /// Seed of the random order.
    pub order_seed: u64,
}

/// Told how the second stage goes on. All methods have a default that ignores it.
pub trait Listener {
    /// It begins: `pairs` at least will be made, in about `seconds`, where the files tell.
    fn began(&mut self, _rows: usize, _pairs: usize, _seconds: Option<f64>) {}
    /// A row's task has had its first pairs and needs `more`.
    fn needs(&mut self, _task: &Task, _more: usize) {}
    /// A pair of `task` ends; `why` says what went wrong with it.
    fn paired(&mut self, _task: &Task, _why: Option<&str>) {}
    /// It ends.
    fn ended(&mut self) {}
}

/// Measures the flagged rows of `comparison` again and judges it anew. Ended early by `stop`, it
/// keeps what is settled and marks the comparison incomplete.
pub fn measure(
    comparison: &mut Comparison,
    [base, new]: [&Arm; 2],
    limits: SecondStageLimits,
    pace: &Pace,
    stop: &Stop,
    listener: &mut dyn Listener,
) {
    let flagged = comparison.flagged();
    let confidence = many::each(CONFIDENCE, flagged.len());
    let fewest = resolution::fewest_pairs(confidence);
    // A row stands in both files, so the smaller of two sizes has it.
    let largest = comparison.base.size.min(comparison.new.size);
    let mut courses = courses(&pace.tasks, &comparison.rows, &flagged, largest, fewest);
    let mut random = ChaCha8Rng::seed_from_u64(limits.order_seed);
    let each = courses.iter().map(|course| pace.seconds(&course.task));
    let seconds = each.sum::<Option<f64>>().map(|each| each * (2 * fewest) as f64);
    listener.began(flagged.len(), courses.len() * fewest, seconds);
    'all: loop {
        let mut block: Vec<usize> =
            (0..courses.len()).filter(|&index| courses[index].goes_on()).collect();
        if block.is_empty() {
            break;
        }
        block.shuffle(&mut random);
        for index in block {
            let course = &mut courses[index];
            let base_first = random.random();
            match course.pair([base, new], base_first, &comparison.rows, stop) {
                Tried::Stopped => break 'all,
                // The same pair again, larger.
                Tried::Larger => {}
                Tried::Failed(why) => listener.paired(&course.task, Some(&why)),
                Tried::Made => {
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
    comparison.again = SecondStage::Made {
        base: base.program().display().to_string(),
        new: new.program().display().to_string(),
        order_seed: limits.order_seed,
    };
    comparison.judge();
}

/// One task on its way, and the flagged rows that its invocations yield.
struct Course {
    task: Task,
    /// The size of the two runs, at which every row is to be had.
    largest: Size,
    rows: Vec<Flagged>,
    made: usize,
    planned: usize,
    strikes: usize,
    /// Tries in which A's program gave figures and B's failed.
    failed_alone: usize,
    why: Option<String>,
}

/// How a try to make a pair ended.
#[derive(Debug, PartialEq, Eq)]
enum Tried {
    Made,
    Failed(String),
    /// This size lacks a row; nothing of it counts.
    Larger,
    Stopped,
}

/// A flagged row on its way.
struct Flagged {
    index: usize,
    /// Of the pairs made so far.
    differences: Vec<f64>,
    /// Fewest samples of an invocation.
    tries: usize,
    /// Who gives no figure of this row, as the last pair showed it.
    without: Option<&'static str>,
}

impl Flagged {
    fn new(index: usize) -> Self {
        Self { index, differences: Vec::new(), tries: usize::MAX, without: None }
    }

    /// Adds a pair, if both have a figure for this row.
    fn add(&mut self, row: &Row, pair: [Option<&Figure>; 2]) {
        self.without = match pair {
            [None, None] => Some("neither program gives a figure"),
            [None, _] => Some("A's program gives no figure"),
            [_, None] => Some("B's program gives no figure"),
            _ => None,
        };
        if let [Some(base), Some(new)] = pair {
            self.tries = self.tries.min(base.summary.count).min(new.summary.count);
            let [base, new] = [base, new].map(|one| row.scale.place(standing(one)));
            self.differences.extend(Some(new - base).filter(|one| one.is_finite()));
        }
    }

    fn settled(&self, row: &Row, confidence: f64) -> Option<Settled> {
        let (scale, pairs) = (row.scale, self.differences.len());
        let interval = quantile_interval(&self.differences, 0.5, confidence)?;
        let smallest = resolution::paired(&self.differences, confidence);
        // Of a share that never varied, no spread tells what could have been seen.
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

/// One course a task, whatever the number of its rows.
fn courses(
    tasks: &Tasks,
    rows: &[Row],
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
    fn goes_on(&self) -> bool {
        let wanted = self.made == 0 || self.rows.iter().any(|flagged| flagged.without.is_none());
        wanted && self.made < self.planned && self.strikes < STRIKES
    }

    /// Tries to make one pair.
    fn pair(&mut self, arms: [&Arm; 2], base_first: bool, rows: &[Row], stop: &Stop) -> Tried {
        let mut both = [Vec::new(), Vec::new()];
        let mut reasons = Vec::new();
        let mut new_failed = false;
        for side in if base_first { [0, 1] } else { [1, 0] } {
            let (name, why) = match arms[side].figures(&self.task, stop) {
                Ok(figures) => {
                    both[side] = figures;
                    continue;
                }
                Err(Missing::Stopped) => return Tried::Stopped,
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
            return Tried::Failed(why);
        }
        let pairs: Vec<[Option<&Figure>; 2]> = self
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
                return Tried::Larger;
            }
        }
        self.made += 1;
        for (flagged, pair) in self.rows.iter_mut().zip(pairs) {
            flagged.add(&rows[flagged.index], pair);
        }
        Tried::Made
    }

    /// Plans as many pairs as the spread of those made asks for.
    fn extend(&mut self, rows: &[Row], confidence: f64, most: usize) {
        let needed = self.rows.iter().filter(|flagged| flagged.without.is_none()).map(|flagged| {
            let target = target(&rows[flagged.index]);
            resolution::pairs_for(target, &flagged.differences, confidence)
        });
        self.planned = needed.max().unwrap_or(0).clamp(self.made, most.max(self.made));
    }

    fn settle(self, rows: &mut [Row], confidence: f64) {
        let fails = self.made == 0 && self.failed_alone == STRIKES;
        for flagged in &self.rows {
            let row = &mut rows[flagged.index];
            row.fails = fails;
            row.again = flagged.settled(row, confidence);
            row.notes.extend(self.said(flagged, row));
        }
    }

    /// What has to be said beside a row.
    fn said(&self, flagged: &Flagged, row: &Row) -> Option<String> {
        let strikes = self.strikes;
        let tries = self.made + strikes;
        if row.fails {
            let why = self.why.as_deref().unwrap_or_default();
            return Some(format!("in all {tries} attempts to measure it again, {why}"));
        }
        let failed =
            self.why.as_ref().map(|why| format!("{strikes} of {tries} pairs failed: {why}"));
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

/// The difference to be resolved: half of what the screen saw.
fn target(row: &Row) -> f64 {
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
    use crate::compare::read::Side;
    use crate::compare::screen::screen;
    use crate::engine::invoked::{InvocationReply, Measured};
    use crate::fixture::{self, suite::SUITE};
    use crate::observe::Series;
    use std::fs;

    /// Pauses, and what a message takes after each; of several one invocation tells.
    type Points<'a> = &'a [(u64, f64)];

    const LIMITS: SecondStageLimits = SecondStageLimits { most_pairs: 100, order_seed: 7 };

    /// Two runs of `wake-up`, every pause flagged.
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
        let side = Side { path: "results.json".into(), results: run };
        let mut comparison = screen(&side, &side, 0.0);
        for row in &mut comparison.rows {
            row.screen.flagged = true;
        }
        comparison
    }

    fn reply(outcome: InvocationResult) -> String {
        let reply =
            InvocationReply { outcome, empty_pair_ns: 10.0, clock_drift: 0.0, stolen_ms: 0.0 };
        serde_json::to_string(&reply).expect("JSON")
    }

    fn measured(points: Points<'_>) -> String {
        let figure = |&(pause, ns): &(u64, f64)| {
            Figure::of(&Series::ns("one_way", vec![ns; 50]).at("pause_us", pause))
        };
        let figures = points.iter().map(figure).collect();
        let (ratios, tried, notes, maps) = Default::default();
        reply(InvocationResult::Measured(Measured { figures, ratios, tried, notes, maps }))
    }

    /// A program that answers an order of the quick size with `quick`, all others with `other`.
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

    /// Counts what was tried.
    #[derive(Default)]
    struct Heard {
        pairs: usize,
        tasks: Vec<Task>,
    }

    impl Listener for Heard {
        fn paired(&mut self, task: &Task, _why: Option<&str>) {
            self.pairs += 1;
            if !self.tasks.contains(task) {
                self.tasks.push(task.clone());
            }
        }
    }

    fn measure_again(comparison: &mut Comparison, base: &Arm, new: &Arm) -> Heard {
        let mut heard = Heard::default();
        let stop = Stop::never().expect("descriptors");
        let none = Side { path: "results.json".into(), results: fixture::small() };
        let pace = Pace::of(Tasks::of_this_machine(&SUITE), &none, &none);
        measure(comparison, [base, new], LIMITS, &pace, &stop, &mut heard);
        heard
    }

    fn verdicts(comparison: &Comparison) -> Vec<RowVerdict> {
        comparison.rows.iter().map(|row| row.verdict).collect()
    }

    /// One invocation measures all pauses, and the quick size lacks some: each row is judged by its
    /// own pause, all by the same pairs, at the size that has them.
    #[test]
    fn a_regression_after_one_pause_is_found_in_its_row_alone() {
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
    fn a_row_that_no_size_has_is_not_judged_by_another() {
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
    fn where_only_the_new_program_fails_the_row_is_a_regression() {
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
    fn a_program_that_fails_now_and_then_is_no_regression_by_that() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = measured(&[(1, 1_000.0)]);
        let base = arm(folder.path(), "base", &good, &good);
        // It fails in its first try alone.
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
