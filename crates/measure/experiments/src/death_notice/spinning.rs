//! Polling: the checks of [`crate::liveness_check`], repeated until a check reports the process as
//! dead.
//!
//! The kernel marks a word by itself. A process id, a signalled pidfd and a `/proc` directory
//! report a dead process as alive until it has been reaped. A thread therefore reaps the process
//! immediately, like a parent blocked in `waitpid`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::dying_process::{DeathPlan, DyingProcess};
use crate::liveness_check::check::{Check, means_of};
use crate::prelude::*;
use crate::with_check;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of polls between two reads of the clock.
const POLLS: u32 = 1024;
/// Time allowed for a reaper to fall asleep.
const SETTLING: Duration = Duration::from_micros(100);

pub(super) fn knows(variant: &str) -> bool {
    ["futex-word", "own-robust-list", "life-word", "mailbox-send"].contains(&variant)
        || needs_reaper(variant)
}

/// Returns `true` if a variant reports the process as alive until it has been reaped.
pub(super) fn needs_reaper(variant: &str) -> bool {
    ["kill-0", "pidfd-signal-0", "procfs-faccessat", "polling-thread"].contains(&variant)
}

pub(super) fn notice(variant: &str, plan: &DeathPlan) -> Result<f64> {
    let means = means_of(variant).ok_or_else(|| unknown("death-notice", "variant", variant))?;
    let dying = DyingProcess::start(plan, means)?;
    with_check!(variant, &dying.monitored, |check| {
        check.probe()?;
        let mut child = dying.monitored.child();
        let reaped = needs_reaper(variant).then_some(&mut *child);
        reaping(plan, reaped, || {
            let _pinned = Pinned::to(plan.here)?;
            dying.die(plan, || until_dead(&check))
        })
    })
}

/// Runs `dying`. If a child is given, a thread waits for the child in the meantime.
fn reaping(
    plan: &DeathPlan,
    child: Option<&mut Child>,
    dying: impl FnOnce() -> Result<f64>,
) -> Result<f64> {
    let Some(child) = child else { return dying() };
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        let reaper = scope.spawn(|| {
            // The reaper runs on the victim's processor, so that neither disturbs the spinning
            // thread.
            let pinned = pin::pin_to(plan.there);
            waits.store(true, Ordering::Relaxed);
            child.wait().and(pinned)
        });
        while !waits.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        thread::sleep(SETTLING);
        let noticed = dying();
        let reaped =
            reaper.join().unwrap_or_else(|_| Err(MeasureError::fail("the reaper panicked")));
        noticed.and_then(|ns| reaped.map(|()| ns))
    })
}

#[inline(never)]
fn until_dead(check: &impl Check) -> Result<()> {
    let mut since = None;
    loop {
        for _ in 0..POLLS {
            match check.look() {
                Ok(true) => std::hint::spin_loop(),
                Ok(false) => return Ok(()),
                Err(error) => bail!("the check failed: {error}"),
            }
        }
        if since.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            bail!("no notice within {TIMEOUT:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::death_notice::blocked::until_ended;
    use crate::death_notice::dying_process::Cause;

    /// Shows why a reaper is needed: without one, a check by process id reports a zombie as alive.
    #[test]
    fn zombie_is_dead_by_lock_word_and_alive_by_pid() {
        in_a_process_of_its_own(|| {
            for (variant, alive) in
                [("futex-word", false), ("kill-0", true), ("procfs-faccessat", true)]
            {
                let answer = || -> Result<bool> {
                    let cpus = pin::allowed()?;
                    let (here, there) = (cpus[0], cpus[cpus.len() - 1]);
                    let clock = Clock::calibrated();
                    let plan = DeathPlan { cause: Cause::Kill, here, there, clock };
                    let means = means_of(variant).expect("a variant");
                    let dying = DyingProcess::start(&plan, means)?;
                    with_check!(variant, &dying.monitored, |check| {
                        // The process has died, as its pidfd shows, and is not reaped.
                        dying.die(&plan, || until_ended(dying.pidfd()))?;
                        check.look().map_err(|error| MeasureError::fail(error.to_string()))
                    })
                };
                let found = unless_skipped(answer(), variant);
                assert_eq!(found.unwrap_or(alive), alive, "{variant}");
            }
        });
    }
}
