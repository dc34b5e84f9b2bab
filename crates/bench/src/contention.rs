//! Section 9 of source 001. [`ContentionTable`] contains lock acquisitions by lock and mode.
//! [`Gain`] and [`answer`] answer the open question of whether per-process locks would be
//! worthwhile.
//!
//! The reproduction of the source fills both from its own runs, the report from the cells of a run.
//! This module does not measure.

/// Minimum gain, as a share, for which per-process locks are worthwhile. The paper's authors
/// require compelling evidence; a smaller gain is below the difference between two machines.
const WORTH: f64 = 0.05;

/// Text that is shown if a mode lacks a lock, or if no thread took the lock.
const NONE: &str = "–";

/// Acquisitions of one lock in one mode.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Shares {
    /// Share of the acquisitions that had to wait.
    waited: Option<f64>,
    /// Share of the waits in which the thread was blocked; `None` if no thread waited.
    blocked: Option<f64>,
}

/// Acquisitions of locks: one row per lock and one column per mode, both in the order in which they
/// were first noted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContentionTable {
    modes: Vec<String>,
    locks: Vec<(String, Vec<Shares>)>,
}

impl ContentionTable {
    /// Adds a share by the name of its metric. Other metrics are ignored.
    pub fn note(&mut self, mode: &str, lock: &str, metric: &str, share: f64) {
        if !matches!(metric, "waited" | "blocked") {
            return;
        }
        let column = self.modes.iter().position(|name| name == mode).unwrap_or_else(|| {
            self.modes.push(mode.to_owned());
            self.modes.len() - 1
        });
        let row = self.locks.iter().position(|(name, _)| name == lock).unwrap_or_else(|| {
            self.locks.push((lock.to_owned(), Vec::new()));
            self.locks.len() - 1
        });
        let row = &mut self.locks[row].1;
        row.resize(row.len().max(column + 1), Shares::default());
        match metric {
            "waited" => row[column].waited = Some(share),
            _ => row[column].blocked = Some(share),
        }
    }

    /// Returns the modes.
    pub fn modes(&self) -> &[String] {
        &self.modes
    }

    /// Returns each lock, with its text for each mode.
    pub fn rows(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.locks.iter().map(|(lock, shares)| {
            let of = |column: usize| shares.get(column).copied().unwrap_or_default().in_words();
            (lock.as_str(), (0..self.modes.len()).map(of).collect())
        })
    }
}

impl Shares {
    /// Formats `0.63 (12)`: the percentage of the acquisitions that waited, and the percentage of
    /// these waits in which the thread was blocked.
    fn in_words(self) -> String {
        let Some(waited) = self.waited else { return NONE.to_owned() };
        let waited = 100.0 * waited;
        match self.blocked {
            _ if waited == 0.0 => "0".to_owned(),
            // A share above zero is not shown as zero.
            _ if waited < 0.005 => "< 0.01".to_owned(),
            Some(blocked) => format!("{waited:.2} ({:.0})", 100.0 * blocked),
            None => format!("{waited:.2}"),
        }
    }
}

/// The speed-up by per-process locks, compared with one lock for all relations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    pub(crate) processors: usize,
    /// Speed-up as a share, so that 0.1 is a tenth faster.
    pub share: f64,
}

impl Gain {
    /// Computes the gain of a time, for which less is better.
    pub fn of_time(processors: usize, parallel: f64, per_process: f64) -> Self {
        Self { processors, share: parallel / per_process - 1.0 }
    }

    /// Computes the gain of a rate, for which more is better.
    pub fn of_rate(processors: usize, parallel: f64, per_process: f64) -> Self {
        Self { processors, share: per_process / parallel - 1.0 }
    }

    fn is_worth_it(self) -> bool {
        self.share >= WORTH
    }

    fn percent(self) -> String {
        // A value rounded to zero has no sign.
        let tenths = (1_000.0 * self.share).round() + 0.0;
        format!("{:.1} %", tenths / 10.0)
    }
}

/// Returns in words whether per-process locks are worthwhile, and from which number of processors
/// on. `gains` is ordered by ascending processors. Returns `None` if there are no gains.
pub fn answer(gains: &[Gain]) -> Option<String> {
    let last = gains.last()?;
    let from = gains.iter().rposition(|gain| !gain.is_worth_it()).map_or(0, |at| at + 1);
    let limit = format!("{:.0} %", 100.0 * WORTH);
    Some(match gains.get(from) {
        Some(first) => {
            let begin = if from == 0 && gains.len() > 1 { " (the fewest tried)" } else { "" };
            format!(
                "yes, from {} processors on{begin}: {}, where {limit} would be enough",
                first.processors,
                range(&gains[from..])?
            )
        }
        None if gains.iter().any(|gain| gain.is_worth_it()) => format!(
            "not sustained: {}, but {} on {}; {limit} would be enough",
            range(gains)?,
            last.percent(),
            last.processors
        ),
        None => format!(
            "no, not on up to {} processors: {}, where {limit} would be enough",
            last.processors,
            range(gains)?
        ),
    })
}

/// Returns the smallest and the largest gain in words.
fn range(gains: &[Gain]) -> Option<String> {
    let order = |a: &&Gain, b: &&Gain| a.share.total_cmp(&b.share);
    let (least, best) = (gains.iter().min_by(order)?, gains.iter().max_by(order)?);
    let said = |gain: &Gain| format!("{} (on {})", gain.percent(), gain.processors);
    let upwards = if gains.len() > 1 { format!(" to {}", said(best)) } else { String::new() };
    Some(format!("a gain of {}{upwards}", said(least)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_uncontended_locks_are_marked() {
        let mut table = ContentionTable::default();
        table.note("master", "p_lock", "waited", 0.0);
        table.note("parallel", "proc_relation_lock", "waited", 0.0123);
        table.note("parallel", "proc_relation_lock", "blocked", 0.1);
        table.note("parallel", "p_lock", "waited", 0.000_01);
        table.note("parallel", "", "iteration", 2.0);
        assert_eq!(table.modes(), ["master", "parallel"]);
        let rows: Vec<_> = table.rows().collect();
        let words = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        assert_eq!(rows[0], ("p_lock", words(["0", "< 0.01"])));
        assert_eq!(rows[1], ("proc_relation_lock", words(["–", "1.23 (10)"])));
        assert_eq!(rows.len(), 2);
    }

    fn said(gains: &[(usize, f64)]) -> Option<String> {
        let gains: Vec<Gain> =
            gains.iter().map(|&(processors, share)| Gain { processors, share }).collect();
        answer(&gains)
    }

    #[test]
    fn answer_names_first_count_with_lasting_gain() {
        let begins = |gains: &[(usize, f64)], start: &str| {
            let said = said(gains).expect("there are figures");
            assert!(said.starts_with(start), "{said}");
        };
        begins(
            &[(2, 0.06), (4, 0.0), (8, 0.07), (64, 0.2)],
            "yes, from 8 processors on: a gain of 7.0 % (on 8)",
        );
        begins(&[(2, 0.06), (4, 0.1)], "yes, from 2 processors on (the fewest tried): ");
        begins(&[(2, 0.0), (64, 0.049)], "no, not on up to 64 processors: a gain of 0.0 % (on 2)");
        begins(
            &[(2, 0.3), (64, 0.01)],
            "not sustained: a gain of 1.0 % (on 64) to 30.0 % (on 2), but",
        );
        begins(
            &[(2, -0.000_01)],
            "no, not on up to 2 processors: a gain of 0.0 % (on 2), where 5 %",
        );
        assert_eq!(said(&[]), None);
    }

    #[test]
    fn shorter_time_and_higher_rate_count_as_gains() {
        assert!(Gain::of_time(2, 1.2, 1.0).share > 0.19);
        assert!(Gain::of_rate(2, 1.2, 1.0).share < -0.16);
    }
}
