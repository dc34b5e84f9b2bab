//! The monitored process: [`Monitored`].
//!
//! The process is forked and registers in the way that the mechanism under test needs ([`Means`]).
//! It passes the descriptors that a monitor may hold by SCM_RIGHTS: one end of a SOCK_SEQPACKET
//! connection, and a descriptor of `/proc/self` or of itself. It then executes the
//! [`MonitorCommand`]s that arrive over that connection. It creates the connection itself, after
//! the fork, so that no other process can hold its end by accident.
//!
//! Between fork and end the process calls no function that allocates, because its parent may have
//! had several threads when it forked. The only exception is the creation of a life, which requires
//! an allocator that remains usable after `fork`, such as the C library's.
//!
//! Neighbours: [`super::word`] defines the words that the kernel marks, [`super::check`] contains
//! the monitor's side, [`super::tried`] causes the events.

#![allow(unsafe_code, reason = "fork into a new PID namespace, exec, end of a single thread")]

use std::cell::{RefCell, RefMut};
use std::ffi::CString;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tontine::life::Life;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::{Child, exit_at_once};
use tontine_host::os::shared::SharedMapping;

use super::word::{MonitorPage, RegisterError};

/// Timeout for a monitored process to register, or to carry out a command.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Means by which a process registers for monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// Only by its process id.
    Pid,
    /// By holding a robust mutex.
    Mutex,
    /// By a bare thread with its own robust list.
    OwnList,
    /// By one of the library's lives.
    Life,
    /// By a connection.
    Line,
    /// By a descriptor of `/proc/self`.
    Procfs,
    /// By a pidfd of itself.
    Pidfd,
}

/// The PID namespace of the monitored process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The monitor's namespace.
    Here,
    /// A PID namespace that contains only this process.
    OtherPidNamespace,
}

/// A command to the monitored process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MonitorCommand {
    /// Exit.
    Exit = b'e',
    /// Call `execve` to run another program.
    Exec = b'x',
    /// End the thread that registered. Another thread continues.
    EndThread = b't',
    /// Unlock the mutex, then exit.
    LetGo = b'u',
}

/// A live process to be monitored. It is killed and reaped on drop, which must happen in the thread
/// that made the checks.
pub struct Monitored {
    child: RefCell<Child>,
    line: OwnedFd,
    passed: Option<OwnedFd>,
    page: SharedMapping<MonitorPage>,
    // The other program reads from this pipe and runs until the pipe is closed.
    _feed: OwnedFd,
}

impl Monitored {
    /// Starts a process that registers by `means` and then waits for commands.
    ///
    /// # Errors
    /// Returns `Skipped`, naming the call, if the system refuses a requirement.
    pub fn start(means: Means, home: Home) -> Result<Self> {
        Self::start_with(means, home, || {})
    }

    /// Like [`Monitored::start`], but the process runs `first` once it is registered. `first` must
    /// not allocate.
    ///
    /// # Errors
    /// Returns the errors of [`Monitored::start`].
    pub fn start_with(means: Means, home: Home, first: impl FnOnce()) -> Result<Self> {
        let page = SharedMapping::<MonitorPage>::anonymous()?;
        page.prepare()?;
        let (ours, theirs) = seqpacket_pair().setting_up("socketpair")?;
        let (food, feed) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).setting_up("pipe2")?;
        let program = OtherProgram::find();
        let child = Child::fork(|| {
            if home == Home::OtherPidNamespace {
                enter_pid_namespace(theirs.as_fd());
            }
            let line = match register(&page, means, theirs.as_fd()) {
                Ok(line) => line,
                Err(refusal) => {
                    let _ = send_refusal(theirs.as_fd(), refusal);
                    return 1;
                }
            };
            first();
            obey(&page, line.as_fd(), food.as_fd(), &program)
        })?;
        drop(theirs);
        let (line, passed) = receive(ours.as_fd())?;
        Ok(Self { child: RefCell::new(child), line, passed, page, _feed: feed })
    }

    /// Returns the process, for signals and waiting. If the monitored process lives in another PID
    /// namespace, returns the process that created the namespace, which ends right after it. Only
    /// one borrower may hold it at a time.
    ///
    /// # Panics
    /// Panics if another borrower still holds it.
    pub fn child(&self) -> RefMut<'_, Child> {
        self.child.borrow_mut()
    }

    /// Returns the shared memory.
    pub fn page(&self) -> &MonitorPage {
        &self.page
    }

    /// Returns the monitor's end of the connection.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// Returns the descriptor that the process passed: for [`Means::Life`], [`Means::Procfs`] and
    /// [`Means::Pidfd`].
    pub fn passed(&self) -> Option<BorrowedFd<'_>> {
        self.passed.as_ref().map(AsFd::as_fd)
    }

    /// Returns the process's id as the process itself sees it, for mechanisms that have only a
    /// number.
    pub fn own_pid(&self) -> i32 {
        self.page.pid.load(Ordering::Relaxed)
    }

    /// Sends a command. Blocks until [`MonitorCommand::Exec`] or [`MonitorCommand::EndThread`] is
    /// complete, but does not wait for an exit.
    ///
    /// # Errors
    /// Returns `Skipped` if there is no other program to run, and `Failed` if the process does not
    /// carry out the command.
    pub fn order(&self, order: MonitorCommand) -> Result<()> {
        rustix::net::send(&self.line, &[order as u8], SendFlags::NOSIGNAL).during("send")?;
        match order {
            MonitorCommand::Exit | MonitorCommand::LetGo => Ok(()),
            MonitorCommand::Exec => self.until_hung_up(),
            MonitorCommand::EndThread => self.until_thread_ended(),
        }
    }

    /// Waits for the end of the connection, which is closed on exec.
    fn until_hung_up(&self) -> Result<()> {
        let mut fds = [PollFd::new(&self.line, PollFlags::IN)];
        poll(&mut fds, Some(&PATIENCE)).during("poll")?;
        let mut answer = [0_u8; 1];
        match rustix::net::recv(&self.line, &mut answer, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Ok(()),
            Ok(_) => Err(MeasureError::skip("execve: found neither /bin/cat nor /usr/bin/cat")),
            Err(error) => Err(error).during("waiting for the exec"),
        }
    }

    fn until_thread_ended(&self) -> Result<()> {
        for _ in 0..5_000 {
            // The kernel clears the word after it has walked the thread's robust list.
            if self.page.thread.load(Ordering::Relaxed) == 0 {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Err(MeasureError::fail("the registering thread did not end within five seconds"))
    }
}

impl Drop for Monitored {
    fn drop(&mut self) {
        // If this thread locked the mutex, for a check or for an event, its robust list would still
        // point into the page that is about to be unmapped, and the C library would follow that
        // pointer at the next robust lock. A thread that does not hold the lock gets EPERM.
        self.page.let_go();
    }
}

/// A program to exec, which runs until its standard input ends: `cat`, if it exists.
struct OtherProgram {
    path: Option<CString>,
}

impl OtherProgram {
    fn find() -> Self {
        let path = ["/bin/cat", "/usr/bin/cat"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())
            .and_then(|path| CString::new(path).ok());
        Self { path }
    }

    /// Calls `execve` to run the program. Returns only on failure.
    fn become_it(&self, food: BorrowedFd<'_>) {
        let Some(path) = &self.path else { return };
        // SAFETY: the call replaces this process's own standard input, from which it never reads.
        if unsafe { libc::dup2(food.as_raw_fd(), libc::STDIN_FILENO) } < 0 {
            return;
        }
        let arguments = [path.as_ptr(), std::ptr::null()];
        let environment = [std::ptr::null()];
        // SAFETY: the path and both arrays are terminated and outlive the call, which returns only
        // on error.
        unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    }
}

fn seqpacket_pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// The monitored process's half of registering: sends the monitor its descriptors and returns the
/// connection.
fn register(
    page: &MonitorPage,
    means: Means,
    start: BorrowedFd<'_>,
) -> std::result::Result<OwnedFd, RegisterError> {
    let pid = rustix::process::getpid();
    page.pid.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
    page.thread.store(1, Ordering::Relaxed);
    let passed = match means {
        Means::Pid | Means::Line => None,
        Means::Mutex => page.hold().map(|()| None)?,
        Means::OwnList => page.anchor().map(|()| None)?,
        Means::Life => Some(life()?),
        Means::Procfs => Some(
            rustix::fs::open(
                c"/proc/self",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .map_err(|errno| ("open of /proc/self", errno))?,
        ),
        Means::Pidfd => {
            Some(pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| ("pidfd_open", errno))?)
        }
    };
    let (given, kept) = seqpacket_pair().map_err(|errno| ("socketpair", errno))?;
    let both = [given.as_fd(), passed.as_ref().map_or(given.as_fd(), AsFd::as_fd)];
    let fds = if passed.is_some() { &both[..] } else { &both[..1] };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    sendmsg(start, &[IoSlice::new(&[0; 4])], &mut control, SendFlags::NOSIGNAL)
        .map_err(|errno| ("sendmsg with SCM_RIGHTS", errno))?;
    Ok(kept)
}

/// Returns a descriptor of this process's life, for the monitor.
fn life() -> std::result::Result<OwnedFd, RegisterError> {
    let life = Life::register().map_err(|error| RegisterError {
        call: "tontine::life::Life::register",
        errno: error.errno(),
    })?;
    life.as_fd().try_clone_to_owned().map_err(|_| RegisterError::last("fcntl(F_DUPFD_CLOEXEC)"))
}

/// Sends a refusal as the error number and the name of the call.
fn send_refusal(start: BorrowedFd<'_>, refusal: RegisterError) -> rustix::io::Result<usize> {
    let errno = refusal.errno.to_ne_bytes();
    let message = [IoSlice::new(&errno), IoSlice::new(refusal.call.as_bytes())];
    let mut control = SendAncillaryBuffer::new(&mut []);
    sendmsg(start, &message, &mut control, SendFlags::NOSIGNAL)
}

/// The monitor's half of registering: receives the connection and the passed descriptor.
fn receive(start: BorrowedFd<'_>) -> Result<(OwnedFd, Option<OwnedFd>)> {
    let mut fds = [PollFd::new(&start, PollFlags::IN)];
    if poll(&mut fds, Some(&PATIENCE)).during("poll")? == 0 {
        return Err(MeasureError::fail(
            "the monitored process did not register within five seconds",
        ));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0_u8; 512];
    let got =
        recvmsg(start, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .setting_up("recvmsg")?;
    let mut passed = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten();
    if let Some(line) = passed.next() {
        return Ok((line, passed.next()));
    }
    match text[..got.bytes].split_first_chunk::<4>() {
        None => Err(MeasureError::fail("the monitored process ended before it registered")),
        Some((errno, call)) => {
            let call = String::from_utf8_lossy(call);
            match i32::from_ne_bytes(*errno) {
                0 if call.is_empty() => {
                    Err(MeasureError::skip("recvmsg: no space for descriptors"))
                }
                0 => Err(MeasureError::fail(call)),
                errno => Err(std::io::Error::from_raw_os_error(errno)).setting_up(&call),
            }
        }
    }
}

/// Waits for commands and executes them. Exits at the end of the connection.
fn obey(
    page: &MonitorPage,
    line: BorrowedFd<'_>,
    food: BorrowedFd<'_>,
    program: &OtherProgram,
) -> i32 {
    loop {
        let mut order = [0_u8; 1];
        match rustix::net::recv(line, &mut order, RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            Ok((1, _)) => {}
            _ => return 0,
        }
        if order[0] == MonitorCommand::Exec as u8 {
            program.become_it(food);
            let _ = rustix::net::send(line, &[0], SendFlags::NOSIGNAL);
        } else if order[0] == MonitorCommand::EndThread as u8 {
            if page.spare_thread().is_ok() {
                end_this_thread(page);
            }
        } else {
            if order[0] == MonitorCommand::LetGo as u8 {
                page.let_go();
            }
            return 0;
        }
    }
}

/// Ends the calling thread only; the kernel then clears `page.thread`.
fn end_this_thread(page: &MonitorPage) {
    // SAFETY: the page outlives the process; SYS_exit ends this thread, whose frames no other
    // thread uses.
    unsafe {
        libc::syscall(libc::SYS_set_tid_address, page.thread.as_ptr());
        libc::syscall(libc::SYS_exit, 0);
    }
}

/// Continues in a new process inside a new PID namespace. The caller's process stays to reap it. On
/// failure, sends the refusal and exits.
fn enter_pid_namespace(start: BorrowedFd<'_>) {
    let refuse = |call, errno: Errno| -> ! {
        let _ = send_refusal(start, (call, errno).into());
        exit_at_once(1)
    };
    // SAFETY: no unshared resource is used by another thread, because this process has one thread.
    let alone = unsafe { unshare_unsafe(UnshareFlags::NEWPID) };
    // SAFETY: as above, this process has one thread.
    let inside =
        alone.or_else(|_| unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWPID) });
    if let Err(errno) = inside {
        refuse("unshare of the PID namespace", errno);
    }
    // SAFETY: this process has one thread; both sides continue or leave by `_exit`.
    match unsafe { libc::fork() } {
        -1 => refuse(
            "fork in a PID namespace",
            Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN),
        ),
        0 => {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
        }
        _ => {
            let ended = rustix::process::wait(rustix::process::WaitOptions::empty());
            exit_at_once(i32::from(ended.is_err()));
        }
    }
}
