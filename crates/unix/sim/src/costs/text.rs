//! Costs as text: printing and parsing of [`CostModel`].

use std::fmt;
use std::str::FromStr;

use super::{CostKind, CostModel};

/// The reason why a text is not a valid cost file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseCostsError {
    /// The name of a step is unknown.
    #[error("line {line}: expected the name of a step, found `{found}`")]
    Step {
        /// The line, from 1.
        line: usize,
        /// The text found in place of the name or cost.
        found: String,
    },
    /// A cost is not a number from 0 to the maximum.
    #[error("line {line}: expected nanoseconds from 0 to {MOST_NS}, found `{found}`")]
    Nanoseconds {
        /// The line, from 1.
        line: usize,
        /// The text found in place of the name or cost.
        found: String,
    },
    /// A step has no cost, or several costs.
    #[error("expected one line with the cost of `{0}`, found {1}")]
    Count(&'static str, usize),
}

/// Maximum cost of a step: one second.
const MOST_NS: f64 = 1e9;

impl fmt::Display for CostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# step, nanoseconds, description")?;
        for step in CostKind::ALL {
            writeln!(f, "{:<10}{:>10.3}  {}", step.name(), self.ns(step), step.what())?;
        }
        Ok(())
    }
}

impl FromStr for CostModel {
    type Err = ParseCostsError;

    fn from_str(text: &str) -> Result<Self, ParseCostsError> {
        let mut costs = Self::NONE;
        let mut counts = [0; CostKind::ALL.len()];
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|name| !name.starts_with('#')) else { continue };
            let step = CostKind::ALL.into_iter().find(|step| step.name() == name);
            let step =
                step.ok_or(ParseCostsError::Step { line: line_number, found: name.to_owned() })?;
            let found = words.next().unwrap_or_default();
            let ns = found.parse().ok().filter(|ns| (0.0..=MOST_NS).contains(ns));
            let wrong =
                || ParseCostsError::Nanoseconds { line: line_number, found: found.to_owned() };
            costs = costs.with(step, ns.ok_or_else(wrong)?);
            counts[step as usize] += 1;
        }
        match CostKind::ALL.into_iter().find(|&step| counts[step as usize] != 1) {
            Some(step) => Err(ParseCostsError::Count(step.name(), counts[step as usize])),
            None => Ok(costs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_model_text_round_trips() {
        let costs = CostModel::published();
        assert_eq!(costs.to_string().parse(), Ok(costs));
        assert!(
            costs.ns(CostKind::Lock) > 0.0 && costs.ns(CostKind::Fork) > costs.ns(CostKind::Lock)
        );
    }

    #[test]
    fn invalid_cost_line_error_names_line_and_value() {
        let text = CostModel::published().to_string();
        let read = |text: &str| text.parse::<CostModel>().expect_err("wrong").to_string();
        let unknown = read(&format!("{text}pigeon 1\n"));
        assert!(unknown.contains("expected the name of a step, found `pigeon`"), "{unknown}");
        let negative = read(&text.replace("lock      ", "lock  -1"));
        assert!(negative.contains("line 3: expected nanoseconds"), "{negative}");
        assert_eq!(
            read(&format!("{text}lock 5\n")),
            "expected one line with the cost of `lock`, found 2"
        );
        assert_eq!(read(""), "expected one line with the cost of `call`, found 0");
    }
}
