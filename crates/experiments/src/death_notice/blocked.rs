//! Blocking waits for the kernel's notice: each variant consists of a [`Means`], a preparation and
//! one blocking call.
//!
//! The thread that ends the process also waits for the notice. A process takes longer to die than
//! the thread takes to fall asleep, so the thread is asleep when the notice arrives.

#![allow(unsafe_code, reason = "signal masks, poll and epoll_wait with RDHUP")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::checked;
use tontine_host::os::pin::Pinned;
use tontine_host::os::signal::BlockedSignal;

use super::dying_process::{DeathPlan, DyingProcess};
use super::mailbox;
use super::notice::{PATIENCE_MS, polled, told_in_time, until_ended};
use crate::liveness_check::monitored::Means;

/// Returns the nanoseconds from a death to its notice.
///
/// # Errors
/// Returns `Skipped` if the system refuses a requirement of the mechanism, and `Failed` if the
/// mechanism never notifies.
pub(super) fn notice(variant: &str, scene: &DeathPlan) -> Result<f64> {
    match variant {
        "robust-futex-wait" => told(scene, Means::Mutex, |_| Ok(()), |dying, ()| owner_died(dying)),
        "hang-up-poll" => told(
            scene,
            Means::Line,
            |_| Ok(()),
            |dying, ()| polled(dying.monitored.line().as_raw_fd(), libc::POLLRDHUP),
        ),
        "hang-up-epoll" => told(
            scene,
            Means::Line,
            |dying| hang_up_of(dying.monitored.line()),
            |_, set| epolled(&set),
        ),
        "pidfd-poll" => told(scene, Means::Pid, |_| Ok(()), |dying, ()| until_ended(dying.pidfd())),
        "sigchld" => {
            // SIGCHLD is blocked before the fork, because an unblocked SIGCHLD is ignored by
            // default.
            let blocked = BlockedSignal::new(libc::SIGCHLD)?;
            told(scene, Means::Pid, |_| Ok(()), |dying, ()| wait_for_sigchld(&blocked, dying))
        }
        "wait4" => told(
            scene,
            Means::Pid,
            |_| Ok(()),
            |dying, ()| dying.monitored.child().wait().map(|_| ()),
        ),
        "mailbox" => mailbox::until_woken(scene),
        "mailbox-pidfd-poll" => mailbox::until_reader_ended(scene),
        "pipe-eof" => told(scene, Means::Pid, |_| Ok(()), |dying, ()| end_of_file(dying.held())),
        other => Err(MeasureError::fail(format!("death-notice has no variant {other}"))),
    }
}

/// Starts a process, prepares the wait, ends the process and waits for the notice.
fn told<P>(
    scene: &DeathPlan,
    means: Means,
    prepare: impl FnOnce(&DyingProcess) -> Result<P>,
    wait: impl FnOnce(&DyingProcess, P) -> Result<()>,
) -> Result<f64> {
    let dying = DyingProcess::start(scene, means)?;
    let prepared = prepare(&dying)?;
    let _pinned = Pinned::to(scene.here)?;
    dying.die(scene, || wait(&dying, prepared))
}

fn owner_died(dying: &DyingProcess) -> Result<()> {
    // No unlock is needed: dropping the page releases the lock.
    match dying.monitored.page().lock() {
        libc::EOWNERDEAD => Ok(()),
        0 => Err(MeasureError::fail("pthread_mutex_lock: obtained, although no thread unlocked")),
        code => Err(std::io::Error::from_raw_os_error(code)).during("pthread_mutex_lock"),
    }
}

fn hang_up_of(line: BorrowedFd<'_>) -> Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).setting_up("epoll_create1")?;
    epoll::add(&set, line, epoll::EventData::new_u64(0), epoll::EventFlags::RDHUP)
        .setting_up("epoll_ctl")?;
    Ok(set)
}

fn epolled(set: &OwnedFd) -> Result<()> {
    let mut event = MaybeUninit::<libc::epoll_event>::uninit();
    told_in_time("epoll_wait", || {
        // SAFETY: the buffer has space for the one requested event.
        unsafe { libc::epoll_wait(set.as_raw_fd(), event.as_mut_ptr(), 1, PATIENCE_MS) }
    })
}

fn end_of_file(held: BorrowedFd<'_>) -> Result<()> {
    loop {
        match rustix::io::read(held, &mut [0_u8; 1]) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(MeasureError::fail("read: expected the end of file, found bytes")),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).during("read"),
        }
    }
}

/// Waits for this child's SIGCHLD. The process must be single-threaded.
fn wait_for_sigchld(blocked: &BlockedSignal, dying: &DyingProcess) -> Result<()> {
    let pid = dying.monitored.child().pid().as_raw_nonzero().get();
    let patience = libc::timespec { tv_sec: i64::from(PATIENCE_MS) / 1_000, tv_nsec: 0 };
    loop {
        // SAFETY: the call fills a plain structure; the set is initialised.
        let (signal, sender) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigtimedwait(blocked.set(), &mut info, &patience);
            (signal, info.si_pid())
        };
        match checked(signal) {
            Ok(_) if sender == pid => return Ok(()),
            // An earlier process sent this signal.
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).during("sigtimedwait"),
        }
    }
}
