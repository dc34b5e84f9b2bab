//! Commands and all their descendants in one process group, which is killed when its handle is
//! dropped: [`ProcessGroup`].
//!
//! A command such as `make` starts other commands, which would keep running if only `make` were
//! killed. The group's leader is a *keeper*: a child that sleeps until this process has ended for
//! any reason, and then kills the group, including itself. Until the keeper is reaped, the kernel
//! does not reuse the group's number.
//!
//! A process that moves to another group (a daemon, or a process with its own session) is not
//! killed.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, kill_current_process_group, kill_process_group, set_parent_process_death_signal,
    setpgid,
};

use super::child::{Child, ends_within};
use crate::error::{ErrorContext, MeasureError, Result};

/// A process group. Its members are killed when it is dropped or when this process ends.
#[derive(Debug)]
pub struct ProcessGroup {
    keeper: Child,
    /// Write end of the pipe whose end-of-file notifies the keeper that this process has ended.
    _alive: OwnedFd,
}

impl ProcessGroup {
    pub fn new() -> Result<Self> {
        let (ended, alive) = pipe_with(PipeFlags::CLOEXEC).setting_up("pipe2")?;
        let (ready, report) = pipe_with(PipeFlags::CLOEXEC).setting_up("pipe2")?;
        let (alive, report) = (Cell::new(Some(alive)), Cell::new(Some(report)));
        let keeper = Child::fork(|| {
            drop(alive.take());
            report.take().map_or(1, |report| keep(&ended, report))
        })?;
        drop(report.take());
        // A keeper that is not ready would be killed with this process, before it kills the others.
        while let Err(error) = read(&ready, &mut [0; 1]).and_then(at_least_one) {
            if error != Errno::INTR {
                return Err(error).during("read from the keeper of a process group");
            }
        }
        let alive = alive.take().ok_or_else(|| MeasureError::fail("the pipe was taken twice"))?;
        Ok(Self { keeper, _alive: alive })
    }

    pub fn spawn(&self, command: &mut Command) -> Result<process::Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        let group = self.keeper.pid().as_raw_nonzero().get();
        command.process_group(group).spawn().setting_up(&name)
    }

    /// Runs `command` in the group until it ends. Returns its status and its elapsed time, measured
    /// from just before it is started until it is reaped.
    pub fn run(&self, command: &mut Command, until: Instant) -> Result<(Duration, ExitStatus)> {
        let began = Instant::now();
        let mut child = self.spawn(command)?;
        if let Err(trouble) = wait_for(Pid::from_child(&child), until) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(trouble);
        }
        let status = child.wait().during("waitpid")?;
        Ok((began.elapsed(), status))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // The group's leader is reaped afterwards, when the handle of the child is dropped.
        let _ = kill_process_group(self.keeper.pid(), Signal::KILL);
    }
}

/// Returns an error if a pipe has ended.
fn at_least_one(count: usize) -> rustix::io::Result<()> {
    if count > 0 { Ok(()) } else { Err(Errno::PIPE) }
}

/// Runs the keeper. Makes only system calls, because other threads may have held locks at the fork.
fn keep(ended: &OwnedFd, report: OwnedFd) -> i32 {
    // The parent's end must not kill the keeper before the keeper has killed the others.
    if setpgid(None, None).is_err() || set_parent_process_death_signal(None).is_err() {
        return 1;
    }
    if write(&report, &[0]) != Ok(1) {
        return 1;
    }
    drop(report);
    while read(ended, &mut [0; 1]) == Err(Errno::INTR) {}
    let _ = kill_current_process_group(Signal::KILL);
    1
}

/// Blocks until the child `pid` has ended; does not reap the child.
pub fn wait_for(pid: Pid, until: Instant) -> Result<()> {
    match ends_within(pid, until.saturating_duration_since(Instant::now()))? {
        true => Ok(()),
        false => Err(MeasureError::fail("did not end within its time, and was killed")),
    }
}

pub fn left_until(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(Instant::now());
    // If the seconds do not fit, the maximum is equivalent to no timeout.
    let tv_sec = left.as_secs().try_into().unwrap_or(i32::MAX.into());
    Timespec { tv_sec, tv_nsec: left.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::in_a_process_of_its_own;
    use rustix::process::test_kill_process;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns `true` if `pid` ends within [`LONG`]. A zombie counts as ended, because init reaps
    /// orphans with a delay.
    fn ends(pid: Pid) -> bool {
        let until = Instant::now() + LONG;
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        let lives = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        while lives() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        !lives()
    }

    /// Returns a shell that starts its own child, writes the child's number and waits.
    fn shell(pids: &std::path::Path) -> Command {
        let mut command = Command::new("/bin/sh");
        let script =
            format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", pids.display());
        command.args(["-c", &script]);
        command
    }

    fn written(pids: &std::path::Path) -> Pid {
        let until = Instant::now() + LONG;
        loop {
            let text = std::fs::read_to_string(pids).unwrap_or_default();
            if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
                return pid;
            }
            assert!(Instant::now() < until, "the shell never wrote a number");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn descendants_are_killed_with_the_group_handle() {
        in_a_process_of_its_own(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let pids = folder.path().join("pids");
            let processes = ProcessGroup::new().expect("a group");
            // On a busy machine the shell may not begin before a short deadline.
            let mut ended = Err(MeasureError::fail("not run"));
            for milliseconds in [300, 3_000, 30_000] {
                let soon = Instant::now() + Duration::from_millis(milliseconds);
                ended = processes.run(&mut shell(&pids), soon);
                if pids.exists() {
                    break;
                }
            }
            let grandchild = written(&pids);
            assert!(test_kill_process(grandchild).is_ok());
            drop(processes);
            assert!(ends(grandchild));
            let why = ended.expect_err("it was killed").to_string();
            assert!(why.contains("within its time"), "{why}");
        });
    }

    #[test]
    fn group_is_killed_when_owner_process_ends() {
        in_a_process_of_its_own(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let pids = folder.path().join("pids");
            let mut holder = Child::fork(|| {
                let processes = ProcessGroup::new().expect("a group");
                let _ = processes.run(&mut shell(&pids), Instant::now() + LONG);
                0
            })
            .expect("fork");
            let grandchild = written(&pids);
            holder.kill().expect("it lives");
            assert!(ends(grandchild));
        });
    }

    #[test]
    fn run_returns_status_and_elapsed_time() {
        in_a_process_of_its_own(|| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "sleep 0.1; exit 3"]);
            let group = ProcessGroup::new().expect("a group");
            let (time, status) = group.run(&mut command, Instant::now() + LONG).expect("it ends");
            assert!(status.code() == Some(3) && time >= Duration::from_millis(100), "{time:?}");
        });
    }
}
