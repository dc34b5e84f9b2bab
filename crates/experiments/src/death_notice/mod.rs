//! `death-notice`: the time from a process's death until each mechanism reports it:
//! [`DeathNotice`].
//!
//! Each death is that of a fresh process ([`dying_process`]) that idles on its own processor. If
//! SIGKILL ends the process, the time starts just before the call; if the process exits, the time
//! starts at its own last stamp. [`spinning`] polls with the checks of [`super::liveness_check`];
//! [`blocked`] sleeps until the notice.
//!
//! If the observer blocks, its processor idles while the victim dies. If the processor halts then,
//! as in virtual machines, the figure includes waking the processor, which costs more after a
//! longer wait.
//!
//! The dying process is small. If it had more memory, mechanisms that notify after the memory is
//! released would notify later. `liveness-check` measures the cost of a check, and whether the
//! check is correct.

mod blocked;
mod dying_process;
mod explained;
mod mailbox;
mod notice;
mod spinning;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::clock::offset::Band;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;

use dying_process::{Cause, DeathPlan};

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct DeathNotice;

impl Experiment for DeathNotice {
    fn name(&self) -> &'static str {
        "death-notice"
    }

    fn summary(&self) -> &'static str {
        "How soon after a process's death does each mechanism notify?"
    }

    fn topic(&self) -> Topic {
        Topic::Death
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn params(&self, variant: &str, _: &Topology, _: Size) -> Vec<Params> {
        let waiting = if spinning::knows(variant) { "spinning" } else { "blocked" };
        let cell = |cause: Cause| {
            Params::from([
                ("cause".to_owned(), cause.name().to_owned()),
                ("waiting".to_owned(), waiting.to_owned()),
            ])
        };
        Cause::ALL.map(cell).to_vec()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.deaths()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let name = task.params.get("cause").map_or("", String::as_str);
        let cause = Cause::ALL.into_iter().find(|cause| cause.name() == name).ok_or_else(|| {
            MeasureError::fail(format!("expected cause to be SIGKILL or exit, found `{name}`"))
        })?;
        measure(&task.variant, cause, task.size.deaths())
    }
}

/// Times `deaths` deaths.
fn measure(variant: &str, cause: Cause, deaths: usize) -> Result<Observed> {
    let allowed = pin::allowed()?;
    let (Some(&here), Some(&there)) = (allowed.first(), allowed.last()) else {
        return Err(MeasureError::skip("sched_getaffinity: no processor"));
    };
    let spins = spinning::knows(variant);
    if spins && here == there {
        return Err(MeasureError::skip(
            "needs two processors: on one, the spinning thread keeps the other from dying",
        ));
    }
    let clock = Clock::calibrated();
    let mut notes = Vec::new();
    if cause == Cause::Exit && here != there {
        // Measured before the first fork: the threads that this call starts have exited by then.
        let Band { low, high } = Band::between(clock, here, there)?;
        notes.push(format!(
            "offset band: the dying process's counter, which stamps its exit, is {low} to {high} \
             ticks ahead of ours"
        ));
    }
    if spinning::needs_reaper(variant) {
        notes.push(
            "a thread reaps the process immediately; until then it counts as alive".to_owned(),
        );
    }
    let scene = DeathPlan { cause, here, there, clock };
    let notice = |_| {
        if spins { spinning::notice(variant, &scene) } else { blocked::notice(variant, &scene) }
    };
    let samples = (0..deaths).map(notice).collect::<Result<Vec<f64>>>()?;
    Ok(Observed { series: vec![Series::ns("notice", samples)], notes, ..Observed::default() })
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("futex-word", "spinning on a robust mutex's lock word, which the kernel marks"),
    variant("own-robust-list", "spinning on a word in the robust list of a bare clone thread"),
    variant("life-word", "spinning on the library's check of the process's life"),
    variant("robust-futex-wait", "pthread_mutex_lock of the robust mutex, until EOWNERDEAD"),
    variant("hang-up-poll", "poll for the hang-up of a SOCK_SEQPACKET connection"),
    variant("hang-up-epoll", "epoll_wait for the hang-up of the connection"),
    variant("pidfd-poll", "poll of a pidfd"),
    variant("sigchld", "sigtimedwait for SIGCHLD, by the parent"),
    variant("wait4", "waitpid, by the parent"),
    variant("pipe-eof", "read of a pipe whose only writing end the process holds"),
    variant("mailbox", "a sender to a tontine mailbox, asleep until its message is read"),
    variant("mailbox-pidfd-poll", "poll of the pidfd of such a receiver, without the library"),
    variant("mailbox-send", "spinning on send to a tontine mailbox, until EOWNERDEAD"),
    variant("kill-0", "spinning on kill(pid, 0)"),
    variant("pidfd-signal-0", "spinning on pidfd_send_signal of signal 0"),
    variant("procfs-faccessat", "spinning on faccessat of stat in the process's /proc directory"),
    variant("polling-thread", "spinning on a flag; a thread checks procfs every millisecond"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn every_variant_notices_both_causes() {
        in_a_process_of_its_own(|| {
            for variant in VARIANTS {
                for cause in Cause::ALL {
                    let name = variant.name;
                    let observed = match measure(name, cause, 1) {
                        Ok(observed) => observed,
                        Err(MeasureError::Skipped(_)) => continue,
                        Err(trouble) => return Err(format!("{name} {cause:?}: {trouble}")),
                    };
                    let notice = &observed.series[0];
                    let sane =
                        notice.samples.len() == 1 && notice.samples.iter().all(|&ns| ns > 0.0);
                    if !sane {
                        return Err(format!("{name} {cause:?}: {:?}", notice.samples));
                    }
                }
            }
            Ok(())
        });
    }

    #[test]
    fn each_death_notice_cell_has_wait_method_and_cause() {
        let topology = Topology::of_this_machine();
        for (variant, waiting) in [("futex-word", "spinning"), ("pidfd-poll", "blocked")] {
            let cells = DeathNotice.params(variant, &topology, Size::Quick);
            assert_eq!(cells.len(), 2);
            assert!(cells.iter().all(|cell| cell["waiting"] == waiting), "{cells:?}");
            assert_ne!(cells[0]["cause"], cells[1]["cause"]);
        }
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        let found = measure("pigeon", Cause::Kill, 1).expect_err("there are no pigeons");
        assert!(found.why().contains("pigeon"), "{found}");
        let task = InvocationTask {
            experiment: "death-notice".into(),
            variant: "pidfd-poll".into(),
            params: Params::from([("cause".into(), "age".into())]),
            size: Size::Quick,
        };
        let found = DeathNotice.run(&task).expect_err("no such cause");
        assert!(found.why().contains("age"), "{found}");
    }
}
