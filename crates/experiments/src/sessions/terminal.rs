//! A command in its own session on a pseudo-terminal: [`run`].

#![allow(unsafe_code, reason = "sets the session up between fork and exec")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use rustix::process::{
    Pid, Signal, getpid, getppid, ioctl_tiocsctty, kill_process_group,
    set_parent_process_death_signal, setsid,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::stdin;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::process_group::{left_until, wait_for};

use super::SessionSpan;

/// Number of bytes kept from the end of a session's output.
const KEPT: usize = 16 << 10;

/// A session that has ended.
#[derive(Debug)]
pub(super) struct FinishedSession {
    /// The time from just before the session's first process was created until it was reaped.
    pub(super) span: SessionSpan,
    /// Exit status of its first process.
    pub(super) status: ExitStatus,
    /// The end of the output.
    pub(super) printed: Vec<u8>,
}

/// Runs `command` as the leader of a new session whose controlling terminal is a new pty, and reads
/// its output.
///
/// If this process or thread ends, the kernel kills the leader and hangs up the terminal, which
/// ends the other processes of the session.
///
/// # Errors
/// Returns `Skipped` if no pty is available. Returns `Failed` if the session has not ended by
/// `until`; it is then killed.
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
    if let Err(trouble) = ended {
        kill(&mut leader);
        return Err(trouble);
    }
    let status = leader.wait().during("waitpid")?;
    Ok(FinishedSession { span: SessionSpan { began, ended: Instant::now() }, status, printed })
}

/// Creates a pseudo-terminal: the side that we read, and the session's side.
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
///
/// # Errors
/// Returns `Failed` if the end is not reached by `until`.
pub(super) fn drain(source: &impl AsFd, until: Instant, mut seen: impl FnMut(&[u8])) -> Result<()> {
    let mut piece = [0; 4 << 10];
    loop {
        match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&left_until(until))) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Err(MeasureError::fail("the session did not end within its time")),
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
    use tontine_host::os::child::Child;
    use tontine_host::peer::in_a_process_of_its_own;

    const AMPLE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn skips(trouble: MeasureError) -> std::result::Result<(), String> {
        match trouble {
            MeasureError::Skipped(why) => {
                println!("skipped: {why}");
                Ok(())
            }
            MeasureError::Failed(why) => Err(why),
        }
    }

    /// Checks in the leader's `/proc` entry that it leads its own session, and that its group is
    /// the terminal's foreground group. Also checks that /dev/tty, the controlling terminal, can be
    /// opened.
    #[test]
    fn pty_is_the_sessions_controlling_terminal() {
        in_a_process_of_its_own(|| {
            let script = "read -r stat < /proc/$$/stat; echo \"$stat\" > /dev/tty; tty; exit 5";
            let ended = match run(shell(script), Instant::now() + AMPLE) {
                Ok(ended) => ended,
                Err(trouble) => return skips(trouble),
            };
            let printed = String::from_utf8_lossy(&ended.printed).into_owned();
            let (stat, tty) = printed.split_once("\r\n").ok_or("it printed no line")?;
            let (pid, rest) = stat.split_once(" (").ok_or("no name")?;
            let (_, rest) = rest.rsplit_once(") ").ok_or("no end of the name")?;
            // The fields are state, parent, group, session, terminal, and the terminal's foreground
            // group.
            let fields: Vec<&str> = rest.split(' ').collect();
            let own = [fields[2], fields[3], fields[5]].iter().all(|field| *field == pid);
            if own && fields[4] != "0" && tty.starts_with("/dev/") && ended.status.code() == Some(5)
            {
                Ok(())
            } else {
                Err(format!("{printed} {}", ended.status))
            }
        });
    }

    #[test]
    fn killed_invocation_kills_session_and_its_children() {
        in_a_process_of_its_own(|| {
            let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
            let file = folder.path().join("pids");
            let script =
                format!("sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", file.display());
            let mut invocation =
                Child::fork(|| match run(shell(&script), Instant::now() + AMPLE) {
                    Err(MeasureError::Skipped(_)) => 77,
                    _ => 0,
                })
                .map_err(|trouble| trouble.to_string())?;
            let until = Instant::now() + AMPLE;
            let lives = |pid: &str| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
                stat.is_ok_and(|stat| !stat.contains(") Z "))
            };
            let itself = invocation.pid().to_string();
            while !file.exists() && lives(&itself) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            let pids = std::fs::read_to_string(&file).unwrap_or_default();
            let pids: Vec<&str> = pids.split_whitespace().collect();
            let alive = pids.iter().filter(|pid| lives(pid)).count();
            let status = invocation.kill().map_err(|trouble| trouble.to_string())?;
            if status.exit_status() == Some(77) {
                println!("skipped: no pseudo-terminal");
                return Ok(());
            }
            if alive != 2 {
                return Err(format!("expected a shell and its child, found {pids:?}: {status:?}"));
            }
            while pids.iter().any(|pid| lives(pid)) {
                if Instant::now() > until {
                    return Err(format!("some of {pids:?} still live"));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
    }

    #[test]
    fn overdue_session_is_killed_with_its_children() {
        in_a_process_of_its_own(|| {
            let soon = Instant::now() + Duration::from_millis(200);
            match run(shell("sleep 1000 & wait"), soon) {
                Err(MeasureError::Failed(why)) if why.contains("within its time") => Ok(()),
                Err(trouble) => skips(trouble),
                Ok(ended) => Err(format!("{ended:?}")),
            }
        });
    }
}
