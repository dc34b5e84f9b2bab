//! Members of one heap that allocate, free, hand over, accept and recover at random, and are killed
//! and replaced at random moments. The survivors continue, and check every byte of their blocks.
//! After each round, only the last survivor's blocks may be left.
//!
//! `TONTINE_KILLS` sets the number of members to kill. `TONTINE_SEED` repeats the test's random
//! choices, but not the kernel's.

use crate::heap_members;
use std::time::Instant;

#[test]
fn killed_heap_members_leak_and_corrupt_nothing() {
    alone!();
    kill_members(100);
}

#[test]
#[ignore = "takes long: 1,500 kills"]
fn many_killed_heap_members_leak_and_corrupt_nothing() {
    alone!();
    kill_members(1_500);
}

/// Kills `kills` members, unless the environment sets another number.
fn kill_members(kills: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let kills: u64 = number("TONTINE_KILLS").unwrap_or(kills);
    let seed =
        number("TONTINE_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1_u64);
    println!("seed {seed}, {kills} kills");
    let began = Instant::now();
    let heap_members::Counts { kills, in_recovery, steps, accepted, stale, full, recovered } =
        heap_members::torment(seed, |done| done >= kills);
    println!(
        "{kills} kills in {:.1} s, {in_recovery} of them during a recovery; {steps} steps, \
         {accepted} blocks accepted, {stale} stale, {full} times full, {recovered} recovered by \
         members; leak 0, double use 0",
        began.elapsed().as_secs_f64()
    );
    assert!(accepted > 0 && recovered > 0 && in_recovery > 0);
}
