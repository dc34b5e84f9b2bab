//! The thread that takes signals for the other threads: [`SignalWorker`], and [`SignalThread`], its
//! public handle.
//!
//! The thread waits in `sigtimedwait` and passes each signal to a [`Sink`]. Between the return of
//! that call and the sink, it neither allocates nor locks. It ends on request: the caller stores
//! `stop`, and a timer for the thread ([`WakeTimer`]) wakes it. If the system refuses the timer
//! because the user's queue of signals is full or has limit 0, the thread reads `stop` every
//! [`POLL_INTERVAL`].

use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::SignalError;
use super::kernel::{RawSet, WakeTimer};
use super::{SignalInfo, SignalSet};
use crate::sys::fork::Guard;

/// Interval at which a thread without a waker reads `stop`, and at which a thread with a waker is
/// woken until it ends.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The destination of a worker's signals.
pub(super) trait Sink: Send + 'static {
    /// Delivers one signal.
    fn put(&mut self, info: SignalInfo);

    /// Returns `true` if the sink accepts a real-time signal now.
    #[inline]
    fn has_space(&self) -> bool {
        true
    }

    /// Blocks until the sink may have space, for at most [`POLL_INTERVAL`].
    fn wait_for_space(&self) {}

    /// Receives the flag that requests the thread's end. Called once, in the thread.
    fn begin(&mut self, _stop: &Arc<AtomicBool>) {}
}

/// A sink that calls a function for each signal.
pub(super) struct CallSink<F>(pub(super) F);

impl<F: FnMut(SignalInfo) + Send + 'static> Sink for CallSink<F> {
    #[inline]
    fn put(&mut self, info: SignalInfo) {
        (self.0)(info);
    }
}

/// A thread that takes signals. Dropping it stops the thread, and waits for the last delivery.
pub(super) struct SignalWorker {
    /// `None` once the thread has been stopped.
    running: Option<StartedThread>,
    guard: Guard,
}

struct StartedThread {
    stop: Arc<AtomicBool>,
    waker: Option<Arc<WakeTimer>>,
    /// A channel that carries no value and disconnects when the thread ends. The mutex is never
    /// locked; it makes the receiver `Sync`.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: JoinHandle<()>,
}

impl SignalWorker {
    /// Starts the thread, which inherits the mask of the calling thread, in which `set` is blocked.
    pub(super) fn start(set: SignalSet, mut sink: impl Sink) -> Result<Self, SignalError> {
        let guard = Guard::here().map_err(|error| SignalError::system("mmap", error.errno()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ending, ended) = mpsc::channel::<()>();
        let (say_ready, ready) = mpsc::sync_channel(1);
        let its_stop = Arc::clone(&stop);
        let body = move || {
            let _ending = ending;
            // The timer sends a standard signal if the set has one, because a full channel still
            // takes standard signals.
            let wakes = set.standard().iter().chain(set.iter()).next();
            let value = Arc::as_ptr(&its_stop).cast();
            let waker = wakes.and_then(|signal| WakeTimer::new(signal, value)).map(Arc::new);
            let _ = say_ready.send(waker.clone());
            drop(say_ready);
            sink.begin(&its_stop);
            take_until(&its_stop, set, waker.as_deref(), &mut sink);
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(body);
        let thread = thread.map_err(|error| SignalError::io("pthread_create", &error))?;
        // The thread cannot panic before it sends.
        let waker = ready.recv().unwrap_or_default();
        let ended = Mutex::new(ended);
        Ok(Self { running: Some(StartedThread { stop, waker, ended, thread }), guard })
    }

    /// Makes the thread check again which signals its sink accepts.
    pub(super) fn wake(&self) {
        if !self.is_forked()
            && let Some(waker) = self.running.as_ref().and_then(|running| running.waker.as_ref())
        {
            waker.wake();
        }
    }

    /// Returns `true` if this process was forked from the process that runs the thread.
    pub(super) fn is_forked(&self) -> bool {
        self.guard.is_forked()
    }

    fn is_finished(&self) -> bool {
        self.is_forked() || self.running.as_ref().is_none_or(|one| one.thread.is_finished())
    }

    /// Stops the thread. If the thread panicked, resumes its panic.
    fn stop(mut self) {
        if let Some(Err(panic)) = self.join() {
            resume_unwind(panic);
        }
    }

    fn join(&mut self) -> Option<std::thread::Result<()>> {
        let running = self.running.take()?;
        if self.is_forked() {
            // A fork copies neither the thread nor the timer; in this process, their numbers may
            // name other objects.
            std::mem::forget(running);
            return None;
        }
        let StartedThread { stop, waker, ended, thread } = running;
        // Relaxed is enough: a thread that the timer wakes has gone through the kernel's lock after
        // this store, and a thread that polls reads it in time.
        stop.store(true, Ordering::Relaxed);
        // A delivery that drops its own thread cannot wait for itself.
        if thread.thread().id() == std::thread::current().id() {
            return None;
        }
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(waker) = &waker {
                waker.wake();
            }
            // The wake-up is repeated because the program may have discarded the signal by ignoring
            // it.
            if ended.recv_timeout(POLL_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return Some(thread.join());
            }
        }
    }
}

impl Drop for SignalWorker {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn take_until(stop: &AtomicBool, set: SignalSet, waker: Option<&WakeTimer>, sink: &mut impl Sink) {
    let all = RawSet::of(set);
    let standard = Some(set.standard()).filter(|standard| !standard.is_empty()).map(RawSet::of);
    let timeout = if waker.is_some() { None } else { Some(POLL_INTERVAL) };
    while !stop.load(Ordering::Relaxed) {
        let wanted = match (sink.has_space(), &standard) {
            (true, _) => &all,
            (false, Some(standard)) => standard,
            (false, None) => {
                sink.wait_for_space();
                continue;
            }
        };
        match wanted.take(timeout) {
            Ok(Some(info)) if waker.is_some_and(|waker| waker.has_sent(&info)) => {}
            Ok(Some(info)) => sink.put(info),
            Ok(None) => {}
            // The kernel accepts this set and this timeout, so the call cannot fail.
            Err(error) => unreachable!("{error}"),
        }
    }
}

/// A thread that takes signals and delivers them. [`Blocked::thread`] and [`Blocked::mailbox`]
/// return it.
///
/// Dropping it stops the thread, and blocks until the delivery in progress has returned. Pending
/// signals stay pending.
///
/// # Examples
/// ```
/// use std::sync::mpsc;
///
/// use tontine::signal::{Blocked, Signal};
///
/// let blocked = Blocked::new(Signal::HUP)?;
/// let (sender, received) = mpsc::channel();
/// let thread = blocked.thread(move |info| sender.send(info.signal()).expect("sent"))?;
/// # unsafe { libc::kill(libc::getpid(), libc::SIGHUP) };
/// // … another process sends SIGHUP …
/// assert_eq!(received.recv(), Ok(Signal::HUP));
/// thread.stop();
/// # Ok::<(), tontine::signal::SignalError>(())
/// ```
///
/// [`Blocked::thread`]: super::Blocked::thread
/// [`Blocked::mailbox`]: super::Blocked::mailbox
pub struct SignalThread<'a> {
    worker: SignalWorker,
    /// Borrows the [`Blocked`](super::Blocked): the signals must stay blocked.
    _blocked: PhantomData<&'a ()>,
}

impl SignalThread<'_> {
    pub(super) fn new(worker: SignalWorker) -> Self {
        Self { worker, _blocked: PhantomData }
    }

    /// Returns `true` if the thread has ended.
    ///
    /// The thread ends by itself only if a delivery panics. In a forked child this method returns
    /// `true`, because the thread runs in the parent.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Stops the thread, as dropping it does, and propagates its panic.
    ///
    /// # Panics
    /// Panics if a delivery has panicked, with the payload of that panic.
    pub fn stop(self) {
        self.worker.stop();
    }
}

impl std::fmt::Debug for SignalThread<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignalThread").field("is_finished", &self.is_finished()).finish()
    }
}
