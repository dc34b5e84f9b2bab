//! Tests of the executors.

mod interrupt;
mod parallel;
mod simulated;

use std::sync::Arc;

use super::{Executor, Fiber, Start};

/// Starts a fiber on any processor.
fn start(executor: &Arc<Executor>, body: impl FnOnce() + Send + 'static) -> Fiber {
    let start = Start { processor: None, context: 0, name: 0, body: Box::new(body) };
    executor.start(start).expect("a stack is available")
}

/// Starts a fiber on a processor, with a context.
fn start_on(
    executor: &Arc<Executor>,
    processor: usize,
    context: usize,
    body: impl FnOnce() + Send + 'static,
) -> Fiber {
    let start = Start { processor: Some(processor), context, name: context, body: Box::new(body) };
    executor.start(start).expect("a stack is available")
}
