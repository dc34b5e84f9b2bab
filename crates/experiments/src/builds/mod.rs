//! `builds`: the duration of a `make` while others run at the same time: [`Builds`].
//!
//! [`source`] writes the program, [`build`] builds several copies of it at once, and
//! [`super::trees`] repeats a traced build in the virtual Unix. The experiment does not show how
//! the time is spent; the compiler itself, not the kernel, spends most of it.

mod build;
mod explained;
mod source;

use std::time::{Duration, Instant};

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series, Statistic};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::Result;
use tontine_host::leftovers::Folder;
use tontine_host::os::process_group::ProcessGroup;
use tontine_host::os::program::file_system;
use tontine_host::os::{pin, room};
use tontine_unix_sim::LockingMode;

use super::levels::{asked, crowd, levels};
use super::modes;
use super::trees::{self, TreeLoad};
use build::Tools;

/// The last level of the paper's curve.
const MOST: usize = 8;
/// Number of processes per build: `make`, the compiler's driver, the compiler or the assembler, and
/// a shell.
const PROCESSES: u64 = 4;
/// Average memory of each process in bytes: only the compiler is large.
const MEMORY: u64 = 24 << 20;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Builds;

impl Experiment for Builds {
    fn name(&self) -> &'static str {
        "builds"
    }

    fn summary(&self) -> &'static str {
        "How long does a build take while others run at the same time?"
    }

    fn topic(&self) -> Topic {
        Topic::Processes
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |builds: usize| Params::from([("builds".to_owned(), builds.to_string())]);
        match modes::mode(variant) {
            None => levels(size, processors, MOST).into_iter().map(cell).collect(),
            Some(mode) => trees::cells(mode, size, MOST, cell),
        }
    }

    /// The number of builds per process, which is one.
    fn operations(&self, _: &str, _: Size) -> usize {
        1
    }

    fn invocations(&self, variant: &str, size: Size) -> usize {
        match modes::mode(variant) {
            None => size.macro_invocations(),
            Some(_) => size.virtual_invocations(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let builds = asked(task, "builds", MOST)?;
        match modes::mode(&task.variant) {
            None => measure(builds, task.size.patience()),
            Some(mode) => measure_virtually(mode, builds, &task.params),
        }
    }
}

/// Times `builds` simultaneous builds. Fails after `patience`.
fn measure(builds: usize, patience: Duration) -> Result<Observed> {
    let until = Instant::now() + patience;
    room::for_processes(PROCESSES * builds as u64, MEMORY)?;
    // The folder outlives the process group: processes that still write there are killed before it
    // is removed.
    let folder = Folder::new("builds")?;
    let processes = ProcessGroup::new()?;
    let tools = Tools::look(folder.path(), &processes, until)?;
    let built = tools.build(builds, folder.path(), &processes, until)?;
    let processors = pin::allowed()?.len();
    let place = folder.path().parent().unwrap_or(folder.path()).display().to_string();
    let kind = file_system(folder.path()).unwrap_or_else(|| "an unknown file system".into());
    let mut notes = vec![format!("{} lines of C per build, on {kind} ({place})", built.lines)];
    notes.extend(crowd(builds, processors));
    let build = Series {
        metric: "build".into(),
        at: Params::new(),
        unit: "s".into(),
        samples: built.seconds,
        batch: 1,
        statistic: Statistic::Mean,
    };
    Ok(Observed { series: vec![build], notes, ..Observed::default() })
}

/// Like [`measure`], but in a virtual Unix of the given mode.
fn measure_virtually(mode: LockingMode, builds: usize, params: &Params) -> Result<Observed> {
    let done = TreeLoad { builds, sessions: 0 }.of_a_cell(mode, params, false)?;
    let build = Series::ns("build", done.builds).in_unit("s").by_mean();
    Ok(Observed { series: vec![build], notes: done.notes, ..Observed::default() })
}

const VARIANTS: &[Variant] = &modes::with_linux(Variant {
    name: "linux",
    summary: "make -j1 of 10,000 lines of C, `builds` at once, by this kernel",
});

#[cfg(test)]
mod tests;
