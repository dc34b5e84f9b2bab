//! `death-notice`: the time from a process's death until each mechanism reports it:
//! [`DeathNotice`]. [`spinning`] polls with the checks of [`super::liveness_check`]; [`blocked`]
//! sleeps until the notice.

mod blocked;
mod dying_process;
mod mailbox;
mod spinning;

use crate::prelude::*;
use dying_process::{Cause, DeathPlan};

pub(crate) struct DeathNotice;

impl Experiment for DeathNotice {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, _: Size) -> Vec<Params> {
        let waiting = if spinning::knows(variant) { "spinning" } else { "blocked" };
        let cell = |cause: Cause| params([("cause", cause.name()), ("waiting", waiting)]);
        Cause::ALL.map(cell).to_vec()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.deaths()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let name = word(&task.params, "cause");
        let cause = Cause::ALL.into_iter().find(|cause| cause.name() == name);
        let cause = cause.ok_or_else(|| unknown("death-notice", "cause", name))?;
        measure(&task.variant, cause, task.size.deaths())
    }
}

fn measure(variant: &str, cause: Cause, deaths: usize) -> Result<Observed> {
    let here = pin::first()?;
    let there = pin::allowed()?.pop().unwrap_or(here);
    let spins = spinning::knows(variant);
    if spins && here == there {
        skip!("needs two processors: on one, the spinning thread keeps the other from dying");
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
    let plan = DeathPlan { cause, here, there, clock };
    let notice = |_| match variant {
        "mailbox" => mailbox::until_woken(&plan),
        "mailbox-pidfd-poll" => mailbox::until_reader_ended(&plan),
        "mailbox-send" => mailbox::until_send_fails(&plan),
        _ if spins => spinning::notice(variant, &plan),
        _ => blocked::notice(variant, &plan),
    };
    let samples = (0..deaths).map(notice).collect::<Result<Vec<f64>>>()?;
    Ok(Observed::of([Series::ns("notice", samples)], notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_notices_both_causes() {
        in_a_process_of_its_own(|| {
            for variant in DeathNotice.variants() {
                for cause in Cause::ALL {
                    let found = measure(variant.name, cause, 1);
                    let Some(observed) = unless_skipped(found, (variant, cause)) else { continue };
                    let [ns] = observed.series[0].samples[..] else { panic!("{observed:?}") };
                    assert!(ns > 0.0, "{} {cause:?}: {ns}", variant.name);
                }
            }
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
}
