//! The start of an invocation, and its reply or end: [`Launcher`].
//!
//! An invocation runs in its own process, which leads its own process group. However the invocation
//! ends (a reply, a crash, a deadline, a stop), the whole group is killed.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::os::deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::engine::group::{Kept, RunningGroup};
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

/// The command that starts an invocation, and its timeout.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub deadline: Duration,
}

#[derive(Debug)]
pub enum LaunchResult {
    /// The invocation sent a reply.
    Replied(Box<InvocationReply>),
    /// The invocation sent no reply: it crashed, hung, or printed something else. The text
    /// describes the cause.
    Broken(String),
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
        let mut running = RunningGroup::new(child, Kept::Beginning(LONGEST_REPLY))?;
        if let Some(mut stdin) = running.child.stdin.take() {
            // A request is far smaller than a pipe's buffer. If the invocation does not read the
            // request, the write fails with EPIPE, and the invocation's exit status is more
            // informative.
            let _ = stdin.write_all(&order);
        }
        Ok(Running(running))
    }
}

/// A started invocation.
struct Running(RunningGroup);

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
            if let Err(error) = self.0.read_output() {
                return LaunchResult::Broken(format!("reading the reply: {error}"));
            }
            if ended {
                return self.conclude();
            }
        }
    }

    fn wait_for_news(&self, at_most: Duration, stop: &StopRequest) -> io::Result<()> {
        let mut waits = vec![PollFd::new(stop, PollFlags::IN)];
        waits.extend(self.0.child.stdout.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        waits.extend(self.0.child.stderr.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
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
        matches!(waitid(WaitId::Pid(self.0.leader()), options), Ok(Some(_)))
    }

    fn conclude(mut self) -> LaunchResult {
        let status = match self.0.end() {
            Ok(status) => status,
            Err(error) => return LaunchResult::Broken(format!("waitpid: {error}")),
        };
        if !status.success() {
            return LaunchResult::Broken(format!("crashed: {status}{}", self.last_complaint()));
        }
        match serde_json::from_slice(&self.0.out) {
            Ok(reply) => LaunchResult::Replied(Box::new(reply)),
            Err(error) => {
                let start: String = String::from_utf8_lossy(&self.0.out).chars().take(60).collect();
                LaunchResult::Broken(format!(
                    "expected a reply, found other output ({error}): {start:?}"
                ))
            }
        }
    }

    fn last_complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.0.err);
        let mut lines = text.lines().filter(|line| !line.starts_with("note: "));
        lines.next_back().map_or_else(String::new, |line| format!(": {line}"))
    }
}
