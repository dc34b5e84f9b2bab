//! SplitMix64 (Steele, Lea, Flood 2014): [`next_random`], the same numbers on every machine.
//!
//! Who chooses what by them stands elsewhere: schedules in `executor::chooser` and
//! `explore::dice`, orders of steps in `check::choice`, scenarios in `random::chance`.

/// The next number of a generator.
#[inline]
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
