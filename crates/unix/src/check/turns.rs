//! Who has the one processor on which a run takes place: [`stay_on`], and [`Precedence`].
//!
//! The conductor and everybody it conducts share a processor, so that nobody is woken across two.
//! To yield it does not help: each session is a scheduling group of its own where the system groups
//! tasks so (autogroup), and who yields makes way within its own group alone. So where the system
//! allows it, those who are conducted are real-time tasks and the conductor is not: whoever can go
//! on does so before it, and when the conductor looks, everybody has gone as far as they can.
//!
//! What a scenario sees is the same: nice values, limits and processor time are those of any task.
//! Somebody who computes without an end would have the processor to itself; the system leaves other
//! tasks one part in twenty, in which the conductor takes the precedence back.

#![allow(unsafe_code, reason = "scheduling policies")]

use crate::errno::Result;

/// The lowest priority of a real-time task: it precedes all others that are none.
const LOWEST: i32 = 1;

/// Lets this process and its children run on one processor.
pub(super) fn stay_on(processor: u32) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor as usize);
    // Where it may not, everything takes longer.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// While it lives, whom this thread forks precedes all who are no real-time tasks, and so will
/// their children. Dropped, this thread does not any more.
#[derive(Debug)]
pub(super) struct Precedence(());

impl Precedence {
    /// `EPERM`: the system wants a privilege for that.
    pub(super) fn take() -> Result<Self> {
        set(0, libc::SCHED_FIFO, LOWEST).map(Self)
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        let _ = take_from(0);
    }
}

/// Takes the precedence from a thread.
pub(super) fn take_from(thread: i32) -> Result<()> {
    set(thread, libc::SCHED_OTHER, 0)
}

fn set(thread: i32, policy: i32, priority: i32) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure lives across the call.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}
