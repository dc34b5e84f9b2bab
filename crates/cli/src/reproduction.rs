//! `tontine measure --as-published`: repeats the programs of a source: [`reproduce`].
//!
//! The programs run in a child process, which is another instance of this executable. A signal can
//! therefore end them at any point, and the parent removes what they leave behind: processes end
//! with the child; files and containers are deleted. When the child has finished, the parent also
//! writes its output to a file.

use std::io::{self, Write as _};
use std::process::{Child, Command, ExitCode};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use tontine_bench::engine::stop::StopRequest;
use tontine_experiments::SUITE;
use tontine_experiments::as_published::{self, SourceDocument};
use tontine_report::write;

use crate::args::Measure;
use crate::repetitions::duration;
use crate::results::writable;
use crate::{CommandFailure, FAILED, print, stopped_by};

/// Environment variable by which the child recognises its role.
const CHILD: &str = "TONTINE_REPRODUCES";

/// Repeats the source with that number.
pub(crate) fn reproduce(seed: &str, asked: &Measure) -> Result<ExitCode, CommandFailure> {
    let known =
        || as_published::seeds().iter().map(|seed| seed.number).collect::<Vec<_>>().join(", ");
    let seed = as_published::find(seed).ok_or_else(|| {
        CommandFailure::usage(format!("no source is named '{seed}'; name one of {}", known()))
    })?;
    if std::env::var_os(CHILD).is_some() {
        return carry_out(seed, asked);
    }
    writable(&asked.out)?;
    (SUITE.clean_up)();
    let stop =
        StopRequest::on_signals().map_err(CommandFailure::cannot("install signal handlers"))?;
    let mut command = Command::new(
        std::env::current_exe().map_err(CommandFailure::cannot("find this program's own path"))?,
    );
    command.args(std::env::args_os().skip(1)).env(CHILD, "1");
    let estimate = seed.seconds[usize::from(!asked.quick)];
    let time = duration(estimate.into());
    let number = seed.number;
    let _ = writeln!(io::stderr(), "source {number}: about {time}; Ctrl-C stops it");
    let mut child = command.spawn().map_err(CommandFailure::cannot("start this program again"))?;
    let ended = wait_for_either(&child, &stop, &time);
    if stop.requested() || ended.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(CommandFailure::cannot("wait for the child process"))?;
    (SUITE.clean_up)();
    ended.map_err(CommandFailure::cannot("wait for the child process"))?;
    match (stop.signal(), status.code()) {
        (Some(signal), _) => Ok(stopped_by(signal)),
        (None, Some(code)) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(FAILED))),
        (None, None) => Err(CommandFailure::failed(format!(
            "source {}: expected its process to exit, found {status}; run it again",
            seed.number
        ))),
    }
}

/// Waits until the child has exited or a signal requests a stop. Prints a line each minute.
fn wait_for_either(child: &Child, stop: &StopRequest, estimate: &str) -> io::Result<()> {
    let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
    let began = Instant::now();
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut waits = [PollFd::new(&ended, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    loop {
        match poll(&mut waits, Some(&minute)) {
            Err(Errno::INTR) => {}
            Ok(0) => {
                let so_far = duration(began.elapsed().as_secs_f64());
                let _ = writeln!(io::stderr(), "{so_far} of about {estimate}");
            }
            done => return Ok(done.map(drop)?),
        }
    }
}

fn carry_out(seed: &SourceDocument, asked: &Measure) -> Result<ExitCode, CommandFailure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let mut both = Tee { text: Vec::new() };
    seed.reproduce(asked.quick, &mut both).map_err(CommandFailure::failed)?;
    let name = format!("as-published-{}.txt", seed.number);
    let file = write::write_file(&asked.out, &name, &both.text).map_err(CommandFailure::failed)?;
    let _ = writeln!(io::stderr(), "wrote {}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// A writer that prints text and keeps it.
struct Tee {
    text: Vec<u8>,
}

impl io::Write for Tee {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        print(text)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
