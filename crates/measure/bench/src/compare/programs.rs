//! Selection of the two programs for the second stage: [`recorded`].

use std::path::PathBuf;

use serde_json::Value;

use super::{ComparedRun, Comparison, machines};

/// Advice for when the recorded programs cannot be used.
const GIVE: &str = "to settle, name both programs with --again OLD NEW";

/// Returns the programs that made the two runs, if both are still at their paths and `here`, the
/// facts of this machine, matches the machine of the runs.
pub fn recorded(
    comparison: &Comparison,
    here: &Value,
    ran_on: &Value,
) -> Result<[PathBuf; 2], String> {
    if !comparison.machines.is_empty() {
        return Err(
            "expected runs of one machine, found two; to measure two programs on this one, \
                    use --again OLD NEW"
                .into(),
        );
    }
    if let Some(one) = machines::differences(ran_on, here).first() {
        let (fact, there, here) = (&one.fact, &one.base, &one.new);
        return Err(format!(
            "expected the machine of the two runs in the same state, found another one ({fact}: \
             {there} there, {here} here); compare there, or measure two programs here with --again \
             OLD NEW"
        ));
    }
    Ok([program("A", &comparison.base)?, program("B", &comparison.new)?])
}

fn program(name: &str, about: &ComparedRun) -> Result<PathBuf, String> {
    let Some(executable) = &about.executable else {
        return Err(format!("{name} does not say which program made it; {GIVE}"));
    };
    if executable.is_still_there() {
        return Ok(executable.path.clone());
    }
    let path = executable.path.display();
    Err(format!("the program that made {name}, {path}, no longer exists or has changed; {GIVE}"))
}
