//! The trait [`Experiment`], and a [`Suite`] of experiments.
//!
//! An [`Experiment`] names its [`Variant`]s and lists the tasks to run on a machine. The caller
//! passes the suite to the engine, which refers to no experiment by name.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{MeasureError, Result};

use crate::about::{About, Explanation, MechanismFacts, Topic};
use crate::machine::MachineFacts;
use crate::machine::topology::Topology;
use crate::observe::Observed;
use crate::schema::PublishedFigure;
use crate::size::Size;
use crate::task::{InvocationTask, Params};

/// A question that can be measured in several ways.
pub trait Experiment: Sync {
    /// Returns the facts that do not depend on a machine. An experiment implements either this
    /// method or the five methods below.
    fn facts(&self) -> Facts {
        Facts {
            name: self.name(),
            question: self.summary(),
            topic: self.topic(),
            explanation: self.explanation(),
            variants: self.variants(),
            ratios: &[],
        }
    }
    /// Returns the name on the command line and in results.
    fn name(&self) -> &'static str {
        self.facts().name
    }
    /// Returns the question that the experiment answers, in one line.
    fn summary(&self) -> &'static str {
        self.facts().question
    }
    /// Returns the topic, which determines the page of the report.
    fn topic(&self) -> Topic {
        self.facts().topic
    }
    /// Returns the explanation for readers new to the topic.
    fn explanation(&self) -> &'static Explanation {
        self.facts().explanation
    }
    /// Returns the ways in which the experiment is measured.
    fn variants(&self) -> &'static [Variant] {
        self.facts().variants
    }
    /// Returns the parameters of `variant` on this machine in a run of this size, one set per cell.
    /// A combination that the machine lacks is not listed, unless every user expects it. In that
    /// case it is listed, and running it skips with the reason. A process that may use only one
    /// processor also runs the cells of a machine with two, and each of these skips.
    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params>;
    /// Measures one task, in the process that calls it.
    fn run(&self, task: &InvocationTask) -> Result<Observed>;
    /// Returns the number of operations in one invocation of `variant` at `size`. The invocation's
    /// duration grows linearly with it.
    fn operations(&self, variant: &str, size: Size) -> usize;
    /// Returns the number of invocations of a cell of `variant` at `size`, if the user does not
    /// choose one.
    fn invocations(&self, _variant: &str, size: Size) -> usize {
        size.invocations()
    }
    /// Returns the variants that make no system call inside the timed part, if this matters to a
    /// reader.
    fn without_calls(&self) -> Vec<&'static str> {
        Vec::new()
    }
    /// Returns the ratios between variants that are worth printing, as (numerator, denominator) of
    /// variant names. They are taken block by block, between cells with the same parameters.
    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let Facts { variants, ratios, .. } = self.facts();
        let of = |(over, under)| {
            let every = variants.iter().filter(|one| over == "every" && one.name != under);
            let itself = Some((over, under)).filter(|_| over != "every");
            every.map(move |one| (one.name, under)).chain(itself).collect::<Vec<_>>()
        };
        ratios.iter().copied().flat_map(of).collect()
    }
}

/// The facts about an experiment that do not depend on a machine; see [`Experiment`].
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// See [`Experiment::name`].
    pub name: &'static str,
    /// See [`Experiment::summary`].
    pub question: &'static str,
    /// See [`Experiment::topic`].
    pub topic: Topic,
    /// See [`Experiment::explanation`].
    pub explanation: &'static Explanation,
    /// See [`Experiment::variants`].
    pub variants: &'static [Variant],
    /// See [`Experiment::ratios`]. The numerator `every` stands for all other variants.
    pub ratios: &'static [(&'static str, &'static str)],
}

impl dyn Experiment {
    /// Returns the experiment's description.
    pub fn description(&self) -> About {
        let Explanation { about, steps, timing, found, reading, calls } = self.explanation();
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let variants = self.variants().iter();
        About {
            name: self.name().into(),
            topic: self.topic(),
            question: self.summary().into(),
            about: texts(about),
            steps: texts(steps),
            timing: (*timing).into(),
            found: (*found).into(),
            reading: (*reading).into(),
            calls: calls.iter().map(|(of, calls)| ((*of).into(), (*calls).into())).collect(),
            variants: variants.map(|one| (one.name.into(), one.summary.into())).collect(),
            without_calls: self.without_calls().into_iter().map(String::from).collect(),
        }
    }
}

/// A way of measuring an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    pub name: &'static str,
    pub summary: &'static str,
}

impl Variant {
    /// Creates a variant.
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        Self { name, summary }
    }
}

/// Cells of one experiment that a short run measures.
#[derive(Debug, Clone, Copy)]
pub struct HeadlineCells {
    pub experiment: &'static str,
    pub variants: &'static [&'static str],
    /// Parameters that a cell must have, besides any others.
    pub params: &'static [(&'static str, &'static str)],
    /// Number of invocations of each cell in a quick, a default and a full run.
    pub invocations: [usize; 3],
}

/// The experiments that a program offers.
pub struct Suite {
    pub experiments: &'static [&'static dyn Experiment],
    /// The cells of a run for which the user names no experiment: those that answer the questions
    /// of the verdict.
    pub headline: &'static [HeadlineCells],
    /// Returns the properties of the mechanisms that variants represent.
    pub mechanisms: fn() -> Vec<MechanismFacts>,
    /// Returns the figures that sources published for an experiment, a variant, a metric and
    /// parameters, in the unit of the metric. Returns an empty list if there are none.
    pub published: fn(&str, &str, &str, &Params) -> Vec<PublishedFigure>,
    /// Returns the versions of the libraries that are measured in addition to the mechanisms of the
    /// kernel.
    pub libraries: fn() -> BTreeMap<String, String>,
    /// Removes the leftovers of killed invocations, of this run or an earlier one. Resources of
    /// live processes remain.
    pub clean_up: fn(),
    /// Removes the shared resources of the invocations of the run that just ended.
    pub end_run: fn(),
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.experiments.iter().map(|one| one.name())).finish()
    }
}

impl Suite {
    /// Returns the facts about this machine, this program and its libraries.
    pub fn machine(&self) -> MachineFacts {
        let mut machine = MachineFacts::look();
        machine.build.peers = Some((self.libraries)()).filter(|libraries| !libraries.is_empty());
        machine
    }

    pub fn find(&self, name: &str) -> Option<&'static dyn Experiment> {
        self.experiments.iter().copied().find(|experiment| experiment.name() == name)
    }

    /// Measures one task, in the process that calls it.
    pub fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let name = &task.experiment;
        let experiment = self.find(name);
        experiment
            .ok_or_else(|| MeasureError::fail(format!("no experiment is named {name}")))?
            .run(task)
    }
}
