//! A structure in POSIX shared memory under the name of a [`Place`]: [`Region`].
//!
//! Raw on purpose: what the rings do with it is what their peers' authors do, through pointers.

#![allow(unsafe_code, reason = "maps shared memory")]

use std::io;
use std::ptr::NonNull;

use rustix::fs::{Mode, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::shm;

use crate::place::Place;

/// A mapped `T`, as often in other processes. Its bytes start as zero.
#[derive(Debug)]
pub(super) struct Region<T>(NonNull<T>);

impl<T> Region<T> {
    /// Makes and maps it.
    pub(super) fn create(place: &Place) -> io::Result<Self> {
        let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
        let file = shm::open(&*place.posix_name(), flags, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&file, Self::length() as u64)?;
        Self::map(&file)
    }

    /// Maps what another process made.
    pub(super) fn open(place: &Place) -> io::Result<Self> {
        let file = shm::open(&*place.posix_name(), shm::OFlags::RDWR, Mode::empty())?;
        Self::map(&file)
    }

    /// Valid as long as the handle; other processes write there too.
    pub(super) fn at(&self) -> *mut T {
        self.0.as_ptr()
    }

    fn length() -> usize {
        size_of::<T>().next_multiple_of(rustix::param::page_size())
    }

    fn map(file: &rustix::fd::OwnedFd) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing of ours.
        let at = unsafe {
            mmap(std::ptr::null_mut(), Self::length(), access, MapFlags::SHARED, file, 0)
        }?;
        Ok(Self(NonNull::new(at.cast()).expect("mmap never returns a null pointer")))
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this handle's own, of this length; pointers from `at` are not
        // used after the handle.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), Self::length()) };
    }
}
