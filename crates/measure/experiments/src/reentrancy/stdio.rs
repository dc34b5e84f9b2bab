//! Lines that several calls print into one `FILE`, with and without its lock held across all of
//! them: [`print`], [`whole`], and [`InterruptedLine`], interrupted while printing.
//!
//! Each call locks the `FILE` itself, so no call causes a data race between two threads.
//! `putc_unlocked` from two threads is omitted: it would cause such a race inside the C library,
//! and its output would depend more on the compiler than on stdio.

#![allow(unsafe_code, reason = "stdio of the C library")]

use std::sync::atomic::{AtomicPtr, Ordering};

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::IntoRawFd;

use super::interrupted::InterruptedWork;
use crate::prelude::*;

unsafe extern "C" {
    // POSIX specifies this function, but the libc crate lacks it.
    fn flockfile(file: *mut libc::FILE);
    fn funlockfile(file: *mut libc::FILE);
}

/// The words after a line's name and number; one call prints each word.
const WORDS: [&std::ffi::CStr; 6] = [c" several", c" calls", c" make", c" this", c" line", c"\n"];
const HANDLERS: &std::ffi::CStr = c"handler";
const LINES: u64 = 1_000;

#[derive(Debug)]
pub(super) struct AppendStream(*mut libc::FILE);

// SAFETY: every call made here locks the `FILE`.
unsafe impl Sync for AppendStream {}

impl AppendStream {
    pub(super) fn on(file: &File) -> Result<Self> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(file, 3).setting_up("fcntl")?;
        // SAFETY: the descriptor is owned here and its ownership is transferred; the mode is a C
        // string.
        let stream = unsafe { libc::fdopen(descriptor.into_raw_fd(), c"a".as_ptr()) };
        if stream.is_null() {
            return Err(MeasureError::setting_up("fdopen", std::io::Error::last_os_error()));
        }
        Ok(Self(stream))
    }

    pub(super) fn flush(&self) {
        // SAFETY: the stream stays open as long as the process lives.
        unsafe { libc::fflush(self.0) };
    }
}

impl Drop for AppendStream {
    fn drop(&mut self) {
        // SAFETY: `on` opened the stream, which is closed once; all threads that printed into it
        // have ended.
        unsafe { libc::fclose(self.0) };
    }
}

pub(super) fn nameless() -> Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("tontine-lines", flags).map(File::from).setting_up("memfd_create")
}

fn name(side: usize, number: u64) -> CString {
    CString::new(format!("{side}-{number}")).unwrap_or_default()
}

/// Returns a whole line as expected in the file.
pub(super) fn line(side: usize, number: u64) -> String {
    let words = WORDS.iter().filter_map(|word| word.to_str().ok());
    words.fold(format!("{side}-{number}"), |line, word| line + word).trim_end().to_owned()
}

/// Prints a line in seven calls. If `locked`, holds the lock across all of them; each call acquires
/// the lock again, because it is recursive.
fn put(stream: *mut libc::FILE, name: &std::ffi::CStr, locked: bool, midway: &mut dyn FnMut()) {
    // SAFETY: the stream is open; all texts end with a zero byte. A handler that prints while it
    // interrupts this function is undefined behaviour and occurs in expendable children only.
    unsafe {
        if locked {
            flockfile(stream);
        }
        libc::fputs(name.as_ptr(), stream);
        midway();
        for word in WORDS {
            libc::fputs(word.as_ptr(), stream);
        }
        if locked {
            funlockfile(stream);
        }
    }
}

pub(super) fn print(stream: &AppendStream, side: usize, number: u64, locked: bool) {
    put(stream.0, &name(side, number), locked, &mut || ());
}

pub(super) fn print_nameless(stream: &AppendStream, locked: bool) {
    put(stream.0, HANDLERS, locked, &mut || ());
}

pub(super) fn whole(file: &mut File) -> Result<HashSet<String>> {
    let mut bytes = Vec::new();
    file.rewind().during("lseek")?;
    file.read_to_end(&mut bytes).during("read of the lines")?;
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

/// Starts a sleeping thread, because in a single-threaded process the C library omits locks.
pub(super) fn company() -> bool {
    let asleep = || loop {
        std::thread::park();
    };
    std::thread::Builder::new().spawn(asleep).is_ok()
}

static STREAM: AtomicPtr<libc::FILE> = AtomicPtr::new(std::ptr::null_mut());

#[derive(Debug)]
pub(super) struct InterruptedLine<const LOCKED: bool> {
    file: File,
    stream: Option<AppendStream>,
    number: u64,
}

impl<const LOCKED: bool> InterruptedLine<LOCKED> {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { file: nameless()?, stream: None, number: 0 })
    }
}

impl<const LOCKED: bool> Clone for InterruptedLine<LOCKED> {
    fn clone(&self) -> Self {
        let file = self.file.try_clone().expect("another descriptor");
        Self { file, stream: None, number: 0 }
    }
}

impl<const LOCKED: bool> InterruptedWork for InterruptedLine<LOCKED> {
    const HANDLER_JUDGES: bool = false;

    fn prepare(&mut self) -> bool {
        let Ok(stream) = AppendStream::on(&self.file) else { return false };
        // Printed for its side effect: the first line allocates the stream's buffer.
        print(&stream, 0, 0, LOCKED);
        STREAM.store(stream.0, Ordering::Relaxed);
        self.stream = Some(stream);
        company() && self.file.set_len(0).is_ok()
    }

    fn operation(&mut self, midway: &mut dyn FnMut()) -> bool {
        self.number += 1;
        let name = name(0, self.number);
        put(STREAM.load(Ordering::Relaxed), &name, LOCKED, midway);
        true
    }

    fn in_handler() -> bool {
        put(STREAM.load(Ordering::Relaxed), HANDLERS, LOCKED, &mut || ());
        true
    }

    /// Searches the file for the line, then empties the file.
    fn settle(&mut self, interrupted: bool) -> bool {
        let full = self.number.is_multiple_of(LINES);
        if !interrupted && !full {
            return true;
        }
        let Some(stream) = &self.stream else { return false };
        stream.flush();
        let found = whole(&mut self.file).is_ok_and(|all| all.contains(&line(0, self.number)));
        found && self.file.set_len(0).is_ok()
    }
}
