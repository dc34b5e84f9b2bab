//! Blocking waits for the kernel's notice: each variant prepares one blocking call.
//!
//! The thread that ends the process also waits for the notice. A process takes longer to die than
//! the thread takes to fall asleep, so the thread is asleep when the notice arrives.

#![allow(unsafe_code, reason = "signal masks, poll and epoll_wait with RDHUP")]

use rustix::io::Errno;

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use tontine_bench::os::signal::BlockedSignal;

use super::dying_process::{DeathPlan, DyingProcess};
use crate::liveness_check::monitored::Means;
use crate::prelude::*;

const TIMEOUT_MS: libc::c_int = 5_000;

pub(super) fn notice(variant: &str, plan: &DeathPlan) -> Result<f64> {
    let means = match variant {
        "robust-futex-wait" => Means::Mutex,
        "hang-up-poll" | "hang-up-epoll" => Means::Line,
        "pidfd-poll" | "sigchld" | "wait4" | "pipe-eof" => Means::Pid,
        other => return Err(unknown("death-notice", "variant", other)),
    };
    // SIGCHLD is blocked before the fork, because an unblocked SIGCHLD is ignored by default.
    let blocked = (variant == "sigchld").then(|| BlockedSignal::new(libc::SIGCHLD)).transpose()?;
    let dying = DyingProcess::start(plan, means)?;
    let watched = variant == "hang-up-epoll";
    let set = watched.then(|| hang_up_of(dying.monitored.line())).transpose()?;
    let _pinned = Pinned::to(plan.here)?;
    dying.die(plan, || match (means, &set, &blocked) {
        (Means::Mutex, ..) => owner_died(&dying),
        (_, Some(set), _) => epolled(set),
        (Means::Line, None, _) => polled(dying.monitored.line(), libc::POLLRDHUP),
        (.., Some(blocked)) => wait_for_sigchld(blocked, &dying),
        _ if variant == "pidfd-poll" => until_ended(dying.pidfd()),
        _ if variant == "wait4" => dying.monitored.child().wait().map(drop),
        _ => end_of_file(dying.held()),
    })
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

pub(super) fn until_ended(pidfd: BorrowedFd<'_>) -> Result<()> {
    polled(pidfd, libc::POLLIN)
}

fn polled(descriptor: BorrowedFd<'_>, events: libc::c_short) -> Result<()> {
    let mut watched = libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 };
    within_timeout("poll", || {
        // SAFETY: the call passes one descriptor and a buffer of one entry.
        unsafe { libc::poll(&mut watched, 1, TIMEOUT_MS) }
    })
}

fn epolled(set: &OwnedFd) -> Result<()> {
    let mut event = MaybeUninit::<libc::epoll_event>::uninit();
    within_timeout("epoll_wait", || {
        // SAFETY: the buffer has space for the one requested event.
        unsafe { libc::epoll_wait(set.as_raw_fd(), event.as_mut_ptr(), 1, TIMEOUT_MS) }
    })
}

/// Makes a call that returns the number of ready descriptors. Repeats it if a signal interrupts it.
fn within_timeout(call: &str, mut wait: impl FnMut() -> libc::c_int) -> Result<()> {
    loop {
        match checked(wait()) {
            Ok(0) => {
                bail!("{call}: no notice in {TIMEOUT_MS} ms");
            }
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).during(call),
        }
    }
}

fn end_of_file(held: BorrowedFd<'_>) -> Result<()> {
    loop {
        match rustix::io::read(held, &mut [0_u8; 1]) {
            Ok(0) => return Ok(()),
            Ok(_) => bail!("read: expected the end of file, found bytes"),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).during("read"),
        }
    }
}

/// Waits for this child's SIGCHLD. The process must be single-threaded.
fn wait_for_sigchld(blocked: &BlockedSignal, dying: &DyingProcess) -> Result<()> {
    let pid = dying.monitored.child().raw_pid().cast_signed();
    let timeout = libc::timespec { tv_sec: i64::from(TIMEOUT_MS) / 1_000, tv_nsec: 0 };
    loop {
        // SAFETY: the call fills a plain structure; the set is initialised.
        let (signal, sender) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigtimedwait(blocked.set(), &mut info, &timeout);
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
