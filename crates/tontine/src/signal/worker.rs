//! The thread that takes signals for the others: [`Worker`], and [`Thread`], which lends it out.
//!
//! It waits in `sigtimedwait` and gives what it takes to a [`Sink`]. Between the kernel's answer
//! and the sink there is no allocation and no lock. It ends when it is told to: `stop` is stored,
//! and a timer of its own ([`Waker`]) wakes it. Where the system refuses a timer (the user's queue
//! of signals is full, or forbidden) it looks at `stop` every [`LOOK`].

use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::{Error, Result};
use super::kernel::{Raw, Waker};
use super::{Received, Set};
use crate::sys::fork::Guard;

/// How often a thread without a waker looks whether it is to end, and how often one with it is
/// woken until it does.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Where a worker's signals go.
pub(super) trait Sink: Send + 'static {
    /// One that was taken.
    fn put(&mut self, received: Received);

    /// Whether real-time signals are wanted now.
    #[inline]
    fn has_room(&self) -> bool {
        true
    }

    /// Waits a while, at most [`LOOK`], until they are.
    fn wait_for_room(&self) {}

    /// Called once, with the flag that says when to end.
    fn begin(&mut self, _stop: &Arc<AtomicBool>) {}
}

/// Calls a function.
pub(super) struct Each<F>(pub(super) F);

impl<F: FnMut(Received) + Send + 'static> Sink for Each<F> {
    #[inline]
    fn put(&mut self, received: Received) {
        (self.0)(received);
    }
}

/// A designated thread. Dropped, it has ended, and its last delivery is over.
pub(super) struct Worker {
    /// None once it was ended.
    running: Option<Running>,
    guard: Guard,
}

struct Running {
    stop: Arc<AtomicBool>,
    waker: Option<Arc<Waker>>,
    /// Disconnects when the thread ends; carries no value. Never locked: the mutex makes it `Sync`.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts it. The calling thread blocks `set`, and so does the new one.
    pub(super) fn start(set: Set, mut sink: impl Sink) -> Result<Self> {
        let guard = Guard::here().map_err(|error| {
            Error::system("mmap", rustix::io::Errno::from_raw_os_error(error.errno()))
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ending, ended) = mpsc::channel::<()>();
        let (say_ready, ready) = mpsc::sync_channel(1);
        let its_stop = Arc::clone(&stop);
        let body = move || {
            let _ending = ending;
            // One that does not queue, if there is one: a full channel still takes those.
            let wakes = set.standard().iter().chain(set.iter()).next();
            let value = Arc::as_ptr(&its_stop).cast();
            let waker = wakes.and_then(|signal| Waker::new(signal, value)).map(Arc::new);
            let _ = say_ready.send(waker.clone());
            drop(say_ready);
            sink.begin(&its_stop);
            take_until(&its_stop, set, waker.as_deref(), &mut sink);
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(body);
        let thread = thread.map_err(|error| Error::io("pthread_create", &error))?;
        // It panics nowhere before it says so.
        let waker = ready.recv().unwrap_or_default();
        let ended = Mutex::new(ended);
        Ok(Self { running: Some(Running { stop, waker, ended, thread }), guard })
    }

    /// Lets it look again at what it waits for.
    pub(super) fn wake(&self) {
        if !self.is_forked()
            && let Some(waker) = self.running.as_ref().and_then(|running| running.waker.as_ref())
        {
            waker.wake();
        }
    }

    /// Whether this process is a child of the one where it runs.
    pub(super) fn is_forked(&self) -> bool {
        self.guard.is_forked()
    }

    fn has_ended(&self) -> bool {
        self.is_forked() || self.running.as_ref().is_none_or(|one| one.thread.is_finished())
    }

    /// Ends it, and goes on with its panic, if there was one.
    fn finish(mut self) {
        if let Some(Err(panic)) = self.end() {
            resume_unwind(panic);
        }
    }

    fn end(&mut self) -> Option<std::thread::Result<()>> {
        let running = self.running.take()?;
        if self.is_forked() {
            // Neither the thread nor the timer came along; their numbers may be others' here.
            std::mem::forget(running);
            return None;
        }
        let Running { stop, waker, ended, thread } = running;
        // Relaxed is enough: who is woken by the timer has gone through the kernel's lock after
        // this, and who looks every now and then sees it in time.
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
            // Again, for the program may have thrown the signal away by ignoring it.
            if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                return Some(thread.join());
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn take_until(stop: &AtomicBool, set: Set, waker: Option<&Waker>, sink: &mut impl Sink) {
    let all = Raw::of(set);
    let standard = Some(set.standard()).filter(|standard| !standard.is_empty()).map(Raw::of);
    let timeout = if waker.is_some() { None } else { Some(LOOK) };
    while !stop.load(Ordering::Relaxed) {
        let wanted = match (sink.has_room(), &standard) {
            (true, _) => &all,
            (false, Some(standard)) => standard,
            (false, None) => {
                sink.wait_for_room();
                continue;
            }
        };
        match wanted.take(timeout) {
            Ok(Some(received)) if waker.is_some_and(|waker| waker.is(&received)) => {}
            Ok(Some(received)) => sink.put(received),
            Ok(None) => {}
            // A set of signals and a time that the kernel knows: it does not fail.
            Err(error) => unreachable!("{error}"),
        }
    }
}

/// A designated thread, which takes signals and delivers them.
///
/// Dropped, it ends: who drops it waits for the delivery that is going on. What is pending then
/// stays pending.
pub struct Thread<'a> {
    worker: Worker,
    /// Its signals must stay blocked.
    _blocked: PhantomData<&'a ()>,
}

impl Thread<'_> {
    pub(super) fn new(worker: Worker) -> Self {
        Self { worker, _blocked: PhantomData }
    }

    /// Whether it has ended, which it does by itself only if a delivery panics. In a forked child
    /// there is no such thread.
    pub fn has_ended(&self) -> bool {
        self.worker.has_ended()
    }

    /// Ends it, as dropping it does.
    ///
    /// # Panics
    /// Where a delivery has panicked, with what that said.
    pub fn finish(self) {
        self.worker.finish();
    }
}

impl std::fmt::Debug for Thread<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thread").field("has_ended", &self.has_ended()).finish()
    }
}
