//! Section 9 of source 001: [`ContentionTable`] contains lock acquisitions by lock and mode. The
//! report fills it from the cells of a run; this module does not measure.

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
pub(crate) struct ContentionTable {
    modes: Vec<String>,
    locks: Vec<(String, Vec<Shares>)>,
}

impl ContentionTable {
    /// Adds a share by the name of its metric. Other metrics are ignored.
    pub(crate) fn note(&mut self, mode: &str, lock: &str, metric: &str, share: f64) {
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

    pub(crate) fn modes(&self) -> &[String] {
        &self.modes
    }

    /// Returns each lock, with its text for each mode.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
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
}
