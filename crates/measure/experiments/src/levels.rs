//! The points of a scaling curve: [`levels`] depends on the size of a run, [`level_of`] reads a
//! task's point.
//!
//! This module handles numbers only; the experiment defines what they count (pairs, processes).

use crate::prelude::*;

/// Returns the levels of a curve for a number of processors, in ascending order. The paper drew the
/// curve from 1 to `end`.
///
/// The levels of a quick run are 1, the number of processors, and twice that number; those of a
/// default run are the powers of two and `end`; a full run has every level. No level exceeds `end`.
pub(crate) fn levels(size: Size, processors: usize, end: usize) -> Vec<usize> {
    let mut levels: Vec<usize> = match size {
        Size::Quick => vec![1, processors, 2 * processors],
        Size::Default => {
            let doubled = std::iter::successors(Some(1), |level| Some(2 * level));
            doubled.take_while(|&level| level < end).chain([end]).collect()
        }
        Size::Full => (1..=end).collect(),
    };
    for level in &mut levels {
        *level = (*level).clamp(1, end);
    }
    levels.dedup();
    levels
}

/// Returns the levels of a modelled curve up to `end`, in ascending order. They include one, the
/// number of pairs that occupy all processors, and `end`.
pub(crate) fn modelled(size: Size, processors: usize, end: usize) -> Vec<usize> {
    let half = processors / 2;
    let mut levels: Vec<usize> = match size {
        Size::Full => {
            let doubled = std::iter::successors(Some(1), |level| Some(2 * level));
            doubled.take_while(|&level| level < end).chain([half, end]).collect()
        }
        Size::Quick | Size::Default => vec![1, half, end],
    };
    levels.retain(|level| (1..=end).contains(level));
    levels.sort_unstable();
    levels.dedup();
    levels
}

pub(crate) fn level_of(task: &InvocationTask, name: &str, end: usize) -> Result<usize> {
    number_in(&task.params, name, 1..=end)
}

pub(crate) fn crowd(processes: usize, processors: usize) -> Option<String> {
    (processes > processors).then(|| {
        let word = if processors == 1 { "processor" } else { "processors" };
        format!(
            "{processes} processes on {processors} {word}: they take turns, which is another \
                 regime"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_levels_up_to_the_end() {
        assert_eq!(levels(Size::Quick, 2, 10), [1, 2, 4]);
        assert_eq!(levels(Size::Quick, 1, 10), [1, 2]);
        assert_eq!(levels(Size::Quick, 64, 10), [1, 10]);
        assert_eq!(levels(Size::Default, 2, 10), [1, 2, 4, 8, 10]);
        assert_eq!(levels(Size::Default, 64, 7), [1, 2, 4, 7]);
        assert_eq!(levels(Size::Full, 2, 7), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(modelled(Size::Quick, 10, 8), [1, 5, 8]);
        assert_eq!(modelled(Size::Full, 1, 8), [1, 2, 4, 8]);
        assert_eq!(modelled(Size::Default, 1, 1), [1]);
    }

    #[test]
    fn level_outside_the_curve_fails_and_is_named() {
        for level in ["0", "9", "many", ""] {
            let params = params([("builds", level)]);
            let task = InvocationTask::new("builds", "linux", params, Size::Quick);
            let found = level_of(&task, "builds", 8).expect_err("no such level");
            assert!(found.why().contains(&format!("`{level}`")), "{found}");
        }
    }

    #[test]
    fn crowd_note_states_processes_and_processors() {
        assert_eq!(crowd(2, 2), None);
        let said = crowd(8, 2).expect("more than there are");
        assert!(said.starts_with("8 processes on 2 processors"), "{said}");
    }
}
