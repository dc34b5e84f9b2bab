//! The explorer's hold on its actors: [`Stage`] starts them, [`Actor`] gives orders and waits for
//! replies, never longer than a [`Patience`].
//!
//! An actor is a fresh process: nothing that one run did to a heap, a lazily bound symbol or a
//! lock can reach the next. It runs without address randomisation, so that an instruction has the
//! same address in each run. It cannot outlive its handle: dropped, it is killed and reaped, and
//! should *we* be killed, the kernel kills it too.

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
use crate::patience::{self, Clock, LOOK, Patience, Standing};
use crate::place::Place;
use tontine_host::trouble::{During, Result, Trouble};

/// How a program serves as an actor: itself, started with these arguments; the subject's name and
/// a folder follow, and it hands both to [`crate::actor::serve`].
#[derive(Debug, Clone)]
pub struct Stage {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

/// Longest line that a reply may have; a drain of thousands of messages stays below.
const LONGEST_REPLY: usize = 1 << 20;

/// How long an actor may take to fall asleep, and how long it has to sleep to be believed.
const SLEEPY: Duration = Duration::from_secs(5);
const ASLEEP: Duration = Duration::from_millis(2);

/// How long to wait for an actor that need not fall asleep.
const MOMENT: Duration = Duration::from_millis(20);

/// A process with one end of a mechanism in its hands.
#[derive(Debug)]
pub(crate) struct Actor {
    pid: Pid,
    orders: ChildStdin,
    replies: ChildStdout,
    heard: Vec<u8>,
    reaped: bool,
}

/// Why no reply came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It lives and does not get on: asleep, or spinning.
    Stuck(String),
    /// It is gone, by whatever way.
    Ended(String),
    /// The machine did not let it, or those that it waits for, run enough to say.
    Starved(String),
}

impl Silence {
    fn of(standing: Standing, passed: Duration) -> Self {
        let seconds = format!("after {:.1} s", passed.as_secs_f64());
        match standing {
            Standing::Starved => Self::Starved(seconds),
            Standing::Busy => Self::Stuck(format!("running {seconds}")),
            Standing::Asleep | Standing::Open => Self::Stuck(format!("asleep {seconds}")),
        }
    }
}

impl Actor {
    /// Starts `program` for a subject. `place` names what the subject shares.
    pub(crate) fn start(stage: &Stage, subject: &str, place: &Place) -> Result<Self> {
        let parent = rustix::process::getpid();
        let mut command = Command::new(&stage.program);
        command.args(&stage.arguments).arg(subject).arg(place.folder());
        // The fewer variables, the more alike the stacks; symbols are bound before the operation.
        command.env_clear().env("LD_BIND_NOW", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A terminal's Ctrl-C is for the explorer, which ends its actors itself.
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

    /// Its process id; nobody else's as long as it is not reaped.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Gives an order, and does not wait.
    pub(crate) fn tell(&mut self, order: WorkerCommand) -> std::result::Result<(), Silence> {
        writeln!(self.orders, "{order}").map_err(|_| self.end())
    }

    /// Gives an order in which the actor is to fall asleep, and waits until it has.
    pub(crate) fn tell_into_sleep(&mut self, order: WorkerCommand) -> Result<()> {
        let began = Instant::now();
        let before = self.processor_time();
        self.tell(order)?;
        let mut asleep_since: Option<Instant> = None;
        while began.elapsed() < SLEEPY {
            std::thread::sleep(Duration::from_micros(200));
            // It slept before, too: it has to have run in between.
            if self.state() == Some('S') && self.processor_time() > before {
                if asleep_since.get_or_insert_with(Instant::now).elapsed() >= ASLEEP {
                    return Ok(());
                }
            } else {
                asleep_since = None;
            }
        }
        let order = format!("expected a worker to sleep in '{order}'");
        Err(Trouble::fail(format!("{order}, found it awake after {} s", SLEEPY.as_secs())))
    }

    /// Gives an order in which the actor may fall asleep, and gives it a moment to do so: what
    /// follows then finds it waiting, in each run alike.
    pub(crate) fn tell_and_settle(
        &mut self,
        order: WorkerCommand,
    ) -> std::result::Result<(), Silence> {
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

    /// Gives an order and waits for the reply.
    pub(crate) fn ask(
        &mut self,
        order: WorkerCommand,
        patience: &Patience,
    ) -> std::result::Result<WorkerReply, Silence> {
        self.tell(order)?;
        self.reply(patience)
    }

    /// Waits for the reply to an order given before.
    pub(crate) fn reply(
        &mut self,
        patience: &Patience,
    ) -> std::result::Result<WorkerReply, Silence> {
        // Most answer at once: nobody is watched before one has not.
        let mut clock: Option<Clock> = None;
        loop {
            if let Some(line) = self.line()? {
                return line.parse().map_err(|error| Silence::Ended(format!("{error}")));
            }
            let timeout = Timespec::try_from(LOOK).unwrap_or_default();
            let mut watched = [PollFd::new(&self.replies, PollFlags::IN)];
            match poll(&mut watched, Some(&timeout)) {
                Ok(0) => {
                    let clock = clock.get_or_insert_with(|| Clock::start(self.pid, patience));
                    let standing = clock.look();
                    // One that answered between our wait and this look sleeps, too: in its next
                    // reading. What it said came before, and is here.
                    if standing != Standing::Open && !self.has_answered()? {
                        return Err(Silence::of(standing, clock.passed()));
                    }
                }
                Err(Errno::INTR) => {}
                Ok(_) => self.hear()?,
                Err(error) => return Err(Silence::Ended(format!("poll: {error}"))),
            }
        }
    }

    /// Takes in what was said meanwhile; whether that was anything.
    fn has_answered(&mut self) -> std::result::Result<bool, Silence> {
        let mut watched = [PollFd::new(&self.replies, PollFlags::IN)];
        let there = poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if there {
            self.hear()?;
        }
        Ok(there)
    }

    /// Takes a whole line out of what was heard.
    fn line(&mut self) -> std::result::Result<Option<String>, Silence> {
        let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') else {
            return if self.heard.len() > LONGEST_REPLY {
                Err(Silence::Ended(format!(
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

    fn hear(&mut self) -> std::result::Result<(), Silence> {
        let mut buffer = [0; 4_096];
        match self.replies.read(&mut buffer) {
            Ok(0) | Err(_) => Err(self.end()),
            Ok(length) => {
                self.heard.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }

    /// After its pipes closed: how it ended.
    fn end(&mut self) -> Silence {
        let status = self.kill();
        Silence::Ended(match status {
            Some(status) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exited with status {code}"),
                (_, Some(signal)) => format!("ended by signal {signal}"),
                _ => "ended".to_owned(),
            },
            None => "ended".to_owned(),
        })
    }

    /// The state that the kernel reports of its main thread: 'S' for asleep, 'R' for running.
    pub(crate) fn state(&self) -> Option<char> {
        let pid = self.pid.as_raw_nonzero();
        patience::state(Path::new(&format!("/proc/{pid}/task/{pid}")))
    }

    /// Returns `true` if each of its other threads sleeps or has ended.
    pub(crate) fn others_are_asleep(&self) -> bool {
        let pid = self.pid.as_raw_nonzero();
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        let main = pid.to_string();
        let mut others = threads.flatten().filter(|thread| *thread.file_name() != *main);
        // A thread that ended meanwhile has no state.
        others.all(|thread| matches!(patience::state(&thread.path()), Some('S') | None))
    }

    /// What its main thread has run so far.
    fn processor_time(&self) -> Duration {
        let pid = self.pid.as_raw_nonzero();
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"));
        let ran = text.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
        Duration::from_nanos(ran.unwrap_or(0))
    }

    /// Waits for a change of its state; stops count where it is traced.
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

    /// Kills it with SIGKILL, wherever it is, and reaps it.
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

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// While it lives, what this thread starts has its parts at fixed addresses.
struct FixedAddresses {
    before: libc::c_ulong,
}

/// Asks for the present personality and changes nothing.
const ASK: libc::c_ulong = 0xffff_ffff;

impl FixedAddresses {
    fn set() -> Result<Self> {
        // SAFETY: `personality` changes a flag of this thread that only `exec` looks at.
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

/// What a silent actor means where it should have worked.
impl From<Silence> for Trouble {
    fn from(silence: Silence) -> Self {
        let how = match silence {
            Silence::Stuck(how) | Silence::Ended(how) => how,
            Silence::Starved(how) => format!("the machine is too loaded, {how}"),
        };
        Self::fail(format!("a worker that was not killed did not answer: {how}"))
    }
}
