//! A virtual thread as other threads see it, [`Thread`], and its pending work, [`AstFlags`].

#![allow(unsafe_code, reason = "a name behind one atomic word")]

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::{fmt, ptr};

use bitflags::bitflags;
use tontine_unix::SigSet;

use super::KernelHandle;
use crate::executor::{self, Object};

bitflags! {
    /// Work that a thread handles before it returns to user mode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct AstFlags: u32 {
        /// A signal may be deliverable.
        const SIGNAL = 1 << 0;
        /// The thread must end because another thread exits or calls exec (`sig_lock_to_exit`).
        const HALT = 1 << 1;
        /// The process is stopped.
        const STOP = 1 << 2;
        /// The parent must be notified that the process continues.
        const REPORT = 1 << 3;
        /// The clock ticked, so the profile must be updated (§6.1).
        const TICK = 1 << 4;
        /// `sig_lock_or_return` found the state *waiting*: the thread blocks until that state is
        /// over.
        const BLOCK = 1 << 5;
    }
}

/// The object that a thread waits for in its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitChannel {
    Nothing,
    /// Any child.
    Any,
    /// The child with this number.
    Child(i32),
    /// A child of the group with this number.
    Group(i32),
    /// A child of the caller's own group.
    OwnGroup,
    /// The end of the thread with this number.
    Thread(i32),
    /// Data from a pipe, or space in it; contains the instance of the pipe's lock.
    Pipe(i32),
    /// Data from a terminal, or space in it.
    Terminal,
}

impl WaitChannel {
    /// Packs the value into one word: the kind in the high half, the number in the low one.
    const fn packed(self) -> u64 {
        let (kind, number) = match self {
            Self::Nothing => (0, 0),
            Self::Any => (1, 0),
            Self::Child(number) => (2, number as u32),
            Self::Group(number) => (3, number as u32),
            Self::OwnGroup => (4, 0),
            Self::Thread(number) => (5, number as u32),
            Self::Pipe(instance) => (6, instance as u32),
            Self::Terminal => (7, 0),
        };
        (kind as u64) << 32 | number as u64
    }

    /// Unpacks a word that [`Self::packed`] returned.
    const fn unpacked(word: u64) -> Self {
        let number = word as u32;
        match word >> 32 {
            1 => Self::Any,
            2 => Self::Child(number as i32),
            3 => Self::Group(number as i32),
            4 => Self::OwnGroup,
            5 => Self::Thread(number as i32),
            6 => Self::Pipe(number as i32),
            7 => Self::Terminal,
            _ => Self::Nothing,
        }
    }
}

/// The text that follows the name of the call.
impl fmt::Display for WaitChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Any => f.write_str(" for any child"),
            Self::Child(number) => write!(f, " for child {number}"),
            Self::Group(number) => write!(f, " for a child of group {number}"),
            Self::OwnGroup => f.write_str(" for a child of its group"),
            Self::Thread(number) => write!(f, " for thread {number}"),
            Self::Pipe(instance) => write!(f, " for pipe {instance}"),
            Self::Terminal => f.write_str(" for its terminal"),
        }
    }
}

/// A thread.
pub(super) struct Thread {
    /// The thread number; a thread that calls exec takes the number of the process.
    tid: AtomicI32,
    /// The slot of the thread's process.
    pub(super) slot: u32,
    /// The kernel, for the clock tick, which has only a pointer to the thread.
    pub(super) kernel: KernelHandle,
    attention: AtomicU32,
    /// Blocked signals. Written under the process's `p_lock`: by the thread itself, or, if the mask
    /// belongs to the process, by any of its threads.
    mask: AtomicU64,
    /// `true` while the thread sleeps interruptibly. Written under the process's `p_lock`.
    sleeping: AtomicBool,
    /// The signals that `sigtimedwait` waits for. Written under the process's `p_lock`.
    awaited: AtomicU64,
    /// The name of the call that the thread is in or was in last, for inspection.
    call: AtomicPtr<&'static str>,
    /// The object that the thread waits for in the call: a packed [`WaitChannel`].
    object: AtomicU64,
    /// The word of the profiling flag (§6.1): ticks since the last check. Only the clock writes it.
    pub(super) ticks: AtomicU32,
    /// `true` once the thread has left its process, whose slot may then belong to another process.
    left: AtomicBool,
    /// Size of the alternate stack with which the thread starts; written before the start.
    alternate: AtomicUsize,
}

impl Thread {
    pub(super) fn new(kernel: KernelHandle, slot: u32, tid: i32, mask: SigSet) -> Self {
        Self {
            tid: AtomicI32::new(tid),
            slot,
            kernel,
            attention: AtomicU32::new(0),
            mask: AtomicU64::new(mask.bits()),
            sleeping: AtomicBool::new(false),
            awaited: AtomicU64::new(0),
            call: AtomicPtr::new(ptr::null_mut()),
            object: AtomicU64::new(0),
            ticks: AtomicU32::new(0),
            left: AtomicBool::new(false),
            alternate: AtomicUsize::new(0),
        }
    }

    /// Returns the thread's number.
    pub(super) fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Changes the thread's number. Called by the thread itself, under `p_lock`.
    pub(super) fn set_tid(&self, tid: i32) {
        self.tid.store(tid, Ordering::Relaxed);
    }

    /// Records that the thread has left its process. Called by the thread itself, or for it while
    /// it sleeps.
    pub(super) fn leaves(&self) {
        executor::changes(Object::Process(self.slot));
        self.left.store(true, Ordering::Relaxed);
    }

    /// Returns `true` once the thread has left its process.
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Records the call that the thread is in.
    pub(super) fn calls(&self, name: &'static &'static str) {
        self.call.store(ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
        self.waits_for(WaitChannel::Nothing);
    }

    /// Records the object that the thread is about to wait for in this call.
    pub(super) fn waits_for(&self, what: WaitChannel) {
        self.object.store(what.packed(), Ordering::Relaxed);
    }

    /// Describes the object that the thread waits for.
    pub(super) fn object(&self) -> String {
        WaitChannel::unpacked(self.object.load(Ordering::Relaxed)).to_string()
    }

    /// Returns the call that the thread is in, or was in last.
    pub(super) fn call(&self) -> &'static str {
        // SAFETY: the pointer is null, or a reference with a static lifetime that `calls` stored.
        unsafe { self.call.load(Ordering::Relaxed).as_ref() }.copied().unwrap_or("begins")
    }

    /// Returns the call that a thread is in, or was in last, given the context of its fiber; `None`
    /// for fibers of the system itself.
    ///
    /// # Safety
    ///
    /// The context must be that of a fiber that has not ended.
    pub(super) unsafe fn call_of(context: usize) -> Option<&'static str> {
        // SAFETY: the context of a fiber is its thread, which the fiber keeps alive.
        unsafe { (context as *const Self).as_ref() }.map(Self::call)
    }

    pub(super) fn attention(&self) -> AstFlags {
        executor::looks_at(Object::Process(self.slot));
        // SYNC attention: pairs with `Thread::demand`.
        AstFlags::from_bits_retain(self.attention.load(Ordering::Acquire))
    }

    /// Adds work that the thread must handle before it returns to user mode. Called under the
    /// process's `p_lock`, or by the thread itself, by the thread that created it, or by the clock.
    pub(super) fn demand(&self, what: AstFlags) {
        executor::changes(Object::Process(self.slot));
        // SYNC attention: pairs with `Thread::attention`.
        self.attention.fetch_or(what.bits(), Ordering::Release);
    }

    /// Removes handled work. Usually there is no such work, so nothing is written.
    pub(super) fn settle(&self, what: AstFlags) {
        if self.attention.load(Ordering::Relaxed) & what.bits() != 0 {
            executor::changes(Object::Process(self.slot));
            self.attention.fetch_and(!what.bits(), Ordering::Relaxed);
        }
    }

    pub(super) fn mask(&self) -> SigSet {
        executor::looks_at(Object::Process(self.slot));
        SigSet::from_bits(self.mask.load(Ordering::Relaxed))
    }

    pub(super) fn set_mask(&self, mask: SigSet) {
        executor::changes(Object::Process(self.slot));
        self.mask.store(mask.bits(), Ordering::Relaxed);
    }

    pub(super) fn awaited(&self) -> SigSet {
        SigSet::from_bits(self.awaited.load(Ordering::Relaxed))
    }

    pub(super) fn set_awaited(&self, set: SigSet) {
        self.awaited.store(set.bits(), Ordering::Relaxed);
    }

    pub(super) fn is_sleeping(&self) -> bool {
        executor::looks_at(Object::Process(self.slot));
        self.sleeping.load(Ordering::Relaxed)
    }

    pub(super) fn set_sleeping(&self, sleeping: bool) {
        executor::changes(Object::Process(self.slot));
        self.sleeping.store(sleeping, Ordering::Relaxed);
    }

    /// Returns the alternate stack with which the thread starts.
    pub(super) fn first_alternate(&self) -> tontine_unix::SigStack {
        tontine_unix::SigStack { size: self.alternate.load(Ordering::Relaxed), on_stack: false }
    }

    pub(super) fn begin_with_alternate(&self, stack: tontine_unix::SigStack) {
        self.alternate.store(stack.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_object_round_trips_through_one_word() {
        let number = i32::MAX;
        let all = [
            WaitChannel::Nothing,
            WaitChannel::Any,
            WaitChannel::Child(number),
            WaitChannel::Group(number),
            WaitChannel::OwnGroup,
            WaitChannel::Thread(number),
            WaitChannel::Pipe(number),
            WaitChannel::Terminal,
        ];
        for what in all {
            assert_eq!(WaitChannel::unpacked(what.packed()), what);
        }
    }
}
