//! The alternate stack of a thread: 4.3BSD's `sigstack` over sigaltstack(2).
//!
//! The memory is the thread's, and goes with it or with the next call.

#![allow(unsafe_code, reason = "sigaltstack(2) and the memory under it")]

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::convert::check;
use crate::errno::Result;
use crate::process::SigStack;

thread_local! {
    /// The stack that was made here, if that is the one in use.
    static OWN: RefCell<Option<Area>> = const { RefCell::new(None) };
}

/// Mapped memory.
#[derive(Debug)]
struct Area {
    start: *mut c_void,
    size: usize,
}

/// `sigstack`.
pub(super) fn sigstack(new: Option<SigStack>) -> Result<SigStack> {
    let Some(new) = new else { return exchange(None).map(|old| told(&old)) };
    if new.size == 0 {
        let old = exchange(Some(&disabled()))?;
        OWN.take();
        return Ok(told(&old));
    }
    let area = Area::map(new.size)?;
    let old =
        exchange(Some(&libc::stack_t { ss_sp: area.start, ss_flags: 0, ss_size: area.size }))?;
    OWN.set(Some(area));
    Ok(told(&old))
}

fn told(old: &libc::stack_t) -> SigStack {
    let off = old.ss_flags & libc::SS_DISABLE != 0;
    SigStack {
        size: if off { 0 } else { old.ss_size },
        on_stack: old.ss_flags & libc::SS_ONSTACK != 0,
    }
}

fn disabled() -> libc::stack_t {
    libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 }
}

fn exchange(new: Option<&libc::stack_t>) -> Result<libc::stack_t> {
    let mut old = disabled();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both live across the call; the memory of a new stack stays mapped while it is the thread's.
    check(unsafe { libc::sigaltstack(new, &raw mut old) })?;
    Ok(old)
}

impl Area {
    fn map(size: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::STACK;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), size, protection, flags) }?;
        Ok(Self { start, size })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Ok(current) = exchange(None)
            && current.ss_sp == self.start
            && exchange(Some(&disabled())).is_err()
        {
            // A handler runs on it.
            return;
        }
        // SAFETY: mapped in `map`, of this size, and the kernel no longer uses it.
        let _ = unsafe { munmap(self.start, self.size) };
    }
}
