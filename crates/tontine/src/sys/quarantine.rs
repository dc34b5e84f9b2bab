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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::sockopt;
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

/// Maximum number of descriptors that wait to be closed, before no more connections are accepted.
const MAX_UNCLOSED: usize = 256;

/// Maximum number of descriptors that one thread is lent.
const MAX_LENT: usize = 64;

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
/// it. Also closes what still waits.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn prepare() -> Result<()> {
    close_waiting();
    loan_name().map(drop)
}

/// A thread's work with the descriptors that it is lent.
type Work<T> = Box<dyn FnOnce(&[BorrowedFd<'_>]) -> T + Send>;

/// State that the caller and its thread share. It is one allocation, because a process that has
/// touched less memory ends sooner.
struct Exchange<T> {
    stage: Mutex<Stage<T>>,
    changed: Condvar,
}

enum Stage<T> {
    /// The thread creates its table.
    Starting,
    /// The thread waits for descriptors, which are lent to this address.
    Ready(SocketAddrUnix, Pid),
    /// The thread ends without a table.
    Failed(Error),
    /// The thread has its descriptors and runs the work.
    Lent(Option<Work<T>>),
    /// The thread waits for the caller's [`Hold`] to be dropped.
    Done(Option<T>),
    /// The thread ends.
    Released,
}

/// Keeps a thread and its table alive. When it is dropped, the thread ends and closes the table.
pub(crate) struct Hold<T>(Arc<Exchange<T>>);

impl<T> Drop for Hold<T> {
    fn drop(&mut self) {
        self.0.enter(Stage::Released);
    }
}

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
) -> Result<(T, Hold<T>)> {
    let hold = start(user, lent).or_else(|error| {
        if error.is_shortage() {
            return Err(error);
        }
        // The program may have closed the loan's socket, or left its network namespace.
        renew_loan()?;
        start(user, lent).map_err(|_| error)
    })?;
    hold.0.enter(Stage::Lent(Some(Box::new(work))));
    let done = hold.0.when(|stage| match stage {
        Stage::Done(done) => Some(done.take()),
        _ => None,
    });
    Ok((done.ok_or_else(lost)?, hold))
}

/// Starts a thread and lends it these descriptors. The thread waits for its work, or for the
/// [`Hold`] to be dropped.
fn start<T: Send + 'static>(user: Option<u32>, lent: &[BorrowedFd<'_>]) -> Result<Hold<T>> {
    let name = loan_name()?;
    let exchange = Exchange { stage: Mutex::new(Stage::Starting), changed: Condvar::new() };
    let hold = Hold(Arc::new(exchange));
    let thread = Serving(Arc::clone(&hold.0));
    thread::start("tontine-fds", move || thread.serve(&name))?;
    let (address, thread) = hold.0.when(|stage| match stage {
        Stage::Ready(address, thread) => Some(Ok((address.clone(), *thread))),
        Stage::Failed(error) => Some(Err(error.clone())),
        Stage::Done(_) => Some(Err(lost())),
        _ => None,
    })?;
    let mut quarantine = quarantine()?;
    quarantine.closing.push(Closing { thread, user, since: Instant::now() });
    quarantine.loan.as_ref().ok_or_else(lost)?.lend(&address, lent)?;
    Ok(hold)
}

/// Returns the error for a thread that ended without a result.
fn lost() -> Error {
    Error::system("a thread with its own descriptors", Errno::AGAIN)
}

impl<T> Exchange<T> {
    fn lock(&self) -> MutexGuard<'_, Stage<T>> {
        // No caller panics while it holds the lock.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, stage: Stage<T>) {
        *self.lock() = stage;
        self.changed.notify_one();
    }

    /// Blocks until `found` returns a value for the current stage, and returns that value.
    fn when<R>(&self, mut found: impl FnMut(&mut Stage<T>) -> Option<R>) -> R {
        let mut stage = self.lock();
        loop {
            if let Some(found) = found(&mut stage) {
                return found;
            }
            stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread's end of an exchange. If a panic drops it before the work is done, it tells the
/// caller that there will be no result.
struct Serving<T>(Arc<Exchange<T>>);

impl<T> Drop for Serving<T> {
    fn drop(&mut self) {
        let mut stage = self.0.lock();
        if matches!(*stage, Stage::Starting | Stage::Ready(..) | Stage::Lent(_)) {
            *stage = Stage::Done(None);
            self.0.changed.notify_one();
        }
    }
}

impl<T> Serving<T> {
    fn serve(&self, name: &SocketAddrUnix) {
        let table = match Table::new(name) {
            Ok(table) => table,
            Err(error) => return self.0.enter(Stage::Failed(error)),
        };
        let (address, thread) = table.address();
        self.0.enter(Stage::Ready(address, thread));
        // The descriptors were lent before the work arrives.
        let work = self.0.when(|stage| match stage {
            Stage::Lent(work) => Some(work.take()),
            Stage::Released => Some(None),
            _ => None,
        });
        if let (Some(work), Ok(lent)) = (work, table.borrow()) {
            // The thread's end closes them.
            let lent = ManuallyDrop::new(lent);
            let copies: Vec<BorrowedFd<'_>> = lent.iter().map(AsFd::as_fd).collect();
            let done = work(&copies);
            self.0.enter(Stage::Done(Some(done)));
            self.0.when(|stage| matches!(stage, Stage::Released).then_some(()));
        }
    }
}

/// Closes descriptors of ours as their last holder, on a thread of its own. Does not wait for it.
///
/// If the system refuses a thread, or too many are at work, they stay open until the next call
/// or the next connection.
pub(crate) fn close(fds: impl IntoIterator<Item = OwnedFd>) {
    if let Ok(mut quarantine) = quarantine() {
        quarantine.waiting.extend(fds);
    }
    close_waiting();
}

/// Starts threads for the descriptors that wait to be closed. Returns how many still wait.
fn close_waiting() -> usize {
    loop {
        let Ok(mut quarantine) = quarantine() else { return 0 };
        quarantine.forget_ended();
        let closers = quarantine.closing.iter().filter(|one| one.user.is_none()).count();
        if quarantine.waiting.is_empty() || closers >= MAX_CLOSERS {
            return quarantine.waiting.len();
        }
        let count = quarantine.waiting.len().min(MAX_LENT);
        let batch: Vec<OwnedFd> = quarantine.waiting.drain(..count).collect();
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

/// Returns `true` if more descriptors wait to be closed than a connection should add to. Waits for
/// threads that only end, [`END_TIMEOUT`] at most.
pub(crate) fn is_behind() -> bool {
    let deadline = Instant::now() + END_TIMEOUT;
    while close_waiting() > MAX_UNCLOSED {
        if Instant::now() >= deadline {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Returns `true` if files that peers passed hold all threads that receive from this user. Waits
/// for threads that only end, [`END_TIMEOUT`] at most.
pub(crate) fn is_full(user: u32) -> bool {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let Ok(mut quarantine) = quarantine() else { return false };
        quarantine.forget_ended();
        let users = || quarantine.closing.iter().filter_map(|one| one.user);
        let of_user = users().filter(|&other| other == user).count();
        if users().count() < MAX_HELD && of_user < MAX_HELD_BY_USER {
            return false;
        }
        // Threads that are held were started before now: the wait is for the others.
        let is_young = |one: &Closing| one.user.is_some() && one.since.elapsed() < END_TIMEOUT;
        if Instant::now() >= deadline || !quarantine.closing.iter().any(is_young) {
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
    /// Forgets threads that have closed their tables.
    fn forget_ended(&mut self) {
        self.closing.retain(|one| exists(one.thread));
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

/// Makes another loan socket, with a name in the calling thread's network namespace.
fn renew_loan() -> Result<()> {
    let mut quarantine = quarantine()?;
    if let Some(loan) = quarantine.loan.replace(Loan::new()?) {
        let is_ours = rustix::net::getsockname(&loan.socket)
            .is_ok_and(|name| SocketAddrUnix::try_from(name) == Ok(loan.name.clone()));
        if !is_ours {
            // The program has closed it, and the number may be another descriptor's by now.
            std::mem::forget(loan.socket);
        }
    }
    Ok(())
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
const MIN_ROOM: u64 = MAX_LENT as u64 + 4;

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

    /// Receives what the process has lent.
    fn borrow(&self) -> Result<Vec<OwnedFd>> {
        let system = |errno| Error::system("recvmsg", errno);
        let mut room =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(MAX_LENT))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut bytes = [0; 8];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::io::retry_on_intr(|| {
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&*self.socket, parts, &mut control, flags)
        })
        .map_err(system)?;
        let (mut lent, mut is_ours) = (ManuallyDrop::new(Vec::new()), false);
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(fds) => lent.extend(fds),
                RecvAncillaryMessage::ScmCredentials(from) => {
                    is_ours = from.pid == rustix::process::getpid();
                }
                _ => {}
            }
        }
        // In another network namespace the name may be another process's.
        if !is_ours {
            return Err(system(Errno::PERM));
        }
        // The soft limit counts in this table too.
        if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
            return Err(system(Errno::MFILE));
        }
        Ok(ManuallyDrop::into_inner(lent))
    }
}

/// A datagram socket with a name that the kernel chose.
fn named_socket() -> Result<(OwnedFd, SocketAddrUnix)> {
    let socket = datagram_socket()?;
    let name = name(&socket)?;
    Ok((socket, name))
}

/// Like [`named_socket`], but connected first: from then on the kernel refuses messages from any
/// other socket.
fn named_socket_to(peer: &SocketAddrUnix) -> Result<(OwnedFd, SocketAddrUnix)> {
    let socket = datagram_socket()?;
    // Before it has a name: each message then says who sent it.
    sockopt::set_socket_passcred(&socket, true)
        .map_err(|errno| Error::system("setsockopt(SO_PASSCRED)", errno))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::in_child;

    fn answers(number: u32) -> bool {
        run(&[], None, move |lent| (lent.len(), number)).is_ok_and(|(got, _)| got == (0, number))
    }

    /// A program that closed all descriptors (`closefrom`) could make no connection any more: each
    /// thread was lent its descriptors over a socket that was gone.
    #[test]
    fn closed_loan_socket_is_replaced() {
        assert!(in_child(|| {
            let before = answers(1);
            let Some(closed) = quarantine()
                .ok()
                .and_then(|quarantine| Some(quarantine.loan.as_ref()?.socket.as_raw_fd()))
            else {
                return false;
            };
            // SAFETY: as a program does that does not know whose it is.
            unsafe { libc::close(closed) };
            before && answers(2) && answers(3)
        }));
    }

    /// The loan's name is one of a network namespace, and a thread in another found none.
    #[test]
    fn other_network_namespace_gets_another_loan() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root can make a network namespace");
        }
        assert!(in_child(|| {
            let before = answers(1);
            // SAFETY: a number.
            let left = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            before && left && answers(2) && answers(3)
        }));
    }

    #[test]
    fn panic_in_work_is_an_error() {
        assert!(in_child(|| {
            let lost = run(&[], None, |_| panic!("as planned")).map(|((), _)| ());
            lost.is_err_and(|error| error.errno() == libc::EAGAIN) && answers(1)
        }));
    }

    #[test]
    fn thread_ends_with_its_hold_and_not_before() {
        assert!(in_child(|| {
            let Ok(((), hold)) = run(&[], Some(7), |_| ()) else { return false };
            let closing = || {
                quarantine().map_or(0, |mut quarantine| {
                    quarantine.forget_ended();
                    quarantine.closing.len()
                })
            };
            let held = closing() == 1;
            drop(hold);
            for _ in 0..2_000 {
                if closing() == 0 {
                    return held;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            false
        }));
    }
}
