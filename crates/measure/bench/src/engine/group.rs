//! A started program that leads its own process group: [`RunningGroup`].
//!
//! However the program ends, the whole group is killed before the leader is reaped, because another
//! group could otherwise have received the group's number.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};

/// Maximum number of pieces read at a time, so that endless output does not delay other events.
const MOST_PIECES: usize = 64;

/// The part of an output that is kept, in bytes. The rest is read and discarded, so that the writer
/// does not block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    Beginning(usize),
    End(usize),
}

/// A started program. Dropping it kills the group and reaps the leader.
pub(crate) struct RunningGroup {
    pub(crate) child: Child,
    reaped: bool,
    kept: Kept,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

impl RunningGroup {
    /// Takes a leader, whose standard output and error are pipes.
    pub(crate) fn new(child: Child, kept: Kept) -> io::Result<Self> {
        let running = Self { child, reaped: false, kept, out: Vec::new(), err: Vec::new() };
        unblock(running.child.stdout.as_ref())?;
        unblock(running.child.stderr.as_ref())?;
        Ok(running)
    }

    pub(crate) fn leader(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reads what has arrived, and closes a pipe that has ended.
    pub(crate) fn read_output(&mut self) -> io::Result<()> {
        if drain(self.child.stdout.as_mut(), &mut self.out, self.kept)? {
            self.child.stdout = None;
        }
        if drain(self.child.stderr.as_mut(), &mut self.err, self.kept)? {
            self.child.stderr = None;
        }
        Ok(())
    }

    /// Kills the group and reaps the leader.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        let _ = kill_process_group(self.leader(), Signal::KILL);
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for RunningGroup {
    fn drop(&mut self) {
        // Once the leader is reaped, its number may belong to an unrelated process.
        if !self.reaped {
            let _ = self.end();
        }
    }
}

fn unblock<F: AsFd>(pipe: Option<&F>) -> io::Result<()> {
    if let Some(pipe) = pipe {
        let flags = rustix::fs::fcntl_getfl(pipe)?;
        rustix::fs::fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?;
    }
    Ok(())
}

/// Reads the content of a non-blocking pipe. Returns `true` at its end.
fn drain(pipe: Option<&mut impl Read>, into: &mut Vec<u8>, kept: Kept) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut piece = [0; 16 << 10];
    for _ in 0..MOST_PIECES {
        match (pipe.read(&mut piece), kept) {
            (Ok(0), _) => return Ok(true),
            (Ok(count), Kept::Beginning(most)) => {
                let free = most.saturating_sub(into.len());
                into.extend_from_slice(&piece[..count.min(free)]);
            }
            (Ok(count), Kept::End(most)) => {
                into.extend_from_slice(&piece[..count]);
                let surplus = into.len().saturating_sub(most);
                into.drain(..surplus);
            }
            (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => {}
            (Err(error), _) => return Err(error),
        }
    }
    Ok(false)
}
