//! Which processors this process may use and what they share: [`Topology`].

use crate::os::pin;

/// A way of laying two ends onto processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// `same-core`, `siblings`, `cross-core`, `cross-cache`, `cross-socket`.
    pub name: &'static str,
    /// Processor of the measuring end.
    pub here: usize,
    /// Processor of the other end.
    pub there: usize,
}

/// The placements that the machine has, the usual one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    placements: Vec<Placement>,
}

impl Topology {
    /// Looks at the machine, within the affinity of the calling thread.
    pub fn of_this_machine() -> Self {
        let allowed = pin::allowed().unwrap_or_else(|_| vec![0]);
        let mut placements = Vec::new();
        if let [here, there, ..] = allowed[..] {
            placements.push(Placement {
                name: "cross-core",
                here,
                there,
            });
        }
        let only = allowed[0];
        placements.push(Placement {
            name: "same-core",
            here: only,
            there: only,
        });
        Self { placements }
    }

    /// All placements of two ends, the nearest pair of different cores first where there is one.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// The placement of that name.
    pub fn placement(&self, name: &str) -> Option<Placement> {
        self.placements
            .iter()
            .copied()
            .find(|placement| placement.name == name)
    }
}
