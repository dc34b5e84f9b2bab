//! What a stepped run leaves: its [`Point`]s, and the class of each.

use serde::{Deserialize, Serialize};

/// One place in an operation at which its process can be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    /// Address of the instruction that would come next.
    pub(crate) address: u64,
    /// The object that it belongs to, and the offset in its file: `libc.so.6+0x8f3a1`.
    pub(crate) code: String,
    /// How often the run has come to this address, from 1.
    pub(crate) arrival: u32,
    /// How often the instruction has repeated itself since: a `rep movsb` stops once a byte.
    pub(crate) repeated: u32,
    /// System calls that were made before.
    pub(crate) calls: u32,
    /// What the victim is doing there.
    pub(crate) moment: Moment,
    /// Points of one class look the same from outside.
    pub(crate) class: u32,
}

impl Point {
    /// How often its instruction stops a victim that is led here, calls left out: all points of a
    /// class have the same.
    fn stops(&self) -> u32 {
        if self.moment == Moment::Instruction { self.arrival + self.repeated } else { 0 }
    }
}

/// What the victim is doing at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// About to execute an instruction.
    #[default]
    Instruction,
    /// About to enter a system call.
    Entry,
    /// Asleep in a system call.
    Blocked,
    /// Back from a system call.
    Exit,
    /// Back from the operation: what it promises is promised.
    Returned,
}

/// A run, recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recording {
    /// Every point, in order.
    pub(crate) points: Vec<Point>,
    /// How many classes they fall into.
    pub(crate) classes: u32,
    /// Whether every instruction is a point; otherwise only system calls are.
    pub(crate) stepped: bool,
}

impl Recording {
    /// How many points each class has.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.classes as usize];
        for point in &self.points {
            sizes[point.class as usize] += 1;
        }
        sizes
    }

    /// The point of each class that takes the fewest stops to get to, in the order of the classes.
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
    fn each_class_is_represented_once_by_the_point_that_is_nearest() {
        let point = |(class, arrival)| Point {
            address: 0,
            code: String::new(),
            arrival,
            repeated: 0,
            calls: 0,
            moment: Moment::Instruction,
            class,
        };
        let points = [(0, 2), (0, 1), (1, 1), (0, 1), (2, 9), (1, 1)].map(point).to_vec();
        let recording = Recording { points, classes: 3, stepped: true };
        assert_eq!(recording.representatives(), [1, 2, 4]);
        assert_eq!(recording.sizes(), [3, 2, 1]);
    }
}
