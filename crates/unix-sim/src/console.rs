//! The controlling end of a virtual terminal, for who sits outside of the system: [`Console`].
//!
//! It is two queues of bytes and nothing else: what is typed waits here until a fiber of the
//! system's own takes it to the terminal, and what the terminal shows waits here until somebody
//! looks. The thread outside never does the system's work itself.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::executor::Fiber;

/// Bytes that wait to be looked at; beyond that, who writes to the terminal waits.
const MOST: usize = 1 << 16;

/// The controlling end of the terminal of a [`Virtual`](crate::Virtual), for a user or a test.
///
/// Given to [`Builder::console`](crate::Builder::console), it makes the first program leader of a
/// session whose controlling terminal is on its descriptors 0, 1 and 2. While a system runs with a
/// console, that everybody sleeps is no stall: somebody may type. When that is, and when somebody
/// looks, has a say in a simulated run too: the seed alone does not decide it any more.
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
pub struct Console(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Nobody types.
    unattended: bool,
    queues: Mutex<Queues>,
    /// Told when there is something to be seen.
    shown: Condvar,
}

#[derive(Default)]
struct Queues {
    typed: VecDeque<u8>,
    seen: Vec<u8>,
    /// The system's fiber, while one runs.
    fiber: Option<Fiber>,
    /// A system has ended, and none has begun since.
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
    /// Creates a console that no system has yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a console without a user: if all threads are blocked, the run ends as deadlocked
    /// once all output has been taken.
    pub fn unattended() -> Self {
        Self(Arc::new(Shared { unattended: true, ..Shared::default() }))
    }

    /// Types bytes, without blocking: bytes that the terminal has no space for are typed when it
    /// has. Bytes that are typed while no system runs are typed when one begins.
    pub fn input(&self, bytes: &[u8]) {
        let mut queues = self.queues();
        queues.typed.extend(bytes);
        queues.wake();
    }

    /// Returns the output since the last call. If there is none, blocks for at most `wait`.
    pub fn output(&self, wait: Duration) -> Vec<u8> {
        let queues = self.queues();
        let waited = self.0.shown.wait_timeout_while(queues, wait, |queues| queues.seen.is_empty());
        let (mut queues, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !queues.seen.is_empty() {
            queues.wake();
        }
        std::mem::take(&mut queues.seen)
    }

    /// From now on this fiber is woken when there is something to do.
    pub(crate) fn attach(&self, fiber: Fiber) {
        let mut queues = self.queues();
        (queues.fiber, queues.over) = (Some(fiber), false);
    }

    /// The system has ended.
    pub(crate) fn detach(&self) {
        let mut queues = self.queues();
        (queues.fiber, queues.over) = (None, true);
    }

    /// Wakes the fiber.
    pub(crate) fn wake(&self) {
        self.queues().wake();
    }

    /// What was typed, at most `most` bytes of it; it stays until [`Console::take_typed`].
    pub(crate) fn typed(&self, most: usize) -> Vec<u8> {
        self.queues().typed.iter().copied().take(most).collect()
    }

    /// The terminal has taken so many bytes.
    pub(crate) fn take_typed(&self, taken: usize) {
        self.queues().typed.drain(..taken);
    }

    /// Whether somebody outside may still have a say.
    pub(crate) fn is_attended(&self) -> bool {
        !self.0.unattended || !self.queues().seen.is_empty()
    }

    /// Whether more may be shown.
    pub(crate) fn has_room(&self) -> bool {
        self.queues().seen.len() < MOST
    }

    /// Shows.
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
    /// Types bytes; blocks until there is space.
    fn input(&self, bytes: &[u8]);
    /// Returns the output; empty if none comes within `wait`.
    fn output(&self, wait: Duration) -> Vec<u8>;
    /// Returns `true` if no process is left that could write.
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

/// Detaches the console however a run ends.
pub(crate) struct Attached(pub(crate) Console);

impl Drop for Attached {
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
