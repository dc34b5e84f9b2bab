//! A forked child with a socket to it: [`Child`], [`Pipe`].
//!
//! The thread that forks becomes the main thread of the child. A test, which does not run on the
//! main thread, can therefore do in a child what a program does on its main thread.

#![allow(unsafe_code, reason = "fork")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// Timeout after which a hanging child or test is killed.
const LIMIT: Duration = Duration::from_secs(60);

/// A forked process, killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    /// The parent's end.
    pub(crate) pipe: Pipe,
    pid: Pid,
    reaped: bool,
}

impl Child {
    /// Forks; the child runs `body` and exits with 0, or with 101 if `body` panics. The child
    /// prints nothing, because another thread may have locked the output at the moment of the fork.
    pub(crate) fn fork(body: impl FnOnce(&Pipe)) -> Self {
        Self::split().unwrap_or_else(|pipe| {
            let done = catch_unwind(AssertUnwindSafe(|| body(&pipe)));
            // SAFETY: `_exit` only ends the process.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        })
    }

    /// Forks; returns the child, or, in the child, its end of the socket. The child must exit
    /// through `_exit`, without returning to the harness.
    pub(crate) fn split() -> Result<Self, Pipe> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, childs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .expect("socketpair");
        // SAFETY: the child runs on a copy of this thread, and no caller returns to the harness.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => Err(Pipe(childs)),
            pid => {
                let pid = Pid::from_raw(pid).expect("a positive pid");
                Ok(Self { pipe: Pipe(ours), pid, reaped: false })
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) {
        assert!(!self.reaped);
        kill_process(self.pid, signal).expect("kill");
    }

    /// Waits until the child ends; returns its exit status, or 128 plus the signal that killed it.
    pub(crate) fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.look(WaitOptions::NOHANG) {
                self.reaped = true;
                let signal = || 128 + status.terminating_signal().unwrap_or(0);
                return status.exit_status().unwrap_or_else(signal);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the child has not ended after {LIMIT:?}");
    }

    pub(crate) fn wait_until_stopped(&self) {
        let stopped = self.look(WaitOptions::UNTRACED).expect("a status");
        assert!(stopped.stopped(), "{stopped:?}");
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.reaped && self.look(WaitOptions::NOHANG).is_none()
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    fn look(&self, how: WaitOptions) -> Option<WaitStatus> {
        loop {
            match waitpid(Some(self.pid), how) {
                Err(rustix::io::Errno::INTR) => {}
                answer => return answer.expect("waitpid").map(|(_, status)| status),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}

/// An end of the socket between parent and child.
#[derive(Debug)]
pub(crate) struct Pipe(OwnedFd);

impl Pipe {
    pub(crate) fn send_byte(&self, byte: u8) {
        assert_eq!(rustix::io::write(&self.0, &[byte]), Ok(1));
    }

    /// Returns the next byte, or 0 if the other end has closed.
    pub(crate) fn receive_byte(&self) -> u8 {
        let mut byte = [0];
        self.wait_readable();
        let _ = rustix::io::read(&self.0, &mut byte);
        byte[0]
    }

    pub(crate) fn send_pid(&self, pid: Pid) {
        let bytes = pid.as_raw_nonzero().get().to_ne_bytes();
        assert_eq!(rustix::io::write(&self.0, &bytes), Ok(4));
    }

    pub(crate) fn receive_pid(&self) -> Pid {
        let mut bytes = [0; 4];
        self.wait_readable();
        assert_eq!(rustix::io::read(&self.0, &mut bytes), Ok(4));
        Pid::from_raw(i32::from_ne_bytes(bytes)).expect("a pid")
    }

    pub(crate) fn send_descriptor(&self, fd: BorrowedFd<'_>) {
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [IoSlice::new(b"d")];
        rustix::net::sendmsg(&self.0, &bytes, &mut control, SendFlags::empty()).expect("sendmsg");
    }

    pub(crate) fn receive_descriptor(&self) -> OwnedFd {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let bytes = &mut [IoSliceMut::new(&mut byte)];
        self.wait_readable();
        rustix::net::recvmsg(&self.0, bytes, &mut control, RecvFlags::CMSG_CLOEXEC)
            .expect("recvmsg");
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        fd.expect("a descriptor, unless the child has ended")
    }

    fn wait_readable(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)) {
                Err(rustix::io::Errno::INTR) => {}
                ready => break assert_eq!(ready, Ok(1), "nothing arrived in {LIMIT:?}"),
            }
        }
    }
}

/// Returns `true` if the condition becomes true before the timeout.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}
