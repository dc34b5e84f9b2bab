//! Helpers shared by the mailbox tests: a path for a mailbox, and forked processes.

#![allow(unsafe_code, reason = "fork")]
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(missing_docs, unreachable_pub, reason = "a module of each test")]

use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use tontine::Error;
use tontine::life::Life;
use tontine::mailbox::{Mailbox, Options, Receives, Sender, Sends};

/// A timeout that no successful operation reaches.
pub const AMPLE: Duration = Duration::from_secs(60);

/// Long enough to observe that nothing happens.
pub const SHORT: Duration = Duration::from_millis(50);

/// Maximum lifetime in seconds of a forked process, which holds even if its test fails.
const LIMIT_S: u32 = 300;

/// A folder, and the path of a mailbox in it.
pub struct Place {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

/// Creates a [`Place`].
pub fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mailbox");
    Place { _folder: folder, path }
}

/// Binds a mailbox in a new folder.
pub fn bound() -> (Place, Mailbox) {
    bound_with(&Options::new())
}

/// Like [`bound`], with options.
pub fn bound_with<E: Receives>(options: &Options<E>) -> (Place, Mailbox) {
    let place = place();
    let mailbox = options.bind(&place.path).expect("binds");
    (place, mailbox)
}

/// Binds a mailbox in a new folder, and connects a sender.
pub fn channel() -> (Place, Mailbox, Sender) {
    let (place, mailbox) = bound();
    let sender = Sender::connect(&place.path).expect("connects");
    (place, mailbox, sender)
}

/// Serves the mailbox until it has accepted one sender, which has sent no message.
pub fn accept(mailbox: &mut Mailbox) {
    until("the lane is accepted", || {
        let _ = mailbox.try_recv();
        mailbox.sender_count() == 1
    });
}

/// Runs `child` in a forked process that is registered with [`Life`], and returns its pid.
pub fn fork(child: impl FnOnce()) -> i32 {
    bare_fork(|| {
        Life::register().expect("the main thread of the child");
        child();
    })
}

/// Like [`fork`], but does not register the child, whose liveness page could be mapped at the
/// address of its parent's.
pub fn bare_fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child calls `_exit` and never returns to the harness. It uses no lock that
    // another thread may hold at the fork except the allocator's, which the C library resets in the
    // child.
    match unsafe { libc::fork() } {
        0 => {
            // A failed test leaves its children behind, so a timer ends them.
            // SAFETY: `alarm` only sets a timer.
            unsafe { libc::alarm(LIMIT_S) };
            let done = catch_unwind(AssertUnwindSafe(child));
            // SAFETY: `_exit` only ends this process.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
        pid => {
            assert!(pid > 0, "fork failed");
            pid
        }
    }
}

/// Blocks a forked process that exists only to be killed, or to keep something open.
pub fn sleep_indefinitely() {
    loop {
        thread::park();
    }
}

/// A pipe through which a forked process reports its progress.
pub struct Signal(std::io::PipeReader, std::io::PipeWriter);

impl Signal {
    pub fn new() -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        Self(reader, writer)
    }

    pub fn give(&self, word: i32) {
        std::io::Write::write_all(&mut &self.1, &word.to_ne_bytes()).expect("written");
    }

    /// Returns the next word.
    ///
    /// # Panics
    /// Panics if none arrives, because the other process has failed.
    pub fn take(&self) -> i32 {
        assert!(is_readable(&self.0, 2 * AMPLE), "no word from another process");
        let mut word = [0; 4];
        std::io::Read::read_exact(&mut &self.0, &mut word).expect("read");
        i32::from_ne_bytes(word)
    }

    /// Returns `true` if [`Signal::take`] would not wait.
    pub fn is_given(&self) -> bool {
        is_readable(&self.0, Duration::ZERO)
    }

    /// Like [`Signal::take`], for a word from a child. Returns `None` after `milliseconds`.
    ///
    /// # Panics
    /// Panics if the child has ended.
    pub fn take_within(&self, milliseconds: u64, pid: i32) -> Option<i32> {
        if is_readable(&self.0, Duration::from_millis(milliseconds)) {
            return Some(self.take());
        }
        let status = ended(pid);
        assert_eq!(status, None, "expected a byte from the child, found its end");
        None
    }
}

/// Sends `signal` to an unreaped process of this test.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: the process was not reaped, so the number is still its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Kills an unreaped forked process, and reaps it.
pub fn kill(pid: i32) {
    signal(pid, libc::SIGKILL);
    reap(pid);
}

/// Waits for a forked process and returns its status.
pub fn reap(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child is our own, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Reaps a forked process if it has ended, and returns its status.
pub fn ended(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the child is our own, and `status` is writable.
    let found = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
    assert!(found >= 0, "waitpid");
    (found == pid).then_some(status)
}

/// Connects as soon as a mailbox listens at `path`.
pub fn connect<E: Sends>(options: &Options<E>, path: &Path) -> Sender {
    let until = Instant::now() + AMPLE;
    loop {
        match options.connect(path) {
            Ok(sender) => return sender,
            Err(Error::NoMailbox { .. }) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the addresses of this process's mappings whose names contain `name`.
pub fn mappings(name: &str) -> Vec<[u64; 2]> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let lines = maps.lines().filter(|line| line.contains(name));
    let range = |line: &str| {
        let (base, rest) = line.split_once('-').expect("a range");
        let end = rest.split(' ').next().expect("its end");
        [base, end].map(|hex| u64::from_str_radix(hex, 16).expect("an address"))
    };
    lines.map(range).collect()
}

/// Returns the total size in bytes of the chunks that this process has mapped, at either end.
pub fn mapped_chunks() -> u64 {
    mappings("tontine-chunk").iter().map(|[base, end]| end - base).sum()
}

/// Returns `true` if the descriptor becomes readable within `timeout`.
pub fn is_readable(fd: impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).expect("a short timeout");
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) == Ok(1)
}

/// Returns the number of this process's descriptors, with one that counts them.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a folder").count()
}

/// Returns the number of this process's threads.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("a folder").count()
}

/// Forbids a system call to the calling thread: it then fails with `errno`. The prohibition can be
/// restricted to calls one of whose arguments compares with a value in this way.
pub fn forbid_call(call: i64, errno: i32, when: Option<(u8, SeccompCmpOp, u64)>) {
    let condition = when.map(|(argument, compare, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
    });
    let condition = condition.transpose().expect("a valid filter");
    let rules = condition.map(|one| SeccompRule::new(vec![one]).expect("a valid filter"));
    let rules = [(call, rules.into_iter().collect())].into();
    let fails = SeccompAction::Errno(errno.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().expect("a known processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, arch);
    let program: BpfProgram = filter.expect("a valid filter").try_into().expect("compiles");
    apply_filter(&program).expect("filters are permitted");
}

/// Runs `body` in a thread for which [`forbid_call`] forbids a system call.
pub fn without_call<T: Send>(
    call: i64,
    errno: i32,
    when: Option<(u8, SeccompCmpOp, u64)>,
    body: impl FnOnce() -> T + Send,
) -> T {
    thread::scope(|threads| {
        let thread = threads.spawn(|| {
            forbid_call(call, errno, when);
            body()
        });
        thread.join().expect("the thread's assertions hold")
    })
}

/// Takes a record lock on a file's first `length` bytes, or on all if `length` is 0. Returns
/// `false` if another process has one.
pub fn record_lock(file: &impl AsRawFd, length: i64) -> bool {
    // SAFETY: the struct has only integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_len = length;
    // SAFETY: the command reads one `flock`.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 }
}

/// Waits until `done` returns `true`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + AMPLE;
    while !done() {
        assert!(Instant::now() < until, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A sequence of numbers determined by a seed.
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns the next number, below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
