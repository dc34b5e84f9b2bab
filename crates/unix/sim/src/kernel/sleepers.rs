//! Fibers that wait for a pipe or a terminal to change: [`Sleepers`].

use crate::executor::Fiber;

/// Fibers to be woken by the next change. A fiber that was added several times is woken once.
#[derive(Default)]
pub(super) struct Sleepers(Vec<Fiber>);

impl Sleepers {
    /// Adds a fiber to be woken.
    pub(super) fn add(&mut self, sleeper: Fiber) {
        // All threads outside of the system have the number 0.
        let is_known = |known: &Fiber| sleeper.id() != 0 && known.id() == sleeper.id();
        if !self.0.iter().any(is_known) {
            self.0.push(sleeper);
        }
    }

    /// Wakes all fibers. A fiber that continues to wait adds itself again.
    pub(super) fn wake(&mut self) {
        for fiber in self.0.drain(..) {
            fiber.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{ExecutorOptions, FiberExecutor, RunEnd, Start, current, park};

    #[test]
    fn fiber_added_repeatedly_is_kept_once_and_woken() {
        let executor = FiberExecutor::simulated(1, ExecutorOptions::default());
        let body = || {
            let mut sleepers = Sleepers::default();
            for _ in 0..3 {
                sleepers.add(current());
            }
            assert_eq!(sleepers.0.len(), 1);
            sleepers.wake();
            assert!(sleepers.0.is_empty());
            park();
        };
        let start = Start { processor: None, context: 0, name: 0, body: Box::new(body) };
        executor.start(start).expect("a stack is available");
        assert_eq!(executor.run(), RunEnd::Finished);
    }
}
