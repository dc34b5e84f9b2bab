//! Verdicts on answers to events that were tried: [`CheckVerdict`], and [`Score`] over all events.

use tontine_bench::schema::{Results, TriedRow};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    /// The answer that an ideal mechanism gives.
    Right,
    Wrong,
    /// No answer: the mechanism could not be tried.
    Untried,
}

impl CheckVerdict {
    /// Judges a mechanism's answer. The answer is the first word, `alive` or `dead`; any other text
    /// is the reason why the mechanism could not be tried.
    pub fn of(truth: &str, says: &str) -> Self {
        let word = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
            text[..end].to_ascii_lowercase()
        };
        match word(says) {
            _ if says == truth => Self::Right,
            answer if answer != "alive" && answer != "dead" => Self::Untried,
            answer if answer == word(truth) => Self::Right,
            _ => Self::Wrong,
        }
    }
}

/// The experiment whose variants are tried.
const CHECKS: &str = "liveness-check";

/// Results of one check over the events that were tried.
pub(super) struct Score {
    pub(super) right: usize,
    /// Events that the check answered wrongly.
    pub(super) wrong: Vec<String>,
}

impl Score {
    pub(super) fn of(results: &Results, variant: &str) -> Self {
        let mut score = Self { right: 0, wrong: Vec::new() };
        let tried = |row: &&TriedRow| row.experiment == CHECKS && row.variant == variant;
        for row in results.tried.iter().filter(tried) {
            match CheckVerdict::of(&row.tried.truth, &row.tried.says) {
                CheckVerdict::Right => score.right += 1,
                CheckVerdict::Wrong => score.wrong.push(row.tried.event.clone()),
                CheckVerdict::Untried => {}
            }
        }
        score
    }

    pub(super) fn tried(&self) -> usize {
        self.right + self.wrong.len()
    }
}
