//! Memory that two processes share: [`SharedMapping`].
//!
//! The memory is either anonymous and inherited across `fork`, or has a POSIX name. The name is
//! unlinked before the first use, so that a killed process leaves nothing in `/dev/shm`.

#![allow(unsafe_code, reason = "maps memory and hands out references into it")]

use std::ffi::{CStr, CString};
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::shm;

use crate::error::{ErrorContext, Result};

/// Maximum number of names tried.
const NAMES: u32 = 64;

/// A type whose values may be in shared memory. A value is valid if all its bytes are zero, is
/// changed only through atomics or through cells with documented owners, and is never dropped.
///
/// # Safety
/// The implementor guarantees that the all-zero pattern is a valid value and that several processes
/// may use shared references concurrently.
pub unsafe trait Shareable: Sync {}

// SAFETY: zero is a valid value, and atomics may be used concurrently.
unsafe impl Shareable for std::sync::atomic::AtomicU32 {}
// SAFETY: as above.
unsafe impl Shareable for std::sync::atomic::AtomicU64 {}
// SAFETY: an array of shareable values is shareable.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {}

/// A zeroed `T` in its own mapping, shared with every process that is forked later.
#[derive(Debug)]
pub struct SharedMapping<T> {
    at: NonNull<T>,
    length: usize,
    _holds: PhantomData<T>,
}

// SAFETY: `Shareable` requires `Sync`, and the mapping is not bound to a thread.
unsafe impl<T: Shareable> Send for SharedMapping<T> {}
// SAFETY: a shared handle gives out only `&T`, and `T` is `Sync`.
unsafe impl<T: Shareable> Sync for SharedMapping<T> {}

impl<T: Shareable> SharedMapping<T> {
    /// Maps anonymous shared memory.
    pub fn anonymous() -> Result<Self> {
        let length = Self::length();
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no memory in use.
        let at = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
            )
        }
        .setting_up("mmap")?;
        Ok(Self::at(at, length))
    }

    /// Maps memory by `shm_open` and `mmap`; the name is unlinked before this returns.
    pub fn posix() -> Result<Self> {
        let length = Self::length();
        let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
        let (name, file) =
            first_free_name(|name| Ok(shm::open(name, flags, Mode::RUSR | Mode::WUSR)?))
                .setting_up("shm_open")?;
        shm::unlink(&*name).setting_up("shm_unlink")?;
        ftruncate(&file, length as u64).setting_up("ftruncate on shared memory")?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no memory in use.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file.as_fd(),
                0,
            )
        }
        .setting_up("mmap")?;
        Ok(Self::at(at, length))
    }

    fn length() -> usize {
        size_of::<T>().next_multiple_of(rustix::param::page_size())
    }

    fn at(at: *mut std::ffi::c_void, length: usize) -> Self {
        let at = NonNull::new(at.cast::<T>()).expect("mmap never returns a null pointer");
        Self { at, length, _holds: PhantomData }
    }
}

impl<T> SharedMapping<T> {
    /// Returns the address, for system calls that take a pointer. The address is valid while the
    /// handle exists.
    pub fn as_ptr(&self) -> *mut T {
        self.at.as_ptr()
    }
}

impl<T: Shareable> Deref for SharedMapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is `length` ≥ size_of::<T>() bytes, page-aligned, zeroed at the start
        // (a valid `T` by `Shareable`), and lives until `drop`.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for SharedMapping<T> {
    fn drop(&mut self) {
        // SAFETY: `at` and `length` describe the mapping that this handle alone owns; references
        // borrowed from the handle have ended.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.length) };
    }
}

/// Creates an object under an unused POSIX name, and returns the name and the object.
///
/// If an earlier process with this pid was killed between creating and unlinking, its name remains;
/// then the next name is tried, up to [`NAMES`] names.
pub fn first_free_name<T>(make: impl Fn(&CStr) -> io::Result<T>) -> io::Result<(CString, T)> {
    // Two threads may run this code concurrently.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut taken = io::Error::from_raw_os_error(libc::EEXIST);
    for _ in 0..NAMES {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("/tontine-{}-{number}", std::process::id()))?;
        match make(&name) {
            Ok(made) => return Ok((name, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn first_free_name_skips_a_used_name() {
        let tries = AtomicU32::new(0);
        let exists = |_: &CStr| Err::<(), _>(io::Error::from_raw_os_error(libc::EEXIST));
        let second_free = |name: &CStr| match tries.fetch_add(1, Ordering::Relaxed) {
            0 => exists(name).map(|()| 0),
            tried => Ok(tried),
        };
        assert_eq!(first_free_name(second_free).expect("a name").1, 1);
        let error = first_free_name(exists).expect_err("all are taken");
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
    }

    #[test]
    fn shared_memory_starts_zeroed_and_keeps_stores() {
        for memory in [SharedMapping::<AtomicU64>::anonymous(), SharedMapping::<AtomicU64>::posix()]
        {
            let memory = memory.expect("shared memory");
            assert_eq!(memory.load(Ordering::Relaxed), 0);
            memory.store(7, Ordering::Relaxed);
            assert_eq!(memory.load(Ordering::Relaxed), 7);
        }
    }
}
