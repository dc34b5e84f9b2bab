//! How real threads are, as the system says: [`Task`], open files of `/proc/PID/task/TID`.

use std::cell::OnceCell;
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
    pid: i32,
    tid: i32,
    wchan: File,
    /// What is asked where `wchan` says too little.
    closer: OnceCell<Closer>,
}

/// See [`Task`].
#[derive(Debug)]
struct Closer {
    stat: File,
    syscall: File,
}

/// Bytes that are read: the number, the name of at most 15 bytes, and the letter behind it; or the
/// name of a function.
const HEAD: usize = 64;

/// The functions of the kernel in which calls sleep so that a signal wakes them, by how their names
/// begin. One that is not here is only asked about more slowly.
const SLEEPS: [&[u8]; 10] = [
    b"futex_",
    b"do_wait",
    b"sigsuspend",
    b"do_sigtimedwait",
    b"hrtimer_nanosleep",
    b"do_nanosleep",
    b"anon_pipe_read",
    b"pipe_read",
    b"wait_woken",
    b"__do_sys_pause",
];
/// Those in which one is stopped.
const STOPS: [&[u8]; 2] = [b"do_signal_stop", b"ptrace_stop"];

impl Task {
    /// The thread with these numbers; `None` if it is gone.
    pub(super) fn open(pid: i32, tid: i32) -> io::Result<Option<Self>> {
        match open(pid, tid, "wchan") {
            Ok(wchan) => Ok(Some(Self { pid, tid, wchan, closer: OnceCell::new() })),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How it is at this moment. `wchan` names the function in which it sleeps once it has left its
    /// processor, and costs the kernel a third of what `stat` does. For one
    /// that runs or has ended it names none; only asked `closely`, which of the two is told.
    pub(super) fn state(&self, closely: bool) -> io::Result<State> {
        let mut head = [0; HEAD];
        let Ok(length) = self.wchan.read_at(&mut head, 0) else { return Ok(State::Gone) };
        let begins = |with: &&[u8]| head[..length].starts_with(with);
        if SLEEPS.iter().any(begins) {
            return Ok(State::Sleeps);
        }
        if STOPS.iter().any(begins) {
            return Ok(State::Stopped);
        }
        if head[..length] == *b"0" && !closely {
            return Ok(State::Runs);
        }
        self.state_closer()
    }

    /// The same by the letter in `stat`. That alone does not say that a thread sleeps: it is marked
    /// so before it leaves the processor, and a wait looks at its children in between. `syscall`
    /// makes the kernel wait until it has left.
    fn state_closer(&self) -> io::Result<State> {
        let closer = match self.closer.get() {
            Some(closer) => closer,
            None => {
                let open = |name| open(self.pid, self.tid, name);
                let opened =
                    open("stat").and_then(|stat| Ok(Closer { stat, syscall: open("syscall")? }));
                match opened {
                    Ok(closer) => self.closer.get_or_init(|| closer),
                    Err(error) if is_gone(&error) => return Ok(State::Gone),
                    Err(error) => return Err(error),
                }
            }
        };
        let mut head = [0; HEAD];
        let Ok(length) = closer.stat.read_at(&mut head, 0) else { return Ok(State::Gone) };
        let head = &head[..length];
        let behind = head.iter().rposition(|byte| *byte == b')').map(|at| &head[at..]);
        Ok(match behind.and_then(|behind| behind.get(2)) {
            Some(b'S') => closer.state_off_processor(),
            Some(b'T' | b't') => State::Stopped,
            Some(b'Z') => State::Zombie,
            Some(b'X') => State::Gone,
            _ => State::Runs,
        })
    }
}

impl Closer {
    fn state_off_processor(&self) -> State {
        let mut head = [0; HEAD];
        match self.syscall.read_at(&mut head, 0) {
            Ok(_) if head.starts_with(b"running") => State::Runs,
            Ok(_) => State::Sleeps,
            Err(_) => State::Gone,
        }
    }
}

fn open(pid: i32, tid: i32, name: &str) -> io::Result<File> {
    File::open(format!("/proc/{pid}/task/{tid}/{name}"))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}
