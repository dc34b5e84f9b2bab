//! Polling: the checks of [`crate::liveness_check`], repeated until a check reports the process as
//! dead.
//!
//! The kernel marks a word by itself. A process id, a signalled pidfd and a `/proc` directory
//! report a dead process as alive until it has been reaped. A thread therefore reaps the process
//! immediately, like a parent blocked in `waitpid`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tontine_host::error::{MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin::{self, Pinned};

use super::dying_process::{DeathPlan, DyingProcess};
use super::mailbox;
use crate::liveness_check::check::{Check, means_of};
use crate::with_check;

/// Maximum time after a death for which a mechanism may report the process as alive.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of polls between two reads of the clock.
const POLLS: u32 = 1024;
/// Time allowed for a reaper to fall asleep.
const SETTLING: Duration = Duration::from_micros(100);

/// Returns `true` if this module implements the variant.
pub(super) fn knows(variant: &str) -> bool {
    ["futex-word", "own-robust-list", "life-word", "mailbox-send"].contains(&variant)
        || needs_reaper(variant)
}

/// Returns `true` if a variant reports the process as alive until it has been reaped.
pub(super) fn needs_reaper(variant: &str) -> bool {
    ["kill-0", "pidfd-signal-0", "procfs-faccessat", "polling-thread"].contains(&variant)
}

/// Returns the nanoseconds from a death to its notice.
///
/// # Errors
/// Returns `Skipped` if the system refuses a requirement of the mechanism, and `Failed` if the
/// mechanism never notifies.
pub(super) fn notice(variant: &str, scene: &DeathPlan) -> Result<f64> {
    if variant == "mailbox-send" {
        return mailbox::until_send_fails(scene);
    }
    let means = means_of(variant)
        .ok_or_else(|| MeasureError::fail(format!("no such variant: {variant}")))?;
    let dying = DyingProcess::start(scene, means)?;
    with_check!(variant, &dying.monitored, |check| {
        check.probe()?;
        let mut child = dying.monitored.child();
        let reaped = needs_reaper(variant).then_some(&mut *child);
        reaping(scene, reaped, || {
            let _pinned = Pinned::to(scene.here)?;
            dying.die(scene, || until_dead(&check))
        })
    })
}

/// Runs `dying`. If a child is given, a thread waits for the child in the meantime.
fn reaping(
    scene: &DeathPlan,
    child: Option<&mut Child>,
    dying: impl FnOnce() -> Result<f64>,
) -> Result<f64> {
    let Some(child) = child else { return dying() };
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        let reaper = scope.spawn(|| {
            // The reaper runs on the victim's processor, so that neither disturbs the spinning
            // thread.
            let pinned = pin::pin_to(scene.there);
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

/// Repeats the check until it reports the process as dead.
#[inline(never)]
fn until_dead(check: &impl Check) -> Result<()> {
    let mut since = None;
    loop {
        for _ in 0..POLLS {
            match check.look() {
                Ok(true) => std::hint::spin_loop(),
                Ok(false) => return Ok(()),
                Err(error) => return Err(MeasureError::fail(format!("the check failed: {error}"))),
            }
        }
        if since.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
            return Err(MeasureError::fail(format!("no notice within {TIMEOUT:?}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::death_notice::dying_process::Cause;
    use tontine_host::clock::Clock;
    use tontine_host::peer::in_a_process_of_its_own;

    /// Shows why a reaper is needed: without one, a check by process id reports a zombie as alive.
    #[test]
    fn zombie_is_dead_by_lock_word_and_alive_by_pid() {
        in_a_process_of_its_own(|| {
            let said = |variant: &str| -> Result<bool> {
                let cpus = pin::allowed()?;
                let (here, there) = (cpus[0], cpus[cpus.len() - 1]);
                let scene =
                    DeathPlan { cause: Cause::Kill, here, there, clock: Clock::calibrated() };
                let means = means_of(variant).expect("a variant");
                let dying = DyingProcess::start(&scene, means)?;
                with_check!(variant, &dying.monitored, |check| {
                    // The process has died, as its pidfd shows, and is not reaped.
                    dying.die(&scene, || super::super::notice::until_ended(dying.pidfd()))?;
                    check.look().map_err(|error| MeasureError::fail(error.to_string()))
                })
            };
            for (variant, alive) in
                [("futex-word", false), ("kill-0", true), ("procfs-faccessat", true)]
            {
                match said(variant) {
                    Ok(says) if says == alive => {}
                    Err(MeasureError::Skipped(_)) => {}
                    other => return Err(format!("{variant}: {other:?}")),
                }
            }
            Ok(())
        });
    }
}
