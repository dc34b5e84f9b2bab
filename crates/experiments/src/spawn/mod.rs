//! `spawn`: the cost of creating a process, letting it end and waiting for it, one process after
//! another: [`Spawn`].
//!
//! The ways to create a process are those of [`Creator`]. Each process is timed separately, from
//! just before its creation until it has been reaped.
//!
//! `thread-vs-process` measures threads, and the effect of the parent's size.

mod explained;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::fork_trim::ForkTrim;
use tontine_host::os::pin::{self, Pinned};
use tontine_host::os::room;
use tontine_mechanisms::creation::Creator;

/// Memory of a process that does nothing, in bytes.
const BYTES_EACH: u64 = 256 << 10;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Spawn;

impl Experiment for Spawn {
    fn name(&self) -> &'static str {
        "spawn"
    }

    fn summary(&self) -> &'static str {
        "What does it cost to create a process, let it end, and wait for it?"
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

    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        // On a single processor both placements are the same.
        let several = pin::allowed().is_ok_and(|allowed| allowed.len() > 1);
        let placements: &[&str] = if several { &["same-core", "unpinned"] } else { &["same-core"] };
        let cell =
            |placement: &&str| Params::from([("placement".to_owned(), (*placement).to_owned())]);
        placements.iter().map(cell).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.spawns()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let placement = task.params.get("placement").map_or("", String::as_str);
        measure(&task.variant, placement, task.size.spawns())
    }
}

/// Returns the creator of a variant.
///
/// # Errors
/// Returns `Failed` if there is no such variant, and `Skipped` if the system refuses a requirement.
fn way(variant: &str) -> Result<Creator> {
    match variant {
        "fork" => Ok(Creator::Fork),
        "vfork" => Ok(Creator::clone_as_vfork()),
        "posix-spawn" => Creator::posix_spawn(),
        "clone3" => Ok(Creator::Clone3),
        other => Err(MeasureError::fail(format!("spawn has no variant {other}"))),
    }
}

/// Creates `processes` processes, one after another.
fn measure(variant: &str, placement: &str, processes: usize) -> Result<Observed> {
    let way = way(variant)?;
    room::for_processes(1, BYTES_EACH)?;
    let clock = Clock::calibrated();
    let _pinned = match placement {
        "same-core" => Some(Pinned::to(*pin::allowed()?.first().unwrap_or(&0))?),
        "unpinned" => None,
        other => {
            let text = format!("expected placement to be same-core or unpinned, found `{other}`");
            return Err(MeasureError::fail(text));
        }
    };
    let _lean = ForkTrim::now();
    for _ in 0..processes.div_ceil(10) {
        way.create_and_wait()?;
    }
    let mut samples = Vec::with_capacity(processes);
    for _ in 0..processes {
        let began = clock.start();
        way.create_and_wait()?;
        samples.push(clock.ns_between(began, clock.stop()));
    }
    Ok(Observed { series: vec![Series::ns("spawn", samples)], ..Observed::default() })
}

const VARIANTS: &[Variant] = &[
    Variant { name: "fork", summary: "fork, whose child calls _exit immediately; waitpid" },
    Variant {
        name: "vfork",
        summary: "clone with CLONE_VM and CLONE_VFORK, the flags of vfork; _exit; waitpid",
    },
    Variant {
        name: "posix-spawn",
        summary: "posix_spawn of a program of less than 200 bytes, in memory, that only exits; \
                  waitpid",
    },
    Variant {
        name: "clone3",
        summary: "bare clone3, without flags and with SIGCHLD: a fork without the C library; \
                  _exit; waitpid",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told;
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn every_spawn_variant_is_timed_and_leaves_no_child() {
        in_a_process_of_its_own(|| {
            for variant in VARIANTS {
                for placement in ["same-core", "unpinned"] {
                    let name = variant.name;
                    let observed = match measure(name, placement, 20) {
                        Err(MeasureError::Skipped(why)) => {
                            eprintln!("skipped: {name}: {why}");
                            continue;
                        }
                        other => other.map_err(|trouble| format!("{name}: {trouble}"))?,
                    };
                    let samples = &observed.series[0].samples;
                    // No process can be created in less time than a system call takes.
                    if samples.len() != 20 || samples.iter().any(|&ns| ns < 500.0) {
                        return Err(format!("{name} {placement}: {samples:?}"));
                    }
                    match rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
                        Err(rustix::io::Errno::CHILD) => {}
                        other => return Err(format!("{name}: a child is left: {other:?}")),
                    }
                }
            }
            Ok(())
        });
    }

    #[test]
    fn explained_system_calls_match_the_trace() {
        for variant in VARIANTS {
            told::hold(&explained::EXPLANATION, variant.name, || way(variant.name));
        }
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        for (variant, placement) in [("pigeon", "same-core"), ("fork", "pigeon")] {
            let found = measure(variant, placement, 1).expect_err("no pigeons");
            assert!(found.why().contains("pigeon"), "{found}");
        }
    }
}
