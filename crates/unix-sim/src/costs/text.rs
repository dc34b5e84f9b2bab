//! Costs as text: what [`Costs`] prints and reads.

use std::fmt;
use std::str::FromStr;

use super::{Costs, Step};

/// Why a file of costs cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CostsError {
    /// There is no such step.
    #[error("line {line}: expected a step, found `{found}`")]
    Step {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// A cost is a number.
    #[error("line {line}: expected nanoseconds from 0 to {MOST_NS}, found `{found}`")]
    Nanoseconds {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// Each step has a cost, and one.
    #[error("expected one cost of `{0}`, found {1}")]
    Count(&'static str, usize),
}

/// No step takes longer than a second.
const MOST_NS: f64 = 1e9;

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# step, nanoseconds, what it is")?;
        for step in Step::ALL {
            writeln!(f, "{:<10}{:>10.3}  {}", step.name(), self.ns(step), step.what())?;
        }
        Ok(())
    }
}

impl FromStr for Costs {
    type Err = CostsError;

    fn from_str(text: &str) -> Result<Self, CostsError> {
        let mut costs = Self::NONE;
        let mut counts = [0; Step::ALL.len()];
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|name| !name.starts_with('#')) else { continue };
            let step = Step::ALL.into_iter().find(|step| step.name() == name);
            let step =
                step.ok_or(CostsError::Step { line: line_number, found: name.to_owned() })?;
            let found = words.next().unwrap_or_default();
            let ns = found.parse().ok().filter(|ns| (0.0..=MOST_NS).contains(ns));
            let wrong = || CostsError::Nanoseconds { line: line_number, found: found.to_owned() };
            costs = costs.with(step, ns.ok_or_else(wrong)?);
            counts[step as usize] += 1;
        }
        match Step::ALL.into_iter().find(|&step| counts[step as usize] != 1) {
            Some(step) => Err(CostsError::Count(step.name(), counts[step as usize])),
            None => Ok(costs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_as_it_was() {
        let costs = Costs::published();
        assert_eq!(costs.to_string().parse(), Ok(costs));
        assert!(costs.ns(Step::Lock) > 0.0 && costs.ns(Step::Fork) > costs.ns(Step::Lock));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let text = Costs::published().to_string();
        let read = |text: &str| text.parse::<Costs>().expect_err("wrong").to_string();
        let unknown = read(&format!("{text}pigeon 1\n"));
        assert!(unknown.contains("expected a step, found `pigeon`"), "{unknown}");
        let negative = read(&text.replace("lock      ", "lock  -1"));
        assert!(negative.contains("line 3: expected nanoseconds"), "{negative}");
        assert_eq!(read(&format!("{text}lock 5\n")), "expected one cost of `lock`, found 2");
        assert_eq!(read(""), "expected one cost of `call`, found 0");
    }
}
