//! The exploration: [`run`] records each operation, kills at the points that the [`KillMode`]
//! selects, and collects the verdicts on the survivors in a [`CrashReport`].
//!
//! [`select`] resolves names, [`attempt`] records one operation and kills at one point, [`scene`]
//! is one trial, with a [`trial_config`] and the script of a [`queue`] or a [`heap`], and
//! [`verdict`](crate::verdict) judges. Several kills per processor run in parallel, because a
//! wedged trial spends most of its time waiting for its deadline.
//!
//! This module neither prints ([`crate::report`] does) nor parses a command line.

mod attempt;
mod heap;
mod queue;
mod scene;
pub mod select;
mod trial_config;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use self::attempt::{Attempt, DeathCount};
use self::trial_config::TrialConfig;
use crate::mode::KillMode;
use crate::report::{CrashReport, Finding, OperationReport, SubjectReport};
use crate::run_dir;
use crate::subject::{CrashTarget, Operation};
use crate::tracer::Approach;
use crate::tracer::recording::{RecordedPoint, Recording};
use crate::verdict::{KillVerdict, TrialResult};
use crate::worker_launcher::WorkerLauncher;
use tontine_bench::error::{MeasureError, Result};

/// Number of concurrent kills per processor.
const KILLS_A_PROCESSOR: usize = 4;

/// Number of runs that may diverge from their recording, or be starved, before a point counts as
/// not explored. The first run goes straight to the point; the others step like the recording.
const ATTEMPTS: u32 = 10;

#[derive(Clone)]
pub struct ExploreRequest {
    pub subjects: Vec<&'static dyn CrashTarget>,
    /// Selection of points.
    pub mode: KillMode,
    /// The only operation to explore, if any.
    pub operation: Option<Operation>,
    /// The only point to explore, if any; in pairs, also the successor's point.
    pub point: Option<(usize, Option<usize>)>,
    /// Maximum number of points per operation, spread evenly: enough to estimate the time for all.
    pub sample: Option<usize>,
}

/// A caller's callbacks during an exploration.
pub trait Observer: Sync {
    /// Reports that `done` of the `of` kills of an operation are complete.
    fn progress(&self, subject: &str, operation: &str, done: usize, of: usize);

    /// Returns `true` if the exploration must end early, with the results so far.
    fn stopped(&self) -> bool;
}

/// Runs an exploration. A target that cannot be explored is listed in the report with the reason.
pub fn run(
    request: &ExploreRequest,
    stage: &WorkerLauncher,
    observer: &dyn Observer,
) -> CrashReport {
    run_dir::sweep();
    let mut report = CrashReport::new(request.mode);
    for subject in &request.subjects {
        if observer.stopped() {
            report.complete = false;
            break;
        }
        let explored = SubjectRun { request, stage, observer, subject: *subject }.run();
        let stopped = Some(EarlyEnd::Stopped.to_string());
        report.complete &= explored.operations.iter().all(|one| one.trouble != stopped);
        report.subjects.push(explored);
    }
    report
}

/// The part of a run that explores one target.
struct SubjectRun<'a> {
    request: &'a ExploreRequest,
    stage: &'a WorkerLauncher,
    observer: &'a dyn Observer,
    subject: &'static dyn CrashTarget,
}

/// The reason why an exploration ended before its last point.
#[derive(Debug, thiserror::Error)]
enum EarlyEnd {
    #[error("stopped early")]
    Stopped,
    #[error(transparent)]
    Trouble(#[from] MeasureError),
}

/// A kill, or all pairs that begin with this kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KillPoint {
    point: usize,
    then: Option<usize>,
    /// Number of points that this kill represents.
    stands_for: usize,
}

enum KillReport {
    /// A kill: single, or the second of a pair.
    Killed(KillPoint, RecordedPoint, TrialResult),
    /// The recorded run of the successor after a first kill: the numbers of its points and classes.
    Recorded(usize, u32),
}

impl SubjectRun<'_> {
    fn run(&self) -> SubjectReport {
        let mut report = SubjectReport::of(self.subject);
        let mut operations = self.subject.facts().operations.iter();
        let pairs = self.request.mode == KillMode::Pairs;
        if pairs && operations.all(|one| self.subject.succession(*one).is_none()) {
            report.trouble = Some(MeasureError::skip("this target has no pairs").to_string());
            return report;
        }
        let prepared = match self.subject.prepare() {
            Ok(prepared) => prepared,
            Err(trouble) => {
                report.trouble = Some(trouble.to_string());
                return report;
            }
        };
        let mut stage = self.stage.clone();
        if let Some(program) = &prepared.program {
            stage.program.clone_from(program);
            stage.arguments.clear();
        }
        let config = TrialConfig { stage: &stage, subject: self.subject };
        for operation in self.subject.facts().operations {
            let wanted = self.request.operation.is_none_or(|wanted| wanted == *operation);
            let has_pairs = self.subject.succession(*operation).is_some();
            // A succession that takes longer than all others is explored only if it is named.
            let long = self.request.mode == KillMode::Pairs
                && self.request.operation.is_none()
                && self.subject.facts().long_successions.contains(operation);
            if !wanted || long || (self.request.mode == KillMode::Pairs && !has_pairs) {
                continue;
            }
            let explored = self.operation(Attempt::new(config, *operation));
            // If the machine cannot run one operation, it cannot run any.
            let skipped = matches!(explored, Err(MeasureError::Skipped(_)));
            report.operations.push(explored.unwrap_or_else(|trouble| OperationReport {
                trouble: Some(trouble.to_string()),
                ..OperationReport::of(*operation, self.request.mode)
            }));
            if skipped {
                break;
            }
        }
        report
    }

    /// Records one operation and kills at its points.
    fn operation(&self, attempt: Attempt<'_>) -> Result<OperationReport> {
        let pairs = self.request.mode == KillMode::Pairs;
        let kind = if pairs { DeathCount::Pair } else { DeathCount::Single };
        self.observer.progress(self.subject.name(), attempt.operation.name(), 0, 0);
        let recording =
            repeated(attempt, Approach::Straight, |attempt| attempt.record(kind), |_| false)?;
        let mut targets = self.targets(&recording)?;
        let mut report = OperationReport::of(attempt.operation, self.request.mode);
        report.kills = targets.len();
        if let Some(sample) = self.request.sample {
            targets = spread(&targets, sample);
        }
        report.tried = targets.len();
        let began = Instant::now();
        report.stepped = recording.stepped;
        if !pairs {
            report.points = recording.points.len();
            report.classes = recording.classes as usize;
        }
        let (outcomes, trouble) = self.all(attempt, &recording, targets);
        for outcome in outcomes {
            match outcome {
                KillReport::Recorded(points, classes) => {
                    report.points += points;
                    report.classes += classes as usize;
                }
                KillReport::Killed(target, point, killed) => {
                    self.enter(&mut report, target, &point, killed);
                }
            }
        }
        report.findings.sort_by_key(|finding| (finding.point, finding.then));
        report.trouble = trouble.map(|trouble| trouble.to_string());
        report.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(report)
    }

    /// Returns the points of a recording that the request selects.
    fn targets(&self, recording: &Recording) -> Result<VecDeque<KillPoint>> {
        let target = |(point, then)| KillPoint { point, then, stands_for: 1 };
        if let Some(requested) = self.request.point {
            let points = recording.points.len();
            if requested.0 >= points {
                let text =
                    format!("there is no point {}; expected 0 to {}", requested.0, points - 1);
                return Err(MeasureError::fail(text));
            }
            return Ok(VecDeque::from([target(requested)]));
        }
        Ok(match self.request.mode {
            KillMode::Full => {
                (0..recording.points.len()).map(|point| target((point, None))).collect()
            }
            KillMode::Fast | KillMode::Pairs => {
                let sizes = recording.sizes();
                let size = |point: usize| sizes[recording.points[point].class as usize];
                let one_a_class = recording.representatives().into_iter();
                one_a_class
                    .map(|point| KillPoint { stands_for: size(point), ..target((point, None)) })
                    .collect()
            }
        })
    }

    /// Works through the kill points, several at a time. The first error ends the operation.
    fn all(
        &self,
        attempt: Attempt<'_>,
        recording: &Recording,
        targets: VecDeque<KillPoint>,
    ) -> (Vec<KillReport>, Option<EarlyEnd>) {
        let count = targets.len();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let left = Mutex::new(targets);
        let done = Mutex::new((Vec::new(), None));
        let work = || {
            while let Some(target) = left.lock().ok().and_then(|mut left| left.pop_front()) {
                let outcomes = if self.observer.stopped() {
                    Err(EarlyEnd::Stopped)
                } else {
                    self.one(attempt, recording, target)
                };
                let Ok(mut done) = done.lock() else {
                    return;
                };
                match outcomes {
                    Ok(outcomes) => done.0.extend(outcomes),
                    Err(trouble) => {
                        done.1.get_or_insert(trouble);
                        if let Ok(mut left) = left.lock() {
                            left.clear();
                        }
                    }
                }
                let left = left.lock().map_or(0, |left| left.len());
                let (subject, operation) = (self.subject.name(), attempt.operation.name());
                self.observer.progress(subject, operation, count - left, count);
            }
        };
        thread::scope(|scope| {
            for _ in 0..(processors * KILLS_A_PROCESSOR).min(count) {
                scope.spawn(work);
            }
        });
        done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Performs one kill, or all pairs that begin with this kill.
    fn one(
        &self,
        attempt: Attempt<'_>,
        recording: &Recording,
        target: KillPoint,
    ) -> Result<Vec<KillReport>, EarlyEnd> {
        let first = &recording.points[target.point];
        let pace = if recording.stepped { Approach::Stepped } else { Approach::Straight };
        let succession = self.subject.succession(attempt.operation);
        let (KillMode::Pairs, Some(operation)) = (self.request.mode, succession) else {
            let killed = repeated(attempt, pace, |attempt| attempt.kill(first), is_unexplored)?;
            return Ok(vec![KillReport::Killed(target, first.clone(), killed)]);
        };
        let record = |attempt: Attempt<'_>| attempt.record_successor(first, operation);
        let is_open = |recorded: &std::result::Result<Recording, TrialResult>| {
            recorded.as_ref().is_err_and(is_unexplored)
        };
        let second = match repeated(attempt, pace, record, is_open)? {
            Ok(second) => second,
            // The first kill alone determined the verdict.
            Err(killed) => {
                return Ok(vec![
                    KillReport::Recorded(1, 1),
                    KillReport::Killed(target, first.clone(), killed),
                ]);
            }
        };
        let requested = self.request.point.and_then(|(_, then)| then);
        let thens = requested.map_or_else(|| second.representatives(), |then| vec![then]);
        let sizes = second.sizes();
        let mut outcomes = vec![KillReport::Recorded(second.points.len(), second.classes)];
        for then in thens {
            if self.observer.stopped() {
                return Err(EarlyEnd::Stopped);
            }
            let Some(point) = second.points.get(then) else {
                let count = second.points.len();
                let text = format!("point {then} of the successor does not exist; it has {count}");
                return Err(MeasureError::fail(text).into());
            };
            let kill = |attempt: Attempt<'_>| attempt.kill_both(first, operation, point);
            let killed = repeated(attempt, pace, kill, is_unexplored)?;
            let stands_for = if requested.is_some() { 1 } else { sizes[point.class as usize] };
            let target = KillPoint { then: Some(then), stands_for, ..target };
            outcomes.push(KillReport::Killed(target, point.clone(), killed));
        }
        Ok(outcomes)
    }

    /// Counts one kill.
    fn enter(
        &self,
        report: &mut OperationReport,
        target: KillPoint,
        point: &RecordedPoint,
        killed: TrialResult,
    ) {
        let judged = match killed {
            TrialResult::Judged(judged) => judged,
            TrialResult::Unexplored(why) => {
                report.not_explored += 1;
                let at = format!("point {}, {}: {why}", target.point, point.code);
                report.diverged.get_or_insert(at);
                return;
            }
        };
        report.explored += 1;
        match judged.verdict {
            KillVerdict::Passed => {
                report.passed += 1;
                return;
            }
            KillVerdict::Wedged => report.wedged += 1,
            KillVerdict::Torn => report.torn += 1,
            KillVerdict::Lost => report.lost += 1,
        }
        report.findings.push(Finding {
            verdict: judged.verdict,
            point: target.point,
            class: point.class,
            stands_for: target.stands_for,
            then: target.then,
            moment: point.moment,
            code: point.code.clone(),
            calls: point.calls,
            detail: judged.detail,
            reproducer: self.reproducer(report.operation, target),
        });
    }

    /// Returns the command line that repeats a kill.
    fn reproducer(&self, operation: Operation, target: KillPoint) -> String {
        let (name, operation) = (self.subject.name(), operation.name());
        let mode = if self.request.mode == KillMode::Pairs { " --mode pairs" } else { "" };
        let then = target.then.map_or_else(String::new, |then| format!("+{then}"));
        let point = target.point;
        format!("tontine-measure crash {name}{mode} --operation {operation} --point {point}{then}")
    }
}

/// Returns `sample` of the kill points, spread evenly.
fn spread(targets: &VecDeque<KillPoint>, sample: usize) -> VecDeque<KillPoint> {
    let count = targets.len();
    let sample = sample.clamp(1, count.max(1));
    (0..sample.min(count)).map(|at| targets[at * count / sample]).collect()
}

/// Repeats `act` at the pace of `recorded` if it failed or its result is still `open`. Over hours,
/// some runs diverge, or a loaded machine delays a worker.
fn repeated<T>(
    attempt: Attempt<'_>,
    recorded: Approach,
    act: impl Fn(Attempt<'_>) -> Result<T>,
    open: impl Fn(&T) -> bool,
) -> Result<T> {
    let mut done = act(attempt);
    for tries in 1..ATTEMPTS {
        // The successor's path is longer, and the victim's path changes more often.
        let then = if tries > 1 { recorded } else { attempt.then };
        let again = Attempt { pace: recorded, then, ..attempt };
        match &done {
            Err(MeasureError::Failed(_)) => {}
            Ok(done) if open(done) => {}
            _ => break,
        }
        done = act(again);
    }
    done
}

fn is_unexplored(killed: &TrialResult) -> bool {
    matches!(killed, TrialResult::Unexplored(_))
}
