//! Lookup of targets and operations by name.

use crate::subject::{self, CrashTarget, Operation, Role};

/// The name of a target or an operation that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no {kind} is named '{name}'; did you mean '{nearest}'? Expected one of {}",
    all.join(", ")
)]
pub struct SelectionError {
    /// Kind of the name: `target` or `operation`.
    pub kind: &'static str,
    pub name: String,
    pub nearest: String,
    /// All names of this kind.
    pub all: Vec<&'static str>,
}

/// Returns the targets with these names, each once, in the order of the registry. An empty list
/// selects all targets except the controls.
pub fn subjects(names: &[String]) -> Result<Vec<&'static dyn CrashTarget>, SelectionError> {
    let all = subject::all();
    for name in names {
        if subject::find(name).is_none() {
            return Err(unknown("target", name, all.iter().map(|subject| subject.name())));
        }
    }
    let wanted = |subject: &&dyn CrashTarget| {
        if names.is_empty() {
            subject.role() != Role::Control
        } else {
            names.iter().any(|name| name == subject.name())
        }
    };
    Ok(all.iter().copied().filter(wanted).collect())
}

/// Returns the operation with this name, which at least one of the targets has.
pub fn operation(
    name: &str,
    subjects: &[&'static dyn CrashTarget],
) -> Result<Operation, SelectionError> {
    let has = |operation: &Operation| {
        subjects.iter().any(|subject| subject.facts().operations.contains(operation))
    };
    let there: Vec<Operation> = Operation::ALL.into_iter().filter(has).collect();
    there
        .iter()
        .copied()
        .find(|operation| operation.name() == name)
        .ok_or_else(|| unknown("operation", name, there.iter().map(|operation| operation.name())))
}

fn unknown(
    kind: &'static str,
    name: &str,
    candidates: impl Iterator<Item = &'static str>,
) -> SelectionError {
    let all: Vec<&'static str> = candidates.collect();
    let likeness = |candidate: &&&str| strsim::jaro_winkler(name, candidate);
    let nearest = all.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest.copied().unwrap_or_default().to_owned();
    SelectionError { kind, name: name.to_owned(), nearest, all }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<&'static str>, SelectionError> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Ok(subjects(&names)?.iter().map(|subject| subject.name()).collect())
    }

    #[test]
    fn misspelt_name_suggests_nearest() {
        assert_eq!(chosen(&["robust-rng"]).expect_err("misspelt").nearest, "robust-ring");
        let pipe = subjects(&["pipe".to_owned()]).expect("exists");
        assert_eq!(operation("recieve", &pipe).expect_err("misspelt").nearest, "receive");
        assert_eq!(operation("send", &pipe), Ok(Operation::Send));
    }

    #[test]
    fn controls_are_selected_only_if_named() {
        assert!(!chosen(&[]).expect("all").contains(&"control-lock"));
        assert_eq!(chosen(&["control-lock", "pipe", "pipe"]), Ok(vec!["pipe", "control-lock"]));
    }
}
