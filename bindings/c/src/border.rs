//! The frame of each call: [`answer`], [`CError`], [`Poisonable`], and the functions that return
//! the error's text and the version.

#![allow(unsafe_code, reason = "pointers that a program in C passes")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use libc::ssize_t;
use tontine::Error;
use tontine::mailbox::Address;

thread_local! {
    /// The text of this thread's last error.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the text of the error of this thread's last failed call: the process that caused it, the
/// expected value, and the remedy. Returns "" if no call has failed. The pointer is valid until
/// another call fails in this thread, or the thread ends. errno contains the number of the error.
#[unsafe(no_mangle)]
pub extern "C" fn tontine_last_error() -> *const c_char {
    LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr()))
        .unwrap_or(c"".as_ptr())
}

/// Returns the library's version, as in "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn tontine_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The error of a call that failed.
#[derive(Debug)]
pub(crate) struct CError {
    pub(crate) errno: c_int,
    pub(crate) text: String,
}

pub(crate) type CResult<T> = Result<T, CError>;

impl CError {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    fn bug() -> Self {
        Self::new(libc::ENOTRECOVERABLE, "a bug in the library; the handle can only be closed")
    }

    /// Sets `errno`, and keeps the text.
    fn report(self) {
        let errno = self.errno;
        self.keep_words();
        // SAFETY: the C library returns the address of this thread's `errno`.
        unsafe { *libc::__errno_location() = errno };
    }

    /// Keeps the text for `tontine_last_error`.
    pub(crate) fn keep_words(self) {
        let text = CString::new(self.text.replace('\0', "\\0")).unwrap_or_default();
        // A thread that is ending no longer has thread-local storage.
        let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
    }
}

impl From<Error> for CError {
    fn from(error: Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// A type that a function may return to C.
pub(crate) trait CReturn {
    /// The value returned by a call that failed.
    const FAILED: Self;
}

impl CReturn for c_int {
    const FAILED: Self = -1;
}

impl CReturn for ssize_t {
    const FAILED: Self = -1;
}

impl<T: CReturn> CReturn for Option<T> {
    const FAILED: Self = Some(T::FAILED);
}

impl<T> CReturn for *mut T {
    const FAILED: Self = ptr::null_mut();
}

/// Runs the body of a call and returns its result in C's form. A panic in the body does not leave
/// this function, and no cancellation of the thread unwinds it.
pub(crate) fn answer<T: CReturn>(body: impl FnOnce() -> CResult<T>) -> T {
    let _uncancelled = Uncancelled::new();
    answer_cancellable(body)
}

/// Like [`answer`], for a body in which no cancellation can occur: it calls no function of the C
/// library that is a cancellation point.
pub(crate) fn answer_cancellable<T: CReturn>(body: impl FnOnce() -> CResult<T>) -> T {
    // A value that a panic left incomplete is inside a `Poisonable`, which refuses every later
    // call.
    let refusal = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(refusal)) => refusal,
        Err(payload) => {
            // Dropping the payload could panic again.
            std::mem::forget(payload);
            CError::bug()
        }
    };
    refusal.report();
    T::FAILED
}

/// Holds off the cancellation of the calling thread while it exists, which takes about 30 ns.
/// `pthread_cancel` would unwind the thread from within a function of the C library, and unwinding
/// through Rust aborts the process.
struct Uncancelled(c_int);

impl Uncancelled {
    /// `PTHREAD_CANCEL_DISABLE` of every C library for Linux.
    const DISABLE: c_int = 1;

    fn new() -> Self {
        Self(Self::set(Self::DISABLE))
    }

    /// Sets the thread's state, and returns the one before.
    fn set(state: c_int) -> c_int {
        // Declared here, because cbindgen would declare it in the header.
        unsafe extern "C" {
            fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
        }
        let mut old = 0;
        // SAFETY: the state is `DISABLE` or one that the call stored, and `old` is writable.
        unsafe { pthread_setcancelstate(state, &raw mut old) };
        old
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        Self::set(self.0);
    }
}

/// The value behind a handle. Once a call on the value has panicked, it refuses all later calls.
#[derive(Debug)]
pub(crate) struct Poisonable<T> {
    value: T,
    is_broken: bool,
}

impl<T> Poisonable<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, is_broken: false }
    }

    pub(crate) fn with<U>(&mut self, body: impl FnOnce(&mut T) -> CResult<U>) -> CResult<U> {
        if self.is_broken {
            return Err(CError::bug());
        }
        // The flag stays set if `body` panics.
        self.is_broken = true;
        let done = body(&mut self.value);
        self.is_broken = false;
        done
    }
}

/// Returns a new handle.
pub(crate) fn hand_over<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Returns the value behind a handle.
///
/// # Safety
/// 1. `handle` is NULL, or comes from [`hand_over`] and was not closed.
/// 2. No other call uses the value while the result lives.
pub(crate) unsafe fn behind<'a, T>(handle: *mut T) -> CResult<&'a mut T> {
    // SAFETY: the caller upholds the contract (1, 2).
    unsafe { handle.as_mut() }
        .ok_or_else(|| CError::new(libc::EINVAL, "the handle is NULL; open one first"))
}

/// Closes a handle; does nothing if it is NULL.
///
/// # Safety
/// 1. The contract of [`behind`].
/// 2. The handle is not used afterwards.
pub(crate) unsafe fn close<T>(handle: *mut T) {
    answer(|| {
        if !handle.is_null() {
            // SAFETY: the pointer is not NULL, so `hand_over` made it (1), and it is not used
            // afterwards (2).
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(0)
    });
}

/// Returns the bytes of a message.
///
/// # Safety
/// `start` is NULL, or points to `length` bytes that no thread changes while the result lives.
pub(crate) unsafe fn bytes<'a>(start: *const c_void, length: usize) -> CResult<&'a [u8]> {
    check_length(start, length)?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: the pointer is not NULL, and the length is valid for a slice; the caller ensures the
    // rest.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}

/// Copies a message into the program's buffer and returns its length. If the message does not fit,
/// writes nothing and returns EMSGSIZE.
///
/// # Safety
/// `buffer` points to `size` bytes that may be written, or is NULL.
pub(crate) unsafe fn copy_out(
    message: &[u8],
    buffer: *mut c_void,
    size: usize,
) -> CResult<ssize_t> {
    check_length(buffer, size)?;
    if message.len() > size {
        let text = format!(
            "the message has {} bytes and the buffer {size}; call again with a larger one, the \
             message is kept",
            message.len()
        );
        return Err(CError::new(libc::EMSGSIZE, text));
    }
    if !message.is_empty() {
        // SAFETY: the message fits. The buffer is not NULL, because its size is not 0; it belongs
        // to the program, so it does not overlap memory of the library.
        unsafe { ptr::copy_nonoverlapping(message.as_ptr(), buffer.cast(), message.len()) };
    }
    length(message.len())
}

/// Returns a length in C's form.
pub(crate) fn length(length: usize) -> CResult<ssize_t> {
    ssize_t::try_from(length)
        .map_err(|_| CError::new(libc::EOVERFLOW, "the length does not fit into a ssize_t"))
}

fn check_length(start: *const c_void, length: usize) -> CResult<()> {
    if start.is_null() && length > 0 {
        return Err(CError::new(
            libc::EINVAL,
            "a pointer is NULL and its length is not 0; pass a buffer, or length 0",
        ));
    }
    if isize::try_from(length).is_err() {
        return Err(CError::new(libc::EINVAL, "a length exceeds SSIZE_MAX; pass a smaller one"));
    }
    Ok(())
}

/// Returns the address that a text names: a path, or `@` and a name in the abstract namespace.
///
/// # Safety
/// `text` is NULL, or a text that ends with a NUL byte.
pub(crate) unsafe fn address(text: *const c_char) -> CResult<Address> {
    if text.is_null() {
        return Err(CError::new(libc::EINVAL, "the address is NULL; pass a path, or @ and a name"));
    }
    // SAFETY: the text is not NULL, and ends with a NUL byte.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(match text.strip_prefix(b"@") {
        Some(name) => Address::abstract_name(name),
        None => Address::path(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(text)),
    })
}

/// Returns a descriptor that the program passes to the library.
///
/// # Safety
/// The program does not use or close the descriptor afterwards.
pub(crate) unsafe fn owned(fd: c_int) -> CResult<OwnedFd> {
    check_open(fd)?;
    // SAFETY: the caller passes an open descriptor, which only the result closes.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a descriptor that still belongs to the program.
///
/// # Safety
/// The descriptor stays open while the result lives.
pub(crate) unsafe fn borrowed<'a>(fd: c_int) -> CResult<BorrowedFd<'a>> {
    check_open(fd)?;
    // SAFETY: the caller keeps the descriptor open while the result lives.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn check_open(fd: c_int) -> CResult<()> {
    // SAFETY: the call only reads the flags of a descriptor; it fails if the descriptor is not
    // open.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
        return Err(CError::new(libc::EBADF, format!("{fd} is not an open descriptor")));
    }
    Ok(())
}

/// Returns a timeout, or `None`, which waits indefinitely, for a negative number.
pub(crate) fn timeout(timeout_ms: i64) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    fn last() -> String {
        // SAFETY: the text is valid until the next failed call in this thread.
        unsafe { CStr::from_ptr(tontine_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn panic_becomes_error_and_closes_handle() {
        let mut kept = Poisonable::new(7);
        assert_eq!(answer(|| kept.with(|value| Ok(*value))), 7);
        let failed: c_int = answer(|| kept.with(|_| panic!("on purpose")));
        assert_eq!((failed, errno()), (-1, libc::ENOTRECOVERABLE));
        let again: c_int = answer(|| kept.with(|value| Ok(*value)));
        assert_eq!((again, errno()), (-1, libc::ENOTRECOVERABLE));
        assert!(last().contains("bug"), "{}", last());
    }

    #[test]
    fn failed_call_sets_errno_and_keeps_text_per_thread() {
        let failed: *mut c_int = answer(|| Err(Error::WouldBlock.into()));
        assert!(failed.is_null());
        assert_eq!(errno(), libc::EAGAIN);
        assert_eq!(last(), Error::WouldBlock.to_string());
        std::thread::spawn(|| assert_eq!(last(), "")).join().expect("no other thread's text");
        let failed: c_int = answer(|| Err(CError::new(libc::EINVAL, "a\0b")));
        assert_eq!((failed, last().as_str()), (-1, "a\\0b"));
    }

    #[test]
    fn null_pointers_and_closed_descriptors_are_refused() {
        // SAFETY: each pointer is NULL, or its length is 0.
        unsafe {
            assert_eq!(bytes(ptr::null(), 1).expect_err("NULL").errno, libc::EINVAL);
            assert_eq!(bytes(ptr::null(), 0).expect("no bytes"), b"");
            assert_eq!(copy_out(b"", ptr::null_mut(), 0).expect("no bytes"), 0);
            assert_eq!(copy_out(b"a", ptr::null_mut(), 0).expect_err("no space").errno, 90);
            assert_eq!(address(ptr::null()).expect_err("NULL").errno, libc::EINVAL);
            assert_eq!(address(c"@a".as_ptr()).expect("a name"), Address::abstract_name("a"));
            assert_eq!(behind::<u8>(ptr::null_mut()).expect_err("NULL").errno, libc::EINVAL);
            assert_eq!(owned(-1).expect_err("not open").errno, libc::EBADF);
            assert_eq!(borrowed(1 << 20).expect_err("not open").errno, libc::EBADF);
            close::<u8>(ptr::null_mut());
        }
    }

    #[test]
    fn copy_out_into_too_small_buffer_writes_nothing() {
        let mut buffer = [7_u8; 4];
        let start: *mut c_void = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer has four bytes.
        let done = unsafe { copy_out(b"longer", start, 4) };
        assert_eq!(done.expect_err("too long").errno, libc::EMSGSIZE);
        assert_eq!(buffer, [7; 4]);
        // SAFETY: the buffer has four bytes.
        assert_eq!(unsafe { copy_out(b"fits", start, 4) }.expect("fits"), 4);
        assert_eq!(&buffer, b"fits");
    }
}
