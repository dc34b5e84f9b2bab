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
    /// It has ended and still has its number: its process is not reaped, or another thread of the
    /// process has not ended.
    Zombie,
    /// It has ended, and its number is free.
    Gone,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Task {
    pid: i32,
    tid: i32,
    wchan: File,
    /// What is asked where `wchan` says too little, and then where `stat` does.
    stat: OnceCell<File>,
    syscall: OnceCell<File>,
}

/// Its files.
const WCHAN: &str = "wchan";
const STAT: &str = "stat";
const SYSCALL: &str = "syscall";

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
        let wchan = open(pid, tid, WCHAN)?;
        Ok(wchan.map(|wchan| Self {
            pid,
            tid,
            wchan,
            stat: OnceCell::new(),
            syscall: OnceCell::new(),
        }))
    }

    /// How it is at this moment. `wchan` names the function in which it sleeps once it has left its
    /// processor, and costs the kernel a third of what `stat` does. For one
    /// that runs or has ended it names none; only asked `closely`, which of the two is told.
    pub(super) fn state(&self, closely: bool) -> io::Result<State> {
        let mut head = [0; HEAD];
        let Some(length) = self.read(&self.wchan, WCHAN, &mut head)? else {
            return Ok(State::Gone);
        };
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
        let mut head = [0; HEAD];
        let Some(length) = self.ask(&self.stat, STAT, &mut head)? else {
            return Ok(State::Gone);
        };
        let head = &head[..length];
        let behind = head.iter().rposition(|byte| *byte == b')').map(|at| &head[at..]);
        Ok(match behind.and_then(|behind| behind.get(2)) {
            Some(b'S') => self.state_off_processor()?,
            Some(b'T' | b't') => State::Stopped,
            Some(b'Z') => State::Zombie,
            _ => State::Runs,
        })
    }

    fn state_off_processor(&self) -> io::Result<State> {
        let mut head = [0; HEAD];
        Ok(match self.ask(&self.syscall, SYSCALL, &mut head)? {
            Some(_) if head.starts_with(b"running") => State::Runs,
            Some(_) => State::Sleeps,
            None => State::Gone,
        })
    }

    /// Reads the beginning of one of its files, opened the first time; `None` if it is gone.
    fn ask(
        &self,
        file: &OnceCell<File>,
        name: &str,
        head: &mut [u8; HEAD],
    ) -> io::Result<Option<usize>> {
        if file.get().is_none() {
            let Some(opened) = open(self.pid, self.tid, name)? else { return Ok(None) };
            let _ = file.set(opened);
        }
        file.get().map_or(Ok(None), |file| self.read(file, name, head))
    }

    /// Reads the beginning of one of its files; `None` if it is gone.
    fn read(&self, file: &File, name: &str, head: &mut [u8; HEAD]) -> io::Result<Option<usize>> {
        unless_gone(file.read_at(head, 0), || path(self.pid, self.tid, name))
    }
}

fn path(pid: i32, tid: i32, name: &str) -> String {
    format!("/proc/{pid}/task/{tid}/{name}")
}

fn open(pid: i32, tid: i32, name: &str) -> io::Result<Option<File>> {
    let path = path(pid, tid, name);
    unless_gone(File::open(&path), || path.clone())
}

/// What came of asking for a thread; `None` if there is no such thread. Any other error says
/// nothing about the thread: a run that went on would take it for ended.
fn unless_gone<T>(asked: io::Result<T>, path: impl Fn() -> String) -> io::Result<Option<T>> {
    let error = match asked {
        Ok(answer) => return Ok(Some(answer)),
        Err(error) => error,
    };
    let remedy = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => return Ok(None),
        Some(libc::EACCES | libc::EPERM) => {
            "let this user trace its own processes (kernel.yama.ptrace_scope, hidepid), or be root"
        }
        Some(libc::EMFILE | libc::ENFILE) => "allow more open files (ulimit -n)",
        _ => "run it again, or without what limits /proc here",
    };
    let words = format!("expected to read {}, found: {error}; {remedy}", path());
    Err(io::Error::new(error.kind(), words))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn own() -> (i32, i32) {
        (std::process::id().cast_signed(), rustix::thread::gettid().as_raw_nonzero().get())
    }

    #[test]
    fn who_has_ended_is_gone() {
        let (said, (stop, stopped)) = (mpsc::channel(), mpsc::channel::<()>());
        let (say, hear) = said;
        let thread = thread::spawn(move || {
            say.send(own()).expect("somebody hears");
            let _ = stopped.recv();
        });
        let (pid, tid) = hear.recv().expect("it begins");
        let task = Task::open(pid, tid).expect("/proc is read").expect("it is there");
        while task.state(true).expect("/proc is read") != State::Sleeps {
            thread::yield_now();
        }
        drop(stop);
        thread.join().expect("it ends");
        while task.state(true).expect("/proc is read") != State::Gone {
            thread::yield_now();
        }
        assert!(Task::open(pid, tid).expect("/proc is read").is_none());
    }

    /// Where /proc refused to say, everybody counted as ended, and the run went on without them.
    #[test]
    fn what_cannot_be_read_is_no_end() {
        let (pid, tid) = own();
        let refuses = File::open("/").expect("a directory, which nobody reads so");
        let task =
            Task { pid, tid, wchan: refuses, stat: OnceCell::new(), syscall: OnceCell::new() };
        let error = task.state(true).expect_err("it is there, and nothing is known of it");
        let words = error.to_string();
        for part in ["expected to read /proc/", "/wchan, found: ", "run it again"] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn what_is_refused_is_told_with_what_to_do() {
        for (errno, remedy) in [(libc::EACCES, "ptrace_scope"), (libc::EMFILE, "ulimit -n")] {
            let asked: io::Result<()> = Err(io::Error::from_raw_os_error(errno));
            let error = unless_gone(asked, || path(1, 1, WCHAN)).expect_err("no word of a thread");
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
