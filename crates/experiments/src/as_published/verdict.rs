//! The verdicts on the claims of a source, at the end of its reproduction: [`Claim`], [`Verdict`]
//! and [`print`](print()).
//!
//! A reproduction decides each verdict from what it has just measured; no verdict is fixed.

use std::io::Write;

use textwrap::{Options, WordSplitter};
use tontine_host::error::{ErrorContext, Result};

/// Maximum width of a line.
const WIDTH: usize = 80;

/// A statement of a source that can be tested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    /// The line of the source, counted from 1.
    pub(crate) line: u32,
    /// The statement, in few words.
    pub(crate) text: &'static str,
}

/// The result of a test of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
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

/// Writes the list of verdicts, in at most 80 columns.
///
/// # Errors
/// Returns `Failed` if `out` cannot be written.
pub(crate) fn print(out: &mut dyn Write, verdicts: &[(Claim, Verdict)]) -> Result<()> {
    let mut text =
        "\nVerdicts on the source's claims (the number is the source's line)\n".to_owned();
    let hang = " ".repeat(6);
    for (Claim { line, text: claim }, verdict) in verdicts {
        let verdict = verdict.text();
        for (first, body) in [(format!("{line:>4}  "), *claim), (hang.clone(), verdict.as_str())] {
            let how = Options::new(WIDTH).word_splitter(WordSplitter::NoHyphenation);
            let how = how.initial_indent(&first).subsequent_indent(&hang);
            text += &textwrap::fill(body, how);
            text.push('\n');
        }
    }
    out.write_all(text.as_bytes()).during("writing the verdicts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_print_line_claim_and_reason_in_80_columns() {
        let reason = "the loop here calls no function, and ".repeat(5);
        let verdicts = [
            (Claim { line: 7, text: "a load is free" }, Verdict::Reproduced("0.1 ns".into())),
            (Claim { line: 38, text: "x" }, Verdict::NotReproduced(reason.clone())),
            (Claim { line: 409, text: "y" }, Verdict::NotComparable(reason)),
        ];
        let mut out = Vec::new();
        print(&mut out, &verdicts).expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains("\n   7  a load is free\n      reproduced: 0.1 ns\n"), "{text}");
        assert!(text.contains("\n  38  x\n      not reproduced, because the loop"), "{text}");
        assert!(text.contains("\n 409  y\n      not comparable, because the loop"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().count() > 3 * 2 + 2, "long reasons wrap: {text}");
    }
}
