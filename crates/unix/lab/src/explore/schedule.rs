//! A schedule as text: [`Schedule`].

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The choices of a run that depart from the default.
///
/// A decision is a point at which several fibers could continue. The decisions of a run are counted
/// from 1. By default the running fiber continues as long as it can; after that, the fiber that has
/// waited longest continues. `17>3.40>2` means: at decision 17 fiber 3 continues, at decision 40
/// fiber 2. Fibers are numbered in the order in which they begin. `-` is the schedule without
/// departures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The decision and the chosen fiber of each departure, in order.
    pub(super) turns: Vec<(u32, u32)>,
}

/// An error returned when a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a schedule such as `17>3.40>2` or `-`, with ascending decisions, found {0:?}")]
pub struct ParseScheduleError(String);

/// Maximum length of a text in bytes.
const LONGEST: usize = 1 << 20;

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.turns.is_empty() {
            return f.write_str("-");
        }
        for (index, (decision, fiber)) in self.turns.iter().enumerate() {
            let dot = if index > 0 { "." } else { "" };
            write!(f, "{dot}{decision}>{fiber}")?;
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, ParseScheduleError> {
        let wrong = || ParseScheduleError(text.chars().take(60).collect());
        if text == "-" {
            return Ok(Self::default());
        }
        if text.len() > LONGEST {
            return Err(wrong());
        }
        let turn = |turn: &str| {
            let (decision, fiber) = turn.split_once('>')?;
            Some((decision.parse().ok()?, fiber.parse().ok()?))
        };
        let turns: Option<Vec<(u32, u32)>> = text.split('.').map(turn).collect();
        let turns = turns.ok_or_else(wrong)?;
        let ascends = turns.is_sorted_by(|(one, _), (next, _)| one < next);
        if ascends { Ok(Self { turns }) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_text_round_trips() {
        for text in ["-", "1>2", "17>3.40>2.41>5"] {
            assert_eq!(text.parse::<Schedule>().expect("a schedule").to_string(), text);
        }
    }

    #[test]
    fn malformed_schedule_text_is_refused() {
        for text in ["", "3", "3>", ">3", "3>x", "3>1.2>1", "3>1.3>2", "3>1.", "-.3>1"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
