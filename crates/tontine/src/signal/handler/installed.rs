//! The installed handler of a signal, [`InstalledSite`], with its *sites* and its *original
//! disposition*.
//!
//! A site is the memory to which the handler writes for one `SignalFlag`, `SignalCounter` or
//! `SelfPipe`. The original disposition is the disposition that the handler replaced; the code
//! calls it `beneath`.
//!
//! The first site of a signal installs [`on_signal`]. The removal of the last site restores the
//! original disposition, unless another library's handler has replaced `on_signal`. Dispositions
//! have no compare-and-exchange system call. The removal therefore reads the disposition first, and
//! restores a disposition that it has replaced by mistake. If another thread installs a handler
//! between the first two calls, the original disposition handles a signal that arrives before the
//! third call.
//!
//! If `on_signal` was replaced, the newer handler may call `on_signal`, and a function that saved
//! `on_signal` may restore it (the C library's `system` does). `on_signal` may then run without a
//! site, and acts like the original disposition:
//!
//! - If `on_signal` is the current disposition, it first restores the original one.
//! - If the original disposition is a handler, `on_signal` calls that handler.
//! - If the original disposition is the default, and `on_signal` was the current disposition, it
//!   raises the signal again, so that the kernel acts on it. If a newer handler called `on_signal`,
//!   it returns, like a handler that has replaced the default.
//!
//! # Forks
//! A child inherits the lists and the dispositions, but not the lock, which is a [`PerProcess`]. At
//! the fork, a thread of the parent may be between any two steps, and the kernel copies the
//! dispositions before it copies memory. Each step therefore leaves the statics valid:
//!
//! - The original disposition is saved before the handler is installed.
//! - If a site is in the list and the handler is not installed, the child's first installation
//!   detects that, and installs the handler.
//! - If the handler is installed and its site was removed in between, the handler acts like the
//!   restored disposition; the child's first installation restores the original disposition.
//! - If a site belongs to a thread that the child does not have, the site and the handler stay.

#![allow(unsafe_code, reason = "the handler, and references to sites that are never freed")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::LeakedPipe;
use crate::signal::disposition::{KernelDisposition, Saved};
use crate::signal::error::SignalError;
use crate::signal::number::MAX_SIGNAL;
use crate::signal::{Signal, disposition};
use crate::sys::fork::PerProcess;

/// Number of entries of a table with one entry for each signal number.
const ENTRIES: usize = MAX_SIGNAL as usize + 1;

/// The memory to which a handler writes. It is never freed. After its removal, it still links to
/// the rest of its list.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) came: AtomicBool,
    pub(super) count: AtomicU64,
    pipe: Option<&'static LeakedPipe>,
    next: AtomicPtr<Site>,
}

/// The sites of each signal, newest first.
static SITES: [AtomicPtr<Site>; ENTRIES] = [const { AtomicPtr::new(null_mut()) }; ENTRIES];

/// The original disposition, saved before the handler is installed and never removed.
static BENEATH: [Saved; ENTRIES] = [const { Saved::new() }; ENTRIES];

/// The original disposition when the handler was first found replaced. A disposition read later
/// could be a handler that calls this one.
static BENEATH_REPLACED: [Saved; ENTRIES] = [const { Saved::new() }; ENTRIES];

/// The lock that protects the statics above, and the state of this process.
static OWN: PerProcess<HandlerState> = PerProcess::new(HandlerState::default);

#[derive(Debug, Default)]
struct HandlerState {
    changes: Mutex<HandlerChanges>,
    /// `false` in a forked child until its first change, which first compares lists and
    /// dispositions.
    compared: AtomicBool,
}

#[derive(Debug)]
pub(super) struct HandlerChanges {
    /// Signals for which this process has the handler installed.
    installed: [bool; ENTRIES],
    /// Pipes of this process that have no user.
    pub(super) spare: Vec<&'static LeakedPipe>,
}

impl Default for HandlerChanges {
    fn default() -> Self {
        Self { installed: [false; ENTRIES], spare: Vec::new() }
    }
}

impl HandlerChanges {
    /// Locks the state of this process for a change.
    pub(super) fn lock() -> Result<MutexGuard<'static, Self>, SignalError> {
        let own = OWN.get().map_err(|error| SignalError::system("mmap", error.errno()))?;
        let mut changes = own.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.compared.load(Ordering::Relaxed) {
            for signal in (1..=MAX_SIGNAL).filter_map(Signal::from_raw) {
                changes.compare(signal);
            }
            // SYNC handler-compared: pairs with the load by a handler without a site.
            own.compared.store(true, Ordering::Release);
        }
        Ok(changes)
    }

    /// Makes the disposition of a signal agree with its list; after a fork, the two may differ.
    fn compare(&mut self, signal: Signal) {
        let Some(beneath) = BENEATH[index(signal)].get() else { return };
        if !KernelDisposition::current(signal).is_ok_and(|current| is_handler(&current)) {
            return;
        }
        let is_needed = !head(signal).load(Ordering::Relaxed).is_null();
        self.installed[index(signal)] = is_needed;
        if !is_needed {
            let _ = beneath.install(signal);
        }
    }
}

/// A site in its list.
#[derive(Debug)]
pub(super) struct InstalledSite {
    signal: Signal,
    pub(super) site: &'static Site,
    removed: bool,
}

impl InstalledSite {
    pub(super) fn new(
        signal: Signal,
        pipe: Option<&'static LeakedPipe>,
    ) -> Result<Self, SignalError> {
        if let Some(reason) = signal.refusal() {
            return Err(SignalError::CannotTake { signal, reason });
        }
        let mut changes = HandlerChanges::lock()?;
        let installs = !changes.installed[index(signal)];
        let head = head(signal);
        let first = head.load(Ordering::Relaxed);
        if installs {
            if !first.is_null() {
                // This is a forked child, and its parent's handler was replaced.
                note_replaced(signal);
            }
            save(signal, KernelDisposition::current(signal)?);
        }
        let site: &'static Site = Box::leak(Box::new(Site {
            came: AtomicBool::new(false),
            count: AtomicU64::new(0),
            pipe,
            next: AtomicPtr::new(first),
        }));
        // SYNC handler-sites: pairs with the handler's walk along the list.
        head.store(std::ptr::from_ref(site).cast_mut(), Ordering::Release);
        if installs {
            match handler().install(signal) {
                Ok(replaced) => save(signal, replaced),
                Err(error) => {
                    head.store(first, Ordering::Relaxed);
                    return Err(error);
                }
            }
            changes.installed[index(signal)] = true;
        }
        Ok(Self { signal, site, removed: false })
    }

    /// Removes the site. In a forked child that has no memory for a lock, the site stays, which is
    /// harmless.
    pub(super) fn remove(&mut self) {
        if std::mem::replace(&mut self.removed, true) {
            return;
        }
        let Ok(mut changes) = HandlerChanges::lock() else { return };
        let next = self.site.next.load(Ordering::Relaxed);
        let mut link = head(self.signal);
        if next.is_null() && std::ptr::eq(link.load(Ordering::Relaxed), self.site) {
            // The disposition is restored before the list is empty, so that the handler always has
            // a site while it is installed.
            restore(self.signal);
            changes.installed[index(self.signal)] = false;
        }
        loop {
            let to = link.load(Ordering::Relaxed);
            if std::ptr::eq(to, self.site) {
                // SYNC handler-sites: pairs with the handler's walk along the list.
                link.store(next, Ordering::Release);
                break;
            }
            // SAFETY: the pointer is null or refers to a site of the list, which is never freed.
            match unsafe { to.as_ref() } {
                Some(site) => link = &site.next,
                None => break,
            }
        }
    }
}

impl Drop for InstalledSite {
    fn drop(&mut self) {
        self.remove();
    }
}

fn index(signal: Signal) -> usize {
    signal.as_raw() as usize
}

fn head(signal: Signal) -> &'static AtomicPtr<Site> {
    &SITES[index(signal)]
}

fn handler() -> KernelDisposition {
    let address = on_signal as *const () as libc::sighandler_t;
    KernelDisposition::new(address, libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK)
}

fn is_handler(action: &KernelDisposition) -> bool {
    action.handler() == handler().handler()
}

/// Saves a disposition as the original one, unless it is the handler itself.
fn save(signal: Signal, found: KernelDisposition) {
    if !is_handler(&found) {
        BENEATH[index(signal)].set(found);
    }
}

/// Restores the original disposition, unless the handler was replaced.
fn restore(signal: Signal) {
    let Some(beneath) = BENEATH[index(signal)].get() else { return };
    if !disposition::exchange(signal, is_handler, beneath) {
        note_replaced(signal);
    }
}

/// Records that a newer handler may call this one.
fn note_replaced(signal: Signal) {
    let (beneath, first) = (&BENEATH[index(signal)], &BENEATH_REPLACED[index(signal)]);
    if first.get().is_none()
        && let Some(beneath) = beneath.get()
    {
        first.set(*beneath);
    }
}

/// The handler. It loads and stores atomics, calls `write`, and may act like the original
/// disposition.
extern "C" fn on_signal(
    number: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the C library returns the address of this thread's `errno`.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(signal) = Signal::from_raw(number)
        && !reach_sites(signal)
    {
        // SAFETY: this is the handler of `signal` (1), and these are its arguments (2).
        unsafe { do_beneath(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Writes to each site of the signal. Returns `true` if the signal has a site.
fn reach_sites(signal: Signal) -> bool {
    // SYNC handler-sites: pairs with the store that adds a site or removes one.
    let mut next = head(signal).load(Ordering::Acquire);
    let is_any = !next.is_null();
    // SAFETY: the pointer is null or refers to a site of the list, which is never freed.
    while let Some(site) = unsafe { next.as_ref() } {
        // SYNC handler-flag: pairs with the load by the flag's owner.
        site.came.store(true, Ordering::Release);
        site.count.fetch_add(1, Ordering::Relaxed);
        if let Some(pipe) = site.pipe {
            pipe.fill();
        }
        // SYNC handler-sites: pairs with the store that removes a site.
        next = site.next.load(Ordering::Acquire);
    }
    is_any
}

/// Acts like the original disposition, in a handler that has no site.
///
/// # Safety
/// 1. The caller is the handler of `signal`.
/// 2. `info` and `context` are the arguments that the kernel passed to it.
unsafe fn do_beneath(signal: Signal, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let is_current = KernelDisposition::current(signal).is_ok_and(|current| is_handler(&current));
    // SYNC handler-compared: pairs with the store after the comparison.
    let has_compared = OWN.peek().is_some_and(|own| own.compared.load(Ordering::Acquire));
    let mut beneath = BENEATH_REPLACED[index(signal)].get();
    if is_current && !has_compared {
        beneath = beneath.or_else(|| BENEATH[index(signal)].get());
    }
    // The value is `None` if a thread has just removed the last site, which restored the original
    // disposition.
    let Some(beneath) = beneath else { return };
    if is_current {
        let _ = beneath.install(signal);
        if reach_sites(signal) {
            // Another thread has added a site in the meantime.
            let _ = handler().install(signal);
            return;
        }
    }
    match beneath.handler() {
        libc::SIG_IGN => {}
        // The signal is blocked until this handler returns; then it has its default effect.
        // SAFETY: the argument is a number.
        libc::SIG_DFL if is_current => drop(unsafe { libc::raise(signal.as_raw()) }),
        libc::SIG_DFL => {}
        // SAFETY: the disposition is a handler (1), and receives the kernel's arguments (2).
        _ => unsafe { beneath.call(signal, info, context) },
    }
}
