//! A fence that one side pays for both: [`heavy`] where a process goes to sleep, [`light`] where
//! another one decides whether to wake it.
//!
//! Both sides store one word and load the other's: the sender stores a message and loads
//! `sleeping`, the sleeper stores `sleeping` and looks for messages. Not both may miss the other's
//! store. Two full fences would ensure it; so does this pair:
//!
//! - If the sender runs on some processor during [`heavy`], the kernel interrupts that processor
//!   and has it execute a full fence, at one point of the sender's program. If the point lies
//!   behind the sender's store, the store is visible to what the sleeper loads after `heavy`. If
//!   it lies before the store, so it does before the load ([`light`] keeps the compiler from
//!   exchanging the two), and the load sees what the sleeper stored before `heavy`.
//! - If the sender does not run, the switch that took it from its processor was a full fence at
//!   such a point.
//!
//! The kernel interrupts only processes that have registered: [`register`], before the other side
//! is told that it may rely on it. Neighbours: the lanes and the mailbox choose between this and
//! two full fences (`docs/layout.md`, "The two fence modes"). Nothing here sleeps or wakes.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

use super::fork::PerProcess;

static REGISTERED: PerProcess<bool> =
    PerProcess::new(|| membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok());

/// Lets other processes' [`heavy`] reach this one. Asked once a process, and anew in a forked
/// child; false where the kernel cannot or a filter forbids it.
pub(crate) fn register() -> bool {
    REGISTERED.get().is_ok_and(|registered| *registered)
}

/// A full fence here and on every processor that runs a registered process. False, and only a fence
/// here, where it is forbidden by now: then nobody may sleep on its strength.
pub(crate) fn heavy() -> bool {
    let reached_all = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
    if !reached_all {
        // SYNC asymmetric-fence: this half alone; the caller is told.
        fence(Ordering::SeqCst);
    }
    reached_all
}

/// The other half of [`heavy`]: keeps the compiler from exchanging what stands before and after. No
/// instruction.
#[inline(always)]
pub(crate) fn light() {
    // SYNC asymmetric-fence: pairs with `heavy` in the process that goes to sleep; proof above.
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_fences_where_the_kernel_can() {
        let known = rustix::thread::membarrier_query();
        let can = known.contains_command(MembarrierCommand::RegisterGlobalExpedited)
            && known.contains_command(MembarrierCommand::GlobalExpedited);
        assert_eq!(register(), can);
        assert_eq!(register(), can, "twice does no harm");
        assert_eq!(heavy(), can);
        light();
    }
}
