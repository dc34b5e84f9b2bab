//! `fork-throughput`: the forks per second that a process completes while others fork at the same
//! time: [`ForkThroughput`].
//!
//! The protocol is that of source 001: each process forks fifty times, as fast as it can, and its
//! children sleep until all forks of all processes are done. [`round`] runs it once; [`virtually`]
//! runs it in each mode of the virtual Unix.
//!
//! No process is pinned: the scheduler places the children, as it did for the source.
//!
//! Not measured here: `exit` and `wait` (see [`super::spawn`]), and the additional cost of a larger
//! parent.

mod explained;
mod round;
mod virtually;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::fork_trim::ForkTrim;
use tontine_host::os::{pin, room};

use super::levels::{self, asked, crowd, levels};
use super::modes::{self, System};

/// The last level of the paper's curve.
const MOST_PROCESSES: usize = 7;
/// Number of rounds in one invocation, after one round that is not counted.
const ROUNDS: usize = 10;
/// Number of rounds in one invocation of a model, whose memory is never cold.
const MODELLED_ROUNDS: usize = 2;
/// Number of processors of the paper's machine.
const PAPERS_PROCESSORS: usize = 10;
/// Memory of a forked process that does nothing: page tables, a kernel stack, and the memory that
/// it touches.
const BYTES_EACH: u64 = 256 << 10;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct ForkThroughput;

impl Experiment for ForkThroughput {
    fn name(&self) -> &'static str {
        "fork-throughput"
    }

    fn summary(&self) -> &'static str {
        "How many forks per second does a process complete, next to others that fork?"
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
        let cell = |level: usize| Params::from([("processes".to_owned(), level.to_string())]);
        let measured = levels(size, processors, MOST_PROCESSES).into_iter().map(cell);
        let modelled = modes::modelled_cells(
            modes::mode(variant),
            size,
            |processors| levels::modelled(size, processors, most(Some(processors))),
            cell,
        );
        measured.chain(modelled).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.forks()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let model = modes::modelled_with(&task.params)?;
        let processes = asked(task, "processes", most(model))?;
        match (task.variant.as_str(), modes::mode(&task.variant)) {
            (_, Some(mode)) => {
                let system = System::of_a_cell(mode, &task.params, MOST_PROCESSES)?;
                measure_virtually(system, processes, task.size.forks())
            }
            ("linux", None) => measure(processes, task.size.forks()),
            (other, None) => {
                Err(MeasureError::fail(format!("fork-throughput has no variant {other}")))
            }
        }
    }
}

/// Measures rounds of `processes` processes, each of which forks `forks` times.
fn measure(processes: usize, forks: usize) -> Result<Observed> {
    room::for_processes((processes * (forks + 1)) as u64, BYTES_EACH)?;
    let clock = Clock::calibrated();
    // The forking processes inherit the trimmed memory, so that their forks are equally fast.
    let _lean = ForkTrim::now();
    // The first round is not counted, because the kernel's caches are cold.
    round::run(processes, forks, clock)?;
    let mut rates = Vec::with_capacity(ROUNDS * processes);
    for _ in 0..ROUNDS {
        let seconds = round::run(processes, forks, clock)?;
        rates.extend(seconds.into_iter().map(|seconds| forks as f64 / seconds));
    }
    let series = vec![Series::ns("forked", rates).in_unit("forks/s").by_mean()];
    let notes = crowd(processes, pin::allowed()?.len()).into_iter().collect();
    Ok(Observed { series, notes, ..Observed::default() })
}

/// Like [`measure`], but in a virtual Unix.
fn measure_virtually(system: System, processes: usize, forks: usize) -> Result<Observed> {
    let rounds = if system.is_modelled() { MODELLED_ROUNDS } else { ROUNDS };
    let seconds = virtually::run(system, processes, forks, rounds)?;
    let rates = seconds.into_iter().map(|seconds| forks as f64 / seconds).collect();
    let series = vec![Series::ns("forked", rates).in_unit("forks/s").by_mean()];
    let notes = vec![system.note(), modes::FORK_NOTE.to_owned()];
    Ok(Observed { series, notes, ..Observed::default() })
}

/// Returns the curve's last level: the paper's, or the level of a model with more processors.
fn most(modelled: Option<usize>) -> usize {
    modelled.filter(|processors| *processors > PAPERS_PROCESSORS).unwrap_or(MOST_PROCESSES)
}

const VARIANTS: &[Variant] = &modes::with_linux(Variant {
    name: "linux",
    summary: "50 forks, whose children sleep until all are created; by this machine's kernel",
});

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn every_forking_process_yields_a_rate_and_is_reaped() {
        in_a_process_of_its_own(|| {
            for processes in [1, 3] {
                let observed = match measure(processes, 10) {
                    Err(MeasureError::Skipped(why)) => {
                        return why.contains("needs").then_some(()).ok_or(why);
                    }
                    other => other.map_err(|trouble| trouble.to_string())?,
                };
                let rates = &observed.series[0].samples;
                let sane = rates.len() == ROUNDS * processes
                    && rates.iter().all(|&rate| rate > 1.0 && rate < 1e7);
                if !sane {
                    return Err(format!("{processes}: {rates:?}"));
                }
                match rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
                    Err(rustix::io::Errno::CHILD) => {}
                    other => return Err(format!("expected no child to be left: {other:?}")),
                }
            }
            Ok(())
        });
    }

    /// Permanently limits this process's user to `processes` processes. Root is not limited, so a
    /// process that runs as root first becomes another user.
    fn only_so_many(processes: u64) -> std::result::Result<(), String> {
        if getuid().is_root() {
            let unprivileged = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(unprivileged, unprivileged, unprivileged)
                .map_err(|error| format!("setresuid: {error}"))?;
        }
        let maximum = getrlimit(Resource::Nproc).maximum;
        setrlimit(Resource::Nproc, Rlimit { current: Some(processes), maximum })
            .map_err(|error| format!("setrlimit: {error}"))
    }

    #[test]
    fn process_limit_too_low_skips_and_names_the_limit() {
        in_a_process_of_its_own(|| {
            only_so_many(100)?;
            match measure(7, 50) {
                Err(MeasureError::Skipped(why)) if why.contains("RLIMIT_NPROC allows 100") => {
                    Ok(())
                }
                other => Err(format!("expected a skip, found {other:?}")),
            }
        });
    }

    #[test]
    fn fork_refused_during_round_skips_and_reaps_all() {
        in_a_process_of_its_own(|| {
            // The user may create one more process, which then cannot fork.
            only_so_many(2)?;
            let found = round::run(1, 50, Clock::calibrated());
            match (found, rustix::process::wait(rustix::process::WaitOptions::NOHANG)) {
                (Err(MeasureError::Skipped(why)), Err(rustix::io::Errno::CHILD))
                    if why.starts_with("fork: ") =>
                {
                    Ok(())
                }
                other => Err(format!("expected a skip, found {other:?}")),
            }
        });
    }

    #[test]
    fn fork_curve_ends_at_the_papers_last_level() {
        let topology = Topology::of_this_machine();
        let levels: Vec<String> = ForkThroughput
            .params("linux", &topology, Size::Default)
            .into_iter()
            .map(|mut cell| cell.remove("processes").expect("processes"))
            .collect();
        assert_eq!(levels, ["1", "2", "4", "7"]);
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        for (variant, processes, names) in
            [("pigeon", "1", "pigeon"), ("linux", "8", "8"), ("linux", "few", "few")]
        {
            let task = InvocationTask {
                experiment: "fork-throughput".into(),
                variant: variant.into(),
                params: Params::from([("processes".into(), processes.into())]),
                size: Size::Quick,
            };
            let found = ForkThroughput.run(&task).expect_err("unknown");
            assert!(found.why().contains(names), "{found}");
        }
    }
}
