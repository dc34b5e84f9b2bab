//! Fences that one end executes for both: [`heavy`] in a process that is about to sleep, [`light`]
//! in a process that decides whether to wake it.
//!
//! Each end stores one word and loads the other's: the sender stores a message and loads
//! `sleeping`, the sleeper stores `sleeping` and checks for messages. At least one must see the
//! other's store. Two full fences would ensure this; so does the following pair:
//!
//! - If the sender runs on a processor during [`heavy`], the kernel interrupts that processor and
//!   has it execute a full fence, at one point of the sender's program. If the point is after the
//!   sender's store, the store is visible to the sleeper's loads after `heavy`. If it is before the
//!   store, it is also before the load ([`light`] keeps the compiler from reordering the two), and
//!   the load sees what the sleeper stored before `heavy`.
//! - If the sender does not run, the context switch that removed the sender from its processor was
//!   a full fence at such a point.
//!
//! The kernel interrupts only processes that have registered: [`register`] is called before the
//! other end learns that it may rely on this. Neighbours: the lanes and the mailbox choose between
//! this and two full fences (`docs/internals/layout.md`, "The two fence modes"). This module
//! neither sleeps nor wakes.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

use super::fork::PerProcess;

static REGISTERED: PerProcess<bool> =
    PerProcess::new(|| membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok());

/// Registers this process, once, for the [`heavy`] fences of other processes; a forked child
/// registers again. Returns `false` if the kernel does not support the call or a filter forbids it.
pub(crate) fn register() -> bool {
    REGISTERED.get().is_ok_and(|registered| *registered)
}

/// Executes a full fence here and on every processor that runs a registered process. If the kernel
/// no longer allows this, executes a fence here only, and returns `false`: the caller must then not
/// rely on being woken.
pub(crate) fn heavy() -> bool {
    let reached_all = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
    if !reached_all {
        // SYNC asymmetric-fence: only this half is executed, as the result reports.
        fence(Ordering::SeqCst);
    }
    reached_all
}

/// The other half of [`heavy`]: keeps the compiler from reordering accesses across it. Emits no
/// instruction.
#[inline(always)]
pub(crate) fn light() {
    // SYNC asymmetric-fence: pairs with `heavy` in the process that is about to sleep; proof above.
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membarrier_result_matches_kernel_support() {
        let known = rustix::thread::membarrier_query();
        let can = known.contains_command(MembarrierCommand::RegisterGlobalExpedited)
            && known.contains_command(MembarrierCommand::GlobalExpedited);
        assert_eq!(register(), can);
        assert_eq!(register(), can, "a second call has the same result");
        assert_eq!(heavy(), can);
        light();
    }
}
