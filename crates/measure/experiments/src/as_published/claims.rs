//! The claims of the sources and the verdicts on them: [`Claim`], [`Verdict`], and [`print`].
//!
//! Each source has a table of its claims. A claim is judged from what the reproduction has just
//! measured; no verdict is fixed.

use std::fmt::Write;

use textwrap::{Options, WordSplitter};

const WIDTH: usize = 80;

/// A statement of a source that can be tested with the measurements `F` of a run.
pub(super) struct Claim<F> {
    /// The line of the source, counted from 1.
    pub(super) line: u32,
    pub(super) text: &'static str,
    /// Returns the verdict, or `None` if a point that decides the claim was not measured.
    pub(super) judge: fn(&F) -> Option<Verdict>,
}

pub(super) const fn claim<F>(
    line: u32,
    text: &'static str,
    judge: fn(&F) -> Option<Verdict>,
) -> Claim<F> {
    Claim { line, text, judge }
}

/// The result of a test of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The claim holds here. Contains the evidence.
    Reproduced(String),
    /// The claim does not hold here. Contains the reason, which follows the word *because*.
    NotReproduced(String),
    /// The claim cannot be tested here. Contains the reason, which follows the word *because*.
    NotComparable(String),
}

impl Verdict {
    fn text(&self) -> String {
        match self {
            Self::Reproduced(evidence) => format!("reproduced: {evidence}"),
            Self::NotReproduced(reason) => format!("not reproduced, because {reason}"),
            Self::NotComparable(reason) => format!("not comparable, because {reason}"),
        }
    }
}

pub(super) fn decide(holds: bool, evidence: String) -> Option<Verdict> {
    Some(if holds { Verdict::Reproduced(evidence) } else { Verdict::NotReproduced(evidence) })
}

pub(super) fn not_comparable(reason: impl Into<String>) -> Option<Verdict> {
    Some(Verdict::NotComparable(reason.into()))
}

impl<F> Claim<F> {
    pub(super) fn verdict(&self, found: &F) -> Verdict {
        let missing = "a point of it was not measured, see above";
        (self.judge)(found).unwrap_or_else(|| Verdict::NotComparable(missing.into()))
    }
}

/// Returns the list of verdicts, in at most 80 columns.
pub(super) fn print<F>(claims: &[Claim<F>], found: &F) -> String {
    let mut text =
        "\nVerdicts on the source's claims (the number is the source's line)\n".to_owned();
    let hang = " ".repeat(6);
    let how = Options::new(WIDTH).word_splitter(WordSplitter::NoHyphenation);
    let how = how.subsequent_indent(&hang);
    for claim in claims {
        let first = format!("{:>4}  ", claim.line);
        let named = textwrap::fill(claim.text, how.clone().initial_indent(&first));
        let verdict = claim.verdict(found).text();
        let verdict = textwrap::fill(&verdict, how.clone().initial_indent(&hang));
        let _ = writeln!(text, "{named}\n{verdict}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_print_line_claim_and_reason_in_80_columns() {
        let claims: [Claim<String>; 4] = [
            claim(7, "a load is free", |_| decide(true, "0.1 ns".into())),
            claim(38, "x", |reason| decide(false, reason.clone())),
            claim(409, "y", |reason| not_comparable(reason.clone())),
            claim(410, "z", |_| None),
        ];
        let text = print(&claims, &"the loop here calls no function, and ".repeat(5));
        assert!(text.contains("\n   7  a load is free\n      reproduced: 0.1 ns\n"), "{text}");
        assert!(text.contains("\n  38  x\n      not reproduced, because the loop"), "{text}");
        assert!(text.contains("\n 409  y\n      not comparable, because the loop"), "{text}");
        assert!(text.contains("\n 410  z\n      not comparable, because a point"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().count() > 4 * 2 + 2, "long reasons wrap: {text}");
    }
}
