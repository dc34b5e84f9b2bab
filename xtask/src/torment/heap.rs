//! Members of a shared heap killed at random: [`run`].

use super::heap_members;
use super::slice::{Count, Slice};

/// Number of kills per heap.
const KILLS: u64 = 500;

/// Runs one heap after the other until the slice is over.
pub(super) fn run(slice: &Slice) {
    while !slice.is_over() {
        let seed = slice.random(slice.next_case()).next();
        let counts = heap_members::torment(seed, |kills| kills >= KILLS || slice.is_over());
        slice.add(Count::Rounds, 1);
        slice.add(Count::Deaths, counts.kills);
        slice.add(Count::Messages, counts.accepted);
    }
}
