//! A command in its own session on a pseudo-terminal: [`run`].

#![allow(unsafe_code, reason = "sets the session up between fork and exec")]

use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;
use rustix::process::{
    getpid, getppid, ioctl_tiocsctty, kill_process_group, set_parent_process_death_signal, setsid,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::stdin;
use tontine_bench::os::process_group::{left_until, wait_for};

use super::SessionSpan;
use crate::prelude::*;

const KEPT: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct FinishedSession {
    /// The time from just before the session's first process was created until it was reaped.
    pub(super) span: SessionSpan,
    pub(super) status: ExitStatus,
    pub(super) printed: Vec<u8>,
}

/// Runs `command` as the leader of a new session whose controlling terminal is a new pty, and reads
/// its output.
///
/// If this process or thread ends, the kernel kills the leader and hangs up the terminal, which
/// ends the other processes of the session.
pub(super) fn run(mut command: Command, until: Instant) -> Result<FinishedSession> {
    let (master, terminal) = pair()?;
    let also = || terminal.try_clone().map(Stdio::from).setting_up("dup");
    command.stdin(also()?).stdout(also()?).stderr(also()?);
    drop(terminal);
    let parent = getpid();
    // SAFETY: the closure makes system calls only and accesses no memory except its own captures.
    unsafe { command.pre_exec(move || lead(parent)) };
    let began = Instant::now();
    let mut leader = command.spawn().setting_up("starting a session")?;
    // This closes our copies of the terminal side of the pty pair, so that the terminal hangs up
    // when the session ends.
    drop(command);
    let mut printed = Vec::new();
    let drained = drain(&master, until, |piece| {
        printed.extend_from_slice(piece);
        let old = printed.len().saturating_sub(KEPT);
        printed.drain(..old);
    });
    let ended = drained.and_then(|()| wait_for(Pid::from_child(&leader), until));
    if let Err(error) = ended {
        kill(&mut leader);
        return Err(error);
    }
    let status = leader.wait().during("waitpid")?;
    Ok(FinishedSession { span: SessionSpan { began, ended: Instant::now() }, status, printed })
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .setting_up("opening a pseudo-terminal (/dev/ptmx)")?;
    grantpt(&master).setting_up("grantpt")?;
    unlockpt(&master).setting_up("unlockpt")?;
    let name = ptsname(&master, Vec::new()).setting_up("ptsname")?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = open(name.as_c_str(), flags, Mode::empty())
        .setting_up(&format!("opening the pseudo-terminal {}", name.to_string_lossy()))?;
    Ok((master, terminal))
}

/// Runs in the child before exec: makes it the leader of a session on its standard input.
fn lead(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(Errno::SRCH.into());
    }
    // Ignored signals stay ignored across exec, so under `nohup` a hang-up would end no process.
    // SAFETY: the call sets a disposition of this process; no handler is involved.
    if unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    setsid()?;
    ioctl_tiocsctty(stdin())?;
    Ok(())
}

/// Kills the leader, which has not been reaped, and its process group, which contains all commands
/// of a script.
fn kill(leader: &mut Child) {
    let _ = kill_process_group(Pid::from_child(leader), Signal::KILL);
    let _ = leader.wait();
}

/// Passes all data from `source` to `seen` until its end. The end of a pipe is an end of file; the
/// end of a pty is EIO, which means that no process holds the other side any more.
pub(super) fn drain(source: &impl AsFd, until: Instant, mut seen: impl FnMut(&[u8])) -> Result<()> {
    let mut piece = [0; 4 << 10];
    loop {
        match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&left_until(until))) {
            Err(Errno::INTR) => continue,
            Ok(0) => bail!("the session did not end within its time"),
            other => other.during("poll")?,
        };
        match read(source, &mut piece) {
            Ok(0) | Err(Errno::IO) => return Ok(()),
            Ok(count) => seen(&piece[..count]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).during("reading what a session prints"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::invocation_tests::{AMPLE, is_killed_with_its_processes};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// Checks in the leader's `/proc` entry that it leads its own session, and that its group is
    /// the terminal's foreground group. Also checks that /dev/tty, the controlling terminal, can be
    /// opened.
    #[test]
    fn pty_is_the_sessions_controlling_terminal() {
        in_a_process_of_its_own(|| {
            let script = "read -r stat < /proc/$$/stat; echo \"$stat\" > /dev/tty; tty; exit 5";
            let ended = run(shell(script), Instant::now() + AMPLE);
            let Some(ended) = unless_skipped(ended, script) else { return };
            let printed = String::from_utf8_lossy(&ended.printed).into_owned();
            let (stat, tty) = printed.split_once("\r\n").expect("a line");
            let (pid, rest) = stat.split_once(" (").expect("a name");
            let (_, rest) = rest.rsplit_once(") ").expect("the end of the name");
            // The fields are state, parent, group, session, terminal, and the terminal's foreground
            // group.
            let fields: Vec<&str> = rest.split(' ').collect();
            assert_eq!([fields[2], fields[3], fields[5]], [pid; 3], "{printed}");
            assert!(fields[4] != "0" && tty.starts_with("/dev/"), "{printed}");
            assert_eq!(ended.status.code(), Some(5));
        });
    }

    #[test]
    fn killed_invocation_kills_session_and_its_children() {
        is_killed_with_its_processes(2, |folder| {
            let mut command = shell("sleep 1000 & wait");
            command.current_dir(folder);
            run(command, Instant::now() + AMPLE)
        });
    }

    #[test]
    fn overdue_session_is_killed_with_its_children() {
        in_a_process_of_its_own(|| {
            let soon = Instant::now() + Duration::from_millis(200);
            match run(shell("sleep 1000 & wait"), soon) {
                Err(MeasureError::Failed(why)) => assert!(why.contains("within its time"), "{why}"),
                other => assert!(unless_skipped(other, "a pty").is_none()),
            }
        });
    }
}
