//! The second stage: flagged rows measured again, in pairs: [`measure`].
//!
//! A pair is one invocation of each program, right after one another, in random order; a block is
//! one pair of each row, in random order. What disturbs the machine for longer than a pair disturbs
//! both. Invocations are those of the quick size, so that a pair is short.
//!
//! First come the fewest pairs that an interval corrected for the number of rows can do with
//! ([`resolution::fewest_pairs`]); by their spread so many more as half of the difference that the
//! screen saw asks for, up to a limit. The number depends on the spread alone and never on where
//! the middle lies, so that looking at the first pairs does not favour a finding.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Again, Change, Comparison, Row, Settled};
use crate::engine::invoked::{Figure, Order, Outcome};
use crate::engine::launch::{Ended, Launcher};
use crate::engine::pilot::Without;
use crate::engine::stop::Stop;
use crate::experiment::Task;
use crate::observe::Statistic;
use crate::plant::Plant;
use crate::size::Size;
use crate::stats::interval::CONFIDENCE;
use crate::stats::order::quantile_interval;
use crate::stats::{many, resolution};

/// When an invocation of the quick size is given up.
const DEADLINE: Duration = Duration::from_secs(20);
/// Failures after which a row is not tried any more.
const STRIKES: usize = 3;
/// No difference smaller than this is asked for: 0.5 %.
const FINEST: f64 = 0.005;

/// One of the two programs.
#[derive(Debug, Clone)]
pub struct Arm {
    launcher: Launcher,
    /// What is planted into its invocations: only a trial of the comparison itself plants anything.
    plant: Option<Plant>,
}

impl Arm {
    /// The program at `path`, which serves an invocation when called with `arguments`.
    pub fn new(path: &Path, arguments: Vec<OsString>) -> Self {
        let launcher = Launcher { program: path.to_owned(), arguments, deadline: DEADLINE };
        Self { launcher, plant: None }
    }

    /// The same with something planted.
    #[must_use]
    pub fn planted(&self, plant: Plant) -> Self {
        Self { plant: Some(plant), ..self.clone() }
    }

    /// The program.
    pub fn program(&self) -> &PathBuf {
        &self.launcher.program
    }

    /// One invocation of `task`; never empty.
    ///
    /// # Errors
    /// [`Without`]: stopped, or it gave no figures.
    pub fn figures(&self, task: &Task, stop: &Stop) -> Result<Vec<Figure>, Without> {
        let order = Order { task: task.clone(), block: 0, samples: None, plant: self.plant };
        match self.launcher.launch(&order, stop) {
            Ended::Stopped => Err(Without::Stopped),
            Ended::Broken(why) => Err(Without::Unmeasurable(why)),
            Ended::Replied(reply) => match reply.outcome {
                Outcome::Measured(measured) => Ok(measured.figures),
                Outcome::Skipped(why) | Outcome::Failed(why) => Err(Without::Unmeasurable(why)),
            },
        }
    }
}

/// The figure of an invocation that stands for it in the row of `metric`.
pub fn standing(figures: &[Figure], metric: &str) -> Option<f64> {
    let figure = figures.iter().find(|figure| figure.metric == metric)?;
    Some(match figure.statistic {
        Statistic::Median => figure.summary.median,
        Statistic::Mean => figure.summary.mean,
    })
}

/// What the second stage may do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Pairs a row at most, where the fewest are not more.
    pub most_pairs: usize,
    /// Seed of the random order.
    pub order_seed: u64,
}

/// Told how the second stage goes on. All methods have a default that ignores it.
pub trait Listener {
    /// It begins: `pairs` at least will be made.
    fn began(&mut self, _rows: usize, _pairs: usize) {}
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
    limits: Limits,
    stop: &Stop,
    listener: &mut dyn Listener,
) {
    let flagged = comparison.flagged();
    let confidence = many::each(CONFIDENCE, flagged.len());
    let fewest = resolution::fewest_pairs(confidence);
    let mut courses = courses(&comparison.rows, &flagged, fewest);
    let mut random = ChaCha8Rng::seed_from_u64(limits.order_seed);
    listener.began(flagged.len(), courses.len() * fewest);
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
            let Some(why) = course.pair([base, new], base_first, &comparison.rows, stop) else {
                break 'all;
            };
            listener.paired(&course.task, why.as_deref());
            if why.is_none() && course.made == fewest {
                course.extend(&comparison.rows, confidence, limits.most_pairs.max(fewest));
                listener.needs(&course.task, course.planned - fewest);
            }
        }
    }
    listener.ended();
    for course in courses {
        course.settle(&mut comparison.rows, confidence);
    }
    comparison.complete = !stop.requested();
    comparison.again = Again::Made {
        base: base.program().display().to_string(),
        new: new.program().display().to_string(),
        order_seed: limits.order_seed,
    };
    comparison.judge();
}

/// One task on its way, and the flagged rows that its invocations yield.
struct Course {
    task: Task,
    rows: Vec<Flagged>,
    made: usize,
    planned: usize,
    strikes: usize,
    why: Option<String>,
}

/// A flagged row on its way.
struct Flagged {
    index: usize,
    /// Of the pairs made so far.
    differences: Vec<f64>,
    /// Fewest samples of an invocation.
    tries: usize,
}

impl Flagged {
    fn new(index: usize) -> Self {
        Self { index, differences: Vec::new(), tries: usize::MAX }
    }

    /// Adds a pair, if both have a figure for this row.
    fn add(&mut self, row: &Row, base: &[Figure], new: &[Figure]) {
        let counts = [base, new].map(|figures| {
            figures.iter().find(|one| one.metric == row.metric).map(|one| one.summary.count)
        });
        self.tries = counts.into_iter().flatten().fold(self.tries, usize::min);
        self.differences.extend(difference(row, base, new));
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

fn courses(rows: &[Row], flagged: &[usize], fewest: usize) -> Vec<Course> {
    let mut courses: Vec<Course> = Vec::new();
    for &index in flagged {
        let row = &rows[index];
        let task = Task {
            experiment: row.experiment.clone(),
            variant: row.variant.clone(),
            params: row.params.clone(),
            size: Size::Quick,
        };
        match courses.iter_mut().find(|course| course.task == task) {
            Some(course) => course.rows.push(Flagged::new(index)),
            None => courses.push(Course {
                task,
                rows: vec![Flagged::new(index)],
                made: 0,
                planned: fewest,
                strikes: 0,
                why: None,
            }),
        }
    }
    courses
}

impl Course {
    fn goes_on(&self) -> bool {
        self.made < self.planned && self.strikes < STRIKES
    }

    /// Makes one pair. `None` where it was stopped, else what went wrong, if anything.
    fn pair(
        &mut self,
        [base, new]: [&Arm; 2],
        base_first: bool,
        rows: &[Row],
        stop: &Stop,
    ) -> Option<Option<String>> {
        let both = if base_first {
            base.figures(&self.task, stop)
                .and_then(|base| Ok((base, new.figures(&self.task, stop)?)))
        } else {
            new.figures(&self.task, stop).and_then(|new| Ok((base.figures(&self.task, stop)?, new)))
        };
        match both {
            Ok((base, new)) => {
                self.made += 1;
                for flagged in &mut self.rows {
                    flagged.add(&rows[flagged.index], &base, &new);
                }
                Some(None)
            }
            Err(Without::Stopped) => None,
            Err(Without::Unmeasurable(why)) => {
                self.strikes += 1;
                self.why = Some(why.clone());
                Some(Some(why))
            }
        }
    }

    /// Plans as many pairs as the spread of those made asks for.
    fn extend(&mut self, rows: &[Row], confidence: f64, most: usize) {
        let needed = self.rows.iter().map(|flagged| {
            let target = target(&rows[flagged.index]);
            resolution::pairs_for(target, &flagged.differences, confidence)
        });
        self.planned = needed.max().unwrap_or(0).clamp(self.made, most.max(self.made));
    }

    fn settle(self, rows: &mut [Row], confidence: f64) {
        for flagged in self.rows {
            let row = &mut rows[flagged.index];
            if let Some(why) = &self.why {
                let strikes = self.strikes;
                row.notes.push(format!("measured again, {strikes} pairs failed: {why}"));
            }
            row.again = flagged.settled(row, confidence);
            if row.again.is_none() {
                let made = flagged.differences.len();
                row.notes.push(format!("measured again, {made} pairs are too few to settle it"));
            }
        }
    }
}

/// New against base, on the row's scale; `None` where one has no such figure.
fn difference(row: &Row, base: &[Figure], new: &[Figure]) -> Option<f64> {
    let [base, new] =
        [standing(base, &row.metric)?, standing(new, &row.metric)?].map(|one| row.scale.place(one));
    Some(new - base).filter(|difference| difference.is_finite())
}

/// The difference to be resolved: half of what the screen saw.
fn target(row: &Row) -> f64 {
    let seen = row.scale.place(row.new) - row.scale.place(row.base);
    let finest = match row.scale {
        super::Scale::Quotient => FINEST,
        super::Scale::Difference if row.unit == "share" => FINEST,
        super::Scale::Difference => FINEST * row.base.abs().max(row.new.abs()),
    };
    (seen.abs() / 2.0).max(finest)
}
