//! Conclusions from intervals: [`Comparison::judge`].
//!
//! A row that was measured again is judged only by the second measurement. Any other row is judged
//! by the screen, corrected for all rows, because no later stage would remove false findings. If A
//! measured a row and B's program failed to measure it, the row is a regression, whatever its
//! figures.

use super::direction::Direction;
use super::{Change, ChangeScale, ComparedRow, Comparison, RowVerdict, SecondStage};

/// Maximum corrected p at which the screen alone resolves a row.
pub(super) const FALSE_DISCOVERIES: f64 = 0.05;

impl Comparison {
    /// Gives each row its verdict, and counts the regressions.
    pub fn judge(&mut self) {
        let threshold = self.threshold_percent / 100.0;
        let alone = self.screen_alone();
        for row in &mut self.rows {
            row.verdict = verdict(row);
            row.regression = match row.verdict {
                RowVerdict::Failed => true,
                RowVerdict::Worse => {
                    row.change().is_some_and(|change| worse_by(row, change) > threshold)
                }
                _ => false,
            };
            row.smallest = match &row.again {
                Some(again) => again.smallest,
                // No pairs decide, or the requested pairs could not be made.
                None if alone || row.screen.flagged => row.screen.smallest_alone,
                None => row.screen.smallest,
            };
        }
        let lost = self.not_compared.iter().filter(|one| one.regression).count();
        self.regressions = self.rows.iter().filter(|row| row.regression).count() + lost;
    }

    /// Records that no row is measured again, and the reason. The screen then decides alone.
    pub fn leave_to_the_screen(&mut self, why: String) {
        self.again = SecondStage::NotMade { why };
        self.judge();
    }

    /// Returns `true` if the screen decides without a second stage.
    pub fn screen_alone(&self) -> bool {
        matches!(self.again, SecondStage::NotMade { .. })
    }

    /// Returns the indices of the rows to measure again.
    pub fn flagged(&self) -> Vec<usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.screen.flagged).map(|(index, _)| index).collect()
    }
}

fn verdict(row: &ComparedRow) -> RowVerdict {
    let resolved = match (&row.again, row.screen.change) {
        _ if row.fails => return RowVerdict::Failed,
        (Some(again), _) if again.change.resolves(row.scale) => again.change,
        (Some(_), _) => return RowVerdict::NotConfirmed,
        (None, None) => return RowVerdict::TooFew,
        (None, Some(_)) if !row.screen.flagged => return RowVerdict::NoneResolved,
        (None, Some(change)) if row.screen.p_corrected <= FALSE_DISCOVERIES => change,
        (None, Some(_)) => return RowVerdict::Unsettled,
    };
    let more = resolved.low > row.scale.none();
    match (row.worse, more) {
        (Direction::More, true) | (Direction::Less, false) => RowVerdict::Worse,
        (Direction::More, false) | (Direction::Less, true) => RowVerdict::Better,
        (Direction::Neutral | Direction::Unknown, _) => RowVerdict::Changed,
    }
}

/// Returns the minimum by which a row is worse, at the end of its interval that is nearer to no
/// change. The result is a share of the base or, for shares, a difference.
fn worse_by(row: &ComparedRow, change: Change) -> f64 {
    let amount = |change: f64| match row.scale {
        ChangeScale::Quotient => change - 1.0,
        ChangeScale::Difference if row.unit == "share" => change,
        // The change is relative to the base's magnitude. If the base is zero, any increase is
        // infinite.
        ChangeScale::Difference => change / row.base.abs(),
    };
    match row.worse {
        Direction::Less => -amount(change.high),
        _ => amount(change.low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Screen, Settled};
    use crate::task::Params;

    fn change(low: f64, high: f64) -> Change {
        Change { estimate: f64::midpoint(low, high), low, high, confidence: 0.95 }
    }

    fn row(worse: Direction, scale: ChangeScale, screened: Change, p: f64) -> ComparedRow {
        ComparedRow {
            experiment: "round-trip".into(),
            variant: "pipe".into(),
            params: Params::new(),
            metric: "one_way".into(),
            unit: "ns".into(),
            worse,
            scale,
            base: 10.0,
            new: 10.0,
            invocations: (10, 10),
            screen: Screen {
                method: "mann-whitney".into(),
                change: Some(screened),
                p,
                p_corrected: p,
                smallest: Some(0.1),
                smallest_alone: None,
                flagged: screened.resolves(scale),
            },
            again: None,
            fails: false,
            smallest: None,
            verdict: RowVerdict::NoneResolved,
            regression: false,
            notes: Vec::new(),
        }
    }

    #[test]
    fn resolved_difference_is_judged_by_direction() {
        let (up, down) = (change(1.1, 1.3), change(0.7, 0.9));
        for (worse, change, expected) in [
            (Direction::More, up, RowVerdict::Worse),
            (Direction::More, down, RowVerdict::Better),
            (Direction::Less, up, RowVerdict::Better),
            (Direction::Less, down, RowVerdict::Worse),
            (Direction::Neutral, up, RowVerdict::Changed),
            (Direction::Unknown, down, RowVerdict::Changed),
            (Direction::More, self::change(0.9, 1.1), RowVerdict::NoneResolved),
        ] {
            assert_eq!(verdict(&row(worse, ChangeScale::Quotient, change, 0.001)), expected);
        }
    }

    #[test]
    fn second_stage_overrides_the_screen() {
        let mut one = row(Direction::More, ChangeScale::Quotient, change(1.1, 1.3), 0.2);
        assert_eq!(verdict(&one), RowVerdict::Unsettled);
        let settled = |change| Some(Settled { change, pairs: 20, smallest: Some(0.02) });
        one.again = settled(change(0.99, 1.02));
        assert_eq!(verdict(&one), RowVerdict::NotConfirmed);
        one.again = settled(change(1.01, 1.02));
        assert_eq!(verdict(&one), RowVerdict::Worse);
        one.again = None;
        one.fails = true;
        assert_eq!(verdict(&one), RowVerdict::Failed);
        one.fails = false;
        one.screen.change = None;
        assert_eq!(verdict(&one), RowVerdict::TooFew);
    }

    #[test]
    fn interval_end_nearer_to_no_change_decides_at_threshold() {
        let by = |row: &ComparedRow| worse_by(row, row.change().expect("a change"));
        let more = row(Direction::More, ChangeScale::Quotient, change(1.08, 1.3), 0.0);
        assert!((by(&more) - 0.08).abs() < 1e-12);
        let less = row(Direction::Less, ChangeScale::Quotient, change(0.5, 0.9), 0.0);
        assert!((by(&less) - 0.1).abs() < 1e-12);
        let mut share = row(Direction::More, ChangeScale::Difference, change(0.2, 0.4), 0.0);
        share.unit = "share".into();
        assert!((by(&share) - 0.2).abs() < 1e-12);
        let mut unit = row(Direction::More, ChangeScale::Difference, change(2.0, 4.0), 0.0);
        assert!((by(&unit) - 0.2).abs() < 1e-12);
        unit.base = 0.0;
        assert_eq!(by(&unit), f64::INFINITY);
    }
}
