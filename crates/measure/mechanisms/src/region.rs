//! A structure in shared memory, followed by bytes: [`SharedRegion`]; and memory that both ends of
//! a pair share: [`Common`].
//!
//! A region is deliberately a raw pointer: the rings access it through pointers, as comparable
//! rings do.

#![allow(unsafe_code, reason = "maps shared memory")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::shm;
use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::os::shared::{Shareable, SharedMapping};

use crate::location::Location;

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapped `T` with `extra` bytes after it, which other processes may also map. All bytes start as
/// zero.
#[derive(Debug)]
pub struct SharedRegion<T> {
    at: NonNull<T>,
    length: usize,
}

// SAFETY: the mapping is bound to no thread; each user of the pointer justifies its own accesses.
unsafe impl<T> Send for SharedRegion<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SharedRegion<T> {}

impl<T> SharedRegion<T> {
    /// Creates and maps the structure under a name.
    pub fn create(at: &Location, extra: usize) -> Result<Self> {
        let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
        let file = shm::open(&*at.posix_name(), flags, Mode::RUSR | Mode::WUSR);
        let file = file.setting_up("shm_open")?;
        ftruncate(&file, Self::length(extra) as u64).setting_up("ftruncate on shared memory")?;
        Self::map(&file, extra)
    }

    /// Maps a structure that another process created.
    pub fn open(at: &Location, extra: usize) -> Result<Self> {
        let file = shm::open(&*at.posix_name(), shm::OFlags::RDWR, Mode::empty());
        Self::map(&file.setting_up("shm_open")?, extra)
    }

    /// Creates a structure without a name, for processes that are forked later.
    pub fn anonymous(extra: usize) -> Result<Self> {
        let (length, flags) = (Self::length(extra), MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address chosen by the kernel overlaps no memory in use.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ACCESS, flags) };
        Ok(Self::at_address(at.setting_up("mmap")?, length))
    }

    /// Returns the address, which is valid as long as the handle is. Other processes also write
    /// there.
    #[inline(always)]
    pub fn at(&self) -> *mut T {
        self.at.as_ptr()
    }

    fn length(extra: usize) -> usize {
        (size_of::<T>() + extra).next_multiple_of(rustix::param::page_size())
    }

    fn map(file: &OwnedFd, extra: usize) -> Result<Self> {
        let length = Self::length(extra);
        // SAFETY: a fresh mapping at an address chosen by the kernel overlaps no memory in use.
        let at = unsafe { mmap(std::ptr::null_mut(), length, ACCESS, MapFlags::SHARED, file, 0) };
        Ok(Self::at_address(at.setting_up("mmap")?, length))
    }

    fn at_address(at: *mut std::ffi::c_void, length: usize) -> Self {
        Self { at: NonNull::new(at.cast()).expect("mmap never returns a null pointer"), length }
    }
}

impl<T> Drop for SharedRegion<T> {
    fn drop(&mut self) {
        // SAFETY: this handle owns the mapping, which has this length; pointers from `at` are not
        // used after the handle is dropped.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.length) };
    }
}

/// Memory that both ends of a pair share. The handle itself contains the address, so that a loop
/// over the memory loads nothing else.
#[derive(Debug)]
pub struct Common<T> {
    at: NonNull<T>,
    _keeps: Arc<SharedMapping<T>>,
}

// SAFETY: the handle only hands out `&T`, and `Shareable` requires `Sync`.
unsafe impl<T: Shareable> Send for Common<T> {}

impl<T: Shareable> Common<T> {
    pub fn two(memory: SharedMapping<T>) -> (Self, Self) {
        let keeps = Arc::new(memory);
        let at = NonNull::from(&**keeps);
        (Self { at, _keeps: Arc::clone(&keeps) }, Self { at, _keeps: keeps })
    }
}

impl<T: Shareable> Deref for Common<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the mapping lives as long as `_keeps`, and its content is shared by reference
        // only.
        unsafe { self.at.as_ref() }
    }
}
