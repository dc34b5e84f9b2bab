//! Tests of the executors.

mod interrupt;
mod parallel;
mod simulated;

use std::sync::Arc;

use super::{Fiber, FiberExecutor, Start};

/// Starts a fiber on any processor.
fn start(executor: &Arc<FiberExecutor>, body: impl FnOnce() + Send + 'static) -> Fiber {
    let start = Start { processor: None, context: 0, name: 0, body: Box::new(body) };
    executor.start(start).expect("a stack is available")
}

/// Starts a fiber on a processor, with a context.
fn start_on(
    executor: &Arc<FiberExecutor>,
    processor: usize,
    context: usize,
    body: impl FnOnce() + Send + 'static,
) -> Fiber {
    let start = Start { processor: Some(processor), context, name: context, body: Box::new(body) };
    executor.start(start).expect("a stack is available")
}
