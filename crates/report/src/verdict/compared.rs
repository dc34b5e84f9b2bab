//! Two cells against each other: [`Compared`], by the run's own pairs where it has them.

use tontine_bench::format::{self, Shown};
use tontine_bench::schema::{Cell, Results};

/// A difference below a tenth is no reason to choose one or the other.
const WORTH_IT: f64 = 1.1;

/// How two figures lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    Above,
    Below,
    Unresolved,
}

/// A quotient of two cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    value: f64,
    low: f64,
    high: f64,
    /// How many pairs it rests on; none where its ends are the far ends of both intervals.
    pairs: Option<usize>,
}

impl Compared {
    /// `above` by `below`; nothing where one has no interval, or one that holds zero.
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

    pub(super) fn apart(&self) -> Apart {
        if self.low > 1.0 {
            Apart::Above
        } else if self.high < 1.0 {
            Apart::Below
        } else {
            Apart::Unresolved
        }
    }

    /// Whether it is above by more than a tenth, at either end of the interval.
    pub(super) fn is_worth_it(&self) -> bool {
        self.low > WORTH_IT
    }

    pub(super) fn shown(&self) -> Shown {
        format::times(self.value, self.low, self.high)
    }

    /// What it rests on, in words.
    pub(super) fn how(&self) -> String {
        match self.pairs {
            Some(pairs) => format!("by {pairs} pairs"),
            None => "by the ends of both intervals".into(),
        }
    }
}

/// What a cell's notes say against it: most for two modes, of which a run may meet either.
pub(super) fn doubt(cell: &Cell) -> u8 {
    if has_two_modes(cell) {
        2
    } else {
        u8::from(cell.notes.iter().any(|note| note.starts_with("unstable:")))
    }
}

/// Whether its figure is one of two that the next run may yield.
pub(super) fn has_two_modes(cell: &Cell) -> bool {
    cell.notes.iter().any(|note| note.starts_with("unstable: two modes"))
}
