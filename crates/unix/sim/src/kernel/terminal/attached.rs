//! A terminal with a [`Console`] at its controlling end. A fiber moves bytes between the two.
//!
//! The fiber runs on processor 0, as the modes that omit locks require.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tontine_unix::Fd;

use crate::console::Console;
use crate::executor::{self, Start};
use crate::kernel::Kernel;
use crate::kernel::descriptors::{FileEnd, OpenFile};
use crate::kernel::proc::Proc;
use crate::kernel::session::Terminal;

/// Maximum number of bytes that are moved in one step.
const PIECE: usize = 1024;

impl Kernel {
    /// Gives a session leader a terminal, with `console` at its controlling end. Panics if no stack
    /// is available for the fiber.
    pub(in crate::kernel) fn attach_console(&self, leader: &Proc, console: Console) {
        let terminal = Terminal::new(self.instance());
        let group = leader.lock(&self.locks).pgrp.clone().expect("a leader has a group");
        terminal.become_controlling(self, leader, &group).expect("neither has another one");
        let file = OpenFile::new(self, FileEnd::Terminal(Arc::clone(&terminal)));
        for descriptor in [Fd::STDIN, Fd::STDOUT, Fd::STDERR] {
            leader.lock(&self.locks).files.open_at(Arc::clone(&file), descriptor);
        }
        let kernel = self.handle();
        let body = Box::new(move || kernel.get().carry(&terminal, &console));
        let start = Start { processor: Some(0), context: 0, name: 0, body };
        self.executor.start(start).expect("a stack is available for the console");
    }

    /// Moves bytes until the last process has ended.
    fn carry(&self, terminal: &Terminal, console: &Console) {
        let mut outside = Some(self.executor.external());
        console.attach(executor::current());
        while self.population.load(Ordering::Relaxed) > 0 {
            let shown = console.has_space() && self.show(terminal, console);
            let typed = self.type_in(terminal, console);
            if !shown && !typed {
                match console.is_attended() {
                    true => {
                        outside.get_or_insert_with(|| self.executor.external());
                    }
                    false => outside = None,
                }
                executor::park();
            }
        }
        // Moves the rest of the output, without waiting for more.
        while self.show(terminal, console) {}
        console.detach();
        drop(outside);
    }

    fn show(&self, terminal: &Terminal, console: &Console) -> bool {
        let mut piece = [0; PIECE];
        let count = terminal.output(self, &mut piece, Some(executor::current())).unwrap_or(0);
        console.show(&piece[..count]);
        count > 0
    }

    fn type_in(&self, terminal: &Terminal, console: &Console) -> bool {
        let piece = console.typed(PIECE);
        if piece.is_empty() {
            return false;
        }
        let typed =
            |piece: &[u8]| terminal.input(self, piece, executor::current()).unwrap_or(piece.len());
        let taken = match typed(&piece) {
            // A key that generates a signal may follow bytes for which there is no space.
            0 => typed(&console.typed(usize::MAX)),
            taken => taken,
        };
        console.take_typed(taken);
        taken > 0
    }

    /// Wakes the fiber, which then checks whether it must end.
    pub(in crate::kernel) fn end_console(&self) {
        if let Some(console) = &self.config.console {
            console.wake();
        }
    }
}
