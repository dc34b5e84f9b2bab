//! The code inside an invocation: [`serve`] receives an [`InvocationRequest`] and replies with an
//! [`InvocationReply`].
//!
//! The request arrives as JSON on standard input. The reply is written as JSON to the original
//! standard output. Before the experiment runs, standard output is redirected to standard error, so
//! that a library that prints cannot corrupt the reply.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::error::{MeasureError, Result};
use crate::os::deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::stdio::{dup2_stdout, stderr, stdout};
use serde::{Deserialize, Serialize};

use crate::heap_map::HeapMap;
use crate::machine::stolen_ms;
use crate::observe::{Observed, ObservedEvent, PairedRatio, Series, Statistic};
use crate::stats::summary::{Summary, summarise};
use crate::task::{self, InvocationTask, Params};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InvocationRequest {
    pub task: InvocationTask,
    /// Number of the block, which is part of the names of sample files.
    pub block: usize,
    /// Directory to which all samples are written, in order. `None` to write no samples.
    pub samples: Option<PathBuf>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InvocationReply {
    pub outcome: InvocationResult,
    pub empty_pair_ns: f64,
    /// Change of the clock's calibration during the invocation, as a share.
    pub clock_drift: f64,
    /// Time stolen by the hypervisor during the invocation, summed over all processors, in ms.
    pub stolen_ms: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum InvocationResult {
    Measured(InvocationFigures),
    Skipped(String),
    Failed(String),
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct InvocationFigures {
    pub figures: Vec<MetricSummary>,
    pub ratios: Vec<PairedRatio>,
    pub tried: Vec<ObservedEvent>,
    pub notes: Vec<String>,
    #[serde(default)]
    pub maps: Vec<HeapMap>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MetricSummary {
    pub metric: String,
    #[serde(default)]
    pub at: Params,
    pub unit: String,
    pub statistic: Statistic,
    pub summary: Summary,
    /// Means of [`STRETCHES`] stretches of equal length, in order, which a pilot evaluates. Empty
    /// if there are fewer samples than stretches.
    pub stretches: Vec<f64>,
}

/// Number of stretches into which an invocation's samples are divided. Each stretch is far longer
/// than the correlation between neighbouring samples, and there are enough stretches to estimate
/// their variance.
pub const STRETCHES: usize = 10;

impl InvocationReply {
    /// Creates a reply without facts about the clock.
    pub fn of(outcome: InvocationResult) -> Self {
        Self { outcome, empty_pair_ns: 0.0, clock_drift: 0.0, stolen_ms: 0.0 }
    }

    /// Creates the engine's own reply for an invocation that did not reply.
    pub fn failed(why: String) -> Self {
        Self::of(InvocationResult::Failed(why))
    }
}

/// Serves one request from standard input: measures its task with `measure`, and writes the reply.
pub fn serve(measure: impl FnOnce(&InvocationTask) -> Result<Observed>) -> io::Result<()> {
    die_with_parent()?;
    deadline::begin();
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    let order: InvocationRequest = serde_json::from_str(&text)?;

    let replies = File::from(rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?);
    dup2_stdout(stderr())?;
    let reply = carry_out(measure, &order);
    let mut replies = BufWriter::new(replies);
    serde_json::to_writer(&mut replies, &reply)?;
    replies.flush()
}

/// Sets the kernel to kill this process if the engine is killed. Its own children are killed with
/// it. Fails if the engine has already ended, in which case no process can read the reply.
fn die_with_parent() -> io::Result<()> {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let replies = stdout();
    let mut polled = [PollFd::new(&replies, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if polled[0].revents().contains(PollFlags::ERR) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the engine has ended"));
    }
    Ok(())
}

fn carry_out(
    measure: impl FnOnce(&InvocationTask) -> Result<Observed>,
    order: &InvocationRequest,
) -> InvocationReply {
    let clock = Clock::calibrated();
    let stolen_before = stolen_ms();
    let observed = measure(&order.task);
    let stolen = stolen_ms().zip(stolen_before).map_or(0.0, |(after, before)| after - before);
    let outcome = match observed.and_then(|observed| sum_up(order, observed)) {
        Ok(measured) => InvocationResult::Measured(measured),
        Err(MeasureError::Skipped(why)) => InvocationResult::Skipped(why),
        Err(MeasureError::Failed(why)) => InvocationResult::Failed(why),
    };
    InvocationReply {
        outcome,
        empty_pair_ns: clock.empty_pair_ns(),
        clock_drift: clock.drift(),
        stolen_ms: stolen,
    }
}

fn sum_up(order: &InvocationRequest, observed: Observed) -> Result<InvocationFigures> {
    for series in &observed.series {
        let none = series.possible().next().is_none();
        if none || series.samples.iter().any(|sample| !sample.is_finite()) {
            let metric = &series.metric;
            return Err(MeasureError::fail(format!(
                "{metric}: no samples that are possible in {}, or some are not finite",
                series.unit
            )));
        }
        if let Some(folder) = &order.samples {
            write_samples(folder, order, series).map_err(|error| {
                MeasureError::fail(format!("writing samples to {}: {error}", folder.display()))
            })?;
        }
    }
    Ok(InvocationFigures::of(observed))
}

impl InvocationFigures {
    /// Summarises the observations of an invocation.
    pub fn of(observed: Observed) -> Self {
        let Observed { series, ratios, tried, notes, maps } = observed;
        let figures = series.iter().map(MetricSummary::of).collect();
        Self { figures, ratios, tried, notes, maps }
    }
}

impl MetricSummary {
    pub fn of(series: &Series) -> Self {
        Self {
            metric: series.metric.clone(),
            at: series.at.clone(),
            unit: series.unit.clone(),
            statistic: series.statistic,
            summary: summarise(series),
            stretches: stretches(&series.samples),
        }
    }
}

fn stretches(samples: &[f64]) -> Vec<f64> {
    let length = samples.len() / STRETCHES;
    if length == 0 {
        return Vec::new();
    }
    let mean = |stretch: &[f64]| stretch.iter().sum::<f64>() / length as f64;
    samples.chunks_exact(length).take(STRETCHES).map(mean).collect()
}

/// Writes one sample per line, in the order in which the samples were taken.
fn write_samples(folder: &Path, order: &InvocationRequest, series: &Series) -> io::Result<()> {
    let task = &order.task;
    let mut name = format!("{}-{}", task.experiment, task.variant);
    for word in task::short(&task.params).chain(task::short(&series.at)) {
        name = format!("{name}-{}", word.replace([' ', '/'], "-"));
    }
    let name = format!("{name}-{}-{:02}.txt", series.metric, order.block);
    let mut file = BufWriter::new(File::create(folder.join(name))?);
    let operations = series.batch;
    writeln!(file, "# {} in {}, {operations} operations per sample", series.metric, series.unit)?;
    for sample in &series.samples {
        writeln!(file, "{sample}")?;
    }
    file.flush()
}
