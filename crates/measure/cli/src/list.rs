//! `tontine-measure list`: prints the experiments and their variants.

use std::fmt::Write;
use std::process::ExitCode;

use tontine_bench::engine::plan;
use tontine_bench::suite::Experiment;
use tontine_command::{CommandFailure, fill, print};
use tontine_experiments::SUITE;

use crate::args::ListArguments;

/// Prints the named experiments, or all experiments if none is named.
pub(crate) fn list(args: &ListArguments) -> Result<ExitCode, CommandFailure> {
    let wanted = plan::resolve_all(&SUITE, &args.names).map_err(CommandFailure::usage)?;
    let mut text = String::new();
    for experiment in SUITE.experiments {
        if !wanted.is_empty() && !wanted.iter().any(|(name, _)| *name == experiment.name()) {
            continue;
        }
        text.push_str(&entry(*experiment));
        text.push('\n');
    }
    text.push_str("Measure one with `tontine-measure NAME` or `tontine-measure NAME/VARIANT`.\n");
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the text on an experiment: its question and its variants.
fn entry(experiment: &dyn Experiment) -> String {
    let mut text =
        format!("{}\n{}\n", experiment.name(), fill("    ", "    ", experiment.summary()));
    let variants = experiment.variants();
    let width = variants.iter().map(|variant| variant.name.len()).max().unwrap_or(0);
    for variant in variants {
        let first = format!("      {:width$}  ", variant.name);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", fill(&first, &" ".repeat(first.len()), variant.summary));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_command::WIDTH;

    #[test]
    fn list_lines_fit_80_columns() {
        for experiment in SUITE.experiments {
            for line in entry(*experiment).lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }
}
