//! A fiber: [`Task`], its coroutine, and the word that decides which thread wakes it.
//!
//! The word has four states. Unparking a parked task also obliges the caller to queue it; unparking
//! a task in any other state leaves a token, which the next park takes. A task becomes parked only
//! after its coroutine has suspended. The task's own worker marks it as parked, so a thread that
//! finds it parked may have it resumed immediately.
//! | state | unpark | park, after the switch |
//! | --- | --- | --- |
//! | `RUNNING`: runs or is queued | `TOKEN` | `PARKED` |
//! | `TOKEN`: the next park returns | stays | `RUNNING`, and queued |
//! | `PARKED`: in no queue | `RUNNING`, and queues it | – |
//! | `ENDED` | stays | – |
#![allow(unsafe_code, reason = "resumes coroutines that several threads refer to")]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::options::{Body, Start};
use super::queue::Linkable;
use super::stack::FiberStack;
use super::worker::WorkerRecord;
use crate::held::PerFiber;

/// The reason why a fiber stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchReason {
    /// The fiber waits for an unpark.
    Park,
    /// Simulated: the fiber reached the end of its stretch.
    Point,
    /// The fiber lets other fibers run first.
    Yield,
    /// Simulated: the fiber waits for a word to become 0.
    Spin,
    /// The fiber abandons its stack.
    Abandon,
    /// The body of the fiber returned.
    End,
    /// The fiber ran out of stack in user mode.
    Overflow,
}

const RUNNING: u32 = 0;
const TOKEN: u32 = 1;
const PARKED: u32 = 2;
const ENDED: u32 = 3;

type FiberThread = Coroutine<(), SwitchReason, SwitchReason, FiberStack>;

/// A fiber. Its executor owns one reference from start to end.
pub(super) struct Task {
    /// The number of the fiber in its executor, from 1.
    pub(super) id: u32,
    /// The word passed to the fiber at its start.
    pub(super) context: usize,
    /// The name by which the watchdog reports the fiber, or 0.
    pub(super) name: usize,
    /// Simulated: the chooser's number for the fiber; see [`Task::hand_number_to`].
    shown: AtomicU32,
    /// Simulated: the name of the fiber that this one serves, or its own name.
    serves: AtomicUsize,
    /// The link of the queue.
    next: AtomicPtr<Task>,
    /// `true` if the fiber must run on the processor on which it was started.
    pub(super) pinned: bool,
    /// Number of entries into kernel mode without a return. Only the fiber itself changes it.
    pub(super) kernel_depth: AtomicU32,
    /// Simulated: the fiber's level and its deferred ticks, while the fiber does not run.
    pub(super) level: AtomicU8,
    pub(super) held: AtomicU32,
    /// The guard below the fiber's stack.
    guard: (usize, usize),
    state: AtomicU32,
    /// The worker that runs the fiber; changes only before the fiber has started.
    home: AtomicPtr<Worker>,
    /// The number of the fiber's processor.
    processor: AtomicUsize,
    inner: UnsafeCell<TaskState>,
}

impl Linkable for Task {
    fn next(&self) -> &AtomicPtr<Self> {
        &self.next
    }
}

/// A processor's record, to which fibers are posted.
pub(super) type Worker = WorkerRecord<Task>;

impl Worker {
    /// Returns a record, either new or reused.
    pub(super) fn acquire(index: usize) -> &'static Self {
        let worker = unused().pop().unwrap_or_else(|| Box::leak(Box::new(Self::new())));
        worker.index.store(index, Ordering::Relaxed);
        worker.ended.store(0, Ordering::Relaxed);
        worker
    }

    /// Returns the record for reuse. No fiber will be posted to it.
    pub(super) fn release(&'static self) {
        unused().push(self);
    }
}

/// Returns the records that no executor uses.
fn unused() -> MutexGuard<'static, Vec<&'static Worker>> {
    static UNUSED: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processor on which a task must run.
#[derive(Clone, Copy)]
pub(super) struct Affinity {
    /// The worker whose thread resumes the task.
    pub(super) home: &'static Worker,
    /// The number of that processor.
    pub(super) processor: usize,
    /// `true` if the task must start there.
    pub(super) pinned: bool,
}

/// State that the task itself and the worker that runs it access, never at the same time.
struct TaskState {
    body: Option<(Body, FiberStack)>,
    coroutine: Option<FiberThread>,
    yielder: *const Yielder<(), SwitchReason>,
    /// The trap with which a fault handler ends the fiber, once the fiber has started.
    trap: Option<CoroutineTrapHandler<SwitchReason>>,
    /// The word of the lock that the fiber spins on.
    word: *const AtomicU32,
    /// The state of the fiber's locks while another fiber runs.
    locks: PerFiber,
}

// SAFETY: `inner` is accessed only by the thread that holds the task out of all queues: its
// starter, then the worker that took it, then the fiber itself on that worker's thread; the queues
// order these accesses. A coroutine that has started never changes its thread. Only an unstarted
// task does, and its body is `Send`.
unsafe impl Send for Task {}
// SAFETY: as above; the other fields are atomic or never change.
unsafe impl Sync for Task {}

impl Task {
    /// Creates a task that has not started. The reference that its executor owns is leaked until
    /// [`Task::bury`].
    pub(super) fn new(id: u32, start: Start, place: Affinity, stack: FiberStack) -> Arc<Self> {
        let Start { context, name, body, .. } = start;
        let task = Arc::new(Self {
            id,
            context,
            name,
            shown: AtomicU32::new(id),
            serves: AtomicUsize::new(name),
            pinned: place.pinned,
            next: AtomicPtr::new(ptr::null_mut()),
            kernel_depth: AtomicU32::new(1),
            level: AtomicU8::new(0),
            held: AtomicU32::new(0),
            guard: stack.guard(),
            state: AtomicU32::new(RUNNING),
            home: AtomicPtr::new(ptr::from_ref(place.home).cast_mut()),
            processor: AtomicUsize::new(place.processor),
            inner: UnsafeCell::new(TaskState {
                body: Some((body, stack)),
                coroutine: None,
                yielder: ptr::null(),
                trap: None,
                word: ptr::null(),
                locks: PerFiber::new(),
            }),
        });
        let _ = Arc::into_raw(Arc::clone(&task));
        task
    }

    /// Makes the task start only when it is unparked. Must be called by the task's starter, before
    /// any other thread refers to the task.
    pub(super) fn begin_asleep(&self) {
        self.state.store(PARKED, Ordering::Relaxed);
    }

    /// Returns the chooser's number for the fiber.
    #[inline]
    pub(super) fn shown(&self) -> u32 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Exchanges numbers with another task, which continues the work of this one.
    pub(super) fn hand_number_to(&self, other: &Self) {
        let mine = self.shown.swap(other.shown(), Ordering::Relaxed);
        other.shown.store(mine, Ordering::Relaxed);
    }

    /// Returns the name of the fiber that this one serves, or its own name.
    pub(super) fn served(&self) -> usize {
        self.serves.load(Ordering::Relaxed)
    }

    /// Sets the fiber that this one serves; `None` means itself.
    pub(super) fn serve(&self, other: Option<&Self>) {
        self.serves.store(other.unwrap_or(self).name, Ordering::Relaxed);
    }

    /// Returns the worker that runs the task.
    pub(super) fn home(&self) -> &'static Worker {
        // SAFETY: only `new` and `take_to` set it, from references with a static lifetime.
        unsafe { &*self.home.load(Ordering::Relaxed) }
    }

    /// Returns `true` if the task has never run. The caller must hold the task out of all queues.
    pub(super) fn is_fresh(&self) -> bool {
        // SAFETY: the caller guarantees that no other thread accesses `inner`.
        unsafe { (*self.inner.get()).body.is_some() }
    }

    /// Moves the task to `worker`, where it will start. Called by the thread that took it out of
    /// its queue.
    pub(super) fn take_to(&self, worker: &'static Worker) {
        self.home.store(ptr::from_ref(worker).cast_mut(), Ordering::Relaxed);
        self.processor.store(worker.number(), Ordering::Relaxed);
    }

    /// Modelled: moves the task to `processor`, where it will start. Called by the thread that took
    /// it out of its queue.
    pub(super) fn move_to(&self, processor: usize) {
        self.processor.store(processor, Ordering::Relaxed);
    }

    /// Returns the number of the task's processor.
    pub(super) fn processor(&self) -> usize {
        self.processor.load(Ordering::Relaxed)
    }

    /// Makes the task runnable. Returns `true` if the caller must queue it at [`Task::home`].
    /// Async-signal-safe.
    #[must_use]
    pub(super) fn unpark(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let next = match state {
                PARKED => RUNNING,
                ENDED => return false,
                _ => TOKEN,
            };
            // SYNC token: pairs with `Task::take_token` and `Task::sleep`: the waker's earlier
            // effects are visible after the park. Even a token is exchanged for a token, so that
            // the exchange releases this waker's writes too.
            let exchange =
                self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed);
            match exchange {
                Ok(_) => return state == PARKED,
                Err(now) => state = now,
            }
        }
    }

    /// Takes the token, if one was left, before the fiber suspends to park. Called by the fiber
    /// itself.
    pub(super) fn take_token(&self) -> bool {
        if self.state.load(Ordering::Relaxed) != TOKEN {
            return false;
        }
        // SYNC token: pairs with `Task::unpark`. Only the fiber itself and its worker change the
        // state from `TOKEN` to another.
        self.state.swap(RUNNING, Ordering::Acquire);
        true
    }

    /// Marks the task as parked after it has suspended. Returns `false` if a token was left, so
    /// that the task must be queued again. Called by its worker.
    #[must_use]
    pub(super) fn sleep(&self) -> bool {
        // SYNC token: pairs with `Task::unpark`, which may pass the suspended coroutine on.
        let slept =
            self.state.compare_exchange(RUNNING, PARKED, Ordering::AcqRel, Ordering::Relaxed);
        slept.is_ok() || !self.take_token()
    }

    /// Runs the task until it suspends or ends. Called by its worker, which took it out of its
    /// queue.
    pub(super) fn resume(&self) -> SwitchReason {
        let inner = self.inner.get();
        // SAFETY: only the worker holds the task. The fiber runs within `resume`; it accesses
        // `inner` through the same cell and never uses `coroutine`.
        let coroutine = unsafe {
            if let Some((body, stack)) = (*inner).body.take() {
                let task = ptr::from_ref(self);
                let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
                    // SAFETY: a task outlives its coroutine, and this runs on its worker's thread.
                    (*(*task).inner.get()).yielder = yielder;
                    run(body, (*task).id)
                });
                (*inner).trap = Some(coroutine.trap_handler());
                (*inner).coroutine = Some(coroutine);
            }
            (*inner).coroutine.as_mut().expect("a queued task has a coroutine")
        };
        // SAFETY: as above; the fiber itself never accesses the stored state of its locks.
        let locks = unsafe { &mut (*inner).locks };
        locks.exchange();
        let left = coroutine.resume(());
        locks.exchange();
        match left {
            CoroutineResult::Yield(leave) | CoroutineResult::Return(leave) => leave,
        }
    }

    /// Suspends the fiber. Called by [`suspend`](super::here::suspend).
    ///
    /// # Safety
    /// This task must be the one that runs on the calling thread.
    pub(super) unsafe fn suspend(&self, leave: SwitchReason) {
        // SAFETY: the caller guarantees that the fiber runs, so the base of its coroutine has set
        // the yielder. The yielder lies at the base of the stack that this code runs on.
        unsafe { (*(*self.inner.get()).yielder).suspend(leave) };
    }

    /// Returns the address range of the guard below the task's stack.
    pub(super) fn guard(&self) -> Range<usize> {
        self.guard.0..self.guard.1
    }

    /// Returns the trap with which a fault handler ends the fiber. Called by the fiber itself.
    pub(super) fn trap(&self) -> Option<CoroutineTrapHandler<SwitchReason>> {
        // SAFETY: set before the fiber began, and not changed while it runs.
        unsafe { (*self.inner.get()).trap }
    }

    /// Returns the address of the field that points to the word that the fiber spins on. The fiber
    /// itself uses it before the switch, its worker after the switch.
    pub(super) fn spin_word(&self) -> *mut *const AtomicU32 {
        // SAFETY: this only takes an address.
        unsafe { &raw mut (*self.inner.get()).word }
    }

    /// Describes the locks that the task holds and waits for.
    ///
    /// # Safety
    ///
    /// The run of the task must have ended, so that the task does not run.
    pub(super) unsafe fn locks(&self) -> Vec<String> {
        // SAFETY: the caller guarantees that no thread accesses `inner` any more.
        unsafe { (*self.inner.get()).locks.describe() }
    }

    /// Ends the task: returns its stack, unless the contents were abandoned, and drops the
    /// executor's reference. Called by its worker; `leave` is the reason why the task stopped.
    ///
    /// # Safety
    ///
    /// The task must have stopped permanently or never have started, must be in no queue, and must
    /// be buried only once.
    pub(super) unsafe fn bury(this: *const Self, leave: SwitchReason) -> Option<FiberStack> {
        // SAFETY: the task is alive until the end of this function, and no other thread accesses
        // `inner`.
        let (task, inner) = unsafe { (&*this, &mut *(*this).inner.get()) };
        let stack = match (inner.coroutine.take(), inner.body.take()) {
            (Some(mut coroutine), _) => {
                if leave == SwitchReason::Abandon {
                    // SAFETY: the contents of the stack are leaked with it. The stack is never
                    // reused, so nothing on it is invalidated.
                    unsafe { coroutine.force_reset() };
                }
                let stack = coroutine.into_stack();
                (leave == SwitchReason::End).then_some(stack)
            }
            (None, Some((_, stack))) => Some(stack),
            (None, None) => None,
        };
        task.state.store(ENDED, Ordering::Relaxed);
        // SAFETY: this is the reference that `new` leaked.
        drop(unsafe { Arc::from_raw(this) });
        stack
    }
}

/// Runs the body at the base of every fiber. A panic that passed this frame would unwind into a
/// worker, which does not expect a panic.
fn run(body: Body, id: u32) -> SwitchReason {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        eprintln!("tontine-unix: a panic left the body of fiber {id}: its owner must catch it");
        abort();
    }
    SwitchReason::End
}
