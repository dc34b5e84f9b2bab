//! The choice of the thread that receives a signal: [`to_process`] sends to the process and lets
//! the kernel choose; [`to_thread`] names the thread.
//!
//! The receiver has [`THREADS`] threads. Each thread handles the signal and writes its number into
//! a log. The sender reads the log once all sleeping threads are asleep again.

#![allow(unsafe_code, reason = "pause and tgkill")]

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use rustix::process::kill_process;
use tontine_bench::os::signal::{SIGNAL, handle};

use crate::prelude::*;

/// Number of threads of the receiver, including the main thread.
pub(super) const THREADS: usize = 4;
pub(super) const MAIN: u32 = 0;
/// Maximum number of signals between two reads of the log.
const LOG: usize = 32;
/// Time between two checks of a thread that is awake.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);
/// Time allowed for a thread that never sleeps to leave its handler.
const LEAVE: Duration = Duration::from_micros(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadSetup {
    pub(super) main_blocks: bool,
    /// The last thread spins; all others sleep.
    pub(super) one_runs: bool,
}

#[derive(Debug)]
#[repr(C)]
struct SharedCounts {
    /// Thread ids by number; 0 until the thread is ready.
    threads: [AtomicU32; THREADS],
    handled: AtomicU32,
    /// Numbers, plus one, of the threads that ran the handlers, in order.
    log: [AtomicU32; LOG],
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for SharedCounts {}

static WORDS: AtomicPtr<SharedCounts> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: `receive` stored the address before it installed this handler; the mapping lives as
    // long as this process. `gettid` is async-signal-safe.
    let (words, thread) = unsafe { (&*WORDS.load(Ordering::Relaxed), libc::gettid()) };
    let is_this = |id: &AtomicU32| id.load(Ordering::Relaxed) == thread.cast_unsigned();
    let number = words.threads.iter().position(is_this).unwrap_or(THREADS);
    // Two threads may handle signals at the same time, so each takes its own line.
    let at = words.handled.fetch_add(1, Ordering::Relaxed) as usize;
    if let Some(line) = words.log.get(at) {
        line.store(number as u32 + 1, Ordering::Relaxed);
    }
}

/// Sends `burst` signals in a row to the process, `times` times. Returns, for each time, the
/// threads that took the signals.
pub(super) fn to_process(
    threads: ThreadSetup,
    placement: Placement,
    burst: u32,
    times: usize,
) -> Result<Vec<Vec<u32>>> {
    let receiver = ThreadedReceiver::new(threads, placement)?;
    (0..times)
        .map(|_| {
            for _ in 0..burst {
                kill_process(receiver.child.child.pid(), Signal::USR1).during("kill")?;
            }
            receiver.take_log()
        })
        .collect()
}

/// Sends to one thread after another, `times` times. Returns, for each time, the named thread and
/// the threads that took the signal.
pub(super) fn to_thread(
    threads: ThreadSetup,
    placement: Placement,
    times: usize,
) -> Result<Vec<(u32, Vec<u32>)>> {
    let receiver = ThreadedReceiver::new(threads, placement)?;
    let pid = receiver.child.child.pid().as_raw_nonzero().get();
    (0..times)
        .map(|time| {
            let number = time % THREADS;
            let thread = receiver.words.threads[number].load(Ordering::Relaxed);
            // SAFETY: the call takes three numbers. The child is not reaped yet, and its threads
            // are still running.
            let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, SIGNAL) };
            checked(sent as libc::c_int).during("tgkill")?;
            Ok((number as u32, receiver.take_log()?))
        })
        .collect()
}

struct ThreadedReceiver {
    child: ReportingChild,
    words: SharedMapping<SharedCounts>,
    /// The threads that sleep when idle.
    sleepers: Vec<ProcStatFile>,
    one_runs: bool,
    _pinned: Pinned,
}

impl ThreadedReceiver {
    fn new(threads: ThreadSetup, placement: Placement) -> Result<Self> {
        let words = SharedMapping::<SharedCounts>::anonymous()?;
        let child = ReportingChild::fork(|| receive(threads, &words))?;
        child.until(Pass::Yield, "the receiver's threads to start", || {
            // SYNC directed-ready: pairs with each thread's store.
            words.threads.iter().all(|id| id.load(Ordering::Acquire) != 0)
        })?;
        let pid = child.child.raw_pid();
        let asleep = THREADS - usize::from(threads.one_runs);
        let ids = words.threads.iter().take(asleep).map(|id| id.load(Ordering::Relaxed));
        let sleepers = ids
            .map(|thread| ProcStatFile::of(pid, thread))
            .collect::<Result<Vec<ProcStatFile>>>()?;
        let _pinned = Pinned::to(placement.here)?;
        let receiver = Self { child, words, sleepers, one_runs: threads.one_runs, _pinned };
        receiver.rest(0)?;
        Ok(receiver)
    }

    /// Returns the threads that took the signals sent since the last call, in order, once all
    /// threads are idle.
    fn take_log(&self) -> Result<Vec<u32>> {
        self.rest(1)?;
        // Relaxed is enough: the writer is asleep, or has had time to leave its handler. A line
        // that is still 0 causes an error below.
        let handled = self.words.handled.swap(0, Ordering::Relaxed) as usize;
        let lines = &self.words.log[..handled.min(LOG)];
        let taken: Vec<u32> = lines.iter().map(|line| line.swap(0, Ordering::Relaxed)).collect();
        if handled > LOG || taken.iter().any(|&line| line == 0 || line > THREADS as u32) {
            bail!("expected at most {LOG} known takers: {taken:?}");
        }
        Ok(taken.into_iter().map(|line| line - 1).collect())
    }

    /// Waits until at least `handled` signals have been handled and no thread is handling another.
    fn rest(&self, handled: u32) -> Result<()> {
        let asleep = || self.sleepers.iter().all(ProcStatFile::asleep);
        let what = "its threads to handle all signals and to sleep";
        self.child.until(Pass::Sleep(BETWEEN_LOOKS), what, || {
            let so_far = self.words.handled.load(Ordering::Relaxed);
            so_far >= handled && asleep() && {
                std::thread::sleep(if self.one_runs { LEAVE } else { BETWEEN_LOOKS });
                asleep() && self.words.handled.load(Ordering::Relaxed) == so_far
            }
        })
    }
}

fn receive(threads: ThreadSetup, words: &SharedCounts) -> Result<()> {
    let only = Only::signal();
    only.block();
    WORDS.store(std::ptr::from_ref(words).cast_mut(), Ordering::Relaxed);
    handle(on_signal).during("sigaction")?;
    thread::scope(|scope| {
        for number in 1..THREADS {
            let runs = threads.one_runs && number == THREADS - 1;
            let body = move || wait(words, number, Some(only), runs);
            thread::Builder::new().spawn_scoped(scope, body).setting_up("clone")?;
        }
        wait(words, MAIN as usize, (!threads.main_blocks).then_some(only), false)
    })
}

/// Runs one thread: reports that it is ready, then sleeps or spins indefinitely.
fn wait(words: &SharedCounts, number: usize, unblocks: Option<Only>, runs: bool) -> Result<()> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    if let Some(only) = unblocks {
        only.unblock();
    }
    // SYNC directed-ready: pairs with `ThreadedReceiver::new`; the mask is already set.
    words.threads[number].store(thread, Ordering::Release);
    loop {
        if runs {
            std::hint::spin_loop();
        } else {
            // SAFETY: the call takes no arguments. A signal handled before `pause` is not lost: the
            // sender waits for sleeping threads, and the handler has logged the signal.
            unsafe { libc::pause() };
        }
    }
}
