//! The program that a worker runs: [`serve`] carries out one [`order::WorkerCommand`] per line
//! until its input ends.
//!
//! A *marked* command is framed by two breakpoint instructions, and the explorer steps through the
//! code between them. Everything else, such as reading the command and the reply, stays outside.
//! Boost's worker does the same in C++. [`crate::worker_launcher`] is the explorer's side.

#![allow(unsafe_code, reason = "breakpoint instructions")]

mod end;
mod member;
pub mod order;

use std::ffi::OsStr;
use std::io::{self, BufRead, Write};

use self::end::QueueActor;
use self::member::MemberActor;
use self::order::{WorkerCommand, WorkerReply};
use crate::run_dir::RunDir;
use crate::subject::{self, TargetKind};

/// Serves as a worker: commands arrive on standard input, replies go to standard output. The
/// arguments are the target's name and the directory of the [`RunDir`].
pub fn serve(subject: &OsStr, folder: &OsStr) -> io::Result<()> {
    let subject = subject
        .to_str()
        .and_then(subject::find)
        .ok_or_else(|| io::Error::other(format!("no target is named {subject:?}")))?;
    let place = RunDir::of(folder.into());
    let mut handler: Box<dyn CommandHandler> = match subject.kind() {
        TargetKind::Queue(queue) => Box::new(QueueActor::new(queue, place)),
        TargetKind::Heap(heap) => Box::new(MemberActor::new(heap, place)),
    };
    let mut replies = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let order: WorkerCommand = line?.parse().map_err(io::Error::other)?;
        let reply = handler.obey(&order).unwrap_or_else(|error| {
            if is_lacking(&error) {
                WorkerReply::Lacking(error.to_string())
            } else {
                WorkerReply::Refused(error.to_string())
            }
        });
        writeln!(replies, "{reply}")?;
        replies.flush()?;
    }
    Ok(())
}

/// Returns `true` if an error of a mechanism reports that the machine lacks something, and `false`
/// if it reports a result of the mechanism. The list is shorter than the list of
/// [`error::refused`](tontine_bench::error::refused), because a survivor may find a socket without
/// its peer.
fn is_lacking(error: &io::Error) -> bool {
    let is_skip = error.kind() == io::ErrorKind::Unsupported && error.raw_os_error().is_none();
    is_skip
        || matches!(
            error.raw_os_error(),
            Some(
                libc::EPERM
                    | libc::EACCES
                    | libc::ENOENT
                    | libc::ENOSYS
                    | libc::EOPNOTSUPP
                    | libc::EMFILE
                    | libc::ENFILE
                    | libc::ENOMEM
                    | libc::ENOSPC
                    | libc::EAGAIN
                    | libc::EROFS
            )
        )
}

trait CommandHandler {
    /// Carries out a command. All errors come from the mechanism itself.
    fn obey(&mut self, order: &WorkerCommand) -> io::Result<WorkerReply>;
}

/// Returns the error for a command that this kind of target cannot carry out.
fn misplaced(order: &WorkerCommand) -> io::Error {
    io::Error::other(format!("command '{order}' is invalid for this target"))
}

/// Runs `act` between two marks if `marked`.
#[inline(never)]
fn framed<T>(marked: bool, act: impl FnOnce() -> T) -> T {
    if marked {
        mark();
    }
    let done = act();
    if marked {
        mark();
    }
    done
}

/// Stops for the tracer. Without a tracer, the process ends here.
#[inline(always)]
fn mark() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `int3` changes no register and no memory. Commands are marked only under a tracer,
    // which continues after the instruction.
    unsafe {
        std::arch::asm!("int3");
    }
}
