//! The user's own terminal joined with the controlling end of another: [`attend`], [`Seat`].
//!
//! While it lasts, the user's terminal is in raw mode: every key goes to the other terminal, which
//! makes lines and signals of what is typed. On every way out, a panic and SIGINT, SIGTERM and
//! SIGHUP included, it becomes what it was. Its size is not passed on.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The controlling end of a terminal.
pub trait Seat: Sync {
    /// Types; waits until there is room.
    fn input(&self, bytes: &[u8]);
    /// What there is to see; nothing if that is so for as long as `wait`.
    fn output(&self, wait: Duration) -> Vec<u8>;
    /// Whether nobody is left who could write.
    fn is_over(&self) -> bool;
}

/// How long it may take to notice that the other side is over.
const LOOK: Duration = Duration::from_millis(50);

/// What is typed when the user's input ends: ^D.
const END: &[u8] = b"\x04";

/// Passes on what comes from `input`, in raw mode if it is a terminal, and shows on `output` what
/// there is to see, until the seat is over.
///
/// After SIGINT, SIGTERM or SIGHUP it ends the process, as the signal does by default.
///
/// # Errors
/// The user's terminal refuses. Its modes are restored all the same, if it lets them be.
///
/// # Panics
/// If the seat does.
///
/// ```no_run
/// # use tontine_unix::shell::{Seat, attend};
/// fn sit_down(seat: &dyn Seat) -> std::io::Result<()> {
///     attend(seat, &std::io::stdin(), &std::io::stdout())
/// }
/// ```
pub fn attend(seat: &dyn Seat, input: &impl AsFd, output: &impl AsFd) -> io::Result<()> {
    let (input, output) = (input.as_fd(), output.as_fd());
    let signals = Signals::catch()?;
    let raw = Raw::begin(input)?;
    let leaving = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let _unwinding = Leave(&leaving);
        let screen = scope.spawn(|| show(seat, output, &leaving));
        let typed = pass_on(seat, input, &signals, || screen.is_finished());
        leaving.store(true, Ordering::Relaxed);
        let shown = screen.join().unwrap_or_else(|panic| resume_unwind(panic));
        typed.and(shown)
    });
    drop(raw);
    match signals.caught() {
        Some(signal) => signal_hook::low_level::emulate_default_handler(signal),
        None => done,
    }
}

/// Passes keys on until a signal is caught or `is_over` says so.
fn pass_on(
    seat: &dyn Seat,
    input: BorrowedFd<'_>,
    signals: &Signals,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    let pause = Timespec::try_from(LOOK).expect("it is short");
    let mut ended = false;
    let mut buffer = [0; 1024];
    while !is_over() && signals.caught().is_none() {
        let mut ready = [
            PollFd::new(&signals.pipe, PollFlags::IN),
            PollFd::from_borrowed_fd(input, PollFlags::IN),
        ];
        let watched = if ended { 1 } else { 2 };
        match poll(&mut ready[..watched], Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if ended || ready[1].revents().is_empty() {
            continue;
        }
        match rustix::io::read(input, &mut buffer) {
            Ok(0) | Err(Errno::IO) => {
                seat.input(END);
                ended = true;
            }
            Ok(n) => seat.input(&buffer[..n]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Shows what there is to see until the seat is over, or the other pump is.
fn show(seat: &dyn Seat, output: BorrowedFd<'_>, leaving: &AtomicBool) -> io::Result<()> {
    while !leaving.load(Ordering::Relaxed) {
        // Asked first: what was written before the end is shown.
        let over = seat.is_over();
        let bytes = seat.output(LOOK);
        if over && bytes.is_empty() {
            break;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match rustix::io::write(output, rest) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Tells the pump that shows that the one that types has ended, also when that panics.
struct Leave<'a>(&'a AtomicBool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A terminal in raw mode; as it was, when dropped.
struct Raw<'a> {
    terminal: BorrowedFd<'a>,
    before: Option<Termios>,
}

impl<'a> Raw<'a> {
    /// Nothing, where it is no terminal.
    fn begin(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let before = match tcgetattr(terminal) {
            Ok(before) => before,
            Err(Errno::NOTTY) => return Ok(Self { terminal, before: None }),
            Err(error) => return Err(error.into()),
        };
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before: Some(before) })
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Who drops it leaves anyway; there is nobody to tell.
            let _ = tcsetattr(self.terminal, OptionalActions::Drain, before);
        }
    }
}

/// Signals that would end the process without restoring anything, caught.
struct Signals {
    /// The last one that came; 0 for none.
    number: Arc<AtomicUsize>,
    /// Has something to read when one came.
    pipe: PipeReader,
    ids: Vec<SigId>,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        let (pipe, writer) = io::pipe()?;
        let mut signals = Self { number: Arc::default(), pipe, ids: Vec::new() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signals.add(signal, &writer)?;
        }
        Ok(signals)
    }

    fn add(&mut self, signal: i32, writer: &PipeWriter) -> io::Result<()> {
        let number = Arc::clone(&self.number);
        self.ids.push(signal_hook::flag::register_usize(signal, number, signal as usize)?);
        let writer = writer.try_clone()?;
        self.ids.push(signal_hook::low_level::pipe::register(signal, writer)?);
        Ok(())
    }

    fn caught(&self) -> Option<i32> {
        let number = self.number.load(Ordering::Relaxed);
        (number != 0).then_some(number as i32)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
