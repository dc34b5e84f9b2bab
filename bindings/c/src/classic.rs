//! The textbook heap with the five function names used in courses: [`mm_init`] to [`mm_deinit`].
//!
//! The program has one heap, behind one lock, as programs in C expect.

#![allow(unsafe_code, reason = "pointers that a program in C passes")]

use std::ffi::{CString, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use tontine::heap::HeapError;
use tontine::heap::classic::ClassicHeap;

use crate::border::{CError, CResult, answer};

static HEAP: Mutex<Option<ClassicHeap>> = Mutex::new(None);

impl From<HeapError> for CError {
    fn from(error: HeapError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// Creates the program's textbook heap: an implicit list of blocks in one arena, first fit, one
/// lock for all threads. The heap is meant for learning and for comparison, and is not fast.
/// Returns 0; -1 and errno EBUSY if the heap already exists.
#[unsafe(no_mangle)]
pub extern "C" fn mm_init() -> c_int {
    answer(|| {
        let mut heap = heap();
        if heap.is_some() {
            return Err(CError::new(libc::EBUSY, "the heap exists already; call mm_deinit first"));
        }
        *heap = Some(ClassicHeap::new()?);
        Ok(0)
    })
}

/// Allocates a block of at least `size` bytes, aligned to 16. It is valid until mm_free or
/// mm_deinit. Returns NULL and sets errno if it fails: ENOMEM, no space; EUCLEAN, a write beyond a
/// block's end has corrupted the heap; EINVAL, the heap does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn mm_malloc(size: usize) -> *mut c_void {
    answer(|| with(|heap| Ok(heap.malloc(size)?.as_ptr().cast())))
}

/// Frees a block that mm_malloc has returned and that the program no longer uses. Does nothing if
/// `block` is NULL. Returns 0; if it detects a mistake, -1 and errno: EFAULT or EINVAL, no block of
/// this heap begins there; EALREADY, the block is already free; EUCLEAN, a write beyond a block's
/// end has corrupted the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mm_free(block: *mut c_void) -> c_int {
    answer(|| match NonNull::new(block.cast()) {
        None => Ok(0),
        // SAFETY: the caller upholds the contract.
        Some(block) => with(|heap| Ok(unsafe { heap.free(block) }.map(|()| 0)?)),
    })
}

/// Checks the whole heap, and prints all its blocks if `verbose` is not 0. Returns 0; -1 and errno
/// EUCLEAN if a block is corrupted.
#[unsafe(no_mangle)]
pub extern "C" fn mm_checkheap(verbose: c_int) -> c_int {
    answer(|| {
        let map = with(|heap| Ok(heap.check()?))?;
        if verbose != 0 {
            let text = CString::new(map.to_string()).expect("a map has no NUL byte");
            // The map is printed by the program's own stdio, so that it is in order with the
            // program's output.
            // SAFETY: both texts end with a NUL byte.
            unsafe { libc::printf(c"%s".as_ptr(), text.as_ptr()) };
        }
        Ok(0)
    })
}

/// Frees the heap with all its blocks.
#[unsafe(no_mangle)]
pub extern "C" fn mm_deinit() {
    answer(|| {
        heap().take();
        Ok(0)
    });
}

/// Locks the heap. Panics if a call has panicked while it held the lock, which is a bug in the
/// library.
fn heap() -> MutexGuard<'static, Option<ClassicHeap>> {
    HEAP.lock().expect("no thread panics while it holds the lock")
}

fn with<T>(body: impl FnOnce(&mut ClassicHeap) -> CResult<T>) -> CResult<T> {
    match heap().as_mut() {
        Some(heap) => body(heap),
        None => Err(CError::new(libc::EINVAL, "there is no heap; call mm_init first")),
    }
}
