//! `cargo xtask aa`: compares the instrument with itself.
//!
//! Each comparison runs ten interleaved pairs of invocations of a single cell, in random order
//! within each pair, and computes the interval of the paired ratio. The true ratio is 1, so every
//! interval that excludes 1 is a false positive. At most 7 % of the intervals may exclude 1.

use std::io;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tontine_bench::engine::plan;
use tontine_bench::machine::topology::Topology;
use tontine_bench::size::Size;
use tontine_bench::stats::ratio;
use tontine_bench::task::InvocationTask;
use tontine_experiments::SUITE;

use crate::invocation::figure;

/// Cells that are compared with themselves: one spins, one blocks, and one makes a system call.
const CELLS: [&str; 3] = ["round-trip/flag-one-line", "round-trip/pipe", "liveness-check/kill-0"];

/// Number of pairs in a comparison, equal to the number of invocations of a default run.
const PAIRS: usize = 10;

/// Maximum share of false positives.
const ALLOWED: f64 = 0.07;

/// Makes `comparisons` of each cell and prints the number of comparisons that found a difference.
/// Returns `Ok(false)` if the share is above [`ALLOWED`].
pub(crate) fn run(comparisons: usize) -> io::Result<bool> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut all, mut false_positives) = (0, 0);
    println!("| cell | comparisons | false positives | median half-width |");
    println!("| --- | --- | --- | --- |");
    for task in tasks() {
        let mut found = 0;
        let mut widths = Vec::with_capacity(comparisons);
        for _ in 0..comparisons {
            let mut ratios = Vec::with_capacity(PAIRS);
            for _ in 0..PAIRS {
                let (first, second) = (figure(&task)?.median, figure(&task)?.median);
                ratios.push(if random.random() { first / second } else { second / first });
            }
            let interval = ratio::paired(&ratios).expect("ten pairs are enough");
            found += usize::from(interval.low > 1.0 || interval.high < 1.0);
            widths.push((interval.high - interval.low) / 2.0);
        }
        widths.sort_by(f64::total_cmp);
        let params: Vec<&str> = task.params.values().map(String::as_str).collect();
        println!(
            "| {}/{} {} | {comparisons} | {found} | {:.2} % |",
            task.experiment,
            task.variant,
            params.join(" "),
            widths[comparisons / 2] * 100.0
        );
        all += comparisons;
        false_positives += found;
    }
    let share = false_positives as f64 / all as f64;
    println!(
        "\n{false_positives} of {all}: {:.1} %, allowed {:.0} %",
        share * 100.0,
        ALLOWED * 100.0
    );
    Ok(share <= ALLOWED)
}

fn tasks() -> Vec<InvocationTask> {
    let names = CELLS.map(str::to_owned);
    let tasks = plan::select(&SUITE, &names, Size::Quick, &Topology::of_this_machine());
    tasks.expect("the cells exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_exists() {
        let tasks = tasks();
        for cell in CELLS {
            let is_cell =
                |task: &InvocationTask| format!("{}/{}", task.experiment, task.variant) == cell;
            assert!(tasks.iter().any(is_cell), "{cell}");
        }
    }
}
