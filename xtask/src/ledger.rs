//! `cargo xtask ledger`: writes the seconds that each experiment takes into
//! docs/evidence/ledger.md.
//!
//! A run of `tontine measure` records these seconds in its `results.json`. [`run`] writes the
//! seconds of one run into the page, or checks the page against the run. The check requires that
//! every experiment is listed, that none is far slower than listed, and that the sums are within
//! the promise of the README. The page has one column for each size of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use tontine_bench::schema::Results;
use tontine_bench::size::Size;
use tontine_experiments::SUITE;

/// Path of the page.
const PAGE: &str = "docs/evidence/ledger.md";

/// Sizes that have a column, each with the maximum duration of a whole run in seconds on two
/// processors.
const SIZES: [(Size, &str, f64); 2] =
    [(Size::Quick, "quick", 240.0), (Size::Default, "default", 720.0)];

/// Maximum ratio of an experiment's time to the listed time. On a machine with shared processors,
/// two runs can differ by this factor.
const SLACK: f64 = 2.0;
/// Additional time in seconds for the start of processes on a loaded machine.
const SPARE_SECONDS: f64 = 5.0;

/// Seconds of each experiment, by size.
type ExperimentSeconds = BTreeMap<String, [Option<f64>; SIZES.len()]>;

/// Writes the run in `results` into the page below `root`, or checks the page against it. Returns
/// `Ok(false)` if a rule is broken.
pub(crate) fn run(root: &Path, results: &Path, check: bool) -> io::Result<bool> {
    let results: Results = serde_json::from_slice(&fs::read(results)?)?;
    let Some(column) = SIZES.iter().position(|(size, ..)| *size == results.size) else {
        return Err(io::Error::other(
            "expected a quick or a default run, found a full one; measure without --full",
        ));
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

/// Parses the table of the page, and ignores the text around it.
fn parse(text: &str) -> ExperimentSeconds {
    let mut ledger = ExperimentSeconds::new();
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

/// Returns the differences between a run and the page.
fn compare(ledger: &ExperimentSeconds, column: usize, results: &Results) -> Vec<String> {
    let mut complaints = within(ledger, column);
    let (_, size, most) = SIZES[column];
    let all: f64 = results.ledger.values().sum();
    if all > most {
        complaints
            .push(format!("this {size} run took {all:.0} s, more than the promised {most:.0} s"));
    }
    for (name, took) in &results.ledger {
        match ledger.get(name).and_then(|seconds| seconds[column]) {
            None => complaints.push(format!(
                "{name} took {took:.0} s and has no figure in {PAGE}; run `cargo xtask ledger` \
                 with the results of this run"
            )),
            Some(said) if *took > said * SLACK + SPARE_SECONDS => complaints.push(format!(
                "{name} took {took:.0} s, {PAGE} has {said:.0} s; fix the experiment or the page"
            )),
            Some(_) => {}
        }
    }
    complaints
}

/// Returns the experiments that are missing on the page, and the sum if it exceeds the promise.
fn within(ledger: &ExperimentSeconds, column: usize) -> Vec<String> {
    let (_, size, most) = SIZES[column];
    let all = SUITE.experiments.iter().map(|experiment| experiment.name());
    let mut complaints: Vec<String> = all
        .filter(|name| ledger.get(*name).is_none_or(|seconds| seconds[column].is_none()))
        .map(|name| format!("{name} has no figure for {size} in {PAGE}"))
        .collect();
    let sum = sum(ledger, column);
    if sum > most {
        complaints
            .push(format!("a {size} run takes {sum:.0} s, more than the promised {most:.0} s"));
    }
    complaints
}

fn sum(ledger: &ExperimentSeconds, column: usize) -> f64 {
    ledger.values().filter_map(|seconds| seconds[column]).sum()
}

fn render(ledger: &ExperimentSeconds) -> String {
    let heads: Vec<&str> = SIZES.iter().map(|(_, name, _)| *name).collect();
    let mut page = format!(
        "# Duration of the experiments\n\nThe table lists the duration of each experiment in \
         seconds, summed over its invocations, in a run of all experiments\non two processors of a \
         virtual machine. `cargo xtask ledger RESULTS` writes this page from the record of a run, \
         and\n`cargo xtask ledger --check RESULTS` checks it against another run. A `--full` run \
         is not listed, because it\nestimates its time in advance.\n\n\
         | experiment | {} |\n| --- |{}\n",
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
    page.push_str(&format!("| promised maximum | {} |\n", limits.join(" | ")));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full_ledger(each: f64) -> ExperimentSeconds {
        let names = SUITE.experiments.iter().map(|experiment| experiment.name().to_owned());
        names.map(|name| (name, [Some(each); SIZES.len()])).collect()
    }

    #[test]
    fn rendered_ledger_parses_back() {
        let ledger = full_ledger(1.5);
        assert_eq!(parse(&render(&ledger)), ledger);
    }

    #[test]
    fn missing_experiment_and_large_sum_are_reported() {
        assert_eq!(within(&full_ledger(1.0), 0), Vec::<String>::new());
        let mut ledger = full_ledger(1.0);
        ledger.remove("round-trip");
        assert!(within(&ledger, 0)[0].contains("round-trip"));
        assert!(within(&full_ledger(100.0), 0)[0].contains("the promised 240 s"));
    }
}
