//! A terminal's line discipline: [`LineDiscipline`].
//!
//! Typed bytes pass through the line discipline to their reader. It forms lines, erases characters,
//! generates the signals for some characters and echoes the result. It behaves as Linux's `n_tty`
//! was observed to behave, for those modes and characters of termios(3) that [`Termios`] contains.
//! Characters of more than one byte are erased as a whole, as with `IUTF8`.
//!
//! It does not refer to processes and never waits. It returns the work that other modules must do
//! as [`Effects`]. A caller that finds nothing to read, or no space, must retry after a change at
//! the other end. There is no flow control by ^S and ^Q.

mod input;
mod output;

pub(super) use input::Read;
use tontine_unix::{Errno, Modes, Result, SigSet, Signal, Termios};

use input::InputQueue;
use output::{OutputQueue, after, is_continuation};

/// A line discipline and its two queues.
#[derive(Default)]
pub(crate) struct LineDiscipline {
    termios: Termios,
    input: InputQueue,
    output: OutputQueue,
    /// The column at which the echo of the unfinished line begins.
    start: usize,
    hung_up: bool,
}

/// The effects of typing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effects {
    /// Number of accepted bytes; the others must be typed again after a read.
    pub(crate) taken: usize,
    /// Signals to send to the foreground group. After a signal, there may be space for processes
    /// that wait for it.
    pub(crate) signals: SigSet,
}

impl LineDiscipline {
    pub(crate) fn termios(&self) -> Termios {
        self.termios
    }

    /// Changes the modes and characters. Typed bytes are kept: if `ICANON` is switched on, they
    /// become one line; if it is switched off, all of them, including the unfinished line, can be
    /// read immediately.
    pub(crate) fn set_termios(&mut self, termios: Termios) {
        let before = self.canonical();
        self.termios = termios;
        if self.canonical() != before {
            self.input.set_canonical(self.canonical());
        }
    }

    /// Types as many bytes as there is space for. A character that generates a signal needs no
    /// space: it takes effect even after bytes that do not fit, and discards them with the rest of
    /// the input before it.
    pub(crate) fn input(&mut self, bytes: &[u8]) -> Effects {
        let mut effects = Effects::default();
        while let Some(&byte) = bytes.get(effects.taken).filter(|_| !self.hung_up) {
            if let Some(signal) = self.signal_of(byte) {
                effects.signals = effects.signals.with(signal);
                self.interrupt(byte);
            } else if !self.input.admits(self.canonical()) {
                let rest = &bytes[effects.taken..];
                match rest.iter().position(|byte| self.signal_of(*byte).is_some()) {
                    Some(before) if !self.is(Modes::NOFLSH) => effects.taken += before,
                    _ => break,
                }
                continue;
            } else if self.canonical() {
                self.edit(self.translated(byte));
            } else {
                let byte = self.translated(byte);
                self.input.push(byte);
                self.echo_typed(byte);
            }
            effects.taken += 1;
        }
        effects
    }

    /// Reads the available input; in canonical mode, at most one line.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Read {
        match self.canonical() {
            _ if self.hung_up => Read::End,
            true => self.input.read_line(buffer),
            false => self.input.read_bytes(buffer),
        }
    }

    /// Returns `true` if [`LineDiscipline::read`] would return a result.
    #[cfg(test)]
    pub(crate) fn can_read(&self) -> bool {
        self.hung_up || self.input.can_read(self.canonical())
    }

    /// Writes as many bytes as there is space for. Returns their number, which is 0 if the queue is
    /// full. Fails with `EIO` if the terminal is hung up.
    pub(crate) fn output(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.hung_up {
            return Err(Errno::EIO);
        }
        Ok(self.output.write(bytes, self.is(Modes::ONLCR)))
    }

    /// Returns the number of bytes for which there is space. A newline may take two.
    #[cfg(test)]
    pub(crate) fn output_space(&self) -> usize {
        self.output.space()
    }

    /// Takes as much output as fits, for the controlling end. Returns the number of bytes.
    pub(crate) fn take_output(&mut self, buffer: &mut [u8]) -> usize {
        self.output.take(buffer)
    }

    /// Returns `true` if [`LineDiscipline::take_output`] would return output.
    #[cfg(test)]
    pub(crate) fn is_visible(&self) -> bool {
        !self.output.is_empty()
    }

    /// Hangs up: discards the input and refuses further writes. Earlier output can still be taken.
    pub(crate) fn hang_up(&mut self) {
        self.hung_up = true;
        self.input.clear();
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    fn is(&self, mode: Modes) -> bool {
        self.termios.modes.contains(mode)
    }

    fn canonical(&self) -> bool {
        self.is(Modes::ICANON)
    }

    fn translated(&self, byte: u8) -> u8 {
        if byte == b'\r' && self.is(Modes::ICRNL) { b'\n' } else { byte }
    }

    /// Returns the signal that `byte` generates.
    fn signal_of(&self, byte: u8) -> Option<Signal> {
        let Termios { interrupt, quit, suspend, .. } = self.termios;
        match byte {
            _ if byte == 0 || !self.is(Modes::ISIG) => None,
            _ if byte == interrupt => Some(Signal::INT),
            _ if byte == quit => Some(Signal::QUIT),
            _ if byte == suspend => Some(Signal::TSTP),
            _ => None,
        }
    }

    /// Applies the further effects of a character that generates a signal.
    fn interrupt(&mut self, byte: u8) {
        if !self.is(Modes::NOFLSH) {
            self.input.clear();
            self.output.flush();
        }
        self.echo_typed(byte);
    }

    /// Adds `byte` to the unfinished line, or applies its editing function.
    fn edit(&mut self, byte: u8) {
        let Termios { end, erase, kill, .. } = self.termios;
        match byte {
            b'\n' => {
                self.input.push_newline();
                self.echo(b"\n");
            }
            _ if byte != 0 && byte == erase => {
                self.erase();
            }
            _ if byte != 0 && byte == kill => {
                while self.erase() {}
                // Without echo, characters need not be erased one by one.
                while !self.is(Modes::ECHO) && self.input.pop().is_some() {}
            }
            _ if byte != 0 && byte == end => self.input.push_end_of_input(),
            _ => {
                if self.input.unfinished().next().is_none() {
                    self.start = self.output.column();
                }
                self.input.push(byte);
                self.echo_typed(byte);
            }
        }
    }

    /// Erases the newest character of the unfinished line. Returns `false` if there is none. A
    /// character that began in the previous line is not erased partially.
    fn erase(&mut self) -> bool {
        let continued = self.input.unfinished().rev().position(|byte| !is_continuation(byte));
        let Some(continued) = continued else { return false };
        for _ in 0..continued {
            self.input.pop();
        }
        let Some(first) = self.input.pop() else { return false };
        if first == b'\t' {
            let column = self.input.unfinished().fold(self.start, behind);
            self.echo(&b"\x08".repeat(behind(column, first) - column));
        } else {
            self.echo(&b"\x08 \x08".repeat(if caret(first).is_some() { 2 } else { 1 }));
        }
        true
    }

    fn echo_typed(&mut self, byte: u8) {
        match caret(byte) {
            Some(two) => self.echo(&two),
            None => self.echo(&[byte]),
        }
    }

    fn echo(&mut self, bytes: &[u8]) {
        if self.is(Modes::ECHO) {
            self.output.echo(bytes, self.is(Modes::ONLCR));
        }
    }
}

/// Returns the echo of a control character: ^ and a letter.
fn caret(byte: u8) -> Option<[u8; 2]> {
    (byte.is_ascii_control() && byte != b'\t').then_some([b'^', byte ^ 0x40])
}

/// Returns the column after `byte`, which was typed and is shown in `column`.
fn behind(column: usize, byte: u8) -> usize {
    if caret(byte).is_some() { column + 2 } else { after(column, byte) }
}

#[cfg(test)]
mod tests;
