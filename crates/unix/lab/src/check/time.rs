//! The clock of the init process and of the scenario's real processes.

/// Returns the time of the monotonic clock.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Sleeps for this long, or until a handler has run.
pub(super) fn nap(ns: u64) {
    let duration = rustix::time::Timespec { tv_sec: 0, tv_nsec: ns as i64 };
    let _ = rustix::thread::nanosleep(&duration);
}
