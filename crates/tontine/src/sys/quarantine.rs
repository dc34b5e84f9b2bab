//! Work on a short-lived thread whose descriptor table is its own: [`run`], [`close`].
//!
//! A descriptor that a peer chose must not enter the process's table. When an entry of a table
//! goes, the kernel drops every POSIX record lock that the table's owner holds on that file, and
//! has the file system flush it; a FUSE server may never answer. A thread with another table is
//! another owner: it loses no lock of the process's, and only the thread waits.
//!
//! - The thread starts with a table of its own (`close_range` with `CLOSE_RANGE_UNSHARE`). It
//!   shares memory with the process, so that what it maps is mapped for all.
//! - The kernel copies the table's first 64 entries at least. The thread cannot close them at once,
//!   since that flushes files of the program's own; its end closes them, before what peers passed.
//! - It is lent the process's own sockets over a datagram socket that accepts messages from this
//!   process's [`Loan`] only.
//! - It closes nothing. Its end closes its table: then the kernel lets no socket linger, and a
//!   FUSE file holds the thread and nothing else. Its table is not the process's, so the record
//!   locks of a process that is killed meanwhile are released at once.
//!
//! Neighbours: [`super::socket`] receives descriptors and closes connections here. Limits: the
//! caller waits for the thread's report, so `work` must not wait for any peer.

#![allow(unsafe_code, reason = "close_range, and a message with an address")]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, RecvError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{Pid, gettid};

use super::fork::PerProcess;
use super::thread;
use crate::error::{Error, Result};

/// Maximum number of threads that files of one user hold, before connections of that user wait.
const MAX_HELD_BY_USER: usize = 8;

/// Maximum number of threads that files of all users hold, before all new connections wait.
const MAX_HELD: usize = 64;

/// Number of threads besides those that close connections: what was not received is closed in
/// bounded time, even while files that never answer hold all others.
const MAX_CLOSERS: usize = 4;

/// Maximum number of descriptors that one thread is lent.
const MAX_LENT: usize = 64;

/// Maximum wait of a thread for what it is lent: its process sends it at once, but may be stopped.
const LOAN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum wait for threads to end that have only honest descriptors to close: some microseconds.
const END_TIMEOUT: Duration = Duration::from_millis(20);

static QUARANTINE: PerProcess<Mutex<Quarantine>> = PerProcess::new(Mutex::default);

/// This process's threads, and what waits for one.
#[derive(Debug, Default)]
struct Quarantine {
    loan: Option<Loan>,
    /// Threads that end when their table is closed.
    closing: Vec<Closing>,
    /// Descriptors of ours that wait for a thread to close them.
    waiting: Vec<OwnedFd>,
}

/// Makes the one descriptor that this process needs for all threads, so that closing never lacks
/// it.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn prepare() -> Result<()> {
    loan_name().map(drop)
}

/// A thread that has done its work and keeps its table until this is dropped. Then it ends, and
/// closes the table.
#[derive(Debug)]
pub(crate) struct Hold(
    #[expect(dead_code, reason = "its drop is what the thread waits for")] mpsc::Sender<()>,
);

/// A thread that has started and may not have ended.
#[derive(Debug)]
struct Closing {
    thread: Pid,
    /// The user whose descriptors it receives, if it receives any.
    user: Option<u32>,
    since: Instant,
}

/// Runs `work` on a thread of its own with copies of `lent` and no other descriptor, and returns
/// its result. Blocks until `work` returns. `user` is the peer's, if `work` receives what it
/// passed. The thread closes its table once the [`Hold`] is dropped; nothing waits for that.
///
/// `work` drops no descriptor: it forgets those that it does not return to the caller's table by
/// sending them over one that it was lent.
///
/// # Errors
/// [`Error::System`] where the system refuses a thread, a socket or the table.
pub(crate) fn run<T: Send + 'static>(
    lent: &[BorrowedFd<'_>],
    user: Option<u32>,
    work: impl FnOnce(&[BorrowedFd<'_>]) -> T + Send + 'static,
) -> Result<(T, Hold)> {
    let name = loan_name()?;
    let (hold, held) = mpsc::channel::<()>();
    let (say_ready, ready) = mpsc::sync_channel(1);
    let (say_done, done) = mpsc::sync_channel(1);
    thread::start("tontine-fds", move || {
        let table = Table::new(&name);
        let _ = say_ready.send(table.as_ref().map(Table::address).map_err(Clone::clone));
        let lent = table.and_then(|table| table.borrow());
        // The sender may have given up.
        let _ = say_done.send(lent.map(|lent| {
            // The thread's end closes them.
            let lent = ManuallyDrop::new(lent);
            let copies: Vec<BorrowedFd<'_>> = lent.iter().map(AsFd::as_fd).collect();
            work(&copies)
        }));
        // Until the hold is dropped: nothing is ever sent.
        let _ = held.recv();
    })?;
    let lost = |_: RecvError| Error::system("a thread with its own descriptors", Errno::AGAIN);
    let (address, thread) = ready.recv().map_err(lost)??;
    {
        let mut quarantine = quarantine()?;
        quarantine.closing.push(Closing { thread, user, since: Instant::now() });
        let loan = quarantine.loan.as_ref().ok_or_else(|| lost(RecvError))?;
        loan.lend(&address, lent)?;
    }
    Ok((done.recv().map_err(lost)??, Hold(hold)))
}

/// Closes descriptors of ours as their last holder, on a thread of its own. Does not wait for it.
///
/// Where the system refuses a thread, or too many are at work, they stay open until the next call
/// of this or of [`close_waiting`].
pub(crate) fn close(fds: impl IntoIterator<Item = OwnedFd>) {
    if let Ok(mut quarantine) = quarantine() {
        quarantine.waiting.extend(fds);
    }
    close_waiting();
}

/// Starts threads for the descriptors that wait to be closed. Returns how many still wait.
pub(crate) fn close_waiting() -> usize {
    loop {
        let Ok(mut quarantine) = quarantine() else { return 0 };
        quarantine.closing();
        let closers = quarantine.closing.iter().filter(|one| one.user.is_none()).count();
        if quarantine.waiting.is_empty() || closers >= MAX_CLOSERS {
            return quarantine.waiting.len();
        }
        let first = quarantine.waiting.len().saturating_sub(MAX_LENT);
        let batch = quarantine.waiting.split_off(first);
        drop(quarantine);
        let lent: Vec<BorrowedFd<'_>> = batch.iter().map(AsFd::as_fd).collect();
        match run(&lent, None, |_| ()) {
            Ok(((), hold)) => {
                // In this order: the last holder is the thread.
                drop(batch);
                drop(hold);
            }
            Err(_) => {
                let Ok(mut quarantine) = self::quarantine() else { return 0 };
                quarantine.waiting.extend(batch);
                return quarantine.waiting.len();
            }
        }
    }
}

/// Returns `true` if so many threads are held by what peers passed that no new connection of this
/// user should be served. Waits a moment for threads that only end.
pub(crate) fn is_full(user: u32) -> bool {
    loop {
        let Ok(mut quarantine) = quarantine() else { return false };
        let total = quarantine.closing();
        let of_user = quarantine.closing.iter().filter(|one| one.user == Some(user)).count();
        if total < MAX_HELD && of_user < MAX_HELD_BY_USER {
            return false;
        }
        // One that has not ended by then is held.
        if quarantine.closing.iter().all(|one| one.since.elapsed() >= END_TIMEOUT) {
            return true;
        }
        drop(quarantine);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn quarantine() -> Result<MutexGuard<'static, Quarantine>> {
    // A panic in there leaves lists that are still right.
    Ok(QUARANTINE.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Quarantine {
    /// Returns the number of threads that still close their tables.
    fn closing(&mut self) -> usize {
        self.closing.retain(|one| exists(one.thread));
        self.closing.len()
    }
}

/// Returns `true` while a thread of this process has this id. A thread's id is free only after the
/// kernel has closed its table.
fn exists(thread: Pid) -> bool {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: signal 0 is not sent; the call only looks the thread up.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread.as_raw_nonzero().get(), 0) == 0 }
}

/// The address of this process's loan socket, which is made at the first call.
fn loan_name() -> Result<SocketAddrUnix> {
    let mut quarantine = quarantine()?;
    if quarantine.loan.is_none() {
        quarantine.loan = Some(Loan::new()?);
    }
    let loan = quarantine.loan.as_ref().map(|loan| loan.name.clone());
    loan.ok_or(Error::system("socket", Errno::NOTSOCK))
}

/// The process's end: a datagram socket that lends descriptors and receives nothing.
#[derive(Debug)]
struct Loan {
    socket: OwnedFd,
    name: SocketAddrUnix,
}

impl Loan {
    fn new() -> Result<Self> {
        let (socket, name) = named_socket()?;
        // Any process could send to the name.
        rustix::net::shutdown(&socket, Shutdown::Read)
            .map_err(|errno| Error::system("shutdown", errno))?;
        Ok(Self { socket, name })
    }

    fn lend(&self, to: &SocketAddrUnix, lent: &[BorrowedFd<'_>]) -> Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LENT))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(lent.len() <= MAX_LENT, "{} descriptors to lend", lent.len());
        if !lent.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(lent));
            debug_assert!(fits, "room for the maximum");
        }
        let bytes = [IoSlice::new(b"lent")];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg_addr(&self.socket, to, &bytes, &mut control, flags)
        })
        .map(drop)
        .map_err(|errno| Error::system("sendmsg", errno))
    }
}

/// The thread's table, with the one socket over which it is lent others.
struct Table {
    socket: ManuallyDrop<OwnedFd>,
    name: SocketAddrUnix,
}

/// Maximum number of entries that the kernel copies, whatever the call asks for.
const COPIED: u32 = 64;

/// Entries that a table needs behind those: the thread's own, and what one message passes.
const MIN_ROOM: u64 = 64;

impl Table {
    /// Gives the calling thread a table of its own, and a socket that accepts messages only from
    /// the one with the name `lender`.
    fn new(lender: &SocketAddrUnix) -> Result<Self> {
        let limit = getrlimit(Resource::Nofile).current;
        let is_small = limit.is_some_and(|limit| limit < u64::from(COPIED) + MIN_ROOM);
        // A table that is too small for the copies loses them, though that flushes files.
        let first = if is_small { 0 } else { COPIED };
        // SAFETY: three integers. The table that is left to the other threads stays as it is; this
        // thread uses none of its descriptors.
        let done = unsafe {
            libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_UNSHARE)
        };
        if done != 0 {
            return Err(Error::last("close_range(CLOSE_RANGE_UNSHARE)"));
        }
        let (socket, name) = named_socket_to(lender)?;
        let table = Self { socket: ManuallyDrop::new(socket), name };
        // The kernel closes a table in the order of its numbers. Peers' descriptors come behind the
        // program's own, or one that never answers would keep the program's open.
        for _ in 0..first {
            let copy = rustix::io::fcntl_dupfd_cloexec(&*table.socket, 0)
                .map_err(|errno| Error::system("fcntl(F_DUPFD_CLOEXEC)", errno))?;
            if ManuallyDrop::new(copy).as_raw_fd().cast_unsigned() >= COPIED {
                break;
            }
        }
        Ok(table)
    }

    /// The socket's name and the thread that has it.
    fn address(&self) -> (SocketAddrUnix, Pid) {
        (self.name.clone(), gettid())
    }

    /// Receives what the process lends.
    fn borrow(&self) -> Result<Vec<OwnedFd>> {
        let system = |errno| Error::system("recvmsg", errno);
        sockopt::set_socket_timeout(&*self.socket, Timeout::Recv, Some(LOAN_TIMEOUT))
            .map_err(|errno| Error::system("setsockopt(SO_RCVTIMEO)", errno))?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LENT))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut bytes = [0; 8];
        let received = rustix::io::retry_on_intr(|| {
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&*self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
        })
        .map_err(system)?;
        let lent = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds.collect()),
            _ => None,
        });
        // The soft limit counts in this table too.
        if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
            return Err(system(Errno::MFILE));
        }
        Ok(lent.unwrap_or_default())
    }
}

/// A datagram socket with a name that the kernel chose.
fn named_socket() -> Result<(OwnedFd, SocketAddrUnix)> {
    let socket = datagram_socket()?;
    let name = name(&socket)?;
    Ok((socket, name))
}

/// The same, connected first: from then on the kernel refuses messages from any other socket.
fn named_socket_to(peer: &SocketAddrUnix) -> Result<(OwnedFd, SocketAddrUnix)> {
    let socket = datagram_socket()?;
    rustix::net::connect(&socket, peer).map_err(|errno| Error::system("connect", errno))?;
    let name = name(&socket)?;
    Ok((socket, name))
}

fn datagram_socket() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("socket", errno))
}

fn name(socket: &OwnedFd) -> Result<SocketAddrUnix> {
    rustix::net::bind(socket, &SocketAddrUnix::new_unnamed())
        .map_err(|errno| Error::system("bind", errno))?;
    let name =
        rustix::net::getsockname(socket).map_err(|errno| Error::system("getsockname", errno))?;
    SocketAddrUnix::try_from(name).map_err(|errno| Error::system("getsockname", errno))
}
