//! The counters: [`CounterImpl`], and the loop around them: [`repeat`].
//!
//! A plain increment is a relaxed load, an addition and a relaxed store. It compiles to the same
//! code as C's `x++` in a loop that is not merged, but is not undefined if two threads race. The
//! loops of all implementations are compiled from the same source lines.

#![allow(unsafe_code, reason = "pthread keys and mutexes")]

use std::sync::atomic::{AtomicU64, Ordering};

use std::cell::UnsafeCell;
use std::ptr::null;

use tontine_mechanisms::monitor::error;

use crate::liveness_check::timing::{align, counted};
use crate::prelude::*;

/// An implementation of counting, used by several threads at the same time.
pub(super) trait CounterImpl: Sync {
    fn increment(&self);
    /// Prepares a thread before its first increment.
    fn enter(&self) -> Result<()> {
        Ok(())
    }
    /// Ends a thread's counting after its last increment. Returns the thread's own counter.
    fn leave(&self) -> u64 {
        0
    }
    fn counted(&self) -> u64 {
        0
    }
}

#[inline(never)]
pub(super) fn repeat<W: CounterImpl>(way: &W, increments: u64) {
    let (mut made, mut increments) = (0_u64, increments);
    align(&mut made, &mut increments);
    while made < increments {
        way.increment();
        made = counted(made + 1);
    }
}

#[inline(always)]
fn plainly(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// A shared counter on its own cache lines. If not `ATOMIC`, it is incremented like `x++`.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct SharedCounter<const ATOMIC: bool>(AtomicU64);

impl<const ATOMIC: bool> CounterImpl for SharedCounter<ATOMIC> {
    #[inline(always)]
    fn increment(&self) {
        if ATOMIC {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            plainly(&self.0);
        }
    }

    fn counted(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter per thread, like C's `__thread`.
#[derive(Debug)]
pub(super) struct ThreadLocalCounter;

thread_local! {
    static COUNTER: AtomicU64 = const { AtomicU64::new(0) };
}

impl CounterImpl for ThreadLocalCounter {
    #[inline(always)]
    fn increment(&self) {
        COUNTER.with(plainly);
    }

    fn leave(&self) -> u64 {
        COUNTER.with(|counter| counter.swap(0, Ordering::Relaxed))
    }
}

/// A counter per thread, accessed through a pthread key.
#[derive(Debug)]
pub(super) struct KeyedCounter(libc::pthread_key_t);

impl KeyedCounter {
    pub(super) fn new() -> Result<Self> {
        let mut key = 0;
        // SAFETY: the pointer is to a live local; no destructor is registered.
        error(unsafe { libc::pthread_key_create(&raw mut key, None) })
            .setting_up("pthread_key_create")?;
        Ok(Self(key))
    }

    #[inline(always)]
    fn mine(&self) -> *mut SharedCounter<false> {
        // SAFETY: the key lives as long as the handle.
        unsafe { libc::pthread_getspecific(self.0) }.cast()
    }
}

impl CounterImpl for KeyedCounter {
    fn enter(&self) -> Result<()> {
        let counter = Box::into_raw(Box::new(SharedCounter::<false>::default()));
        // SAFETY: the key lives as long as the handle; `leave` reclaims the counter.
        let set = error(unsafe { libc::pthread_setspecific(self.0, counter.cast()) });
        if set.is_err() {
            // SAFETY: the counter was created above and is referenced nowhere else.
            drop(unsafe { Box::from_raw(counter) });
        }
        set.setting_up("pthread_setspecific")
    }

    #[inline(always)]
    fn increment(&self) {
        // SAFETY: `enter` stored a counter there, which lives until `leave`.
        plainly(unsafe { &(*self.mine()).0 });
    }

    fn leave(&self) -> u64 {
        // SAFETY: `enter` created the counter. No reference to it remains, and the key's value is
        // not used again, because the thread ends after this call.
        let counter = unsafe { Box::from_raw(self.mine()) };
        // SAFETY: as in `enter`.
        unsafe { libc::pthread_setspecific(self.0, null()) };
        counter.0.into_inner()
    }
}

impl Drop for KeyedCounter {
    fn drop(&mut self) {
        // SAFETY: the key belongs to this handle and is deleted once.
        unsafe { libc::pthread_key_delete(self.0) };
    }
}

/// A plain counter and the mutex that guards it, on their own cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct MutexCounter {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    counter: AtomicU64,
}

// SAFETY: a mutex is designed for use by several threads, and is accessed only through its
// functions.
unsafe impl Sync for MutexCounter {}

impl MutexCounter {
    /// Creates an unlocked mutex. It must not be moved once a thread has used it; `race` borrows
    /// it, which keeps it in place.
    pub(super) fn new() -> Self {
        let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        Self { mutex, counter: AtomicU64::new(0) }
    }
}

impl CounterImpl for MutexCounter {
    #[inline(always)]
    fn increment(&self) {
        // SAFETY: the mutex is initialised, and borrowed, so it is not moved. Locking a default
        // mutex that this thread does not hold cannot fail.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        plainly(&self.counter);
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }

    fn counted(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }
}

impl Drop for MutexCounter {
    fn drop(&mut self) {
        // SAFETY: no thread holds the mutex, because all threads have been joined.
        unsafe { libc::pthread_mutex_destroy(self.mutex.get()) };
    }
}

#[cfg(all(test, target_arch = "x86_64", not(debug_assertions)))]
mod tests {
    use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

    use super::*;
    use crate::liveness_check::timing::tests::only_loop;

    fn calls(body: &[Instruction]) -> usize {
        let is_call = |one: &&Instruction| {
            matches!(one.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
        };
        body.iter().filter(is_call).count()
    }

    /// Returns the instructions that write to memory.
    fn writes(body: &[Instruction]) -> Vec<&Instruction> {
        let writes = |one: &&Instruction| {
            let changes = matches!(
                one.mnemonic(),
                Mnemonic::Mov | Mnemonic::Add | Mnemonic::Inc | Mnemonic::Xadd
            );
            changes && one.op0_kind() == OpKind::Memory
        };
        body.iter().filter(writes).collect()
    }

    /// Asserts that the loop contains a load, an addition and a store, in three instructions or in
    /// one, without a lock prefix and once per iteration.
    fn is_plain(body: &[Instruction]) {
        let [write] = writes(body)[..] else { panic!("{} writes", writes(body).len()) };
        assert!(body.iter().all(|one| !one.has_lock_prefix()), "locked");
        if write.mnemonic() == Mnemonic::Mov {
            let same = |one: &&Instruction| {
                one.mnemonic() == Mnemonic::Mov
                    && one.op1_kind() == OpKind::Memory
                    && one.memory_base() == write.memory_base()
                    && one.memory_displacement64() == write.memory_displacement64()
            };
            assert!(body.iter().any(|one| same(&one)), "no load before {write}");
        }
    }

    #[test]
    fn plain_increment_compiles_to_load_add_store() {
        let body = only_loop(repeat::<SharedCounter<false>> as *const u8);
        is_plain(&body);
        assert_eq!(calls(&body), 0);
        assert!(body.iter().all(|one| one.segment_prefix() == Register::None));
    }

    #[test]
    fn thread_local_increment_uses_the_thread_register() {
        let body = only_loop(repeat::<ThreadLocalCounter> as *const u8);
        is_plain(&body);
        assert_eq!(calls(&body), 0);
        let write = writes(&body)[0];
        assert_eq!(write.segment_prefix(), Register::FS, "{write}");
    }

    #[test]
    fn other_increments_call_or_lock_as_documented() {
        let key = only_loop(repeat::<KeyedCounter> as *const u8);
        is_plain(&key);
        assert_eq!(calls(&key), 1);

        let atomic = only_loop(repeat::<SharedCounter<true>> as *const u8);
        let locked: Vec<_> = atomic.iter().filter(|one| one.has_lock_prefix()).collect();
        assert_eq!((locked.len(), calls(&atomic)), (1, 0));

        let mutex = only_loop(repeat::<MutexCounter> as *const u8);
        is_plain(&mutex);
        assert_eq!(calls(&mutex), 2);
    }
}
