//! The task of one invocation: [`InvocationTask`], with its [`Params`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::size::Size;

/// Parameters of a cell, such as `placement` → `cross-core`.
pub type Params = BTreeMap<String, String>;

/// The task of one invocation, passed to the fresh process as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvocationTask {
    pub experiment: String,
    pub variant: String,
    pub params: Params,
    pub size: Size,
}

impl InvocationTask {
    pub fn new(experiment: &str, variant: &str, params: Params, size: Size) -> Self {
        Self { experiment: experiment.into(), variant: variant.into(), params, size }
    }
}

/// Returns parameters from their names and values.
pub fn params<const N: usize>(of: [(&str, &str); N]) -> Params {
    of.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Returns the value of a parameter, or an empty text.
pub fn word<'a>(params: &'a Params, name: &str) -> &'a str {
    params.get(name).map_or("", String::as_str)
}

/// Formats `experiment/variant` with the parameters in short form.
impl fmt::Display for InvocationTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.experiment, self.variant)?;
        short(&self.params).try_for_each(|word| write!(f, " {word}"))
    }
}

/// Returns parameters in short form. The form is only the value if it is clear, such as
/// `cross-core`, and includes the name if the value is a number, such as `senders 2`.
pub fn short(params: &Params) -> impl DoubleEndedIterator<Item = String> {
    params.iter().map(|(name, value)| match value.parse::<u64>() {
        Ok(_) => format!("{name} {value}"),
        Err(_) => value.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_parameter_is_shown_with_its_name() {
        let task = InvocationTask::new(
            "throughput",
            "pipe",
            Params::from([
                ("placement".into(), "cross-core".into()),
                ("senders".into(), "2".into()),
            ]),
            Size::Quick,
        );
        assert_eq!(task.to_string(), "throughput/pipe cross-core senders 2");
    }
}
