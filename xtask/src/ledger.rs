//! `cargo xtask ledger`: writes the seconds that each experiment takes into
//! docs/evidence/ledger.md.
//!
//! A run of `tontine measure` records these seconds in its `results.json`. [`run`] writes the
//! seconds of one run into the page, or checks the page against the run. The check requires that
//! every experiment is listed, that none is far slower than listed, and that the sums are within
//! the promise of the README. The page has one column for each size of a run. A run of named
//! experiments replaces only their figures in the column of all experiments.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use tontine_bench::schema::{Cell, Results};
use tontine_bench::size::Size;
use tontine_experiments::SUITE;

/// Path of the page.
const PAGE: &str = "docs/evidence/ledger.md";

/// A kind of run that has a column.
struct RunKind {
    size: Size,
    /// `true` for all experiments, `false` for the headline cells.
    all: bool,
    /// The command, without its first word.
    name: &'static str,
    /// Maximum duration in seconds on two processors that do nothing else.
    most: f64,
}

const RUNS: [RunKind; 4] = [
    RunKind { size: Size::Quick, all: false, name: "measure --quick", most: 60.0 },
    RunKind { size: Size::Default, all: false, name: "measure", most: 150.0 },
    RunKind { size: Size::Quick, all: true, name: "measure --quick --all", most: 360.0 },
    RunKind { size: Size::Default, all: true, name: "measure --all", most: 840.0 },
];

impl RunKind {
    /// Returns the experiments that take part in such a run.
    fn experiments(&self) -> impl Iterator<Item = &'static str> {
        let takes_part =
            |name: &&str| self.all || SUITE.headline.iter().any(|cells| cells.experiment == *name);
        SUITE.experiments.iter().map(|experiment| experiment.name()).filter(takes_part)
    }

    /// Returns `true` if the results are from such a run.
    fn is_of(&self, results: &Results) -> bool {
        self.size == results.size
            && results.ledger.len() == self.experiments().count()
            && self.experiments().all(|name| results.ledger.contains_key(name))
    }
}

/// Returns the column of a run. A run of named experiments, with all variants of each, belongs to
/// the run of all experiments.
fn column_of(results: &Results) -> Option<usize> {
    let whole = |name: &String| {
        SUITE.find(name).is_some_and(|experiment| {
            experiment.variants().iter().all(|variant| {
                let is_of = |cell: &Cell| cell.experiment == *name && cell.variant == variant.name;
                results.cells.iter().any(is_of)
            })
        })
    };
    let named = || !results.ledger.is_empty() && results.ledger.keys().all(whole);
    let of_named = |run: &RunKind| run.all && run.size == results.size && named();
    let exact = RUNS.iter().position(|run| run.is_of(results));
    exact.or_else(|| RUNS.iter().position(of_named))
}

/// Maximum ratio of an experiment's time to the listed time. On processors that other machines
/// share, two runs can differ by this factor.
const SLACK: f64 = 3.0;
/// Additional time in seconds for the start of processes on a loaded machine.
const SPARE_SECONDS: f64 = 5.0;

/// Seconds of each experiment, by size.
type ExperimentSeconds = BTreeMap<String, [Option<f64>; RUNS.len()]>;

/// Writes the run in `results` into the page below `root`, or checks the page against it. Returns
/// `Ok(false)` if a rule is broken.
pub(crate) fn run(root: &Path, results: &Path, check: bool) -> io::Result<bool> {
    let results: Results = serde_json::from_slice(&fs::read(results)?)?;
    let Some(column) = column_of(&results) else {
        return Err(io::Error::other(
            "expected a quick or a default run of the headline cells, of all experiments or of \
             whole experiments, found another; measure without --full and without variants",
        ));
    };
    let page = root.join(PAGE);
    let text = fs::read_to_string(&page).unwrap_or_default();
    let mut ledger = parse(&text);
    let complaints = if check {
        compare(&ledger, column, &results)
    } else {
        for (name, seconds) in &results.ledger {
            ledger.entry(name.clone()).or_default()[column] = Some(*seconds);
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
        if SUITE.find(name).is_some() && seconds.len() == RUNS.len() {
            let mut columns = seconds.iter().map(|seconds| seconds.parse().ok());
            ledger.insert(name.to_owned(), std::array::from_fn(|_| columns.next().flatten()));
        }
    }
    ledger
}

/// Returns the differences between a run and the page.
fn compare(ledger: &ExperimentSeconds, column: usize, results: &Results) -> Vec<String> {
    let mut complaints = within(ledger, column);
    let RunKind { name, most, .. } = RUNS[column];
    let all: f64 = results.ledger.values().sum();
    if all > most {
        complaints
            .push(format!("this `{name}` took {all:.0} s, more than the promised {most:.0} s"));
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
    let RunKind { name: run, most, .. } = RUNS[column];
    let mut complaints: Vec<String> = RUNS[column]
        .experiments()
        .filter(|name| ledger.get(*name).is_none_or(|seconds| seconds[column].is_none()))
        .map(|name| format!("{name} has no figure for `{run}` in {PAGE}"))
        .collect();
    let sum = sum(ledger, column);
    if sum > most {
        complaints.push(format!("`{run}` takes {sum:.0} s, more than the promised {most:.0} s"));
    }
    complaints
}

fn sum(ledger: &ExperimentSeconds, column: usize) -> f64 {
    ledger.values().filter_map(|seconds| seconds[column]).sum()
}

fn render(ledger: &ExperimentSeconds) -> String {
    let heads: Vec<&str> = RUNS.iter().map(|run| run.name).collect();
    let mut page = format!(
        "# Duration of the experiments\n\nThe table lists the duration of each experiment in \
         seconds, summed over its invocations, in four kinds\nof run on two processors of a \
         virtual machine. `cargo xtask ledger RESULTS` writes a column from the record of a\nrun \
         (from a run of named experiments, their figures in the column of all), and `cargo xtask \
         ledger --check RESULTS`\nchecks it against another run. A `--full` run is not listed, \
         because it estimates its time in advance.\n\n\
         | experiment | {} |\n| --- |{}\n",
        heads.join(" | "),
        " --: |".repeat(RUNS.len())
    );
    let cell = |seconds: Option<f64>| seconds.map_or_else(|| "–".into(), |s| format!("{s:.1}"));
    for experiment in SUITE.experiments {
        let seconds = ledger.get(experiment.name()).copied().unwrap_or_default();
        let cells: Vec<String> = seconds.iter().map(|seconds| cell(*seconds)).collect();
        page.push_str(&format!("| `{}` | {} |\n", experiment.name(), cells.join(" | ")));
    }
    let sums: Vec<String> =
        (0..RUNS.len()).map(|column| format!("**{:.0}**", sum(ledger, column))).collect();
    let limits: Vec<String> = RUNS.iter().map(|run| format!("{:.0}", run.most)).collect();
    page.push_str(&format!("| **sum** | {} |\n", sums.join(" | ")));
    page.push_str(&format!("| promised maximum | {} |\n", limits.join(" | ")));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full_ledger(each: f64) -> ExperimentSeconds {
        let names = SUITE.experiments.iter().map(|experiment| experiment.name().to_owned());
        names.map(|name| (name, [Some(each); RUNS.len()])).collect()
    }

    #[test]
    fn rendered_ledger_parses_back() {
        let ledger = full_ledger(1.5);
        assert_eq!(parse(&render(&ledger)), ledger);
    }

    #[test]
    fn missing_experiment_and_large_sum_are_reported() {
        assert_eq!(within(&full_ledger(1.0), 2), Vec::<String>::new());
        let mut ledger = full_ledger(1.0);
        ledger.remove("round-trip");
        assert!(within(&ledger, 0)[0].contains("round-trip"));
        assert!(within(&full_ledger(100.0), 0)[0].contains("the promised 60 s"));
        assert!(within(&full_ledger(100.0), 2)[0].contains("the promised 360 s"));
    }
}
