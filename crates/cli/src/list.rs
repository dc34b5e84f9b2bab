//! `tontine list`: prints the experiments and their variants.

use std::fmt::Write;
use std::process::ExitCode;

use tontine_bench::engine::plan;
use tontine_experiments::SUITE;

use crate::args::List;
use crate::{Refusal, print};

/// Prints the named experiments, or all if none is named.
pub(crate) fn list(asked: &List) -> Result<ExitCode, Refusal> {
    let wanted = plan::resolve_all(&SUITE, &asked.names).map_err(Refusal::usage)?;
    let mut text = String::new();
    for experiment in SUITE.experiments {
        if !wanted.is_empty() && !wanted.iter().any(|(name, _)| *name == experiment.name()) {
            continue;
        }
        let _ = writeln!(text, "{}\n    {}", experiment.name(), experiment.summary());
        let variants = experiment.variants();
        let width = variants.iter().map(|variant| variant.name.len()).max().unwrap_or(0);
        for variant in variants {
            let _ = writeln!(text, "      {:width$}  {}", variant.name, variant.summary);
        }
        text.push('\n');
    }
    text.push_str("Measure one with `tontine measure NAME` or `tontine measure NAME/VARIANT`.\n");
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
