//! The points of a scaling curve: [`levels`], by the size of a run; [`asked`], the one of a task.
//!
//! It knows numbers only; what they count (pairs, processes) is the experiment's.

use tontine_bench::size::Size;
use tontine_bench::task::Task;
use tontine_host::trouble::{Result, Trouble};

/// The levels of a curve that a paper drew from 1 to `end`, on so many processors, ascending.
///
/// `quick`: 1, as many as there are processors, and twice as many; `default`: powers of two, and
/// the end; `full`: every one. None lies beyond the end.
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

/// The levels of a modelled curve up to `end`, ascending: one, as many as take all of so many
/// processors in pairs, and the end, at least.
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

/// The level that `task` asks for by its parameter `name`.
///
/// # Errors
/// Failed, where that is no number from 1 to `end`.
pub(crate) fn asked(task: &Task, name: &str, end: usize) -> Result<usize> {
    let found = task.params.get(name).map_or("", String::as_str);
    let level = found.parse().ok().filter(|level| (1..=end).contains(level));
    level.ok_or_else(|| {
        Trouble::fail(format!("expected {name} to be from 1 to {end}, found `{found}`"))
    })
}

/// What has to be said beside a figure of more processes than processors.
pub(crate) fn crowd(processes: usize, processors: usize) -> Option<String> {
    (processes > processors).then(|| {
        let word = if processors == 1 { "processor" } else { "processors" };
        format!("{processes} processes on {processors} {word}: they take turns, another regime")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_levels_and_none_beyond_the_end() {
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
    fn a_crowd_is_named_with_both_numbers() {
        assert_eq!(crowd(2, 2), None);
        let said = crowd(8, 2).expect("more than there are");
        assert!(said.starts_with("8 processes on 2 processors"), "{said}");
    }
}
