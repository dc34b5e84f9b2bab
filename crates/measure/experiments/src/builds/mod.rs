//! `builds`: the duration of a `make` while others run at the same time: [`Builds`].
//!
//! [`source`] writes the program, [`build`] builds several copies of it at once, and
//! [`super::trees`] repeats a traced build in the virtual Unix. The experiment does not show how
//! the time is spent; the compiler itself, not the kernel, spends most of it.

mod build;
mod source;

use std::time::{Duration, Instant};

use tontine_bench::os::process_group::ProcessGroup;
use tontine_bench::os::program::file_system;
use tontine_unix_sim::LockingMode;

use super::levels::{crowd, level_of, levels};
use super::modes;
use super::trees::{self, TreeLoad};
use crate::prelude::*;
use build::Tools;

const MOST: usize = 8;
/// Number of processes per build: `make`, the compiler's driver, the compiler or the assembler, and
/// a shell.
const PROCESSES: u64 = 4;
/// Average memory of each process in bytes: only the compiler is large.
const MEMORY: u64 = 24 << 20;

pub(crate) struct Builds;

impl Experiment for Builds {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |builds: usize| params([("builds", &builds.to_string())]);
        match modes::mode(variant) {
            None => levels(size, processors, MOST).into_iter().map(cell).collect(),
            Some(mode) => trees::cells(mode, size, MOST, cell),
        }
    }

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
        let builds = level_of(task, "builds", MOST)?;
        match (task.variant.as_str(), modes::mode(&task.variant)) {
            (_, Some(mode)) => measure_virtually(mode, builds, &task.params),
            ("linux", None) => measure(builds, task.size.timeout()),
            (other, None) => Err(unknown("builds", "variant", other)),
        }
    }
}

fn measure(builds: usize, timeout: Duration) -> Result<Observed> {
    let until = Instant::now() + timeout;
    capacity::for_processes(PROCESSES * builds as u64, MEMORY)?;
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
    let build = Series::ns("build", built.seconds).in_unit("s").by_mean();
    Ok(Observed::of([build], notes))
}

fn measure_virtually(mode: LockingMode, builds: usize, params: &Params) -> Result<Observed> {
    let done = TreeLoad { builds, sessions: 0 }.of_a_cell(mode, params, false)?;
    let build = Series::ns("build", done.builds).in_unit("s").by_mean();
    Ok(Observed::of([build], done.notes))
}

#[cfg(test)]
mod tests;
