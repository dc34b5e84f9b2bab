//! A start barrier for processes: [`StartBarrier`].
//!
//! Each process calls [`StartBarrier::arrive`] and sleeps in [`StartBarrier::pass`]. The process
//! that started them waits in [`StartBarrier::until`] and releases them by [`StartBarrier::open`].
//! Both words are futexes in shared memory, so that no process spins while others have work to do.
//!
//! The barrier does not reap processes: the check passed to [`StartBarrier::until`] detects a
//! process that ends before it arrives.

#![allow(unsafe_code, reason = "shares a barrier between processes")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;
use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::os::shared::{Shareable, SharedMapping};

/// Interval between two checks that all processes are alive.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Timeout for all processes to arrive.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
#[repr(C, align(64))]
pub struct StartBarrier {
    arrived: AtomicU32,
    /// 0 if the barrier is closed, 1 if it is permanently open.
    gate: AtomicU32,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for StartBarrier {}

impl StartBarrier {
    pub fn new() -> Result<SharedMapping<Self>> {
        SharedMapping::anonymous()
    }

    pub fn arrive(&self) {
        // SYNC start-arrived: pairs with `until`; earlier writes are visible there.
        self.arrived.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.arrived, futex::Flags::empty(), 1);
    }

    pub fn pass(&self) {
        // SYNC start-gate: pairs with `open`.
        while self.gate.load(Ordering::Acquire) == 0 {
            let _ = futex::wait(&self.gate, futex::Flags::empty(), 0, None);
        }
    }

    /// Sleeps until `count` processes have arrived. Calls `check` at intervals; `check` fails if
    /// the processes can no longer arrive.
    pub fn until(&self, count: usize, check: impl Fn() -> Result<()>) -> Result<()> {
        let began = Instant::now();
        loop {
            // SYNC start-arrived: pairs with `arrive`.
            let here = self.arrived.load(Ordering::Acquire);
            if here as usize >= count {
                return Ok(());
            }
            match futex::wait(&self.arrived, futex::Flags::empty(), here, Some(&LOOK)) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => check()?,
                Err(error) => return Err(error).during("futex wait"),
            }
            if began.elapsed() > TIMEOUT {
                return Err(MeasureError::fail(format!(
                    "expected {count} processes to gather within {TIMEOUT:?}, found {here}"
                )));
            }
        }
    }

    pub fn open(&self) {
        // SYNC start-gate: pairs with `pass`.
        self.gate.store(1, Ordering::Release);
        // If this wake failed, sleepers could remain at the open gate. It cannot fail, because the
        // word is mapped and aligned.
        let _ = futex::wake(&self.gate, futex::Flags::empty(), i32::MAX.cast_unsigned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::os::child::Child;
    use tontine_bench::peer::PeerHandle;

    #[test]
    fn start_barrier_releases_processes_only_when_opened() {
        let (barrier, passed) = (
            StartBarrier::new().expect("memory"),
            SharedMapping::<AtomicU32>::anonymous().expect("memory"),
        );
        let mut children: Vec<Child> = (0..3)
            .map(|_| {
                Child::fork(|| {
                    barrier.arrive();
                    barrier.pass();
                    passed.fetch_add(1, Ordering::Relaxed);
                    0
                })
                .expect("fork")
            })
            .collect();
        barrier.until(3, || Ok(())).expect("they arrive");
        assert_eq!(passed.load(Ordering::Relaxed), 0);
        barrier.open();
        for child in &mut children {
            assert_eq!(child.wait().expect("wait").exit_status(), Some(0));
        }
        assert_eq!(passed.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn start_barrier_names_process_that_ends_before_arrival() {
        let barrier = StartBarrier::new().expect("memory");
        let child = Child::fork(|| 7).expect("fork");
        let found =
            barrier.until(1, || PeerHandle::Child(child.pid()).check()).expect_err("it ended");
        assert!(found.why().contains("status 7"), "{found}");
    }
}
