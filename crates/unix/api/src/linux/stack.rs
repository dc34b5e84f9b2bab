//! The alternate stack of a thread: 4.3BSD's `sigstack`, implemented with sigaltstack(2).
//!
//! The memory belongs to the thread until the thread ends: if a handler changes the stack, the
//! kernel undoes the change when the handler returns, and the previous stack is in use again.

#![allow(unsafe_code, reason = "sigaltstack(2) and the memory under it")]

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::convert::{check, to_errno};
use crate::errno::Result;
use crate::process::SigStack;

thread_local! {
    /// The stacks that this backend has mapped for the thread.
    static OWN: RefCell<Vec<Area>> = const { RefCell::new(Vec::new()) };
}

/// A mapped region.
#[derive(Debug)]
struct Area {
    start: *mut c_void,
    size: usize,
}

/// Returns the alternate stack, and with `Some` replaces it: `sigstack`.
pub(super) fn sigstack(new: Option<SigStack>) -> Result<SigStack> {
    match new {
        None => exchange(None),
        Some(SigStack { size: 0, .. }) => exchange(Some(&disabled())),
        Some(SigStack { size, .. }) => install(size),
    }
    .map(|old| from_kernel(&old))
}

/// Installs a stack of this size. Reuses a mapped stack that is not in use, or maps a new stack.
fn install(size: usize) -> Result<libc::stack_t> {
    let current = exchange(None)?;
    OWN.with_borrow_mut(|own| {
        let fits = |area: &Area| area.size == size && area.start != current.ss_sp;
        if !own.iter().any(fits) {
            own.push(Area::map(size)?);
        }
        let area = own.iter().find(|area| fits(area)).expect("it was there or was made");
        exchange(Some(&libc::stack_t { ss_sp: area.start, ss_flags: 0, ss_size: size }))
    })
}

/// Removes the alternate stack that Rust's runtime gives each thread. A new thread, or a child that
/// the host forks, therefore starts without one, and `sigstack` reports none. An alternate stack
/// that the backend allocated stays, also in a child.
pub(super) fn forget() {
    let Ok(current) = exchange(None) else { return };
    if !OWN.with_borrow(|own| own.iter().any(|area| area.start == current.ss_sp)) {
        // The call fails only while a handler runs on the stack, and no handler does.
        let _ = exchange(Some(&disabled()));
    }
}

fn from_kernel(old: &libc::stack_t) -> SigStack {
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
    // SAFETY: both outlive the call; the memory of a new stack stays mapped while the thread
    // uses it.
    check(unsafe { libc::sigaltstack(new, &raw mut old) })?;
    Ok(old)
}

impl Area {
    fn map(size: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::STACK;
        // SAFETY: the call creates a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), size, protection, flags) }
            .map_err(to_errno)?;
        Ok(Self { start, size })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Ok(current) = exchange(None)
            && current.ss_sp == self.start
            && exchange(Some(&disabled())).is_err()
        {
            // A handler is running on the stack, so the mapping is leaked.
            return;
        }
        // SAFETY: `map` created the mapping with this size, and the kernel no longer uses it.
        let _ = unsafe { munmap(self.start, self.size) };
    }
}
