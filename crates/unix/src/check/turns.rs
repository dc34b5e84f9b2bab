//! Who has the one processor on which a run takes place: [`stay_on`] and [`give_way`].
//!
//! The conductor and everybody it conducts share a processor, so that nobody is woken across two.
//! To yield it helps little by itself: each session is a scheduling group of its own where the
//! system groups tasks so (autogroup), and who yields makes way within its own group first. So the
//! conductor's group has the least weight there is: whoever can go on mostly does so before it.
//!
//! What a scenario sees is the same: nice values, limits and processor time are those of any task,
//! and nobody has the processor to itself.

use std::fs;

/// What makes a group's share least: as `nice` has it.
const LEAST: &str = "19";

/// Lets this process and its children run on one processor.
pub(super) fn stay_on(processor: u32) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor as usize);
    // Where it may not, everything takes longer.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Gives the scheduling group of this session the least share of a processor.
pub(super) fn give_way() {
    // Where there are no such groups, all share one, and to yield is enough.
    let _ = fs::write("/proc/self/autogroup", LEAST);
}
