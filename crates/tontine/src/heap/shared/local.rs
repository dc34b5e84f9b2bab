//! The calling thread's arena, which is found with two loads and abandoned at the thread's end.

#![allow(unsafe_code, reason = "a thread borrows its arena through a raw pointer")]

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use super::arena::Arena;
use super::core::Core;
use crate::heap::Result;

thread_local! {
    // These values have no destructor, so each read is a single access.
    /// Number of the heap that this thread used last, or 0 if it has not used one.
    static HEAP: Cell<u64> = const { Cell::new(0) };
    /// The thread's arena of that heap.
    static ARENA: Cell<*mut Arena> = const { Cell::new(ptr::null_mut()) };

    /// All arenas of this thread.
    static ALL: RefCell<Arenas> = const { RefCell::new(Arenas(Vec::new())) };
}

/// The arenas of one thread, one for each heap that it has used.
#[derive(Debug)]
struct Arenas(Vec<LocalArenas>);

#[derive(Debug)]
struct LocalArenas {
    core: Weak<Core>,
    id: u64,
    arena: *mut Arena,
}

/// Calls `action` with this thread's arena of a heap. A thread without an arena receives one.
///
/// No other code uses the arena during the call, because `action` does not call the program's code.
pub(super) fn with<R>(core: &Arc<Core>, action: impl FnOnce(&mut Arena) -> R) -> Result<R> {
    let arena = if HEAP.get() == core.id() {
        ARENA.get()
    } else {
        match find(core)? {
            Some(arena) => arena,
            None => return lend(core, action),
        }
    };
    // SAFETY: the arena belongs to an open heap, and only this thread uses it, in one place at a
    // time.
    Ok(action(unsafe { &mut *arena }))
}

/// Like [`with`], but returns `None` unless the thread has an arena of this heap and has not used
/// another heap since.
#[inline(always)]
pub(super) fn with_recent<R>(
    core: &Core,
    action: impl FnOnce(&mut Arena) -> Option<R>,
) -> Option<R> {
    if HEAP.get() != core.id() {
        return None;
    }
    // SAFETY: the reason is the same as in `with`.
    action(unsafe { &mut *ARENA.get() })
}

/// Like [`with`], but returns `None` unless the thread has an arena of this heap.
#[inline(always)]
pub(super) fn with_known<R>(core: &Core, action: impl FnOnce(&mut Arena) -> R) -> Option<R> {
    let arena = if HEAP.get() == core.id() { ARENA.get() } else { find_known(core.id())? };
    // SAFETY: the reason is the same as in `with`.
    Some(action(unsafe { &mut *arena }))
}

/// Returns the thread's arena. Returns `None` at the thread's end, once the list that would return
/// the arena has been destroyed.
#[cold]
fn find(core: &Arc<Core>) -> Result<Option<*mut Arena>> {
    if let Some(arena) = find_known(core.id()) {
        return Ok(Some(arena));
    }
    if ALL.try_with(|_| ()).is_err() {
        return Ok(None);
    }
    let arena = core.new_arena()?;
    let mine = LocalArenas { core: Arc::downgrade(core), id: core.id(), arena: arena.as_ptr() };
    ALL.with(|all| {
        let mut all = all.borrow_mut();
        all.0.retain(|mine| mine.core.strong_count() > 0);
        all.0.push(mine);
    });
    remember(core.id(), arena.as_ptr());
    Ok(Some(arena.as_ptr()))
}

/// Calls `action` with an arena that the thread has only during the call.
#[cold]
fn lend<R>(core: &Core, action: impl FnOnce(&mut Arena) -> R) -> Result<R> {
    let mut arena = core.new_arena()?;
    // SAFETY: the arena belongs to an open heap, and no other thread has it.
    let answer = action(unsafe { arena.as_mut() });
    // SAFETY: as above, and the arena is not used any more.
    unsafe { core.rest(arena) };
    Ok(answer)
}

#[cold]
fn find_known(id: u64) -> Option<*mut Arena> {
    let find = |all: &RefCell<Arenas>| {
        all.borrow().0.iter().find(|mine| mine.id == id).map(|mine| mine.arena)
    };
    let arena = ALL.try_with(find).ok().flatten()?;
    remember(id, arena);
    Some(arena)
}

fn remember(id: u64, arena: *mut Arena) {
    HEAP.set(id);
    ARENA.set(arena);
}

impl Drop for Arenas {
    fn drop(&mut self) {
        HEAP.set(0);
        for mine in self.0.drain(..) {
            let Some(core) = mine.core.upgrade() else { continue };
            if let (false, Some(arena)) = (core.space.is_forked(), NonNull::new(mine.arena)) {
                // SAFETY: this is the thread's arena of an open heap, and the thread is ending.
                unsafe { core.rest(arena) };
            }
        }
    }
}
