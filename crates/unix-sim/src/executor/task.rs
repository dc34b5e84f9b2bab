//! One fiber: [`Task`], its coroutine, and the word that decides who wakes it.
//!
//! The word has four states. An unpark takes a parked task and with it the duty to queue it; at any
//! other time it leaves a token, which the next park takes. A task becomes parked only after its
//! coroutine has suspended, and its own worker does that, so whoever finds it parked may have it
//! resumed at once.
//!
//! | state | unpark | park, after the switch |
//! | --- | --- | --- |
//! | `RUNNING`: runs or is queued | `TOKEN` | `PARKED` |
//! | `TOKEN`: the next park returns | stays | `RUNNING`, and queued |
//! | `PARKED`: nobody has it queued | `RUNNING`, and queues it | – |
//! | `ENDED` | stays | – |
#![allow(unsafe_code, reason = "resumes coroutines that several threads know of")]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::options::{Body, Start};
use super::stack::Stack;
use super::worker::Worker;
use crate::held::PerFiber;

/// Why a fiber left its processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchReason {
    /// It waits for an unpark.
    Park,
    /// Simulated: it came to the end of its stretch.
    Point,
    /// It lets others run first.
    Yield,
    /// Simulated: it waits for a word to become 0.
    Spin,
    /// It gives up its stack.
    Abandon,
    /// Its body returned.
    End,
    /// It ran out of stack in user mode.
    Overflow,
}

const RUNNING: u32 = 0;
const TOKEN: u32 = 1;
const PARKED: u32 = 2;
const ENDED: u32 = 3;

type Thread = Coroutine<(), SwitchReason, SwitchReason, Stack>;

/// One fiber. Its executor owns one reference from start to end.
#[derive(Debug)]
pub(super) struct Task {
    /// Numbered from 1 within its executor.
    pub(super) id: u32,
    /// The word given at the start.
    pub(super) context: usize,
    /// What the watchdog calls it, or 0.
    pub(super) name: usize,
    /// Simulated: the number by which whoever decides knows it; see [`Task::hand_number_to`].
    shown: AtomicU32,
    /// Simulated: what is said to run here, as a name is: its own, or whom it serves.
    serves: AtomicUsize,
    /// The queue's link.
    pub(super) next: AtomicPtr<Task>,
    /// Whether it must run where it was started.
    pub(super) pinned: bool,
    /// How often it has entered kernel mode and not left it. Changed by the fiber alone.
    pub(super) kernel_depth: AtomicU32,
    /// Simulated: its level and the ticks held, while it does not run.
    pub(super) level: AtomicU8,
    pub(super) held: AtomicU32,
    /// The guard below its stack.
    guard: (usize, usize),
    state: AtomicU32,
    /// Where it runs; it changes only before it has begun.
    home: AtomicPtr<Worker>,
    /// That place's number.
    processor: AtomicUsize,
    inner: UnsafeCell<Inner>,
}

/// Where a task is to run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Whose thread resumes it.
    pub(super) home: &'static Worker,
    /// The processor that this is called.
    pub(super) processor: usize,
    /// Whether it must begin there.
    pub(super) pinned: bool,
}

/// Touched by the task itself and by the worker that runs it, never by both at once.
struct Inner {
    body: Option<(Body, Stack)>,
    coroutine: Option<Thread>,
    yielder: *const Yielder<(), SwitchReason>,
    /// What ends it from a fault handler, once it has begun.
    trap: Option<CoroutineTrapHandler<SwitchReason>>,
    /// The lock that it spins at.
    word: *const AtomicU32,
    /// What the locks know of it while another one runs.
    locks: PerFiber,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("begun", &self.body.is_none()).finish_non_exhaustive()
    }
}

// SAFETY: `inner` is touched only by who holds the task out of all queues: its starter, then the
// worker that took it, then the fiber itself on that worker's thread; the queues order those. A
// coroutine that has begun never changes its thread: only an unbegun task, whose body is `Send`,
// does.
unsafe impl Send for Task {}
// SAFETY: as above; the rest is atomic or never changes.
unsafe impl Sync for Task {}

impl Task {
    /// A task that has not begun. The reference that its executor owns is leaked until
    /// [`Task::bury`].
    pub(super) fn new(id: u32, start: Start, place: Place, stack: Stack) -> Arc<Self> {
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
            inner: UnsafeCell::new(Inner {
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

    /// It begins when it is unparked. For its starter, before anybody else knows it.
    pub(super) fn begin_asleep(&self) {
        self.state.store(PARKED, Ordering::Relaxed);
    }

    /// The number by which whoever decides knows it.
    #[inline]
    pub(super) fn shown(&self) -> u32 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Changes numbers with another one: what this one did, that one goes on with.
    pub(super) fn hand_number_to(&self, other: &Self) {
        let mine = self.shown.swap(other.shown(), Ordering::Relaxed);
        other.shown.store(mine, Ordering::Relaxed);
    }

    /// Whom it serves, or itself.
    pub(super) fn served(&self) -> usize {
        self.serves.load(Ordering::Relaxed)
    }

    /// From now on it serves `other`, or itself.
    pub(super) fn serve(&self, other: Option<&Self>) {
        self.serves.store(other.unwrap_or(self).name, Ordering::Relaxed);
    }

    /// The worker that it runs on.
    pub(super) fn home(&self) -> &'static Worker {
        // SAFETY: only `new` and `take_to` set it, from references that live for ever.
        unsafe { &*self.home.load(Ordering::Relaxed) }
    }

    /// Whether it has never run. For who holds it out of all queues.
    pub(super) fn is_fresh(&self) -> bool {
        // SAFETY: nobody else touches `inner`, says the caller.
        unsafe { (*self.inner.get()).body.is_some() }
    }

    /// Makes `worker` the place where it will begin. For who took it out of its queue.
    pub(super) fn take_to(&self, worker: &'static Worker) {
        self.home.store(ptr::from_ref(worker).cast_mut(), Ordering::Relaxed);
        self.processor.store(worker.number(), Ordering::Relaxed);
    }

    /// Modelled: makes `processor` the place where it will begin. For who took it out of its queue.
    pub(super) fn move_to(&self, processor: usize) {
        self.processor.store(processor, Ordering::Relaxed);
    }

    /// The processor's number.
    pub(super) fn processor(&self) -> usize {
        self.processor.load(Ordering::Relaxed)
    }

    /// Makes it runnable. True if the caller must queue it at [`Task::home`]. Async-signal-safe.
    #[must_use]
    pub(super) fn unpark(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let next = match state {
                PARKED => RUNNING,
                ENDED => return false,
                _ => TOKEN,
            };
            // SYNC token: pairs with `Task::take_token` and `Task::sleep`: what the waker did
            // before is seen after the park. An exchange even of a token for a token, so that this
            // waker's writes are among those released.
            let exchange =
                self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed);
            match exchange {
                Ok(_) => return state == PARKED,
                Err(now) => state = now,
            }
        }
    }

    /// For the fiber itself, before it suspends to park: true if there was a token.
    pub(super) fn take_token(&self) -> bool {
        if self.state.load(Ordering::Relaxed) != TOKEN {
            return false;
        }
        // SYNC token: pairs with `Task::unpark`. Only the fiber's own side leaves `TOKEN`.
        self.state.swap(RUNNING, Ordering::Acquire);
        true
    }

    /// For its worker, after it has suspended to park: false if a token was there and it must be
    /// queued again.
    #[must_use]
    pub(super) fn sleep(&self) -> bool {
        // SYNC token: pairs with `Task::unpark`, which may hand the suspended coroutine on.
        let slept =
            self.state.compare_exchange(RUNNING, PARKED, Ordering::AcqRel, Ordering::Relaxed);
        slept.is_ok() || !self.take_token()
    }

    /// Runs it until it leaves. For its worker, which took it out of its queue.
    pub(super) fn resume(&self) -> SwitchReason {
        let inner = self.inner.get();
        // SAFETY: the worker alone has it, and the fiber, which runs within `resume`, reaches
        // `inner` through the same cell and never touches `coroutine`.
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
        // SAFETY: as above; the fiber itself never touches what the locks keep of it.
        let locks = unsafe { &mut (*inner).locks };
        locks.exchange();
        let left = coroutine.resume(());
        locks.exchange();
        match left {
            CoroutineResult::Yield(leave) | CoroutineResult::Return(leave) => leave,
        }
    }

    /// Suspends the fiber, for [`suspend`](super::here::suspend).
    ///
    /// # Safety
    /// This task is the one that runs on the calling thread.
    pub(super) unsafe fn suspend(&self, leave: SwitchReason) {
        // SAFETY: by the caller the fiber runs, so its coroutine's base has set the yielder, which
        // lies at the base of the stack that this runs on.
        unsafe { (*(*self.inner.get()).yielder).suspend(leave) };
    }

    /// The addresses below its stack that fault.
    pub(super) fn guard(&self) -> Range<usize> {
        self.guard.0..self.guard.1
    }

    /// What ends it from a fault handler. For the fiber itself.
    pub(super) fn trap(&self) -> Option<CoroutineTrapHandler<SwitchReason>> {
        // SAFETY: set before the fiber began, and not changed while it runs.
        unsafe { (*self.inner.get()).trap }
    }

    /// The word at which it spins, for the fiber itself before and its worker after the switch.
    pub(super) fn spin_word(&self) -> *mut *const AtomicU32 {
        // SAFETY: only an address is taken.
        unsafe { &raw mut (*self.inner.get()).word }
    }

    /// The locks that it has and waits for.
    ///
    /// # Safety
    ///
    /// It does not run: its run has ended.
    pub(super) unsafe fn locks(&self) -> Vec<String> {
        // SAFETY: the caller's promise: nobody touches `inner` any more.
        unsafe { (*self.inner.get()).locks.told() }
    }

    /// Ends it: its stack, unless what lies on it was given up, is handed back, and the executor's
    /// reference is dropped. For its worker, with `leave` being how it left.
    ///
    /// # Safety
    ///
    /// It has left for good, or has never begun; it is in no queue; this is called once.
    pub(super) unsafe fn bury(this: *const Self, leave: SwitchReason) -> Option<Stack> {
        // SAFETY: alive until the end of this function, and nobody else touches `inner`.
        let (task, inner) = unsafe { (&*this, &mut *(*this).inner.get()) };
        let stack = match (inner.coroutine.take(), inner.body.take()) {
            (Some(mut coroutine), _) => {
                if leave == SwitchReason::Abandon {
                    // SAFETY: what lies on the stack is leaked with it: it is never used again, so
                    // nothing there is invalidated.
                    unsafe { coroutine.force_reset() };
                }
                let stack = coroutine.into_stack();
                (leave == SwitchReason::End).then_some(stack)
            }
            (None, Some((_, stack))) => Some(stack),
            (None, None) => None,
        };
        task.state.store(ENDED, Ordering::Relaxed);
        // SAFETY: the reference that `new` leaked.
        drop(unsafe { Arc::from_raw(this) });
        stack
    }
}

/// The base of every fiber. What unwinds to here would unwind into a worker that knows nothing of
/// it.
fn run(body: Body, id: u32) -> SwitchReason {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        eprintln!("tontine-unix: a panic left the body of fiber {id}: its owner must catch it");
        abort();
    }
    SwitchReason::End
}
