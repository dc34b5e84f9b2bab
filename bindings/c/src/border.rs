//! How every call answers: [`answer`], [`Refusal`], [`Kept`], and the functions that tell more.

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
    /// The words for the last failure of this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the text of the error of this thread's last call that failed: which peer caused it, what
/// was expected, what to do. "" if none has failed. Valid until another call fails in this thread.
/// errno has the number.
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

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: c_int,
    pub(crate) text: String,
}

pub(crate) type Outcome<T> = Result<T, Refusal>;

impl Refusal {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    fn bug() -> Self {
        Self::new(libc::ENOTRECOVERABLE, "a bug in the library; the handle can only be closed")
    }

    /// Sets `errno`, and keeps the words.
    fn tell(self) {
        let errno = self.errno;
        self.keep_words();
        // SAFETY: the C library's own address of this thread's `errno`.
        unsafe { *libc::__errno_location() = errno };
    }

    /// Keeps the words for `tontine_last_error`.
    pub(crate) fn keep_words(self) {
        let text = CString::new(self.text.replace('\0', "\\0")).unwrap_or_default();
        // A thread that is ending has no place for words any more.
        let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// What a function may return to C.
pub(crate) trait Answer {
    /// The value that says that the call failed.
    const FAILED: Self;
}

impl Answer for c_int {
    const FAILED: Self = -1;
}

impl Answer for ssize_t {
    const FAILED: Self = -1;
}

impl<T> Answer for *mut T {
    const FAILED: Self = ptr::null_mut();
}

/// Runs the whole of a call; no panic leaves it.
pub(crate) fn answer<T: Answer>(body: impl FnOnce() -> Outcome<T>) -> T {
    // Whatever a panic leaves half done is behind a `Kept`, which nobody gets into again.
    let refusal = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(refusal)) => refusal,
        Err(payload) => {
            // Dropping it could panic again.
            std::mem::forget(payload);
            Refusal::bug()
        }
    };
    refusal.tell();
    T::FAILED
}

/// What a handle leads to: closed to all once a call has panicked in it.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    value: T,
    is_broken: bool,
}

impl<T> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, is_broken: false }
    }

    pub(crate) fn with<U>(&mut self, body: impl FnOnce(&mut T) -> Outcome<U>) -> Outcome<U> {
        if self.is_broken {
            return Err(Refusal::bug());
        }
        // A panic leaves it set.
        self.is_broken = true;
        let done = body(&mut self.value);
        self.is_broken = false;
        done
    }
}

/// A new handle.
pub(crate) fn hand_over<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// What a handle leads to.
///
/// # Safety
/// It is NULL or comes from [`hand_over`], was not closed, and no other call uses it now.
pub(crate) unsafe fn behind<'a, T>(handle: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: passed on.
    unsafe { handle.as_mut() }
        .ok_or_else(|| Refusal::new(libc::EINVAL, "the handle is NULL; open one first"))
}

/// Closes a handle; NULL is none.
///
/// # Safety
/// As [`behind`]; nobody uses it afterwards.
pub(crate) unsafe fn close<T>(handle: *mut T) {
    answer(|| {
        if !handle.is_null() {
            // SAFETY: not NULL, therefore a handle that was made by `hand_over`.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(0)
    });
}

/// The bytes of a message.
///
/// # Safety
/// `start` leads to `length` bytes that nobody changes meanwhile, or is NULL.
pub(crate) unsafe fn bytes<'a>(start: *const c_void, length: usize) -> Outcome<&'a [u8]> {
    check_length(start, length)?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, and a length that a slice may have; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}

/// Copies a message into the program's buffer and returns its length. Where it does not fit,
/// nothing is written.
///
/// # Safety
/// `buffer` leads to `size` bytes that may be written, or is NULL.
pub(crate) unsafe fn copy_out(
    message: &[u8],
    buffer: *mut c_void,
    size: usize,
) -> Outcome<ssize_t> {
    check_length(buffer, size)?;
    if message.len() > size {
        let text = format!(
            "the message has {} bytes and the buffer {size}; call again with a larger one, the \
             message is kept",
            message.len()
        );
        return Err(Refusal::new(libc::EMSGSIZE, text));
    }
    if !message.is_empty() {
        // SAFETY: the message fits; the buffer is not NULL, as its size is not 0, and is the
        // program's own: it does not overlap what the library holds.
        unsafe { ptr::copy_nonoverlapping(message.as_ptr(), buffer.cast(), message.len()) };
    }
    length(message.len())
}

/// A length as C gets it.
pub(crate) fn length(length: usize) -> Outcome<ssize_t> {
    ssize_t::try_from(length)
        .map_err(|_| Refusal::new(libc::EOVERFLOW, "the length does not fit into a ssize_t"))
}

fn check_length(start: *const c_void, length: usize) -> Outcome<()> {
    if start.is_null() && length > 0 {
        return Err(Refusal::new(
            libc::EINVAL,
            "a pointer is NULL and its length is not 0; pass a buffer, or length 0",
        ));
    }
    if isize::try_from(length).is_err() {
        return Err(Refusal::new(libc::EINVAL, "a length exceeds SSIZE_MAX; pass a smaller one"));
    }
    Ok(())
}

/// An address.
///
/// # Safety
/// NULL, or a text that ends with a NUL byte.
pub(crate) unsafe fn address(text: *const c_char) -> Outcome<Address> {
    if text.is_null() {
        return Err(Refusal::new(
            libc::EINVAL,
            "the address is NULL; pass a path, or @ and a name",
        ));
    }
    // SAFETY: not NULL, and ended by a NUL byte.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(match text.strip_prefix(b"@") {
        Some(name) => Address::abstract_name(name),
        None => Address::path(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(text)),
    })
}

/// A descriptor that the program gives away.
///
/// # Safety
/// Nobody else closes it.
pub(crate) unsafe fn owned(fd: c_int) -> Outcome<OwnedFd> {
    check_open(fd)?;
    // SAFETY: it is open, and the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor that the program lends.
///
/// # Safety
/// It stays open meanwhile.
pub(crate) unsafe fn borrowed<'a>(fd: c_int) -> Outcome<BorrowedFd<'a>> {
    check_open(fd)?;
    // SAFETY: it is open, and the caller's promise.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn check_open(fd: c_int) -> Outcome<()> {
    // SAFETY: only asks.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
        return Err(Refusal::new(libc::EBADF, format!("{fd} is not an open descriptor")));
    }
    Ok(())
}

/// A time to wait; none is without end.
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
        // SAFETY: valid until the next call of this thread that fails.
        unsafe { CStr::from_ptr(tontine_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_and_closes_what_it_happened_in() {
        let mut kept = Kept::new(7);
        assert_eq!(answer(|| kept.with(|value| Ok(*value))), 7);
        let failed: c_int = answer(|| kept.with(|_| panic!("on purpose")));
        assert_eq!((failed, errno()), (-1, libc::ENOTRECOVERABLE));
        let again: c_int = answer(|| kept.with(|value| Ok(*value)));
        assert_eq!((again, errno()), (-1, libc::ENOTRECOVERABLE));
        assert!(last().contains("bug"), "{}", last());
    }

    #[test]
    fn a_failure_sets_the_number_and_keeps_the_words_for_its_thread() {
        let failed: *mut c_int = answer(|| Err(Error::WouldBlock.into()));
        assert!(failed.is_null());
        assert_eq!(errno(), libc::EAGAIN);
        assert_eq!(last(), Error::WouldBlock.to_string());
        std::thread::spawn(|| assert_eq!(last(), "")).join().expect("no words of another thread");
        let failed: c_int = answer(|| Err(Refusal::new(libc::EINVAL, "a\0b")));
        assert_eq!((failed, last().as_str()), (-1, "a\\0b"));
    }

    #[test]
    fn what_is_null_or_closed_is_refused() {
        // SAFETY: NULL, or nothing that is looked at.
        unsafe {
            assert_eq!(bytes(ptr::null(), 1).expect_err("NULL").errno, libc::EINVAL);
            assert_eq!(bytes(ptr::null(), 0).expect("nothing"), b"");
            assert_eq!(copy_out(b"", ptr::null_mut(), 0).expect("nothing"), 0);
            assert_eq!(copy_out(b"a", ptr::null_mut(), 0).expect_err("no room").errno, 90);
            assert_eq!(address(ptr::null()).expect_err("NULL").errno, libc::EINVAL);
            assert_eq!(address(c"@a".as_ptr()).expect("a name"), Address::abstract_name("a"));
            assert_eq!(behind::<u8>(ptr::null_mut()).expect_err("NULL").errno, libc::EINVAL);
            assert_eq!(owned(-1).expect_err("none").errno, libc::EBADF);
            assert_eq!(borrowed(1 << 20).expect_err("none").errno, libc::EBADF);
            close::<u8>(ptr::null_mut());
        }
    }

    #[test]
    fn a_message_that_does_not_fit_writes_nothing() {
        let mut buffer = [7_u8; 4];
        let start: *mut c_void = buffer.as_mut_ptr().cast();
        // SAFETY: four bytes.
        let done = unsafe { copy_out(b"longer", start, 4) };
        assert_eq!(done.expect_err("too long").errno, libc::EMSGSIZE);
        assert_eq!(buffer, [7; 4]);
        // SAFETY: the same.
        assert_eq!(unsafe { copy_out(b"fits", start, 4) }.expect("fits"), 4);
        assert_eq!(&buffer, b"fits");
    }
}
