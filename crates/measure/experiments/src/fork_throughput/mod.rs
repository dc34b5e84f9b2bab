//! `fork-throughput`: the forks per second that a process completes while others fork at the same
//! time: [`ForkThroughput`]. [`round`] runs the protocol of source 001 once; [`virtually`] runs it
//! in each mode of the virtual Unix.

mod round;
mod virtually;

use tontine_bench::os::fork_trim::ForkTrim;

use super::levels::{self, crowd, level_of, levels};
use super::modes::{self, System};
use crate::prelude::*;

const MOST_PROCESSES: usize = 7;
const ROUNDS: usize = 10;
/// Number of rounds in one invocation of a model, whose memory is never cold.
const MODELLED_ROUNDS: usize = 2;
const PAPERS_PROCESSORS: usize = 10;
/// Memory of a forked process that does nothing: page tables, a kernel stack, and the memory that
/// it touches.
const BYTES_EACH: u64 = 256 << 10;

pub(crate) struct ForkThroughput;

impl Experiment for ForkThroughput {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |level: usize| params([("processes", &level.to_string())]);
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
        let processes = level_of(task, "processes", most(model))?;
        match (task.variant.as_str(), modes::mode(&task.variant)) {
            (_, Some(mode)) => {
                let system = System::of_a_cell(mode, &task.params, MOST_PROCESSES)?;
                measure_virtually(system, processes, task.size.forks())
            }
            ("linux", None) => measure(processes, task.size.forks()),
            (other, None) => Err(unknown("fork-throughput", "variant", other)),
        }
    }
}

fn measure(processes: usize, forks: usize) -> Result<Observed> {
    capacity::for_processes((processes * (forks + 1)) as u64, BYTES_EACH)?;
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
    let notes = crowd(processes, pin::allowed()?.len()).into_iter().collect();
    Ok(Observed::of([Series::ns("forked", rates).in_unit("forks/s").by_mean()], notes))
}

fn measure_virtually(system: System, processes: usize, forks: usize) -> Result<Observed> {
    let rounds = if system.is_modelled() { MODELLED_ROUNDS } else { ROUNDS };
    let seconds = virtually::run(system, processes, forks, rounds)?;
    let rates = seconds.into_iter().map(|seconds| forks as f64 / seconds).collect();
    let notes = vec![system.note(), modes::FORK_NOTE.to_owned()];
    Ok(Observed::of([Series::ns("forked", rates).in_unit("forks/s").by_mean()], notes))
}

/// Returns the curve's last level: the paper's, or the level of a model with more processors.
fn most(modelled: Option<usize>) -> usize {
    modelled.filter(|processors| *processors > PAPERS_PROCESSORS).unwrap_or(MOST_PROCESSES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

    #[test]
    fn every_forking_process_yields_a_rate_and_is_reaped() {
        in_a_process_of_its_own(|| {
            for processes in [1, 3] {
                let Some(observed) = unless_skipped(measure(processes, 10), processes) else {
                    return;
                };
                let rates = &observed.series[0].samples;
                assert_eq!(rates.len(), ROUNDS * processes);
                assert!(rates.iter().all(|&rate| rate > 1.0 && rate < 1e7), "{rates:?}");
                no_child_is_left();
            }
        });
    }

    /// Permanently limits this process's user to `processes` processes. Root is not limited, so a
    /// process that runs as root first becomes another user.
    fn only_so_many(processes: u64) {
        if getuid().is_root() {
            let unprivileged = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(unprivileged, unprivileged, unprivileged)
                .expect("setresuid");
        }
        let maximum = getrlimit(Resource::Nproc).maximum;
        setrlimit(Resource::Nproc, Rlimit { current: Some(processes), maximum })
            .expect("setrlimit");
    }

    #[test]
    fn process_limit_too_low_skips_and_names_the_limit() {
        in_a_process_of_its_own(|| {
            only_so_many(100);
            let why = measure(7, 50).expect_err("a limit").to_string();
            assert!(
                why.starts_with("skipped: ") && why.contains("RLIMIT_NPROC allows 100"),
                "{why}"
            );
        });
    }

    #[test]
    fn fork_refused_during_round_skips_and_reaps_all() {
        in_a_process_of_its_own(|| {
            // The user may create one more process, which then cannot fork.
            only_so_many(2);
            let why = round::run(1, 50, Clock::calibrated()).expect_err("a limit").to_string();
            assert!(why.starts_with("skipped: fork: "), "{why}");
            no_child_is_left();
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
}
