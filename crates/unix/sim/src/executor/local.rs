//! The private part of a processor: [`Local`].

use std::cell::{Cell, RefCell};

use super::queue::LocalQueue;
use super::stack::FiberStack;
use super::task::Task;

/// The private part of a worker, which only its own thread accesses.
pub(super) struct Local {
    /// Woken fibers, and unstarted fibers that are pinned here.
    pub(super) woken: LocalQueue<Task>,
    /// Fibers that yielded.
    pub(super) yielded: LocalQueue<Task>,
    /// Cached stacks.
    pub(super) stacks: RefCell<Vec<FiberStack>>,
    /// Number of choices that the worker has made.
    pub(super) turn: Cell<u32>,
    /// `true` if the chosen fiber had yielded and runs before fibers that were woken.
    pub(super) overtakes: Cell<bool>,
}

/// Maximum number of stacks that a worker caches; also the number that it moves at a time.
pub(super) const AT_HAND: usize = 64;
pub(super) const MOVED: usize = 32;

impl Local {
    pub(super) fn new() -> Self {
        Self {
            woken: LocalQueue::new(),
            yielded: LocalQueue::new(),
            stacks: RefCell::new(Vec::with_capacity(AT_HAND)),
            turn: Cell::new(0),
            overtakes: Cell::new(false),
        }
    }
}
