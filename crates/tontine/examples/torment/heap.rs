//! Random kills of members of a shared heap: [`run`].

use super::heap_members;
use super::slice::{Slice, SliceCounter};

/// Number of kills per heap.
const KILLS: u64 = 500;

/// Runs one heap after the other until the slice is over.
pub(super) fn run(slice: &Slice) {
    while !slice.is_over() {
        let seed = slice.random(slice.next_case()).next();
        let counts = heap_members::torment(seed, |kills| kills >= KILLS || slice.is_over());
        slice.add(SliceCounter::Rounds, 1);
        slice.add(SliceCounter::Deaths, counts.kills);
        slice.add(SliceCounter::Messages, counts.accepted);
    }
}
