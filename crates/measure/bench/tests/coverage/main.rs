//! Counts how often the intervals contain the true value, as docs/evidence/coverage.md states.
//!
//! [`trial`] draws runs from the models of [`simulate`] and counts, [`shares`] draws shares,
//! [`few`] runs of fewer than six invocations, and [`resampled`] makes comparisons of runs of the
//! experiments in [`recorded`]. [`claims`] defines the expected counts. Seeds are fixed, so every
//! run yields the same rows of the page's tables. A build without optimisation would take too long,
//! and has no test.

#![cfg(not(debug_assertions))]

mod claims;
mod few;
#[path = "../fixture/mod.rs"]
mod fixture;
mod recorded;
mod resampled;
mod shares;
mod simulate;
mod trial;

/// Returns the results of `of` for 0 to `count`, in order; two threads share them.
fn shared<T: Send>(count: usize, of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let half = |first: usize| (first..count).step_by(2).map(&of).collect::<Vec<T>>();
    let (even, odd) = std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        (half(0), odd.join().expect("the simulation does not panic"))
    });
    let mut odd = odd.into_iter();
    even.into_iter().flat_map(|one| [Some(one), odd.next()]).flatten().collect()
}

#[test]
#[ignore = "takes long: simulates tens of thousands of runs"]
fn statements_hold_and_page_has_the_rows() {
    let (trials, shares, few, compared) =
        (trial::all(), shares::all(), few::all(), resampled::all());
    let mut broken = claims::broken(&trials);
    broken.extend(shares::broken(&shares));
    broken.extend(few::broken(&few));
    broken.extend(compared.broken());
    assert_eq!(broken, [""; 0], "statements that do not hold");
    let page = include_str!("../../../../../docs/evidence/coverage.md");
    let rows = trials.iter().flat_map(claims::rows).chain(shares::rows(&shares));
    let rows = rows.chain(few.iter().map(few::FewTrial::row)).chain(compared.page_rows());
    let missing: Vec<String> = rows.filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "rows to write into docs/evidence/coverage.md: {missing:#?}");
}
