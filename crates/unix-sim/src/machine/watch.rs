//! Reports during a run: the watchdog's on a thread that computes ([`BusyThread`]), and that of a
//! stack's end, which the kernel handles.

use std::sync::{Arc, OnceLock};

use crate::config::{BusyThread, Config};
use crate::executor;
use crate::kernel::KernelHandle;
use crate::label::named_by;

/// What the executor tells, passed on.
pub(super) struct Watch {
    config: Arc<Config>,
    kernel: OnceLock<KernelHandle>,
}

impl Watch {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self { config, kernel: OnceLock::new() }
    }

    /// From now on there is something to watch.
    pub(super) fn begin(&self, kernel: KernelHandle) {
        let _ = self.kernel.set(kernel);
    }
}

impl executor::Hooks for Watch {
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
