//! The gates of real threads: [`Gates`], words that everybody shares.
//!
//! A thread that comes to its gate says so and sleeps on a futex in user mode: its handlers run, it
//! is stopped and killed as anywhere. Nothing here allocates or locks, for handlers come here too.

#![allow(unsafe_code, reason = "futexes")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use super::region::{LOG, Region, SEATS, SeatWords, place};
use crate::scenario::conduct::{Clock, Conduct, Due, Kind, Seat};
use crate::scenario::wire::with_line;
use crate::scenario::{Event, Log};
use crate::sys::Sys;

thread_local! {
    /// The calling thread's seat.
    static SEAT: Cell<u32> = const { Cell::new(0) };
}

/// So much longer than asked for a call lasts that ends by itself: steps that others can take come
/// first.
const BUSY: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Gates(pub(super) Arc<Region>);

impl Gates {
    fn words(&self, seat: u32) -> &SeatWords {
        &self.0.seats[seat as usize % SEATS]
    }

    /// The seat of the first thread of a thread's process.
    fn process_of(&self, mut seat: u32) -> u32 {
        while self.words(seat).is_thread.load(Relaxed) != 0 {
            seat = self.words(seat).maker.load(Relaxed);
        }
        seat
    }
}

/// The monotonic clock.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn after(duration: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Sleeps while the word is 0; may return for nothing.
fn futex_wait(word: &AtomicU32) {
    // SAFETY: the word lives across the call.
    unsafe {
        let none = std::ptr::null::<libc::timespec>();
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 0, none);
    }
}

/// Wakes whoever sleeps there.
pub(super) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the call takes an address, and integers.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

// All words are SeqCst: what the keeper concludes from two looks at several words of several
// threads is sound where these have one order. None of it is hot beside the system calls.
impl Conduct for Gates {
    fn gate(&self, _: &dyn Sys, due: &Due<'_>) {
        let words = self.words(SEAT.get());
        loop {
            words.line.store(due.line, Relaxed);
            words.call.put(due.what);
            words.place.store(place::AT_GATE, SeqCst);
            self.0.arrivals.fetch_add(1, SeqCst);
            if words.go.swap(0, SeqCst) == 1 {
                break;
            }
            futex_wait(&words.go);
        }
        let ends = if let Clock::Ends(duration) = due.clock { after(duration + BUSY) } else { 0 };
        words.ends_ns.store(ends, SeqCst);
        if let Clock::Alarm(duration) = due.clock {
            let rings = if duration.is_zero() { 0 } else { after(duration) };
            self.words(self.process_of(SEAT.get())).alarm_ns.store(rings, SeqCst);
        }
        words.place.store(place::THROUGH, SeqCst);
    }

    fn lasting(&self, duration: Duration) -> Duration {
        // What ends at once does so within its step.
        if duration.is_zero() { duration } else { duration + BUSY }
    }

    fn passed(&self, due: &Due<'_>) {
        self.words(SEAT.get()).ends_ns.store(0, SeqCst);
        self.0.arrivals.fetch_add(1, SeqCst);
        if let Some(descriptor) = due.writes {
            super::typing::settle(&self.0, descriptor);
        }
    }

    fn expect(&self, _: &dyn Sys, kind: Kind) -> Seat {
        let seat = self.0.seats_taken.fetch_add(1, SeqCst);
        if seat as usize >= SEATS {
            // The keeper cuts the run.
            return Seat(SEATS as u32 - 1);
        }
        let words = self.words(seat);
        words.maker.store(SEAT.get(), SeqCst);
        words.is_thread.store(u32::from(kind == Kind::Thread), SeqCst);
        words.place.store(place::EXPECTED, SeqCst);
        Seat(seat)
    }

    fn made(&self, Seat(seat): Seat, number: Option<i32>) {
        let words = self.words(seat);
        match number {
            Some(number) => {
                let is_thread = words.is_thread.load(SeqCst) != 0;
                let own = self.words(SEAT.get()).pid.load(SeqCst);
                words.pid.store(if is_thread { own } else { number }, SeqCst);
                words.tid.store(number, SeqCst);
            }
            None => words.place.store(place::REFUSED, SeqCst),
        }
        self.0.arrivals.fetch_add(1, SeqCst);
    }

    fn sit(&self, sys: &dyn Sys, Seat(seat): Seat) {
        SEAT.set(seat);
        let words = self.words(seat);
        words.pid.store(sys.getpid().number(), SeqCst);
        words.tid.store(sys.gettid().0, SeqCst);
        words.place.store(place::THROUGH, SeqCst);
        self.0.arrivals.fetch_add(1, SeqCst);
    }
}

impl Log for Gates {
    fn record(&self, event: &Event<'_>) {
        with_line(event, |line| {
            let mut head = [0; HEAD];
            put(&mut head[..4], self.0.step.load(SeqCst));
            put(&mut head[4..8], SEAT.get());
            put(&mut head[8..], u32::try_from(line.len()).unwrap_or(0));
            let whole = u32::try_from(HEAD + line.len()).unwrap_or(0);
            let at = self.0.log_length.fetch_add(whole, SeqCst) as usize;
            if at + whole as usize <= LOG {
                self.0.write_log(at, &head);
                self.0.write_log(at + HEAD, line);
            }
        });
    }
}

/// Bytes before each line of the log: step, seat and the line's length.
pub(super) const HEAD: usize = 12;

fn put(to: &mut [u8], number: u32) {
    to.copy_from_slice(&number.to_le_bytes());
}
