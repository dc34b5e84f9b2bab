//! How fast `Linux::spawn` is: beside `std::process::Command`, and beside fork and exec from a
//! process with a gibibyte of memory. Two paired ratios, each from alternating pairs in one run.
//!
//! `cargo run --release -p tontine-unix --example spawn_speed`

#![allow(clippy::disallowed_types, reason = "it measures on the wall clock")]

use std::process::Command;
use std::time::Instant;

use tontine_unix::{Linux, Result, Spawn, Status, Sys, WaitOptions};

const PROGRAM: &str = "/bin/true";
/// Pairs of one child each: what disturbs the machine disturbs few of so many.
const PAIRS: usize = 601;
/// Pairs where one of the two copies a gibibyte's page tables.
const SLOW_PAIRS: usize = 41;
const TOUCHED_BYTES: usize = 1 << 30;

fn main() -> Result<()> {
    let linux = Linux::new()?;
    let sys: &dyn Sys = &linux;
    let ours = || spawned(sys);
    report("spawn / std::process::Command, small process", PAIRS, &ours, &commanded);

    let memory = vec![1_u8; TOUCHED_BYTES];
    report("spawn / fork + exec, 1 GiB touched", SLOW_PAIRS, &ours, &|| forked(sys));
    report("spawn / std::process::Command, 1 GiB touched", PAIRS, &ours, &commanded);
    drop(std::hint::black_box(memory));
    Ok(())
}

/// Runs the two sides in turn, the first one first every second time, and prints the median of the
/// pairs' ratios.
fn report(
    what: &str,
    pairs: usize,
    ours: &dyn Fn() -> Result<()>,
    theirs: &dyn Fn() -> Result<()>,
) {
    let time_us = |side: &dyn Fn() -> Result<()>| {
        let start = Instant::now();
        side().expect("a child that exits with 0");
        start.elapsed().as_secs_f64() * 1e6
    };
    let pair = |n: usize| {
        if n.is_multiple_of(2) {
            let first = time_us(ours);
            (first, time_us(theirs))
        } else {
            let first = time_us(theirs);
            (time_us(ours), first)
        }
    };
    let times: Vec<_> = (0..pairs).map(pair).collect();
    let [low, median, high] = quartiles(times.iter().map(|(ours, theirs)| ours / theirs));
    let [_, ours_us, _] = quartiles(times.iter().map(|(ours, _)| *ours));
    let [_, theirs_us, _] = quartiles(times.iter().map(|(_, theirs)| *theirs));
    println!("{what}");
    println!("  ratio {median:.3}, quartiles {low:.3} to {high:.3}, {pairs} pairs");
    println!("  medians {ours_us:.0} µs and {theirs_us:.0} µs");
}

fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[quarter * (values.len() - 1) / 4])
}

fn spawned(sys: &dyn Sys) -> Result<()> {
    let child = sys.spawn(&Spawn::new(PROGRAM, &[PROGRAM]))?;
    awaited(sys, child)
}

fn forked(sys: &dyn Sys) -> Result<()> {
    let child = sys.fork(|sys| sys.exec(PROGRAM, &[PROGRAM]).map_or(1, |never| match never {}))?;
    awaited(sys, child)
}

fn awaited(sys: &dyn Sys, child: tontine_unix::Pid) -> Result<()> {
    let waited = sys.waitpid(child.into(), WaitOptions::empty())?;
    assert!(waited.is_some_and(|waited| waited.status == Status::Exited(0)));
    Ok(())
}

fn commanded() -> Result<()> {
    let status = Command::new(PROGRAM).status()?;
    assert!(status.success());
    Ok(())
}
