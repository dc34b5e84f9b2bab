//! The monitored process: [`Monitored`].
//!
//! The process is forked and registers in the way that the mechanism under test needs ([`Means`]).
//! It passes the descriptors that a monitor may hold by SCM_RIGHTS: one end of a SOCK_SEQPACKET
//! connection, and a descriptor of `/proc/self` or of itself. It then executes the
//! [`MonitorCommand`]s that arrive over that connection. It creates the connection itself, after
//! the fork, so that no other process can hold its end by accident.
//!
//! Between fork and end the process calls no function that allocates, because its parent may have
//! had several threads when it forked. The exceptions are the creation of a life and a refusal,
//! which require an allocator that remains usable after `fork`, such as the C library's.

#![allow(unsafe_code, reason = "fork into a new PID namespace, exec, end of a single thread")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use std::cell::{RefCell, RefMut};
use std::ffi::{CStr, CString};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{PidfdFlags, pidfd_open, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tontine::life::Life;
use tontine_mechanisms::mailbox::refused;

use super::word::MonitorPage;
use crate::prelude::*;

/// Timeout for a monitored process to register, or to carry out a command.
const TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    Pid,
    /// Holding a robust mutex.
    Mutex,
    OwnList,
    Life,
    Line,
    Procfs,
    Pidfd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    Here,
    /// A namespace that contains only this process.
    OtherPidNamespace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MonitorCommand {
    Exit = b'e',
    Exec = b'x',
    /// End the thread that registered. Another thread continues.
    EndThread = b't',
    Unlock = b'u',
}

/// A live process to be monitored. It is killed and reaped on drop, which must happen in the thread
/// that made the checks.
pub(crate) struct Monitored {
    child: RefCell<Child>,
    line: OwnedFd,
    passed: Option<OwnedFd>,
    page: SharedMapping<MonitorPage>,
    // The other program reads from this pipe and runs until the pipe is closed.
    _input: OwnedFd,
}

impl Monitored {
    /// Starts a process that registers by `means` and then waits for commands. Skips, naming the
    /// call, if the system refuses a requirement.
    pub(crate) fn start(means: Means, home: Home) -> Result<Self> {
        Self::start_with(means, home, || {})
    }

    /// Like [`Monitored::start`], but the process runs `first` once it is registered. `first` must
    /// not allocate.
    pub(crate) fn start_with(means: Means, home: Home, first: impl FnOnce()) -> Result<Self> {
        let page = SharedMapping::<MonitorPage>::anonymous()?;
        page.prepare()?;
        let errors = ChildError::new()?;
        let (ours, theirs) = seqpacket_pair().setting_up("socketpair")?;
        let (input, input_end) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).setting_up("pipe2")?;
        let program = other_program();
        let child = Child::fork(|| {
            let at_home = match home {
                Home::Here => Ok(()),
                Home::OtherPidNamespace => enter_pid_namespace(),
            };
            match at_home.and_then(|()| register(&page, means, theirs.as_fd())) {
                Ok(line) => {
                    first();
                    execute_commands(&page, line.as_fd(), input.as_fd(), program.as_deref())
                }
                Err(refusal) => errors.status(Err(refusal)),
            }
        })?;
        drop(theirs);
        let received = receive(ours.as_fd()).map_err(|ours| errors.heard().unwrap_or(ours));
        let (line, passed) = received?;
        Ok(Self { child: RefCell::new(child), line, passed, page, _input: input_end })
    }

    /// Returns the process, for signals and waiting. If the monitored process lives in another PID
    /// namespace, returns the process that created the namespace, which ends right after it.
    pub(crate) fn child(&self) -> RefMut<'_, Child> {
        self.child.borrow_mut()
    }

    pub(crate) fn page(&self) -> &MonitorPage {
        &self.page
    }

    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// Returns the descriptor that the process passed: for [`Means::Life`], [`Means::Procfs`] and
    /// [`Means::Pidfd`].
    pub(crate) fn passed(&self) -> Result<BorrowedFd<'_>> {
        let passed = self.passed.as_ref().map(AsFd::as_fd);
        passed.ok_or_else(|| MeasureError::fail("the monitored process passed no descriptor"))
    }

    /// Returns the process's id as the process itself sees it, for mechanisms that have only a
    /// number.
    pub(crate) fn own_pid(&self) -> i32 {
        self.page.pid.load(Ordering::Relaxed)
    }

    /// Sends a command. Blocks until [`MonitorCommand::Exec`] or [`MonitorCommand::EndThread`] is
    /// complete, but does not wait for an exit.
    pub(crate) fn command(&self, command: MonitorCommand) -> Result<()> {
        rustix::net::send(&self.line, &[command as u8], SendFlags::NOSIGNAL).during("send")?;
        match command {
            MonitorCommand::Exit | MonitorCommand::Unlock => Ok(()),
            MonitorCommand::Exec => self.until_hung_up(),
            MonitorCommand::EndThread => self.until_thread_ended(),
        }
    }

    /// Waits for the end of the connection, which is closed on exec.
    fn until_hung_up(&self) -> Result<()> {
        let mut fds = [PollFd::new(&self.line, PollFlags::IN)];
        poll(&mut fds, Some(&TIMEOUT)).during("poll")?;
        let mut reply = [0_u8; 1];
        match rustix::net::recv(&self.line, &mut reply, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Ok(()),
            Ok(_) => Err(MeasureError::skip("execve: found neither /bin/cat nor /usr/bin/cat")),
            Err(error) => Err(error).during("waiting for the exec"),
        }
    }

    fn until_thread_ended(&self) -> Result<()> {
        let ended = poll_for(Duration::from_secs(5), Duration::from_millis(1), || {
            // The kernel clears the word after it has walked the thread's robust list.
            Ok(self.page.thread.load(Ordering::Relaxed) == 0)
        })?;
        ensure!(ended, "the registering thread did not end within five seconds");
        Ok(())
    }
}

impl Drop for Monitored {
    fn drop(&mut self) {
        // If this thread locked the mutex, for a check or for an event, its robust list would still
        // point into the page that is about to be unmapped, and the C library would follow that
        // pointer at the next robust lock. A thread that does not hold the lock gets EPERM.
        self.page.unlock();
    }
}

/// Returns the path of a program to exec, which runs until its standard input ends: `cat`.
fn other_program() -> Option<CString> {
    let paths = ["/bin/cat", "/usr/bin/cat"];
    let path = paths.into_iter().find(|path| std::path::Path::new(path).exists())?;
    CString::new(path).ok()
}

fn exec(path: &CStr, input: BorrowedFd<'_>) {
    // SAFETY: the call replaces this process's own standard input, from which it never reads.
    if unsafe { libc::dup2(input.as_raw_fd(), libc::STDIN_FILENO) } < 0 {
        return;
    }
    let (arguments, environment) = ([path.as_ptr(), std::ptr::null()], [std::ptr::null()]);
    // SAFETY: the path and both arrays are terminated and outlive the call, which returns only on
    // error.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
}

fn seqpacket_pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// The monitored process's half of registering: sends the monitor its descriptors and returns the
/// connection.
fn register(page: &MonitorPage, means: Means, start: BorrowedFd<'_>) -> Result<OwnedFd> {
    let pid = rustix::process::getpid();
    page.pid.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
    page.thread.store(1, Ordering::Relaxed);
    let passed = match means {
        Means::Pid | Means::Line => None,
        Means::Mutex => page.hold().map(|()| None)?,
        Means::OwnList => page.anchor().map(|()| None)?,
        Means::Life => {
            let life = Life::register().map_err(refused)?;
            Some(life.as_fd().try_clone_to_owned().setting_up("fcntl(F_DUPFD_CLOEXEC)")?)
        }
        Means::Procfs => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let own = rustix::fs::open(c"/proc/self", flags, Mode::empty());
            Some(own.setting_up("open of /proc/self")?)
        }
        Means::Pidfd => Some(pidfd_open(pid, PidfdFlags::empty()).setting_up("pidfd_open")?),
    };
    let (given, kept) = seqpacket_pair().setting_up("socketpair")?;
    let both = [given.as_fd(), passed.as_ref().map_or(given.as_fd(), AsFd::as_fd)];
    let fds = if passed.is_some() { &both[..] } else { &both[..1] };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    sendmsg(start, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)
        .setting_up("sendmsg with SCM_RIGHTS")?;
    Ok(kept)
}

/// The monitor's half of registering: receives the connection and the passed descriptor.
fn receive(start: BorrowedFd<'_>) -> Result<(OwnedFd, Option<OwnedFd>)> {
    let ready = poll(&mut [PollFd::new(&start, PollFlags::IN)], Some(&TIMEOUT)).during("poll")?;
    ensure!(ready != 0, "the monitored process did not register within five seconds");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(start, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)
        .setting_up("recvmsg")?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut passed = rights.flatten();
    match passed.next() {
        Some(line) => Ok((line, passed.next())),
        None if got.bytes == 0 => bail!("the monitored process ended before it registered"),
        None => skip!("recvmsg: no space for descriptors"),
    }
}

fn execute_commands(
    page: &MonitorPage,
    line: BorrowedFd<'_>,
    input: BorrowedFd<'_>,
    program: Option<&CStr>,
) -> i32 {
    loop {
        let mut command = [0_u8; 1];
        match rustix::net::recv(line, &mut command, RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            Ok((1, _)) => {}
            _ => return 0,
        }
        match command[0] {
            b'x' => {
                program.into_iter().for_each(|path| exec(path, input));
                let _ = rustix::net::send(line, &[0], SendFlags::NOSIGNAL);
            }
            b't' => {
                if page.spare_thread().is_ok() {
                    end_this_thread(page);
                }
            }
            b'u' => {
                page.unlock();
                return 0;
            }
            _ => return 0,
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

/// Continues in a new process inside a new PID namespace. The caller's process stays to reap it.
fn enter_pid_namespace() -> Result<()> {
    // SAFETY: no unshared resource is used by another thread, because this process has one thread.
    let unshare = |flags| unsafe { unshare_unsafe(flags) };
    unshare(UnshareFlags::NEWPID)
        .or_else(|_| unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID))
        .setting_up("unshare of the PID namespace")?;
    // SAFETY: this process has one thread; both sides continue or leave by `_exit`.
    match checked(unsafe { libc::fork() }).setting_up("fork in a PID namespace")? {
        0 => {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            Ok(())
        }
        _ => {
            let ended = rustix::process::wait(rustix::process::WaitOptions::empty());
            exit_at_once(i32::from(ended.is_err()));
        }
    }
}
