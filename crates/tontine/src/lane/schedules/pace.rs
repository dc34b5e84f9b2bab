//! The points in a protocol at which a thread may be switched out or die: [`PacedThread`].
//!
//! [`PacedThread::step`] is called before each access to shared state. [`ChunkView`] is a region
//! that calls it, and [`lives`] runs code that may die.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use shuttle::rand::{Rng, thread_rng};

use crate::lane::region::LaneMemory;
use crate::lane::region::models::ModelRegion;
use crate::sync::{AtomicU64, Ordering};

/// The step counter of one thread.
#[derive(Clone)]
pub(super) struct PacedThread {
    switch: Arc<shuttle::sync::atomic::AtomicU32>,
    /// Number of steps left before the thread dies.
    left: Arc<AtomicU32>,
}

/// The panic payload of a thread that dies.
struct Died;

impl PacedThread {
    fn new(steps: u32) -> Self {
        let switch = Arc::new(shuttle::sync::atomic::AtomicU32::new(0));
        Self { switch, left: Arc::new(AtomicU32::new(steps)) }
    }

    pub(super) fn immortal() -> Self {
        Self::new(u32::MAX)
    }

    /// Returns a counter with a random number of steps, which may exceed the number that the thread
    /// takes.
    pub(super) fn mortal() -> Self {
        Self::new(thread_rng().gen_range(0..400))
    }

    /// Lets shuttle switch threads, or makes this thread die. Called before each access to shared
    /// state.
    pub(super) fn step(&self) {
        self.switch.load(Ordering::SeqCst);
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            // Bypasses the panic hook, since this death is not a failure.
            resume_unwind(Box::new(Died));
        }
        self.left.store(left - 1, Ordering::Relaxed);
    }
}

/// Runs code that may die. Returns its result, or `None` if it died.
pub(super) fn lives<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Died>() => None,
        Err(failure) => resume_unwind(failure),
    }
}

/// One end's view of a chunk.
#[derive(Clone)]
pub(super) struct ChunkView {
    pub(super) heap: ModelRegion,
    pub(super) pace: PacedThread,
}

impl LaneMemory for ChunkView {
    fn word(&self, at: usize) -> &AtomicU64 {
        self.pace.step();
        self.heap.word(at)
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (index, piece) in bytes.chunks(8).enumerate() {
            self.pace.step();
            self.heap.copy_in(at + 8 * index, piece);
        }
    }

    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>) {
        for start in (0..length).step_by(8) {
            self.pace.step();
            self.heap.copy_out(at + start, (length - start).min(8), into);
        }
    }
}
