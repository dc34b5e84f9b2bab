//! `tontine-measure doctor`: reports what disturbs measurements here, and how to fix it.

use std::fmt::Write;
use std::process::ExitCode;

use tontine_bench::engine::machine_facts;
use tontine_bench::machine::advice::{Severity, advice};
use tontine_bench::machine::{MachineFacts, card};
use tontine_command::{CommandFailure, fill, print};
use tontine_experiments::SUITE;

use crate::args::{Doctor, Format};

/// Prints the machine's card and the advice.
pub(crate) fn doctor(args: &Doctor) -> Result<ExitCode, CommandFailure> {
    let text = match args.format {
        Format::Text => text(&SUITE.machine()),
        Format::Json => {
            let facts = machine_facts(&SUITE.machine());
            let mut text = serde_json::to_string_pretty(&facts).map_err(CommandFailure::failed)?;
            text.push('\n');
            text
        }
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn text(machine: &MachineFacts) -> String {
    let mut text = format!("{}\n\n", fill("", "", &machine.one_line()));
    for (topic, facts) in card(machine) {
        let _ = writeln!(text, "{topic}");
        let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in facts {
            let first = format!("  {name:width$}  ");
            let _ = writeln!(text, "{}", fill(&first, &" ".repeat(width + 4), &value));
        }
        text.push('\n');
    }
    let advice = advice(machine);
    let spoilt = advice.iter().filter(|advice| advice.severity == Severity::Spoils).count();
    let _ = match spoilt {
        0 => writeln!(text, "No check found anything that disturbs measurements here."),
        1 => writeln!(text, "One thing disturbs measurements here:"),
        count => writeln!(text, "{count} things disturb measurements here:"),
    };
    for severity in [Severity::Spoils, Severity::Note] {
        if severity == Severity::Note && advice.len() > spoilt {
            text.push_str("\nNotes:\n");
        }
        for one in advice.iter().filter(|advice| advice.severity == severity) {
            let _ = writeln!(text, "{}", fill("  - ", "    ", &one.finding));
            let _ = writeln!(text, "{}", fill("    ", "    ", one.effect));
            if !one.remedy.is_empty() {
                let _ = writeln!(text, "{}", fill("    fix: ", "      ", one.remedy));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_command::WIDTH;

    #[test]
    fn doctor_lines_fit_80_columns() {
        let mut machine = MachineFacts::default();
        machine.build.processor_features = Some(vec!["avx512bitalg".to_owned(); 20]);
        machine.power.turbo = Some(true);
        let text = text(&machine);
        assert!(text.contains("intel_pstate"), "expected advice about turbo: {text}");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
}
