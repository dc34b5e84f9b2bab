//! The result of a stepped run: its [`RecordedPoint`]s, and the class of each.

use serde::{Deserialize, Serialize};

/// A position in an operation at which its process can be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedPoint {
    pub(crate) address: u64,
    /// Object that contains the instruction, and the offset in its file: `libc.so.6+0x8f3a1`.
    pub(crate) code: String,
    /// Number of times that the run has reached this address, counted from 1.
    pub(crate) arrival: u32,
    /// Number of times that the instruction has been repeated since: a `rep movsb` stops once per
    /// byte.
    pub(crate) repeated: u32,
    /// Number of system calls made before the point.
    pub(crate) calls: u32,
    /// Activity of the victim at this point.
    pub(crate) moment: StopKind,
    /// Class of the point: points of one class look the same from outside.
    pub(crate) class: u32,
}

impl RecordedPoint {
    /// Returns the number of stops at this instruction on the way to the point. System calls are
    /// not counted: all points of a class follow the same number of calls.
    fn stops(&self) -> u32 {
        if self.moment == StopKind::Instruction { self.arrival + self.repeated } else { 0 }
    }
}

/// Activity of the victim at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopKind {
    /// About to execute an instruction.
    #[default]
    Instruction,
    /// About to enter a system call.
    Entry,
    /// Asleep in a system call.
    Blocked,
    /// Back from a system call.
    Exit,
    /// Back from the operation, whose guarantee holds from this point.
    Returned,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Recording {
    pub(crate) points: Vec<RecordedPoint>,
    pub(crate) classes: u32,
    /// `true` if every instruction is a point; `false` if only system calls are.
    pub(crate) stepped: bool,
}

impl Recording {
    /// Returns the number of points in each class.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.classes as usize];
        for point in &self.points {
            sizes[point.class as usize] += 1;
        }
        sizes
    }

    /// Returns, for each class in order, the point that is reached with the fewest stops.
    pub(crate) fn representatives(&self) -> Vec<usize> {
        let mut best: Vec<Option<usize>> = vec![None; self.classes as usize];
        for (at, point) in self.points.iter().enumerate() {
            let best = &mut best[point.class as usize];
            if best.is_none_or(|best| point.stops() < self.points[best].stops()) {
                *best = Some(at);
            }
        }
        best.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_representative_is_nearest_point() {
        let point = |(class, arrival)| RecordedPoint {
            address: 0,
            code: String::new(),
            arrival,
            repeated: 0,
            calls: 0,
            moment: StopKind::Instruction,
            class,
        };
        let points = [(0, 2), (0, 1), (1, 1), (0, 1), (2, 9), (1, 1)].map(point).to_vec();
        let recording = Recording { points, classes: 3, stepped: true };
        assert_eq!(recording.representatives(), [1, 2, 4]);
        assert_eq!(recording.sizes(), [3, 2, 1]);
    }
}
