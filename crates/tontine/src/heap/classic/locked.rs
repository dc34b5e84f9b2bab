//! One lock for all threads: [`Locked`].

#![allow(unsafe_code, reason = "passes a caller's promise on")]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use super::{Heap, Map, Options};
use crate::heap::Result;

/// A [`Heap`] that threads share, one at a time. As the source says of it: it does not scale; what
/// that costs `tontine measure allocators` shows.
#[derive(Debug)]
pub struct Locked(Mutex<Heap>);

impl Locked {
    /// A heap with a lock.
    ///
    /// # Errors
    /// Those of [`Heap::new`].
    pub fn new(options: Options) -> Result<Self> {
        Heap::new(options).map(|heap| Self(Mutex::new(heap)))
    }

    /// As [`Heap::malloc`].
    ///
    /// # Errors
    /// Those of [`Heap::malloc`].
    pub fn malloc(&self, size: usize) -> Result<NonNull<u8>> {
        self.lock().malloc(size)
    }

    /// As [`Heap::free`].
    ///
    /// # Errors
    /// Those of [`Heap::free`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.lock().free(block) }
    }

    /// As [`Heap::check`].
    ///
    /// # Errors
    /// Those of [`Heap::check`].
    pub fn check(&self) -> Result<Map> {
        self.lock().check()
    }

    fn lock(&self) -> MutexGuard<'_, Heap> {
        self.0.lock().expect("nobody panics with it")
    }
}
