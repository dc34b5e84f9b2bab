//! Words that the kernel itself marks when their owner ends: [`MonitorPage`].
//!
//! There are two ways to obtain such a word. [`MonitorPage::hold`] locks a robust process-shared
//! pthread mutex indefinitely and finds its lock word in the thread's robust list
//! ([`robust_list`]). [`MonitorPage::anchor`] starts a bare `clone` thread that registers its own
//! robust list with a single word in it. [`is_held`] reads either word with one load, one test and
//! one branch; `docs/decisions/0003-one-test-liveness.md` records why a single test is enough.
//!
//! The library's lives keep their mutex private and map the word read-only in other processes. Here
//! a monitor also tries to lock the mutex and an owner releases it, so this module has its own
//! page. Only [`MonitorPage::lock`] waits for a word.
//!
//! Source: `get_robust_list(2)`.

#![allow(unsafe_code, reason = "robust mutexes, robust lists and a bare clone thread")]

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::offset_of;

use tontine::life::robust_list::{self, Head};
use tontine_mechanisms::mailbox::refused;
use tontine_mechanisms::monitor::{error, initialise_mutex};

use crate::prelude::*;

pub(crate) use tontine::life::robust_list::{FUTEX_TID_MASK, is_held};

/// Stack size in bytes of a bare thread, which calls two functions.
const STACK_BYTES: usize = 16 * 1024;

#[repr(C, align(64))]
pub(crate) struct MonitorPage {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// Bytes from the page's start to the mutex's lock word.
    lock_word_at: AtomicU64,
    /// The monitored process's id as that process sees it.
    pub(crate) pid: AtomicI32,
    /// 1 until the thread ends, when the kernel clears the word (`set_tid_address`).
    pub(crate) thread: AtomicU32,
    list: RobustList,
    anchor_stack: ThreadStack,
    spare_stack: ThreadStack,
    /// A constant word, for bare loads.
    pub(crate) plain: AtomicU32,
}

// SAFETY: the fields are atomics, a process-shared mutex, and cells that only one thread of the
// monitored process writes (`RobustList`, `ThreadStack`: see `anchor` and `spare_thread`).
unsafe impl Sync for MonitorPage {}
// SAFETY: all-zero bytes are valid for each field: atomics, a `pthread_mutex_t` (initialised before
// it is used), null pointers, bytes.
unsafe impl Shareable for MonitorPage {}

/// A robust list with one entry, in the kernel's layout (`struct robust_list_head`).
#[repr(C, align(64))]
struct RobustList {
    head: UnsafeCell<Head>,
    node: UnsafeCell<*mut c_void>,
    word: AtomicU32,
}

#[repr(C, align(16))]
struct ThreadStack(UnsafeCell<[u8; STACK_BYTES]>);

impl MonitorPage {
    /// Makes the mutex robust and process-shared. Call it once, before any thread locks it.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.plain.store(1, Ordering::Relaxed);
        // SAFETY: no thread uses the mutex yet.
        unsafe { initialise_mutex(self.mutex.get(), true) }
    }

    /// Locks the mutex and finds its lock word. Called by the owner.
    pub(crate) fn hold(&self) -> Result<()> {
        error(self.lock()).setting_up("pthread_mutex_lock")?;
        // SAFETY: the mutex is locked, and the page outlives its uses.
        let word = unsafe { robust_list::lock_word(self.mutex.get()) };
        let word = word.map_err(|error| match error {
            tontine::Error::CannotRegister { reason } => MeasureError::fail(reason),
            other => refused(other),
        })?;
        let offset = word as usize - self.mutex.get() as usize;
        self.lock_word_at.store(offset as u64, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn unlock(&self) {
        // SAFETY: the mutex is initialised; robust mutexes check the owner and refuse other
        // threads.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }

    pub(crate) fn lock(&self) -> i32 {
        // SAFETY: `prepare` initialised the mutex.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) }
    }

    #[inline(always)]
    pub(crate) fn try_lock(&self) -> i32 {
        // SAFETY: `prepare` initialised the mutex.
        unsafe { libc::pthread_mutex_trylock(self.mutex.get()) }
    }

    pub(crate) fn lock_word(&self) -> &AtomicU32 {
        let offset = self.lock_word_at.load(Ordering::Relaxed) as usize;
        // The owner may be faulty, so the offset is clamped: the word is always inside the mutex.
        let offset = offset.min(size_of::<libc::pthread_mutex_t>() - size_of::<u32>()) & !3;
        // SAFETY: the word is inside the page's first field and is aligned; the C library, the
        // kernel and this process access it only with atomic instructions.
        unsafe { AtomicU32::from_ptr(self.mutex.get().cast::<u8>().add(offset).cast()) }
    }

    /// Starts a bare thread that registers its own robust list, holds the word of
    /// [`MonitorPage::own_word`] and then sleeps indefinitely. Returns when the word is held.
    pub(crate) fn anchor(&self) -> Result<()> {
        self.bare_thread(&self.anchor_stack, hold_own_list)?;
        for _ in 0..5_000 {
            match self.list.word.load(Ordering::Relaxed) {
                0 => thread::sleep(Duration::from_micros(100)),
                FUTEX_TID_MASK => skip!("set_robust_list: refused"),
                _ => return Ok(()),
            }
        }
        bail!("the anchor thread did not start within half a second");
    }

    pub(crate) fn own_word(&self) -> &AtomicU32 {
        &self.list.word
    }

    pub(crate) fn spare_thread(&self) -> Result<()> {
        self.bare_thread(&self.spare_stack, idle)
    }

    fn bare_thread(
        &self,
        stack: &ThreadStack,
        body: extern "C" fn(*mut c_void) -> i32,
    ) -> Result<()> {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        // SAFETY: only this thread uses the stack, which lives as long as the page, and the owner
        // never unmaps the page. `body` makes bare system calls only, because the thread shares its
        // creator's thread-local storage.
        let made = unsafe {
            let top = stack.0.get().cast::<u8>().add(STACK_BYTES);
            libc::clone(body, top.cast(), flags, std::ptr::from_ref(self).cast_mut().cast())
        };
        checked(made).setting_up("clone").map(drop)
    }
}

/// Returns `true` if the C library counts any robust mutex as held by the calling thread.
#[cfg(test)]
pub(crate) fn holds_a_robust_mutex() -> bool {
    let head = robust_list::own().expect("a list");
    // SAFETY: the head belongs to the calling thread's own list; the head of an empty list points
    // to itself.
    unsafe { (*head).next.cast_const().cast() != head }
}

/// Registers the page's list for this bare thread, takes its word, and sleeps.
extern "C" fn hold_own_list(page: *mut c_void) -> i32 {
    // SAFETY: `bare_thread` passes the page, which outlives the process's threads.
    let list = unsafe { &(*page.cast::<MonitorPage>()).list };
    let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    // SAFETY: only this thread writes head and node; the kernel reads them when the thread ends.
    let registered = unsafe {
        *list.node.get() = list.head.get().cast();
        *list.head.get() = Head {
            next: list.node.get().cast(),
            futex_offset: (offset_of!(RobustList, word) - offset_of!(RobustList, node)) as i64,
            pending: std::ptr::null_mut(),
        };
        libc::syscall(libc::SYS_set_robust_list, list.head.get(), size_of::<Head>()) == 0
    };
    list.word.store(if registered { tid } else { FUTEX_TID_MASK }, Ordering::Relaxed);
    idle(page)
}

/// Sleeps indefinitely. Makes bare system calls only.
extern "C" fn idle(_: *mut c_void) -> i32 {
    loop {
        rustix::event::pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_in_bare_clone_process_is_refused() {
        let page = SharedMapping::<MonitorPage>::anonymous().expect("page");
        page.prepare().expect("mutex");
        // A forked child makes the bare clone, so that this process is not copied without the C
        // library's knowledge.
        let mut child = Child::fork(|| {
            // SAFETY: clone without CLONE_VM is a fork that the C library does not notice; the copy
            // locks a mutex and leaves by `_exit`.
            let stranger = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
            if stranger == 0 {
                let refused = matches!(page.hold(), Err(MeasureError::Failed(_)));
                tontine_bench::os::child::exit_at_once(if refused { 7 } else { 8 });
            }
            let status = rustix::process::waitpid(
                rustix::process::Pid::from_raw(stranger as i32),
                rustix::process::WaitOptions::empty(),
            );
            status.ok().flatten().and_then(|(_, status)| status.exit_status()).unwrap_or(9)
        })
        .expect("fork");
        assert_eq!(child.wait().expect("wait").exit_status(), Some(7));
    }
}
