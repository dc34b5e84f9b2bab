//! `shared-heaps` in words.

use crate::experiment::explanation::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &["Todo todo todo todo todo."],
    steps: &["Todo todo todo todo todo.", "Todo todo todo todo todo."],
    timing: "Todo todo todo todo todo.",
    found: "",
    reading: "Todo todo todo todo todo.",
    calls: &[("all", "none")],
};
