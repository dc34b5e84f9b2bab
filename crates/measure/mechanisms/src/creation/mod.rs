//! Ways to create a thread or a process that does nothing, and to wait for its end: [`Creator`].
//!
//! [`process`] contains the C library's ways to create a process and the wait for its end,
//! [`thread`] its way to create a thread, and [`bare`] the system calls without the library.
//! [`nothing`] is the smallest program, for creation by exec.
//!
//! The module neither times calls nor changes the size of the parent.

mod bare;
mod nothing;
mod process;
mod thread;

use std::sync::atomic::AtomicU32;

use tontine_bench::error::{ErrorContext, Result};

use nothing::EmptyProgram;
use process::ChildStack;

/// A way to create a task that does nothing, and to wait for its end.
#[derive(Debug)]
pub enum Creator {
    Thread,
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
    pub fn clone_as_vfork() -> Self {
        Self::CloneAsVfork(ChildStack::new())
    }

    pub fn posix_spawn() -> Result<Self> {
        EmptyProgram::new().map(Self::PosixSpawn)
    }

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
    pub fn bare_thread() -> Result<Self> {
        thread::block_all_signals()?;
        Ok(Self::BareThread(Box::new(AtomicU32::new(0))))
    }

    /// Creates a task that exits immediately, and waits for its end: the timed operation.
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
