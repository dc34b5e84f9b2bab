//! Events during a run: [`ExecutorWatch`] forwards them from the executor. An event is a thread
//! that computes without a call ([`BusyThread`]), a moment at which no thread can run, or a stack
//! overflow, which the kernel handles.

use std::sync::{Arc, OnceLock};

use crate::config::{BusyThread, SystemConfig};
use crate::executor;
use crate::kernel::KernelHandle;
use crate::label::named_by;

/// A forwarder of the executor's events to the configuration's hooks and to the kernel.
pub(super) struct ExecutorWatch {
    config: Arc<SystemConfig>,
    kernel: OnceLock<KernelHandle>,
}

impl ExecutorWatch {
    pub(super) fn new(config: Arc<SystemConfig>) -> Self {
        Self { config, kernel: OnceLock::new() }
    }

    /// Sets the kernel at the start of the run.
    pub(super) fn begin(&self, kernel: KernelHandle) {
        let _ = self.kernel.set(kernel);
    }
}

impl executor::Hooks for ExecutorWatch {
    fn on_busy(&self, name: usize) {
        let (pid, tid) = named_by(name);
        let program = self.kernel.get().map_or("", |kernel| kernel.get().program_of(pid));
        let (program, limit) = (program.to_owned(), self.config.busy_limit);
        (self.config.on_busy)(BusyThread { pid, program, tid, limit });
    }

    fn on_rest(&self) -> bool {
        self.config.conductor.as_ref().is_some_and(|conductor| conductor.at_rest())
    }

    fn on_overflow(&self, context: usize) {
        if let Some(kernel) = self.kernel.get() {
            kernel.get().overflowed(context);
        }
    }
}
