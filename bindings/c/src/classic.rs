//! The textbook's heap by its five names: [`mm_init`] to [`mm_deinit`].
//!
//! One for the whole program, behind one lock, as programs in C expect it.

#![allow(unsafe_code, reason = "pointers that a program in C passes")]

use std::ffi::{CString, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use tontine::heap::HeapError;
use tontine::heap::classic::ClassicHeap;

use crate::border::{Outcome, Refusal, answer};

static HEAP: Mutex<Option<ClassicHeap>> = Mutex::new(None);

impl From<HeapError> for Refusal {
    fn from(error: HeapError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// Makes the textbook's heap: an implicit list of blocks in one arena, first fit, one lock for all
/// threads. It is there to learn from and to compare with; it is not this library's fast one.
/// EBUSY: it is there already.
#[unsafe(no_mangle)]
pub extern "C" fn mm_init() -> c_int {
    answer(|| {
        let mut heap = heap();
        if heap.is_some() {
            return Err(Refusal::new(
                libc::EBUSY,
                "the heap is there already; call mm_deinit first",
            ));
        }
        *heap = Some(ClassicHeap::new()?);
        Ok(0)
    })
}

/// A block of at least so many bytes, aligned to 16, until it is freed or mm_deinit is called.
/// ENOMEM: there is no room for it. EUCLEAN: somebody has written beyond a block's end. EINVAL:
/// there is no heap.
#[unsafe(no_mangle)]
pub extern "C" fn mm_malloc(size: usize) -> *mut c_void {
    answer(|| with(|heap| Ok(heap.malloc(size)?.as_ptr().cast())))
}

/// Takes a block back that mm_malloc returned and that nobody uses any more; NULL is none. Where it
/// can be seen that it is none of these: EFAULT, EINVAL, no block of this heap begins there;
/// EALREADY, it was freed before; EUCLEAN, somebody has written beyond a block's end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mm_free(block: *mut c_void) -> c_int {
    answer(|| match NonNull::new(block.cast()) {
        None => Ok(0),
        // SAFETY: the caller's promise.
        Some(block) => with(|heap| Ok(unsafe { heap.free(block) }.map(|()| 0)?)),
    })
}

/// Looks at the whole heap; verbose: prints all its blocks. EUCLEAN: a block is damaged.
#[unsafe(no_mangle)]
pub extern "C" fn mm_checkheap(verbose: c_int) -> c_int {
    answer(|| {
        let map = with(|heap| Ok(heap.check()?))?;
        if verbose != 0 {
            let text = CString::new(map.to_string()).expect("there is no NUL in it");
            // By the program's own stdio: in order with what it prints.
            // SAFETY: two texts that end with a NUL.
            unsafe { libc::printf(c"%s".as_ptr(), text.as_ptr()) };
        }
        Ok(0)
    })
}

/// Ends the heap, and with it all its blocks.
#[unsafe(no_mangle)]
pub extern "C" fn mm_deinit() {
    answer(|| {
        heap().take();
        Ok(0)
    });
}

/// A panic with it in hand is a bug of the library's, and so is what comes after.
fn heap() -> MutexGuard<'static, Option<ClassicHeap>> {
    HEAP.lock().expect("nobody panics with it")
}

fn with<T>(body: impl FnOnce(&mut ClassicHeap) -> Outcome<T>) -> Outcome<T> {
    match heap().as_mut() {
        Some(heap) => body(heap),
        None => Err(Refusal::new(libc::EINVAL, "there is no heap; call mm_init first")),
    }
}
