//! Connection of the user's terminal to the controlling end of another terminal: [`attend`].
//!
//! While connected, the user's terminal is in raw mode: every key is passed to the other terminal,
//! which forms lines and signals from the keys. The user's terminal is restored on every exit: on a
//! panic, and on each signal that would end the process and can be caught, even if the terminal's
//! output is not being read. It is also restored when the process stops, and becomes raw again when
//! the process continues. After SIGKILL it stays raw; `reset` or `stty sane`, typed blindly,
//! restores it. The terminal's size is not passed on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;

use tontine_unix_sim::TerminalController;

use super::suspend::suspend;

/// Maximum time until a signal or the end of the other side is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// The byte that is typed when the user's input ends: ^D.
const END: &[u8] = b"\x04";

/// Types the bytes of `input` at the other terminal, and copies that terminal's output to `output`,
/// until no process of the other side is left. If `input` is a terminal, it is in raw mode during
/// that time.
///
/// A caught signal ends the process, as it does by default; SIGTSTP stops it.
pub fn attend(
    controller: &dyn TerminalController,
    input: &impl AsFd,
    output: &impl AsFd,
) -> io::Result<()> {
    let (input, output) = (input.as_fd(), output.as_fd());
    let mut signals = Signals::new(CAUGHT)?;
    let raw = RawMode::begin(input, output)?;
    let leaving = AtomicBool::new(false);
    thread::scope(|scope| {
        let _unwinding = TyperGuard(&leaving);
        let screen = scope.spawn(|| show(controller, output, &leaving));
        let typed = pass_on(controller, input, &mut signals, &raw, || screen.is_finished());
        leaving.store(true, Ordering::Relaxed);
        if let Ok(Some(signal)) = typed {
            // The other thread may be blocked in a write that no process reads.
            raw.end();
            signal_hook::low_level::emulate_default_handler(signal)?;
        }
        let shown = screen.join().unwrap_or_else(|panic| resume_unwind(panic));
        typed.and(shown)
    })
}

/// Forwards keys until a signal is caught or `is_over` returns `true`. Returns the signal.
fn pass_on(
    controller: &dyn TerminalController,
    input: BorrowedFd<'_>,
    signals: &mut Signals,
    raw: &RawMode<'_>,
    is_over: impl Fn() -> bool,
) -> io::Result<Option<i32>> {
    let pause = Timespec::try_from(LOOK).expect("it is short");
    let mut ended = false;
    let mut buffer = [0; 1024];
    while !is_over() {
        for signal in signals.pending() {
            if signal == SIGTSTP {
                raw.end();
                suspend()?;
            }
            if !matches!(signal, SIGTSTP | SIGCONT) {
                return Ok(Some(signal));
            }
            raw.again()?;
        }
        let mut ready = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        match poll(&mut ready[..usize::from(!ended)], Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if ready[0].revents().is_empty() {
            continue;
        }
        match rustix::io::read(input, &mut buffer) {
            Ok(0) | Err(Errno::IO) => {
                controller.input(END);
                ended = true;
            }
            Ok(n) => controller.input(&buffer[..n]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Shows the output until the other side has ended or `leaving` is set.
fn show(
    controller: &dyn TerminalController,
    output: BorrowedFd<'_>,
    leaving: &AtomicBool,
) -> io::Result<()> {
    let pause = Timespec::try_from(LOOK).expect("it is short");
    while !leaving.load(Ordering::Relaxed) {
        // The end is queried first, so that output from before the end is shown.
        let over = controller.is_over();
        let bytes = controller.output(LOOK);
        if over && bytes.is_empty() {
            break;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match rustix::io::write(output, rest) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR) => {}
                // The output stays non-blocking, because the process that made it non-blocking may
                // still use it.
                Err(Errno::AGAIN) if leaving.load(Ordering::Relaxed) => return Ok(()),
                Err(Errno::AGAIN) => {
                    let mut ready = [PollFd::from_borrowed_fd(output, PollFlags::OUT)];
                    let _ = poll(&mut ready, Some(&pause));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Notifies the thread that shows output when the typing thread ends, even by a panic.
struct TyperGuard<'a>(&'a AtomicBool);

impl Drop for TyperGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A terminal in raw mode, which is restored on drop.
struct RawMode<'a> {
    terminal: BorrowedFd<'a>,
    /// The original and the raw modes; `None` if the file is not a terminal.
    modes: Option<(Termios, Termios)>,
}

impl<'a> RawMode<'a> {
    /// Sets raw mode. If `output` is not a terminal, the output may reach this terminal through
    /// another process, which relies on the terminal to process newlines.
    fn begin(terminal: BorrowedFd<'a>, output: BorrowedFd<'_>) -> io::Result<Self> {
        let before = match tcgetattr(terminal) {
            Ok(before) => before,
            Err(Errno::NOTTY) => return Ok(Self { terminal, modes: None }),
            Err(error) => return Err(error.into()),
        };
        let mut raw = before.clone();
        raw.make_raw();
        if !isatty(output) {
            raw.output_modes = before.output_modes;
        }
        let this = Self { terminal, modes: Some((before, raw)) };
        this.again()?;
        Ok(this)
    }

    /// Sets raw mode, initially and after another process has used the terminal. If the process is
    /// in the background, the call stops it until it is in the foreground.
    fn again(&self) -> io::Result<()> {
        self.modes.as_ref().map_or(Ok(()), |(_, raw)| self.set(raw))
    }

    /// Restores the modes. Does not wait for pending output, because the output may never be read.
    fn end(&self) {
        if let Some((before, _)) = &self.modes {
            // The caller is about to exit, so the error is dropped.
            let _ = self.set(before);
        }
    }

    fn set(&self, modes: &Termios) -> io::Result<()> {
        loop {
            match tcsetattr(self.terminal, OptionalActions::Now, modes) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// SIGTSTP, SIGCONT, and the signals that end a process by default and are not caused by a fault in
/// the process itself.
const CAUGHT: [i32; 14] = [
    SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF,
    SIGXCPU, SIGXFSZ, SIGTSTP, SIGCONT,
];
