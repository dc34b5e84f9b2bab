//! Ways to create a thread or a process that does nothing, and to wait for its end: [`Creator`].
//!
//! [`process`] contains the C library's ways to create a process and the wait for its end,
//! [`thread`] its way to create a thread, and [`bare`] the system calls without the library.
//! [`nothing`] is the smallest program, for creation by exec. [`calls`] lists the system calls of
//! each way, for the experiments that time them.
//!
//! The module neither times calls nor changes the size of the parent.

mod bare;
pub mod calls;
mod nothing;
mod process;
mod thread;

use std::sync::atomic::AtomicU32;

use tontine_host::error::{ErrorContext, Result};

use nothing::EmptyProgram;
use process::ChildStack;

/// A way to create a task that does nothing, and to wait for its end.
#[derive(Debug)]
pub enum Creator {
    /// `pthread_create` with default attributes, and `pthread_join`.
    Thread,
    /// `fork` of the C library.
    Fork,
    /// The C library's `clone` with the flags that make up `vfork`, on the child's own stack.
    CloneAsVfork(ChildStack),
    /// The system call `vfork`; the child runs on the caller's stack.
    Vfork,
    /// `posix_spawn` of the smallest program.
    PosixSpawn(EmptyProgram),
    /// A copy of this process, by `clone3` without flags. It exits by `_exit`, as a fork's child
    /// does, and therefore writes to its stack, which copies pages.
    Clone3,
    /// A process, by bare `clone3` with these flags. It accesses no memory.
    Process(u64),
    /// A thread, by bare `clone3`. The kernel clears the word when the thread ends.
    BareThread(Box<AtomicU32>),
}

impl Creator {
    /// Returns [`Self::CloneAsVfork`].
    pub fn clone_as_vfork() -> Self {
        Self::CloneAsVfork(ChildStack::new())
    }

    /// Returns [`Self::PosixSpawn`].
    ///
    /// # Errors
    /// Returns `Skipped` if the program's instructions do not exist for this processor, or if the
    /// system forbids executable memory.
    pub fn posix_spawn() -> Result<Self> {
        EmptyProgram::new().map(Self::PosixSpawn)
    }

    /// Returns a copy of this process, by bare `clone3` without a flag.
    pub const fn bare_clone3() -> Self {
        Self::Process(0)
    }

    /// Returns a process that shares the caller's memory, by bare `clone3`; the caller sleeps until
    /// the process ends.
    pub const fn bare_clone3_as_vfork() -> Self {
        Self::Process(bare::VM | bare::VFORK)
    }

    /// Returns [`Self::BareThread`]. Blocks all signals of this thread permanently: the new threads
    /// share its thread-local storage, so no handler may run in them.
    ///
    /// # Errors
    /// Returns `Failed` if the signals cannot be blocked.
    pub fn bare_thread() -> Result<Self> {
        thread::block_all_signals()?;
        Ok(Self::BareThread(Box::new(AtomicU32::new(0))))
    }

    /// Creates a task that exits immediately, and waits for its end: the timed operation.
    ///
    /// # Errors
    /// Returns `Skipped` if the system refuses another thread or process, `Failed` if the task does
    /// not end as expected.
    #[inline]
    pub fn create_and_wait(&self) -> Result<()> {
        let pid = match self {
            Self::Thread => return thread::create_and_join(),
            Self::BareThread(word) => return bare::thread(word),
            Self::Fork => process::fork().setting_up("fork"),
            Self::CloneAsVfork(stack) => process::clone_as_vfork(stack).setting_up("clone"),
            Self::Vfork => bare::vfork().setting_up("vfork"),
            Self::PosixSpawn(nothing) => process::posix_spawn(nothing).setting_up("posix_spawn"),
            Self::Clone3 => process::clone3().setting_up("clone3"),
            Self::Process(flags) => bare::process(*flags).setting_up("clone3"),
        }?;
        process::reap(pid)
    }
}
