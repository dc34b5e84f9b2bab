//! The init process: runs scenarios on the real system, one after another, as process 1 of its own
//! PID namespace. If the system provides no namespace, it adopts the orphans of a scenario instead.
//!
//! Remaining processes are killed and reaped before the next scenario. If the init process of a
//! namespace ends, the kernel kills all processes in the namespace.

#![allow(unsafe_code, reason = "namespaces, mounts, limits")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use tontine_unix::{
    Children, Linux, Pid, SigAction, SigSet, SigmaskHow, Signal, SignalTarget, Sys, WaitOptions,
};

use super::fibers::FIRST_NUMBER;
use super::gates::Gates;
use super::linux_stepper::{RunError, run_steps};
use super::log::{self, LogPart};
use super::region::{CheckRegion, MAX_THREADS, REGION, RunRequest, ThreadWords, pass_on};
use super::text;
use super::trace::{RawEnding, RawTrace, ThreadFacts, Trace};
use crate::scenario::step_control::{SpawnKind, StepControl, ThreadOrdinal};
use crate::scenario::wire::decode;
use crate::scenario::{Scenario, conducted};

/// The end of a scenario, as the init process reports it.
const FINISHED: u32 = 1;
const STUCK: u32 = 2;
const CUT: u32 = 3;
const LOST: u32 = 4;
const LATE: u32 = 5;

/// Minimum distances between timers. If steps took longer than one distance, the next distance is
/// tried.
const SPACINGS: [Duration; 6] = [
    Duration::from_millis(3),
    Duration::from_millis(12),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Additional time to wait for the init process after the timeout of a run.
const GRACE: Duration = Duration::from_secs(5);

/// The checker's handle of the init process.
#[derive(Debug)]
pub(super) struct NamespaceInit {
    region: Arc<CheckRegion>,
    line: UnixStream,
    process: Pid,
    place: Isolation,
    /// `true` if the init process once failed to reply: a later reply may belong to the earlier
    /// run.
    silent: bool,
}

/// The isolation of real processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    /// In their own PID namespace.
    Namespace,
    /// In the namespace of the checker, as descendants of the init process.
    Open,
}

impl NamespaceInit {
    /// Starts the init process.
    pub(super) fn start(place: Isolation) -> io::Result<Self> {
        let (region, memory) = CheckRegion::new()?;
        let region = Arc::new(region);
        let (line, other) = UnixStream::pair()?;
        let linux = Linux::new().map_err(to_io)?;
        let sys: &dyn Sys = &linux;
        let shared = Arc::clone(&region);
        let process = sys.fork(move |sys| {
            let kept = keep(other, memory);
            i32::from(kept.and_then(|line| begin(sys, shared, line, place)).is_err())
        });
        let keeper = Self { region, line, process: process.map_err(to_io)?, place, silent: false };
        keeper.await_word(GRACE)?;
        Ok(keeper)
    }

    /// Returns the isolation of its processes.
    pub(super) fn place(&self) -> Isolation {
        self.place
    }

    /// Runs a scenario.
    pub(super) fn run(
        &mut self,
        scenario: &Scenario,
        seed: u64,
        max_steps: u32,
        timeout: Duration,
    ) -> io::Result<Result<Trace, RunError>> {
        if self.silent {
            return Err(io::Error::other("it hung in an earlier run"));
        }
        if !text::put(&self.region, scenario) {
            return Ok(Err(RunError::Words("the scenario is too long".into())));
        }
        let region = Arc::clone(&self.region);
        let RunRequest {
            seed: seed_word, max_steps: steps, processor, spacing_ns, timeout_ms, ..
        } = &region.order;
        processor.store(u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(0), SeqCst);
        seed_word.store(seed, SeqCst);
        steps.store(max_steps, SeqCst);
        timeout_ms.store(u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX), SeqCst);
        for spacing in SPACINGS {
            spacing_ns.store(u64::try_from(spacing.as_nanos()).unwrap_or(0), SeqCst);
            // Stays `true` if the init process never replies.
            self.silent = true;
            (&self.line).write_all(&[1])?;
            self.await_word(timeout + GRACE)?;
            self.silent = false;
            match self.trace() {
                Err(RunError::Late) => {}
                other => return Ok(other),
            }
        }
        Ok(Err(RunError::Late))
    }

    /// Waits for a byte from the init process.
    fn await_word(&self, timeout: Duration) -> io::Result<()> {
        self.line.set_read_timeout(Some(timeout))?;
        let mut word = [0];
        (&self.line).read_exact(&mut word).map_err(|error| {
            io::Error::new(error.kind(), format!("it has ended or hangs: {error}"))
        })
    }

    /// Returns the trace of the last run.
    fn trace(&self) -> Result<Trace, RunError> {
        let region = &*self.region;
        let ending = match region.ending.load(SeqCst) {
            FINISHED => RawEnding::Finished,
            STUCK => RawEnding::Deadlocked,
            CUT => RawEnding::Cut,
            LATE => return Err(RunError::Late),
            _ => return Err(RunError::Words(region.words())),
        };
        let threads = (region.threads_taken.load(SeqCst) as usize).min(MAX_THREADS);
        let mut raw = RawTrace::default();
        for ordinal in &region.threads[..threads] {
            raw.threads.push(ThreadFacts {
                maker: ordinal.maker.load(SeqCst),
                kind: match ordinal.is_thread.load(SeqCst) {
                    0 => SpawnKind::Process,
                    _ => SpawnKind::Thread,
                },
                number: ordinal.tid.load(SeqCst),
            });
        }
        for step in &region.steps[..region.step.load(SeqCst) as usize] {
            let step = step.load(SeqCst);
            raw.steps.push(((step >> 32) as u32, step as u32));
        }
        for LogPart { step, ordinal, line } in log::parts(region) {
            let text = String::from_utf8_lossy(&line);
            if let Some(record) = decode(text.trim_end_matches('\n')) {
                raw.records.push((step, ordinal, record));
            }
        }
        if ending == RawEnding::Deadlocked {
            for line in region.words().lines() {
                let mut fields = line.splitn(4, '\t');
                let mut field = || fields.next().unwrap_or_default();
                let (ordinal, letter, place) = (field(), field(), field());
                if let (Ok(ordinal), Ok(place)) = (ordinal.parse(), place.parse()) {
                    raw.waiting.push((ordinal, place, field().to_owned(), letter == "T"));
                }
            }
        }
        Ok(Trace::new(raw, ending))
    }
}

impl Drop for NamespaceInit {
    fn drop(&mut self) {
        let Ok(linux) = Linux::new() else { return };
        let sys: &dyn Sys = &linux;
        let _ = sys.kill(SignalTarget::Process(self.process), Some(Signal::KILL));
        let _ = sys.waitpid(Children::One(self.process), WaitOptions::empty());
    }
}

fn to_io(errno: tontine_unix::Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw())
}

/// Becomes the init process, or forks it into a new namespace and waits until it ends.
fn begin(
    sys: &dyn Sys,
    region: Arc<CheckRegion>,
    line: UnixStream,
    place: Isolation,
) -> io::Result<()> {
    sys.setsid().map_err(to_io)?;
    if place == Isolation::Open {
        sys.set_subreaper(true).map_err(to_io)?;
        return serve(sys, &region, &line, place);
    }
    let is_root = rustix::process::geteuid().is_root();
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let more = if is_root { 0 } else { libc::CLONE_NEWUSER };
    // SAFETY: the call takes flags; this process is single-threaded.
    if unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS | more) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if !is_root {
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
        std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))?;
    }
    let keeper =
        sys.fork(move |sys| i32::from(serve(sys, &region, &line, Isolation::Namespace).is_err()));
    sys.waitpid(keeper.map_err(to_io)?.into(), WaitOptions::empty()).map_err(to_io)?;
    Ok(())
}

/// Closes all descriptors except the socket to the checker, standard error, and the region's memory
/// under its fixed number. Opens the null device as 0 and 1.
fn keep(line: UnixStream, memory: OwnedFd) -> io::Result<UnixStream> {
    let kept = UnixStream::from(fcntl_dupfd_cloexec(&line, REGION + 1)?);
    drop(line);
    pass_on(memory)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // `open` may have returned the number 0 or 1.
    let null = fcntl_dupfd_cloexec(OwnedFd::from(null), REGION + 1)?;
    duplicate(null.as_raw_fd(), libc::STDIN_FILENO)?;
    duplicate(null.as_raw_fd(), libc::STDOUT_FILENO)?;
    drop(null);
    let number = kept.as_raw_fd();
    close(libc::STDERR_FILENO + 1, REGION - 1);
    close(REGION + 1, number - 1);
    close(number + 1, i32::MAX);
    Ok(kept)
}

/// Makes `to` a duplicate of `from`. No object in this process may own `to`.
fn duplicate(from: i32, to: i32) -> io::Result<()> {
    // SAFETY: the call takes integers; no object in this process owns `to`, as the caller ensures.
    match unsafe { libc::dup2(from, to) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Closes the descriptors from `first` to `last`, which no object in this process may own.
fn close(first: i32, last: i32) {
    if first <= last {
        // SAFETY: the call takes integers; no object in this process owns the descriptors, as the
        // caller ensures.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Runs scenarios on request until the checker closes its end of the socket.
fn serve(
    sys: &dyn Sys,
    region: &Arc<CheckRegion>,
    mut line: &UnixStream,
    place: Isolation,
) -> io::Result<()> {
    let numbers = if place == Isolation::Namespace { Some(own_numbers()?) } else { None };
    as_after_login(sys);
    let before_first = (FIRST_NUMBER - 1).to_string();
    line.write_all(&[0])?;
    let mut word = [0];
    while line.read(&mut word)? == 1 {
        if let Some(numbers) = &numbers {
            numbers.write_at(before_first.as_bytes(), 0)?;
        }
        let (ending, words) = match run_scenario(sys, region) {
            Ok(RawEnding::Finished) => (FINISHED, None),
            Ok(RawEnding::Deadlocked) => (STUCK, None),
            Ok(RawEnding::Cut) => (CUT, None),
            Err(RunError::Late) => (LATE, None),
            Err(RunError::Words(words)) => (LOST, Some(words)),
        };
        if let Some(words) = words {
            region.put_words(&words);
        }
        region.ending.store(ending, SeqCst);
        match place {
            Isolation::Namespace => clear_namespace(sys),
            Isolation::Open => clear_children(sys)?,
        }
        line.write_all(&[0])?;
    }
    Ok(())
}

/// Mounts /proc for this namespace, and opens the file that holds the namespace's last process
/// number.
fn own_numbers() -> io::Result<File> {
    // SAFETY: the pointers that these calls take are null or refer to strings that end with NUL.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let (none, root) = (std::ptr::null(), c"/".as_ptr());
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        // Without this call, the next mount would be visible outside the namespace.
        if libc::mount(c"none".as_ptr(), root, none, flags, std::ptr::null()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let proc = c"proc".as_ptr();
        if libc::mount(proc, c"/proc".as_ptr(), proc, 0, std::ptr::null()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    File::options().write(true).open("/proc/sys/kernel/ns_last_pid")
}

/// Sets all dispositions to their defaults, even if the checker's user ignores some signals, and
/// unblocks all signals. Disables core dumps, which take a long time.
fn as_after_login(sys: &dyn Sys) {
    for signal in Signal::all() {
        // Dispositions that cannot be changed are left as they are.
        let _ = sys.sigaction(signal, Some(SigAction::DEFAULT));
    }
    let _ = sys.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY)));
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

/// Runs the scenario of the region.
fn run_scenario(sys: &dyn Sys, region: &Arc<CheckRegion>) -> Result<RawEnding, RunError> {
    let taken = (region.threads_taken.swap(0, SeqCst) as usize).min(MAX_THREADS);
    for ordinal in &region.threads[..taken] {
        let ThreadWords { place, go, maker, is_thread, line, executes, reads, typed, .. } = ordinal;
        for word in [place, go, maker, is_thread, line, executes, reads, typed] {
            word.store(0, SeqCst);
        }
        for word in [&ordinal.pid, &ordinal.tid] {
            word.store(0, SeqCst);
        }
        for timer in [&ordinal.ends, &ordinal.alarm] {
            timer.real_ns.store(0, SeqCst);
            timer.due_ns.store(0, SeqCst);
        }
    }
    log::clear(region);
    for word in [&region.step, &region.arrivals, &region.wrote, &region.settling, &region.late] {
        word.store(0, SeqCst);
    }
    region.clock_ns.store(0, SeqCst);
    region.passed_due_ns.store(0, SeqCst);
    restrict_to(region.order.processor.load(SeqCst));
    let scenario = text::get(region)
        .map_err(|error| RunError::Words(format!("the scenario's text was rejected: {error}")))?;
    let gates = Arc::new(Gates(Arc::clone(region)));
    let ordinal = gates.expect(sys, SpawnKind::Process);
    assert_eq!(ordinal, ThreadOrdinal::INIT, "the first ordinal is free");
    let program = conducted(&scenario, Arc::<Gates>::clone(&gates));
    let first = sys.fork_boxed(Box::new(move |_| {
        // A virtual process starts with the null device as its standard descriptors, and with no
        // other descriptors.
        if duplicate(libc::STDIN_FILENO, libc::STDERR_FILENO).is_err() {
            return 1;
        }
        close(libc::STDERR_FILENO + 1, REGION - 1);
        close(REGION + 1, i32::MAX);
        let linux = Linux::alone();
        // A virtual process is in a session that the run can name. The session of the init process
        // has no number in this namespace.
        let _ = linux.setsid();
        program(&linux)
    }));
    gates.made(ordinal, first.ok().map(Pid::number));
    first.map_err(|errno| RunError::Words(format!("fork: {errno}")))?;
    run_steps(region)
}

/// Binds this process and its children to one processor, so that no wake-up crosses processors.
fn restrict_to(processor: u32) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor as usize);
    // If the call fails, the run only takes longer.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Kills and reaps all remaining processes of the namespace.
fn clear_namespace(sys: &dyn Sys) {
    let _ = sys.kill(SignalTarget::Everyone, Some(Signal::KILL));
    // SAFETY: the call takes integers and a null pointer.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) } > 0 {}
}

/// Kills and reaps the children of the init process until none is left. A process whose parent is
/// killed becomes a child of the init process, and no other process reaps it, so a number that was
/// found still belongs to the same process.
fn clear_children(sys: &dyn Sys) -> io::Result<()> {
    loop {
        // SAFETY: the call takes integers and a null pointer.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) } {
            -1 => return Ok(()),
            0 => {}
            _ => continue,
        }
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(number) = number.filter(|number| parent_of(*number) == Some(own_number(sys)))
            else {
                continue;
            };
            let _ = sys.kill(Pid::number_only(number).into(), Some(Signal::KILL));
        }
        rustix::thread::sched_yield();
    }
}

fn own_number(sys: &dyn Sys) -> i32 {
    sys.getpid().number()
}

/// Returns the parent of a process, as /proc shows it.
fn parent_of(number: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name of the process, in parentheses before the number, may contain any characters.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
