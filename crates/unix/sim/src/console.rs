//! The controlling end of a virtual terminal, for a user outside the system: [`Console`].
//!
//! A console consists of two queues of bytes. Input waits here until a fiber of the system moves it
//! to the terminal; output waits here until a caller takes it. The calling thread never does the
//! system's work itself.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::executor::Fiber;

/// Maximum number of output bytes in a console. At the limit, a process that writes to the terminal
/// blocks.
const MOST: usize = 1 << 16;

/// The controlling end of the terminal of a [`Virtual`](crate::Virtual), for a user or a test.
///
/// [`Builder::console`](crate::Builder::console) makes the first program the leader of a session
/// whose controlling terminal is on its descriptors 0, 1 and 2. A system with a console does not
/// count as deadlocked while all threads sleep, because input may arrive. Even a simulated run
/// depends on the times of input and of calls to [`Console::output`], so the seed alone no longer
/// determines it.
///
/// ```
/// use std::time::Duration;
/// use tontine_unix::Fd;
/// use tontine_unix_sim::{Console, Virtual};
///
/// let console = Console::new();
/// let unix = Virtual::builder().console(&console).build()?;
/// console.input(b"tontine\r");
/// let report = unix.run(|sys| {
///     let mut line = [0; 64];
///     let read = sys.read(Fd::STDIN, &mut line).unwrap_or(0);
///     i32::from(&line[..read] == b"tontine\n")
/// });
/// assert_eq!(report.status.and_then(|status| status.exited()), Some(1));
/// assert_eq!(console.output(Duration::ZERO), b"tontine\r\n", "the echo");
/// # Ok::<(), tontine_unix_sim::BuildError>(())
/// ```
#[derive(Clone, Default)]
pub struct Console(Arc<ConsoleShared>);

#[derive(Default)]
struct ConsoleShared {
    /// `true` if no input will arrive.
    unattended: bool,
    queues: Mutex<Queues>,
    /// Notified when output is available.
    shown: Condvar,
}

#[derive(Default)]
struct Queues {
    typed: VecDeque<u8>,
    seen: Vec<u8>,
    /// The fiber of the running system, if a system runs.
    fiber: Option<Fiber>,
    /// `true` if a system has ended and none has started since.
    over: bool,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.queues();
        f.debug_struct("Console")
            .field("typed", &queues.typed.len())
            .field("seen", &queues.seen.len())
            .field("attached", &queues.fiber.is_some())
            .finish()
    }
}

impl Console {
    /// Creates a console that belongs to no system yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a console without a user: if all threads are blocked, the run ends as deadlocked
    /// once all output has been taken.
    pub fn unattended() -> Self {
        Self(Arc::new(ConsoleShared { unattended: true, ..ConsoleShared::default() }))
    }

    /// Types bytes without blocking. If the terminal is full, the bytes are delivered when it has
    /// space. If no system is running, they are delivered to the next system.
    pub fn input(&self, bytes: &[u8]) {
        let mut queues = self.queues();
        queues.typed.extend(bytes);
        queues.wake();
    }

    /// Returns the output since the last call. If there is no output, blocks for at most `wait`,
    /// and may then return an empty vector.
    pub fn output(&self, wait: Duration) -> Vec<u8> {
        let queues = self.queues();
        let waited = self.0.shown.wait_timeout_while(queues, wait, |queues| queues.seen.is_empty());
        let (mut queues, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !queues.seen.is_empty() {
            queues.wake();
        }
        std::mem::take(&mut queues.seen)
    }

    /// Registers the fiber to wake when there is input to move or space for output.
    pub(crate) fn attach(&self, fiber: Fiber) {
        let mut queues = self.queues();
        (queues.fiber, queues.over) = (Some(fiber), false);
    }

    /// Unregisters the fiber, because the system has ended.
    pub(crate) fn detach(&self) {
        let mut queues = self.queues();
        (queues.fiber, queues.over) = (None, true);
    }

    /// Wakes the fiber.
    pub(crate) fn wake(&self) {
        self.queues().wake();
    }

    /// Returns at most `most` bytes of the input, which remain queued until
    /// [`Console::take_typed`].
    pub(crate) fn typed(&self, most: usize) -> Vec<u8> {
        self.queues().typed.iter().copied().take(most).collect()
    }

    /// Removes `taken` bytes of the input, which the terminal has accepted.
    pub(crate) fn take_typed(&self, taken: usize) {
        self.queues().typed.drain(..taken);
    }

    /// Returns `true` if an outside user may still influence the run.
    pub(crate) fn is_attended(&self) -> bool {
        !self.0.unattended || !self.queues().seen.is_empty()
    }

    /// Returns `true` if there is space for more output.
    pub(crate) fn has_space(&self) -> bool {
        self.queues().seen.len() < MOST
    }

    /// Appends output and notifies its reader.
    pub(crate) fn show(&self, bytes: &[u8]) {
        self.queues().seen.extend_from_slice(bytes);
        self.0.shown.notify_all();
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The controlling end of a terminal.
pub trait TerminalController: Sync {
    /// Types bytes. Blocks until the terminal has space for them.
    fn input(&self, bytes: &[u8]);
    /// Returns the output; empty if none arrives within `wait`.
    fn output(&self, wait: Duration) -> Vec<u8>;
    /// Returns `true` if no process is left that could write to the terminal.
    fn is_over(&self) -> bool;
}

impl TerminalController for Console {
    fn input(&self, bytes: &[u8]) {
        self.input(bytes);
    }

    fn output(&self, wait: Duration) -> Vec<u8> {
        self.output(wait)
    }

    fn is_over(&self) -> bool {
        self.queues().over
    }
}

/// A guard that detaches the console when dropped, after a normal end of the run and after a panic.
pub(crate) struct DetachGuard(pub(crate) Console);

impl Drop for DetachGuard {
    fn drop(&mut self) {
        self.0.detach();
    }
}

impl Queues {
    fn wake(&self) {
        if let Some(fiber) = &self.fiber {
            fiber.unpark();
        }
    }
}
