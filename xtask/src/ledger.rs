//! `cargo xtask ledger`: the seconds that each experiment takes, in docs/ledger.md.
//!
//! A run of `tontine measure` records them in its `results.json`. [`run`] writes one such run into
//! the page, or checks the page against it: every experiment listed, none far slower than it says,
//! the sums within what the README promises. The page has a column for each size of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use tontine_bench::schema::Results;
use tontine_bench::size::Size;
use tontine_experiments::SUITE;

/// The page.
const PAGE: &str = "docs/ledger.md";

/// The sizes that have a column, and the seconds that a whole run may take on two processors.
const SIZES: [(Size, &str, f64); 2] =
    [(Size::Quick, "quick", 240.0), (Size::Default, "default", 720.0)];

/// How much slower than the page says an experiment may be before the page is wrong: machines that
/// share their processors differ by that much between two runs.
const SLACK: f64 = 2.0;
/// Seconds on top of it: what starting processes costs on a loaded machine.
const SPARE_SECONDS: f64 = 5.0;

/// Seconds of each experiment, by size.
type Ledger = BTreeMap<String, [Option<f64>; SIZES.len()]>;

/// Writes the run in `results` into the page below `root`, or checks the page against it.
/// `Ok(false)` if something does not hold.
pub(crate) fn run(root: &Path, results: &Path, check: bool) -> io::Result<bool> {
    let results: Results = serde_json::from_slice(&fs::read(results)?)?;
    let Some(column) = SIZES.iter().position(|(size, ..)| *size == results.size) else {
        return Err(io::Error::other("expected a quick or a default run, found a full one"));
    };
    let page = root.join(PAGE);
    let text = fs::read_to_string(&page).unwrap_or_default();
    let mut ledger = parse(&text);
    let complaints = if check {
        compare(&ledger, column, &results)
    } else {
        for experiment in SUITE.experiments {
            let seconds = results.ledger.get(experiment.name()).copied();
            ledger.entry(experiment.name().to_owned()).or_default()[column] = seconds;
        }
        fs::write(&page, render(&ledger))?;
        within(&ledger, column)
    };
    for complaint in &complaints {
        eprintln!("ledger: {complaint}");
    }
    Ok(complaints.is_empty())
}

/// What the page says, whatever stands around its table.
fn parse(text: &str) -> Ledger {
    let mut ledger = Ledger::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, seconds @ .., ""] = cells.as_slice() else {
            continue;
        };
        let name = name.trim_matches('`');
        if SUITE.find(name).is_some() && seconds.len() == SIZES.len() {
            let mut columns = seconds.iter().map(|seconds| seconds.parse().ok());
            ledger.insert(name.to_owned(), std::array::from_fn(|_| columns.next().flatten()));
        }
    }
    ledger
}

/// Where a run and the page disagree.
fn compare(ledger: &Ledger, column: usize, results: &Results) -> Vec<String> {
    let mut complaints = within(ledger, column);
    let (_, size, most) = SIZES[column];
    let all: f64 = results.ledger.values().sum();
    if all > most {
        complaints.push(format!("this {size} run took {all:.0} s; promised are {most:.0} s"));
    }
    for (name, took) in &results.ledger {
        match ledger.get(name).and_then(|seconds| seconds[column]) {
            None => complaints.push(format!(
                "{name} took {took:.0} s and has no figure in {PAGE}; run `cargo xtask ledger` \
                 with this run's results"
            )),
            Some(said) if *took > said * SLACK + SPARE_SECONDS => complaints.push(format!(
                "{name} took {took:.0} s, {PAGE} says {said:.0} s; mend it, or the page"
            )),
            Some(_) => {}
        }
    }
    complaints
}

/// Experiments that the page lacks, and a sum that is more than is promised.
fn within(ledger: &Ledger, column: usize) -> Vec<String> {
    let (_, size, most) = SIZES[column];
    let all = SUITE.experiments.iter().map(|experiment| experiment.name());
    let mut complaints: Vec<String> = all
        .filter(|name| ledger.get(*name).is_none_or(|seconds| seconds[column].is_none()))
        .map(|name| format!("{name} has no figure for {size} in {PAGE}"))
        .collect();
    let sum = sum(ledger, column);
    if sum > most {
        complaints.push(format!("a {size} run takes {sum:.0} s; promised are {most:.0} s"));
    }
    complaints
}

fn sum(ledger: &Ledger, column: usize) -> f64 {
    ledger.values().filter_map(|seconds| seconds[column]).sum()
}

fn render(ledger: &Ledger) -> String {
    let heads: Vec<&str> = SIZES.iter().map(|(_, name, _)| *name).collect();
    let mut page = format!(
        "# Seconds\n\nWhat each experiment takes in a run of everything, on two processors of a \
         virtual machine: all its\ninvocations together, in seconds. Written by `cargo xtask \
         ledger RESULTS` from a run's own record, and\nchecked against another run by `cargo \
         xtask ledger --check RESULTS`. A `--full` run is not listed: it says\nin advance how \
         long it will take on the machine at hand.\n\n| experiment | {} |\n| --- |{}\n",
        heads.join(" | "),
        " --: |".repeat(SIZES.len())
    );
    let cell = |seconds: Option<f64>| seconds.map_or_else(|| "–".into(), |s| format!("{s:.1}"));
    for experiment in SUITE.experiments {
        let seconds = ledger.get(experiment.name()).copied().unwrap_or_default();
        let cells: Vec<String> = seconds.iter().map(|seconds| cell(*seconds)).collect();
        page.push_str(&format!("| `{}` | {} |\n", experiment.name(), cells.join(" | ")));
    }
    let sums: Vec<String> =
        (0..SIZES.len()).map(|column| format!("**{:.0}**", sum(ledger, column))).collect();
    let limits: Vec<String> = SIZES.iter().map(|(.., most)| format!("{most:.0}")).collect();
    page.push_str(&format!("| **sum** | {} |\n", sums.join(" | ")));
    page.push_str(&format!("| promised at most | {} |\n", limits.join(" | ")));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full_ledger(each: f64) -> Ledger {
        let names = SUITE.experiments.iter().map(|experiment| experiment.name().to_owned());
        names.map(|name| (name, [Some(each); SIZES.len()])).collect()
    }

    #[test]
    fn the_page_is_read_as_it_was_written() {
        let ledger = full_ledger(1.5);
        assert_eq!(parse(&render(&ledger)), ledger);
    }

    #[test]
    fn a_missing_experiment_and_a_sum_too_large_are_named() {
        assert_eq!(within(&full_ledger(1.0), 0), Vec::<String>::new());
        let mut ledger = full_ledger(1.0);
        ledger.remove("round-trip");
        assert!(within(&ledger, 0)[0].contains("round-trip"));
        assert!(within(&full_ledger(100.0), 0)[0].contains("promised are 240 s"));
    }
}
