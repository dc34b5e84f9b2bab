//! The states of real threads, read from files of `/proc/PID/task/TID`: [`CheckedThread`].

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskStatus {
    /// The thread runs or will run before another thread acts, or its state is unknown.
    Runs,
    /// The thread sleeps, and a signal can wake it.
    Sleeps,
    /// The thread is stopped, by a signal or for its tracer.
    Stopped,
    /// The thread has ended but keeps its number, because its process is not reaped or another
    /// thread of the process has not ended.
    Zombie,
    /// The thread has ended, and its number is unused.
    Gone,
}

/// A thread, with the open files that describe it.
#[derive(Debug)]
pub(super) struct CheckedThread {
    pid: i32,
    tid: i32,
    wchan: File,
    /// Opened if `wchan` does not suffice; `syscall` is opened if `stat` does not suffice either.
    stat: OnceCell<File>,
    syscall: OnceCell<File>,
}

/// The names of the files.
const WCHAN: &str = "wchan";
const STAT: &str = "stat";
const SYSCALL: &str = "syscall";

/// Number of bytes read from a file. These bytes contain the number, the name of at most 15 bytes
/// and the letter after the name, or the name of a function.
const HEAD: usize = 64;

/// The beginnings of the names of kernel functions in which calls sleep interruptibly. A sleep in a
/// function that is not listed only takes longer to classify.
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
/// The beginnings of the names of kernel functions in which a thread is stopped.
const STOPS: [&[u8]; 2] = [b"do_signal_stop", b"ptrace_stop"];

impl CheckedThread {
    /// Opens the files of the thread with these numbers; `None` if it is gone.
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

    /// Returns the current state. Once the thread has left its processor, `wchan` names the
    /// function in which the thread sleeps, in a third of the time that the kernel takes for
    /// `stat`. For a thread that runs or has ended, `wchan` names no function; the two are
    /// distinguished only with `closely`.
    pub(super) fn state(&self, closely: bool) -> io::Result<TaskStatus> {
        let mut head = [0; HEAD];
        let Some(length) = self.read(&self.wchan, WCHAN, &mut head)? else {
            return Ok(TaskStatus::Gone);
        };
        let begins = |with: &&[u8]| head[..length].starts_with(with);
        if SLEEPS.iter().any(begins) {
            return Ok(TaskStatus::Sleeps);
        }
        if STOPS.iter().any(begins) {
            return Ok(TaskStatus::Stopped);
        }
        if head[..length] == *b"0" && !closely {
            return Ok(TaskStatus::Runs);
        }
        self.state_closer()
    }

    /// Returns the state according to the letter in `stat`. The letter alone does not prove that a
    /// thread sleeps: the thread is marked as sleeping before it leaves the processor, and `wait`
    /// checks the children in between. Reading `syscall` makes the kernel wait until the thread has
    /// left the processor.
    fn state_closer(&self) -> io::Result<TaskStatus> {
        let mut head = [0; HEAD];
        let Some(length) = self.ask(&self.stat, STAT, &mut head)? else {
            return Ok(TaskStatus::Gone);
        };
        let head = &head[..length];
        let behind = head.iter().rposition(|byte| *byte == b')').map(|at| &head[at..]);
        Ok(match behind.and_then(|behind| behind.get(2)) {
            Some(b'S') => self.state_off_processor()?,
            Some(b'T' | b't') => TaskStatus::Stopped,
            Some(b'Z') => TaskStatus::Zombie,
            _ => TaskStatus::Runs,
        })
    }

    fn state_off_processor(&self) -> io::Result<TaskStatus> {
        let mut head = [0; HEAD];
        Ok(match self.ask(&self.syscall, SYSCALL, &mut head)? {
            Some(_) if head.starts_with(b"running") => TaskStatus::Runs,
            Some(_) => TaskStatus::Sleeps,
            None => TaskStatus::Gone,
        })
    }

    /// Reads the beginning of a file, opening it if necessary; `None` if the thread is gone.
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

    /// Reads the beginning of a file; `None` if the thread is gone.
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

/// Returns the result of a system call on a thread's file; `None` if no such thread exists. Any
/// other error says nothing about the thread; a run that ignored the error would treat the thread
/// as ended.
fn unless_gone<T>(result: io::Result<T>, path: impl Fn() -> String) -> io::Result<Option<T>> {
    let error = match result {
        Ok(answer) => return Ok(Some(answer)),
        Err(error) => error,
    };
    let remedy = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => return Ok(None),
        Some(libc::EACCES | libc::EPERM) => {
            "let this user trace its processes (kernel.yama.ptrace_scope, hidepid), or run as root"
        }
        Some(libc::EMFILE | libc::ENFILE) => "allow more open files (ulimit -n)",
        _ => "run it again, or remove the restriction on /proc",
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
    fn task_of_ended_thread_is_not_found() {
        let (said, (stop, stopped)) = (mpsc::channel(), mpsc::channel::<()>());
        let (say, hear) = said;
        let thread = thread::spawn(move || {
            say.send(own()).expect("the receiver exists");
            let _ = stopped.recv();
        });
        let (pid, tid) = hear.recv().expect("it begins");
        let task = CheckedThread::open(pid, tid).expect("/proc is read").expect("it is there");
        while task.state(true).expect("/proc is read") != TaskStatus::Sleeps {
            thread::yield_now();
        }
        drop(stop);
        thread.join().expect("it ends");
        while task.state(true).expect("/proc is read") != TaskStatus::Gone {
            thread::yield_now();
        }
        assert!(CheckedThread::open(pid, tid).expect("/proc is read").is_none());
    }

    /// Regression: if /proc could not be read, the run treated all threads as ended, and continued
    /// without them.
    #[test]
    fn unreadable_proc_file_is_reported_as_error_not_as_end() {
        let (pid, tid) = own();
        let refuses = File::open("/").expect("a directory, which cannot be read so");
        let task = CheckedThread {
            pid,
            tid,
            wchan: refuses,
            stat: OnceCell::new(),
            syscall: OnceCell::new(),
        };
        let error = task.state(true).expect_err("it is there, and nothing is known of it");
        let words = error.to_string();
        for part in ["expected to read /proc/", "/wchan, found: ", "run it again"] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn refused_proc_file_error_names_remedy() {
        for (errno, remedy) in [(libc::EACCES, "ptrace_scope"), (libc::EMFILE, "ulimit -n")] {
            let result: io::Result<()> = Err(io::Error::from_raw_os_error(errno));
            let error = unless_gone(result, || path(1, 1, WCHAN)).expect_err("no word of a thread");
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
