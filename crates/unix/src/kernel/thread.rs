//! A virtual thread, as others see it: [`Thread`], and what they want of it: [`Attention`].

#![allow(unsafe_code, reason = "a name behind one atomic word")]

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use bitflags::bitflags;

use crate::signal::SigSet;

bitflags! {
    /// What a thread has to see to before it goes back to user mode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Attention: u32 {
        /// A signal may be deliverable.
        const SIGNAL = 1 << 0;
        /// It ends: another thread exits or executes (`sig_lock_to_exit`).
        const HALT = 1 << 1;
        /// The process is stopped.
        const STOP = 1 << 2;
        /// The parent is to be told that the process goes on.
        const REPORT = 1 << 3;
        /// The clock ticked: the profile is to be updated (§6.1).
        const TICK = 1 << 4;
        /// `sig_lock_or_return` found the state *waiting*: it blocks until that is over.
        const BLOCK = 1 << 5;
    }
}

/// A thread.
#[derive(Debug)]
pub(super) struct Thread {
    /// Its number; the one that executes takes the process's.
    tid: AtomicI32,
    attention: AtomicU32,
    /// Blocked signals; written by the thread itself, under its `p_lock`.
    mask: AtomicU64,
    /// Whether it sleeps so that a signal may wake it; written under its `p_lock`.
    sleeping: AtomicBool,
    /// Which signals `sigtimedwait` waits for; written under its `p_lock`.
    awaited: AtomicU64,
    /// The name of the call that it is in or was in last, for those that look.
    call: AtomicPtr<&'static str>,
    /// The profiling flag's own word (§6.1): ticks since the last look, by the clock only.
    pub(super) ticks: AtomicU32,
    /// Bytes of the alternate stack that it begins with; written before it does.
    alternate: AtomicUsize,
}

impl Thread {
    pub(super) fn new(tid: i32, mask: SigSet) -> Self {
        Self {
            tid: AtomicI32::new(tid),
            attention: AtomicU32::new(0),
            mask: AtomicU64::new(mask.bits()),
            sleeping: AtomicBool::new(false),
            awaited: AtomicU64::new(0),
            call: AtomicPtr::new(ptr::null_mut()),
            ticks: AtomicU32::new(0),
            alternate: AtomicUsize::new(0),
        }
    }

    /// Its number.
    pub(super) fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Gives it another one. Under `p_lock`, by itself.
    pub(super) fn set_tid(&self, tid: i32) {
        self.tid.store(tid, Ordering::Relaxed);
    }

    /// Says which call the thread is in.
    pub(super) fn calls(&self, name: &'static &'static str) {
        self.call.store(ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
    }

    /// Which call it is in, or was in last.
    pub(super) fn call(&self) -> &'static str {
        // SAFETY: null, or what `calls` stored: a reference that lasts for ever.
        unsafe { self.call.load(Ordering::Relaxed).as_ref() }.copied().unwrap_or("begins")
    }

    pub(super) fn attention(&self) -> Attention {
        // SYNC attention: pairs with `Thread::demand`.
        Attention::from_bits_retain(self.attention.load(Ordering::Acquire))
    }

    /// Makes the thread look before it goes back to user mode.
    pub(super) fn demand(&self, what: Attention) {
        // SYNC attention: pairs with `Thread::attention`.
        self.attention.fetch_or(what.bits(), Ordering::Release);
    }

    pub(super) fn settle(&self, what: Attention) {
        self.attention.fetch_and(!what.bits(), Ordering::Relaxed);
    }

    pub(super) fn mask(&self) -> SigSet {
        SigSet::from_bits(self.mask.load(Ordering::Relaxed))
    }

    pub(super) fn set_mask(&self, mask: SigSet) {
        self.mask.store(mask.bits(), Ordering::Relaxed);
    }

    pub(super) fn awaited(&self) -> SigSet {
        SigSet::from_bits(self.awaited.load(Ordering::Relaxed))
    }

    pub(super) fn set_awaited(&self, set: SigSet) {
        self.awaited.store(set.bits(), Ordering::Relaxed);
    }

    pub(super) fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }

    pub(super) fn set_sleeping(&self, sleeping: bool) {
        self.sleeping.store(sleeping, Ordering::Relaxed);
    }

    /// The alternate stack that it begins with.
    pub(super) fn first_alternate(&self) -> crate::process::SigStack {
        crate::process::SigStack { size: self.alternate.load(Ordering::Relaxed), on_stack: false }
    }

    pub(super) fn begin_with_alternate(&self, stack: crate::process::SigStack) {
        self.alternate.store(stack.size, Ordering::Relaxed);
    }
}
