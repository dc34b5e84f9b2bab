//! How real threads are, as the system says: [`Task`], two open files of `/proc/PID/task/TID`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It runs, or will before anybody else does something, or nobody can say.
    Runs,
    /// It sleeps, so that a signal can wake it.
    Sleeps,
    /// It is stopped, by a signal or for its tracer.
    Stopped,
    /// It has ended, and its process is not waited for.
    Zombie,
    /// It has ended.
    Gone,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Task {
    stat: File,
    syscall: File,
}

/// Bytes that are read: the number, the name of at most 15 bytes, and the letter behind it.
const HEAD: usize = 64;

impl Task {
    /// The thread with these numbers; `None` if it is gone.
    pub(super) fn open(pid: i32, tid: i32) -> io::Result<Option<Self>> {
        let open = |name| File::open(format!("/proc/{pid}/task/{tid}/{name}"));
        let opened = open("stat").and_then(|stat| Ok(Self { stat, syscall: open("syscall")? }));
        match opened {
            Ok(task) => Ok(Some(task)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How it is at this moment. The letter alone does not say that a thread sleeps: it is marked so
    /// before it leaves the processor, and a wait looks at its children in between. Asked `closely`,
    /// the kernel first waits until it has left.
    pub(super) fn state(&self, closely: bool) -> State {
        let mut head = [0; HEAD];
        let Ok(length) = self.stat.read_at(&mut head, 0) else { return State::Gone };
        let head = &head[..length];
        let behind = head.iter().rposition(|byte| *byte == b')').map(|at| &head[at..]);
        match behind.and_then(|behind| behind.get(2)) {
            Some(b'S') if closely => self.state_off_processor(),
            Some(b'S') => State::Sleeps,
            Some(b'T' | b't') => State::Stopped,
            Some(b'Z') => State::Zombie,
            Some(b'X') => State::Gone,
            _ => State::Runs,
        }
    }

    fn state_off_processor(&self) -> State {
        let mut head = [0; HEAD];
        match self.syscall.read_at(&mut head, 0) {
            Ok(_) if head.starts_with(b"running") => State::Runs,
            Ok(_) => State::Sleeps,
            Err(_) => State::Gone,
        }
    }
}
