//! The start of an invocation, and its reply or end: [`Launcher`].
//!
//! An invocation runs in its own process, which leads its own process group. However the invocation
//! ends (a reply, a crash, a deadline, a stop), the whole group is killed before the leader is
//! reaped, because another group could otherwise have received the group's number.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tontine_host::os::deadline;

use crate::engine::invoked::{InvocationReply, InvocationRequest};
use crate::engine::stop::StopRequest;

/// Maximum sleep between two checks that the leader is still running. Normally the leader's end
/// closes the pipe, which wakes this process immediately.
const LOOK: Duration = Duration::from_millis(250);

/// Like [`LOOK`], but after the leader's pipes are closed. The leader is then about to end, and no
/// event will wake this process.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Maximum length of a reply in bytes. A reply contains a histogram of a few kilobytes per metric.
const LONGEST_REPLY: usize = 16 << 20;

/// Maximum number of pieces read at a time, so that endless output does not delay the deadline.
const MOST_PIECES: usize = 64;

/// Number of bytes of standard error that are kept.
const LONGEST_COMPLAINT: usize = 64 << 10;

/// The command that starts an invocation, and its timeout.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// Path of the executable.
    pub program: PathBuf,
    /// Arguments of the executable.
    pub arguments: Vec<OsString>,
    /// Timeout of the invocation.
    pub deadline: Duration,
}

/// Result of a launch.
#[derive(Debug)]
pub enum LaunchResult {
    /// The invocation sent a reply.
    Replied(Box<InvocationReply>),
    /// The invocation sent no reply: it crashed, hung, or printed something else. The text
    /// describes the cause.
    Broken(String),
    /// The run was stopped during the invocation, which has been killed.
    Stopped,
}

impl Launcher {
    /// Runs one invocation until it ends.
    pub fn launch(&self, order: &InvocationRequest, stop: &StopRequest) -> LaunchResult {
        if stop.requested() {
            return LaunchResult::Stopped;
        }
        match self.start(order) {
            Ok(running) => running.follow(self.deadline, stop),
            Err(error) => {
                LaunchResult::Broken(format!("starting {}: {error}", self.program.display()))
            }
        }
    }

    fn start(&self, order: &InvocationRequest) -> io::Result<Running> {
        let order = serde_json::to_vec(order)?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .env(deadline::NAME, self.deadline.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (replied, complained) = (Vec::new(), Vec::new());
        let mut running = Running { child, reaped: false, replied, complained };
        if let Some(mut stdin) = running.child.stdin.take() {
            // A request is far smaller than a pipe's buffer. If the invocation does not read the
            // request, the write fails with EPIPE, and the invocation's exit status is more
            // informative.
            let _ = stdin.write_all(&order);
        }
        unblock(running.child.stdout.as_ref())?;
        unblock(running.child.stderr.as_ref())?;
        Ok(running)
    }
}

/// A started invocation. Dropping it kills the group and reaps the leader.
struct Running {
    child: Child,
    reaped: bool,
    replied: Vec<u8>,
    complained: Vec<u8>,
}

impl Running {
    fn follow(mut self, deadline: Duration, stop: &StopRequest) -> LaunchResult {
        let until = Instant::now() + deadline;
        loop {
            if stop.requested() {
                return LaunchResult::Stopped;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = deadline.as_secs_f64();
                return LaunchResult::Broken(format!("hung: no reply within {seconds} s, killed"));
            }
            if let Err(error) = self.wait_for_news(left.min(LOOK), stop) {
                return LaunchResult::Broken(format!("waiting for the invocation: {error}"));
            }
            let ended = self.has_ended();
            if let Err(error) = self.read_what_is_there() {
                return LaunchResult::Broken(format!("reading the reply: {error}"));
            }
            if ended {
                return self.conclude();
            }
        }
    }

    fn wait_for_news(&self, at_most: Duration, stop: &StopRequest) -> io::Result<()> {
        let mut waits = vec![PollFd::new(stop, PollFlags::IN)];
        waits.extend(self.child.stdout.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        waits.extend(self.child.stderr.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let at_most = if waits.len() == 1 { at_most.min(LAST_LOOK) } else { at_most };
        let at_most = Timespec::try_from(at_most).expect("a quarter of a second fits");
        match poll(&mut waits, Some(&at_most)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns `true` if the leader is a zombie. The leader remains a zombie, so that the group's
    /// number is not reused.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(pid_of(&self.child)), options), Ok(Some(_)))
    }

    fn read_what_is_there(&mut self) -> io::Result<()> {
        if drain(self.child.stdout.as_mut(), &mut self.replied, LONGEST_REPLY)? {
            self.child.stdout = None;
        }
        if drain(self.child.stderr.as_mut(), &mut self.complained, LONGEST_COMPLAINT)? {
            self.child.stderr = None;
        }
        Ok(())
    }

    fn conclude(mut self) -> LaunchResult {
        let status = match self.end() {
            Ok(status) => status,
            Err(error) => return LaunchResult::Broken(format!("waitpid: {error}")),
        };
        if !status.success() {
            return LaunchResult::Broken(format!("crashed: {status}{}", self.last_complaint()));
        }
        match serde_json::from_slice(&self.replied) {
            Ok(reply) => LaunchResult::Replied(Box::new(reply)),
            Err(error) => {
                let start: String =
                    String::from_utf8_lossy(&self.replied).chars().take(60).collect();
                LaunchResult::Broken(format!(
                    "expected a reply, found other output ({error}): {start:?}"
                ))
            }
        }
    }

    fn last_complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.complained);
        let mut lines = text.lines().filter(|line| !line.starts_with("note: "));
        lines.next_back().map_or_else(String::new, |line| format!(": {line}"))
    }

    /// Kills the group and reaps the leader.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let _ = kill_process_group(pid_of(&self.child), Signal::KILL);
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Once the leader is reaped, its number may belong to an unrelated process.
        if !self.reaped {
            let _ = self.end();
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn unblock<F: AsFd>(pipe: Option<&F>) -> io::Result<()> {
    if let Some(pipe) = pipe {
        let flags = rustix::fs::fcntl_getfl(pipe)?;
        rustix::fs::fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?;
    }
    Ok(())
}

/// Reads the content of a non-blocking pipe. Returns `true` at its end. Bytes beyond `most` are
/// read and discarded, so that the writer does not block.
fn drain(pipe: Option<&mut impl Read>, into: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut piece = [0; 16 << 10];
    for _ in 0..MOST_PIECES {
        match pipe.read(&mut piece) {
            Ok(0) => return Ok(true),
            Ok(count) => {
                let room = most.saturating_sub(into.len());
                into.extend_from_slice(&piece[..count.min(room)]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
