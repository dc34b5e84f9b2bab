//! Forked processes of a slice: [`ForkedWorker`], and the words that they share.

#![allow(unsafe_code, reason = "fork, and memory shared with forked processes")]

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum lifetime of a worker, in seconds.
const LIMIT_S: u32 = 240;

/// Words shared by a process and its later forks.
pub(super) type SharedWords = &'static [AtomicU64];

/// Maps `count` shared words of zero.
pub(super) fn shared(count: usize) -> SharedWords {
    let (bytes, protection) = (count * size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the mapping is new, zeroed, page-aligned and never unmapped; it is accessed only
    // through atomics.
    unsafe {
        let memory =
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED);
        std::slice::from_raw_parts(memory.expect("mmap").cast(), count)
    }
}

/// Returns a shared word.
pub(super) fn get(word: &AtomicU64) -> u64 {
    // SYNC torment: pairs with the release stores below.
    word.load(Ordering::Acquire)
}

/// Sets a shared word.
pub(super) fn set(word: &AtomicU64, value: u64) {
    // SYNC torment: pairs with the acquire load above.
    word.store(value, Ordering::Release);
}

/// Adds to a shared word and returns the previous value.
pub(super) fn add(word: &AtomicU64, more: u64) -> u64 {
    // SYNC torment: pairs with the acquire load above.
    word.fetch_add(more, Ordering::AcqRel)
}

/// Raises a shared word to `value`.
pub(super) fn raise(word: &AtomicU64, value: u64) {
    word.fetch_max(value, Ordering::Relaxed);
}

/// Makes the kernel terminate this process with its parent, or after [`LIMIT_S`] in any case.
pub(super) fn end_with_parent() {
    // SAFETY: the calls set a timer and an attribute of this process.
    unsafe {
        libc::alarm(LIMIT_S);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// Becomes an ordinary user, who is in no group but its own.
pub(super) fn become_user(uid: u32) {
    // SAFETY: the worker is single-threaded, and only drops privileges.
    unsafe {
        libc::setgroups(0, std::ptr::null());
        assert_eq!(libc::setgid(uid), 0);
        assert_eq!(libc::setuid(uid), 0);
    }
    // A change of user clears the parent-death signal.
    end_with_parent();
}

/// Sets the soft limit of descriptors of this process, and the hard limit if one is given.
pub(super) fn limit_descriptors(soft: u64, hard: Option<u64>) {
    let maximum = hard.or(getrlimit(Resource::Nofile).maximum);
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum }).expect("a limit");
}

/// Forks; the child runs `body` and exits with 0, or with 101 if it panics. Returns its pid.
pub(super) fn fork(body: impl FnOnce()) -> i32 {
    // SAFETY: the child never returns into the caller's frames. In a process that forks, no other
    // thread holds a lock, except the allocator's lock, which the C library handles.
    match unsafe { libc::fork() } {
        0 => {
            end_with_parent();
            let done = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: ends this process.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
        pid => {
            assert!(pid > 0, "fork failed: {}", std::io::Error::last_os_error());
            pid
        }
    }
}

/// Forks a child that keeps every handle open for `pause`, even after the end of this process.
pub(super) fn leave_child(pause: Duration) {
    // SAFETY: the child only sleeps and exits.
    if unsafe { libc::fork() } == 0 {
        std::thread::sleep(pause);
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) }
    }
}

/// A forked process, killed and reaped when it is dropped.
#[derive(Debug)]
pub(super) struct ForkedWorker {
    pub(super) pid: i32,
    pub(super) name: String,
    status: Option<i32>,
}

impl ForkedWorker {
    /// Forks a worker that runs `body`.
    pub(super) fn start(name: impl Into<String>, body: impl FnOnce()) -> Self {
        Self { pid: fork(body), name: name.into(), status: None }
    }

    /// Sends a signal, unless the worker was reaped.
    pub(super) fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: the pid is that of a child that has not been reaped.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Returns the wait status if the worker has ended.
    pub(super) fn ended(&mut self) -> Option<i32> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: the pid is that of a child that has not been reaped, and the pointer is to an
            // integer.
            let found = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
            if found == self.pid {
                self.status = Some(status);
            }
        }
        self.status
    }

    /// Waits until the worker has ended; returns `None` after `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<i32> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills and reaps the worker. Returns its status.
    pub(super) fn kill(&mut self) -> Option<i32> {
        self.signal(libc::SIGKILL);
        self.wait(Duration::from_secs(30))
    }
}

impl Drop for ForkedWorker {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        self.wait(Duration::from_secs(5));
    }
}

/// Waits for a child of this process and returns its wait status.
pub(super) fn reap(pid: i32, timeout: Duration) -> Option<i32> {
    let mut child = ForkedWorker { pid, name: String::new(), status: None };
    child.wait(timeout)
}

/// Describes the end of a process from its wait status.
pub(super) fn describe(status: Option<i32>) -> String {
    match status {
        None => "no end".into(),
        Some(status) if libc::WIFSIGNALED(status) => format!("signal {}", libc::WTERMSIG(status)),
        Some(status) => format!("exit status {}", libc::WEXITSTATUS(status)),
    }
}

/// Describes all threads of a process and of its children: state, wait channel, system call and,
/// if the kernel allows it, stack.
pub(super) fn stacks(pid: i32) -> String {
    let mut text = String::new();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks.map(|task| task.path()) {
        let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("ended");
        let _ = writeln!(
            text,
            "{} {} {state}, wchan {}, syscall {}",
            task.display(),
            read("comm").trim(),
            read("wchan"),
            read("syscall").trim()
        );
        for line in read("stack").lines() {
            let _ = writeln!(text, "    {line}");
        }
        for child in read("children").split_whitespace().filter_map(|pid| pid.parse().ok()) {
            text += &stacks(child);
        }
    }
    text
}

/// Measures calls of one thread, without the time that it waited for a processor.
#[derive(Debug)]
pub(super) struct Stopwatch {
    schedstat: std::fs::File,
}

impl Stopwatch {
    /// Opens the calling thread's scheduler statistics.
    pub(super) fn new() -> Self {
        let schedstat = std::fs::File::open("/proc/thread-self/schedstat").expect("schedstat");
        Self { schedstat }
    }

    /// Runs `call` and returns its result and duration.
    pub(super) fn time<T>(&self, call: impl FnOnce() -> T) -> (T, Duration) {
        let (began, queued) = (Instant::now(), self.queued());
        let result = call();
        (result, began.elapsed().saturating_sub(self.queued().saturating_sub(queued)))
    }

    /// Returns the time that the thread has waited for a processor.
    fn queued(&self) -> Duration {
        let mut bytes = [0; 96];
        let read = rustix::io::pread(&self.schedstat, &mut bytes, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..read]);
        let word = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        Duration::from_nanos(word.unwrap_or(0))
    }
}
