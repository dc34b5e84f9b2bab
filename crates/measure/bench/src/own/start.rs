//! The start of a user's command: [`OwnCommand::start`].
//!
//! The process leads its own process group and has no standard input; its output goes into pipes
//! that this process reads. When the process has ended or is ready, the whole group is killed.

#![allow(unsafe_code, reason = "gives the child a descriptor with a certain number")]

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::engine::group::{Kept, RunningGroup};
use crate::engine::stop::StopRequest;

/// Number of bytes of each output that are kept, from its end.
const KEPT: usize = 64 << 10;

/// Number of lines of standard error that a failure repeats, and the length of each in characters.
const LAST_LINES: usize = 5;
const LINE_LENGTH: usize = 160;

/// Time that a process has to end after SIGTERM, once it was ready.
const GRACE: Duration = Duration::from_secs(2);

/// Beginning of the line by which a command reports its own figure.
const PREFIX: &str = "tontine:";

/// A command of the user: a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCommand {
    /// The program and its arguments; never empty.
    pub words: Vec<OsString>,
}

impl fmt::Display for OwnCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words.iter().enumerate() {
            let word = word.to_string_lossy().replace(char::is_control, " ");
            let plain = !word.is_empty() && !word.contains([' ', '\'', '"', '$', '&', ';', '|']);
            let space = if index == 0 { "" } else { " " };
            match plain {
                true => write!(f, "{space}{word}")?,
                false => write!(f, "{space}'{word}'")?,
            }
        }
        Ok(())
    }
}

/// Result of a start that succeeded.
#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    /// Time from before the start until the process had ended, or was ready.
    pub time: Duration,
    /// The figure and its unit, if the process printed them.
    pub printed: Option<(f64, String)>,
}

/// The reason why a start has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFailure {
    Stopped,
    Unstartable(String),
    Failed(String),
}

impl OwnCommand {
    /// Starts the command and waits for its end. With `ready`, waits until it writes to that
    /// descriptor, at most for `timeout`.
    pub fn start(
        &self,
        ready: Option<i32>,
        timeout: Duration,
        stop: &StopRequest,
    ) -> Result<Started, StartFailure> {
        if stop.requested() {
            return Err(StartFailure::Stopped);
        }
        let pipe = ready.map(ReadyPipe::new).transpose().map_err(|error| {
            StartFailure::Unstartable(format!("the descriptor of --ready: {error}"))
        })?;
        let (program, arguments) = self.words.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(pipe) = &pipe {
            pipe.pass_to(&mut command);
        }
        let began = Instant::now();
        let child = command
            .spawn()
            .map_err(|error| StartFailure::Unstartable(format!("cannot be started: {error}")))?;
        let group = RunningGroup::new(child, Kept::End(KEPT)).map_err(waiting)?;
        // The child has inherited the writing end, which is closed here.
        let pipe = pipe.map(|pipe| pipe.reader);
        RunningCommand(group).follow(began, pipe, timeout, stop)
    }
}

/// The pipe by which a command announces that it is ready.
struct ReadyPipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Another descriptor of the writer. Its number is the requested one if that number was free,
    /// so that no descriptor of the standard library receives it in between.
    reserved: OwnedFd,
    number: i32,
}

impl ReadyPipe {
    fn new(number: i32) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The command expects a blocking pipe.
        rustix::fs::fcntl_setfl(&writer, OFlags::empty())?;
        let reserved = rustix::io::fcntl_dupfd_cloexec(&writer, number)?;
        Ok(Self { reader, writer, reserved, number })
    }

    fn pass_to(&self, command: &mut Command) {
        // `writer` and `reserved` differ, so at least one of them is not the requested number.
        let from = match self.writer.as_raw_fd() {
            writer if writer == self.number => self.reserved.as_raw_fd(),
            writer => writer,
        };
        let number = self.number;
        let give = move || {
            // SAFETY: `dup2` is async-signal-safe, accepts any numbers, and no owner of `number`
            // exists in the child, which only executes another program.
            match unsafe { libc::dup2(from, number) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: the closure only calls `dup2` and reads `errno`.
        unsafe { command.pre_exec(give) };
    }
}

/// A started command.
struct RunningCommand(RunningGroup);

/// An event for which [`RunningCommand::follow`] waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Stop,
    End,
    Ready,
    Output,
}

impl RunningCommand {
    fn follow(
        &mut self,
        began: Instant,
        mut pipe: Option<OwnedFd>,
        timeout: Duration,
        stop: &StopRequest,
    ) -> Result<Started, StartFailure> {
        let end = pidfd_open(self.0.leader(), PidfdFlags::empty());
        let end = end.map_err(io::Error::from).map_err(waiting)?;
        let awaits_ready = pipe.is_some();
        loop {
            let left = awaits_ready.then(|| timeout.saturating_sub(began.elapsed()));
            let events = self.events(&end, pipe.as_ref(), stop, left).map_err(waiting)?;
            let time = began.elapsed();
            self.0.read_output().map_err(waiting)?;
            if stop.requested() || events.contains(&Event::Stop) {
                return Err(StartFailure::Stopped);
            }
            if events.contains(&Event::Ready) {
                match pipe.as_ref().map(|pipe| rustix::io::read(pipe, &mut [0; 64])) {
                    Some(Ok(1..)) => {
                        self.ask_to_end(&end);
                        return Ok(Started { time, printed: None });
                    }
                    // The other end was closed, and the end of the process says why.
                    Some(Ok(0)) => pipe = None,
                    _ => {}
                }
            }
            if events.contains(&Event::End) {
                return self.conclude(time, awaits_ready);
            }
            if awaits_ready && time >= timeout {
                let seconds = timeout.as_secs_f64();
                return Err(StartFailure::Failed(format!(
                    "wrote nothing to the descriptor of --ready within {seconds} s{}",
                    self.last_lines()
                )));
            }
        }
    }

    fn events(
        &self,
        end: &OwnedFd,
        ready: Option<&OwnedFd>,
        stop: &StopRequest,
        left: Option<Duration>,
    ) -> io::Result<Vec<Event>> {
        let wait = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut kinds = vec![Event::Stop, Event::End];
        let mut waits = vec![wait(stop.as_fd()), wait(end.as_fd())];
        for (kind, fd) in [
            (Event::Ready, ready.map(AsFd::as_fd)),
            (Event::Output, self.0.child.stdout.as_ref().map(AsFd::as_fd)),
            (Event::Output, self.0.child.stderr.as_ref().map(AsFd::as_fd)),
        ] {
            if let Some(fd) = fd {
                kinds.push(kind);
                waits.push(wait(fd));
            }
        }
        // Rounded up, so that the timeout has passed after the last wait.
        let left = left.map(|left| left + Duration::from_millis(1));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut waits, left.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let happened = kinds.into_iter().zip(&waits).filter(|(_, wait)| !wait.revents().is_empty());
        Ok(happened.map(|(kind, _)| kind).collect())
    }

    fn conclude(&mut self, time: Duration, awaited_ready: bool) -> Result<Started, StartFailure> {
        let status = self.0.end().map_err(waiting)?;
        self.0.read_output().map_err(waiting)?;
        if awaited_ready {
            return Err(StartFailure::Failed(format!(
                "ended without writing to the descriptor of --ready ({status}){}",
                self.last_lines()
            )));
        }
        if !status.success() {
            return Err(StartFailure::Failed(format!("failed: {status}{}", self.last_lines())));
        }
        let printed =
            printed(&String::from_utf8_lossy(&self.0.out)).map_err(StartFailure::Failed)?;
        Ok(Started { time, printed })
    }

    /// Returns the last lines of standard error, each indented on its own line.
    fn last_lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.0.err);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let mut said = String::new();
        for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
            let line = line.replace(char::is_control, " ");
            said.push_str("\n  ");
            said.extend(line.chars().take(LINE_LENGTH));
        }
        said
    }

    /// Asks the group to end, and waits at most [`GRACE`] for its leader.
    fn ask_to_end(&mut self, end: &OwnedFd) {
        let _ = kill_process_group(self.0.leader(), Signal::TERM);
        let grace = Timespec::try_from(GRACE).expect("two seconds fit");
        let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&grace));
        let _ = self.0.end();
    }
}

/// Returns the figure in the last line that reports one. Times are converted into nanoseconds.
fn printed(out: &str) -> Result<Option<(f64, String)>, String> {
    let Some(line) = out.lines().rfind(|line| line.starts_with(PREFIX)) else { return Ok(None) };
    let text = line[PREFIX.len()..].trim();
    let found = text.split_once(' ').and_then(|(number, unit)| {
        let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite())?;
        let unit = unit.trim();
        let factor = match unit {
            "" => return None,
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Some((number, unit.to_owned())),
        };
        Some((number * factor, "ns".to_owned()))
    });
    let line: String = line.chars().take(LINE_LENGTH).collect();
    found.map(Some).ok_or_else(|| {
        format!("printed `{line}`; expected `tontine: NUMBER UNIT`, like `tontine: 12.5 ms`")
    })
}

fn waiting(error: io::Error) -> StartFailure {
    StartFailure::Failed(format!("waiting for it: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_printed_figure_counts_and_times_become_nanoseconds() {
        let found = |out| printed(out).unwrap();
        assert_eq!(found("hello\n"), None);
        assert_eq!(found("tontine: 1 s\ntontine: 2.5 ms\n"), Some((2.5e6, "ns".into())));
        assert_eq!(found("tontine: 7 messages/s"), Some((7.0, "messages/s".into())));
        for wrong in ["tontine: 7", "tontine: seven ms", "tontine: inf ms", "tontine:"] {
            assert!(printed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn command_is_shown_with_quotes_only_where_needed() {
        let command = |words: &[&str]| OwnCommand { words: words.iter().map(Into::into).collect() };
        assert_eq!(command(&["./a", "--x", "1"]).to_string(), "./a --x 1");
        assert_eq!(command(&["sh", "-c", "exit 3", ""]).to_string(), "sh -c 'exit 3' ''");
    }

    #[test]
    fn output_larger_than_a_pipe_is_read_and_its_end_is_kept() {
        let script = "head -c 5000000 /dev/zero; echo; echo 'tontine: 3 x'";
        let command = OwnCommand { words: ["sh", "-c", script].map(Into::into).to_vec() };
        let stop = StopRequest::never().unwrap();
        let started = command.start(None, Duration::ZERO, &stop).unwrap();
        assert_eq!(started.printed, Some((3.0, "x".into())));
    }

    #[test]
    fn failure_repeats_last_lines_of_standard_error() {
        let script = "seq 9 >&2; exit 3";
        let command = OwnCommand { words: ["sh", "-c", script].map(Into::into).to_vec() };
        let stop = StopRequest::never().unwrap();
        let failure = command.start(None, Duration::ZERO, &stop).unwrap_err();
        let expected = "failed: exit status: 3\n  5\n  6\n  7\n  8\n  9";
        assert_eq!(failure, StartFailure::Failed(expected.into()));
    }
}
