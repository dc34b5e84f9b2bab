//! The ratio of two cells: [`CellQuotient`], from the run's own pairs if it contains any.

use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Results};

/// Minimum ratio that is a reason to choose one cell over the other.
const WORTH_IT: f64 = 1.1;

/// Order of two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separation {
    Above,
    Below,
    Unresolved,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CellQuotient {
    value: f64,
    low: f64,
    high: f64,
    /// The number of pairs; `None` if the ratio is computed from the outer ends of both intervals.
    pairs: Option<usize>,
}

impl CellQuotient {
    /// Divides `above` by `below`; `None` if either has no interval, or the divisor's interval
    /// contains zero.
    pub(super) fn of(above: &Cell, below: &Cell, results: &Results) -> Option<Self> {
        if let Some(ratio) = format::ratio_between(above, below, results) {
            let (value, low, high) = (ratio.estimate, ratio.low, ratio.high);
            return Some(Self { value, low, high, pairs: Some(ratio.pairs) });
        }
        let (low, high) = (below.low.filter(|low| *low > 0.0)?, below.high?);
        Some(Self {
            value: above.estimate? / below.estimate?,
            low: above.low? / high,
            high: above.high? / low,
            pairs: None,
        })
    }

    pub(super) fn apart(&self) -> Separation {
        if self.low > 1.0 {
            Separation::Above
        } else if self.high < 1.0 {
            Separation::Below
        } else {
            Separation::Unresolved
        }
    }

    /// Returns `true` if the whole interval lies above [`WORTH_IT`].
    pub(super) fn is_worth_it(&self) -> bool {
        self.low > WORTH_IT
    }

    pub(super) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    pub(super) fn shown(&self) -> FormattedFigure {
        format::times(self.value, self.low, self.high)
    }

    /// Describes the figures from which the ratio is computed.
    pub(super) fn how(&self) -> String {
        match self.pairs {
            Some(pairs) => format!("by {pairs} pairs"),
            None => "by the ends of both intervals".into(),
        }
    }
}

/// Returns the doubt that a cell's notes raise, 0 to 2: two modes count most, because the next run
/// may land in either.
pub(super) fn doubt(cell: &Cell) -> u8 {
    if has_two_modes(cell) {
        2
    } else {
        u8::from(cell.notes.iter().any(|note| note.starts_with("unstable:")))
    }
}

/// Returns `true` if the next run may yield a different figure.
pub(super) fn has_two_modes(cell: &Cell) -> bool {
    cell.notes.iter().any(|note| note.starts_with("unstable: two modes"))
}
