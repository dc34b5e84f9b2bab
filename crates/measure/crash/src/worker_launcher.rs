//! The explorer's control of its workers: [`WorkerLauncher`] starts them, [`WorkerProcess`] sends
//! commands and waits for replies, at most for a [`FairTimeout`].
//!
//! A worker is a fresh process: what one run did to a heap, a lazily bound symbol or a lock cannot
//! affect the next run. It runs without address randomisation, so that every instruction has the
//! same address in each run. It cannot outlive its handle: when the handle is dropped, the worker
//! is killed and reaped, and if the explorer itself is killed, the kernel kills the worker too.

#![allow(unsafe_code, reason = "personality, and a death signal between fork and exec")]

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, set_parent_process_death_signal, waitpid,
};

use crate::actor::order::{WorkerCommand, WorkerReply};
use crate::fair_timeout::{self, FairTimeout, LOOK, WaitState, WaitTimer};
use crate::run_dir::RunDir;
use tontine_bench::error::{ErrorContext, MeasureError, Result};

/// The command that starts a worker: this program with these arguments, followed by the target's
/// name and a directory. The program passes both to [`crate::actor::serve`].
#[derive(Debug, Clone)]
pub struct WorkerLauncher {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

/// Maximum length of a line of a reply; a reply with thousands of messages is shorter.
const LONGEST_REPLY: usize = 1 << 20;

/// Maximum wait for a worker to fall asleep, and the duration of a sleep that counts as asleep.
const SLEEPY: Duration = Duration::from_secs(5);
const ASLEEP: Duration = Duration::from_millis(2);

/// Maximum wait for a worker that is not required to fall asleep.
const MOMENT: Duration = Duration::from_millis(20);

/// A worker process that has one end of a mechanism.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    pid: Pid,
    orders: ChildStdin,
    replies: ChildStdout,
    heard: Vec<u8>,
    reaped: bool,
}

/// The reason why no reply arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The worker is alive and makes no progress: it sleeps or spins.
    Stuck(String),
    /// The worker has ended, for any reason.
    Ended(String),
    /// The machine did not run the worker, or the processes that it waits for, long enough for a
    /// verdict.
    Starved(String),
}

/// A reply of a worker, or the reason why there is none.
pub(crate) type Heard<T> = std::result::Result<T, NoReply>;

impl NoReply {
    fn of(standing: WaitState, passed: Duration) -> Self {
        let seconds = format!("after {:.1} s", passed.as_secs_f64());
        match standing {
            WaitState::Starved => Self::Starved(seconds),
            WaitState::Busy => Self::Stuck(format!("running {seconds}")),
            WaitState::Asleep | WaitState::Open => Self::Stuck(format!("asleep {seconds}")),
        }
    }
}

impl WorkerProcess {
    /// Starts a worker for a target. `place` names the resources that the target shares.
    pub(crate) fn start(stage: &WorkerLauncher, subject: &str, place: &RunDir) -> Result<Self> {
        let parent = rustix::process::getpid();
        let mut command = Command::new(&stage.program);
        command.args(&stage.arguments).arg(subject).arg(place.folder());
        // A minimal environment makes the layouts of stacks more alike. Symbols are bound before
        // the operation.
        command.env_clear().env("LD_BIND_NOW", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C in a terminal reaches only the explorer, which kills its workers itself.
        command.process_group(0);
        // SAFETY: between fork and exec only `prctl` and `getppid` are called.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                if rustix::process::getppid() == Some(parent) {
                    Ok(())
                } else {
                    Err(io::ErrorKind::BrokenPipe.into())
                }
            });
        }
        let fixed = FixedAddresses::set()?;
        let mut child = command.spawn().setting_up("starting a worker")?;
        drop(fixed);
        let orders = child.stdin.take().expect("its standard input is a pipe");
        let replies = child.stdout.take().expect("its standard output is a pipe");
        let pid = Pid::from_child(&child);
        Ok(Self { pid, orders, replies, heard: Vec::new(), reaped: false })
    }

    /// Returns the process id, which is not reused until the worker is reaped.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a command without waiting for the reply.
    pub(crate) fn tell(&mut self, order: WorkerCommand) -> Heard<()> {
        writeln!(self.orders, "{order}").map_err(|_| self.end())
    }

    /// Sends a command that makes the worker fall asleep, and waits until it has.
    pub(crate) fn tell_into_sleep(&mut self, order: WorkerCommand) -> Result<()> {
        let began = Instant::now();
        let before = self.processor_time();
        self.tell(order)?;
        let mut asleep_since: Option<Instant> = None;
        while began.elapsed() < SLEEPY {
            std::thread::sleep(Duration::from_micros(200));
            // The worker also slept before the command, so it must have run since.
            if self.state() == Some('S') && self.processor_time() > before {
                if asleep_since.get_or_insert_with(Instant::now).elapsed() >= ASLEEP {
                    return Ok(());
                }
            } else {
                asleep_since = None;
            }
        }
        let order = format!("expected a worker to sleep in '{order}'");
        Err(MeasureError::fail(format!("{order}, found it awake after {} s", SLEEPY.as_secs())))
    }

    /// Sends a command that may make the worker fall asleep, and gives the worker a moment to do
    /// so. Later actions then find it waiting in every run.
    pub(crate) fn tell_and_settle(&mut self, order: WorkerCommand) -> Heard<()> {
        let began = Instant::now();
        self.tell(order)?;
        let mut asleep_since: Option<Instant> = None;
        while began.elapsed() < MOMENT {
            std::thread::sleep(Duration::from_micros(200));
            let asleep = self.state() == Some('S');
            asleep_since = asleep.then(|| asleep_since.unwrap_or_else(Instant::now));
            if asleep_since.is_some_and(|since| since.elapsed() >= ASLEEP) {
                break;
            }
        }
        Ok(())
    }

    /// Sends a command and waits for the reply.
    pub(crate) fn ask(
        &mut self,
        order: WorkerCommand,
        timeout: &FairTimeout,
    ) -> Heard<WorkerReply> {
        self.tell(order)?;
        self.reply(timeout)
    }

    /// Waits for the reply to a command that was sent earlier.
    pub(crate) fn reply(&mut self, timeout: &FairTimeout) -> Heard<WorkerReply> {
        // Most workers reply immediately, so the watch starts only after the first poll times out.
        let mut clock: Option<WaitTimer> = None;
        loop {
            if let Some(line) = self.line()? {
                return line.parse().map_err(|error| NoReply::Ended(format!("{error}")));
            }
            let interval = Timespec::try_from(LOOK).unwrap_or_default();
            let mut watched = [PollFd::new(&self.replies, PollFlags::IN)];
            match poll(&mut watched, Some(&interval)) {
                Ok(0) => {
                    let clock = clock.get_or_insert_with(|| WaitTimer::start(self.pid, timeout));
                    let standing = clock.look();
                    // A worker that replied between the poll and this sample is asleep too, in its
                    // next read. Its reply is already in the pipe.
                    if standing != WaitState::Open && !self.has_answered()? {
                        return Err(NoReply::of(standing, clock.passed()));
                    }
                }
                Err(Errno::INTR) => {}
                Ok(_) => self.hear()?,
                Err(error) => return Err(NoReply::Ended(format!("poll: {error}"))),
            }
        }
    }

    /// Reads the bytes that have arrived; returns `true` if any had arrived.
    fn has_answered(&mut self) -> Heard<bool> {
        let mut watched = [PollFd::new(&self.replies, PollFlags::IN)];
        let there = poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if there {
            self.hear()?;
        }
        Ok(there)
    }

    /// Removes a complete line from the received bytes.
    fn line(&mut self) -> Heard<Option<String>> {
        let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') else {
            return if self.heard.len() > LONGEST_REPLY {
                Err(NoReply::Ended(format!(
                    "expected a reply of at most {LONGEST_REPLY} bytes, \
                                            found a longer one"
                )))
            } else {
                Ok(None)
            };
        };
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()))
    }

    fn hear(&mut self) -> Heard<()> {
        let mut buffer = [0; 4_096];
        match self.replies.read(&mut buffer) {
            Ok(0) | Err(_) => Err(self.end()),
            Ok(length) => {
                self.heard.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }

    /// Returns how the worker ended, once its pipes have closed.
    fn end(&mut self) -> NoReply {
        let status = self.kill();
        NoReply::Ended(match status {
            Some(status) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exited with status {code}"),
                (_, Some(signal)) => format!("ended by signal {signal}"),
                _ => "ended".to_owned(),
            },
            None => "ended".to_owned(),
        })
    }

    /// Returns the state that the kernel reports for the main thread: 'S' for asleep, 'R' for
    /// running.
    pub(crate) fn state(&self) -> Option<char> {
        let pid = self.pid.as_raw_nonzero();
        fair_timeout::state(Path::new(&format!("/proc/{pid}/task/{pid}")))
    }

    /// Returns `true` if each of the worker's other threads sleeps or has ended.
    pub(crate) fn others_are_asleep(&self) -> bool {
        let pid = self.pid.as_raw_nonzero();
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        let main = pid.to_string();
        let mut others = threads.flatten().filter(|thread| *thread.file_name() != *main);
        // A thread that has just ended has no state.
        others.all(|thread| matches!(fair_timeout::state(&thread.path()), Some('S') | None))
    }

    /// Returns the processor time that the main thread has used.
    fn processor_time(&self) -> Duration {
        let pid = self.pid.as_raw_nonzero();
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"));
        let ran = text.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
        Duration::from_nanos(ran.unwrap_or(0))
    }

    /// Waits for a change of the worker's state. A stop counts as a change if the worker is traced.
    pub(crate) fn wait(&mut self, options: WaitOptions) -> Result<Option<WaitStatus>> {
        loop {
            match waitpid(Some(self.pid), options) {
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.reaped = true;
                    return Err(error).during("waitpid");
                }
                Ok(None) => return Ok(None),
                Ok(Some((_, status))) => {
                    self.reaped |= status.exited() || status.signaled();
                    return Ok(Some(status));
                }
            }
        }
    }

    /// Kills the worker with SIGKILL, at any point of its execution, and reaps it.
    pub(crate) fn kill(&mut self) -> Option<WaitStatus> {
        while !self.reaped {
            let _ = kill_process(self.pid, Signal::KILL);
            match self.wait(WaitOptions::empty()) {
                Ok(Some(status)) if self.reaped => return Some(status),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A guard that disables address randomisation for the processes that this thread starts.
struct FixedAddresses {
    before: libc::c_ulong,
}

/// Argument with which `personality` returns the current personality and changes nothing.
const ASK: libc::c_ulong = 0xffff_ffff;

impl FixedAddresses {
    fn set() -> Result<Self> {
        // SAFETY: `personality` changes a flag of this thread that only `exec` reads.
        let before = unsafe { libc::personality(ASK) };
        let Ok(before) = libc::c_ulong::try_from(before) else {
            return Err(io::Error::last_os_error()).setting_up("personality");
        };
        // SAFETY: as above.
        if unsafe { libc::personality(before | libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } < 0 {
            return Err(io::Error::last_os_error()).setting_up("personality(ADDR_NO_RANDOMIZE)");
        }
        Ok(Self { before })
    }
}

impl Drop for FixedAddresses {
    fn drop(&mut self) {
        // SAFETY: as in `set`.
        unsafe { libc::personality(self.before) };
    }
}

/// Converts the missing reply of a worker into an error.
impl From<NoReply> for MeasureError {
    fn from(silence: NoReply) -> Self {
        let how = match silence {
            NoReply::Stuck(how) | NoReply::Ended(how) => how,
            NoReply::Starved(how) => format!("the machine is too loaded, {how}"),
        };
        Self::fail(format!("a worker that was not killed did not answer: {how}"))
    }
}
