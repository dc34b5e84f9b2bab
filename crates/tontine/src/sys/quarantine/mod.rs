//! Work on a short-lived thread that has its own descriptor table: [`run`], [`close`].
//!
//! A descriptor that a peer chose must not enter the process's table. When an entry is removed from
//! a table, the kernel drops every POSIX record lock that the table's owner holds on that file, and
//! asks the file system to flush it; a FUSE server may never answer. A thread with a separate table
//! is a separate owner: no lock of the process is dropped, and only the thread waits.
//!
//! - The thread starts by making its own table (`close_range` with `CLOSE_RANGE_UNSHARE`). It
//!   shares memory with the process, so every thread can use the memory that it maps.
//! - The kernel copies at least the first 64 entries of the table. The thread cannot close the
//!   copies immediately, since that would flush the program's own files. They are closed after the
//!   work, before the thread ends and closes the descriptors of peers: until then, what the program
//!   closes (a file, a lock, a port) stays in use. Copies of this library's listeners are closed at
//!   once, so that an address is free when its mailbox is closed ([`make_listener`]).
//! - The thread borrows the process's own sockets over a datagram socket that accepts messages only
//!   from this process's [`Loan`].
//! - The thread closes no descriptor of a peer itself: its table is closed when it ends. The kernel
//!   then lets no socket linger, and a FUSE file blocks only the thread. Because the table is
//!   separate, a process that is killed in the meantime still releases its record locks at once.
//!
//! Neighbours: [`super::socket`] receives descriptors and closes connections through this module.
//! Limits: the caller waits for the thread's report, so `work` must not wait for a peer.

#![allow(unsafe_code, reason = "a signal to a thread")]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix};
use rustix::thread::Pid;

use self::table::{LentTable, named_socket};
use super::fork::PerProcess;
use super::thread;
use crate::error::{Error, Result};

mod table;

/// Number of threads blocked by one user's files at which that user's connections start to wait.
const MAX_HELD_BY_USER: usize = 8;

/// Number of threads blocked by all users' files at which all new connections start to wait.
const MAX_HELD: usize = 64;

/// Maximum number of threads that close connections, in addition to the threads that receive. The
/// limit is separate so that unreceived messages are closed in bounded time even while files that
/// never answer block all receiving threads.
const MAX_CLOSERS: usize = 4;

/// Maximum number of descriptors waiting to be closed; above it, no connection is accepted.
const MAX_UNCLOSED: usize = 256;

/// Maximum number of descriptors lent to one thread.
const MAX_LENT: usize = 64;

/// Maximum wait for threads to end. A thread with only honest descriptors ends within a few
/// microseconds.
const END_TIMEOUT: Duration = Duration::from_millis(20);

static QUARANTINE: PerProcess<Mutex<Quarantine>> = PerProcess::new(Mutex::default);

/// The threads of this process, and the descriptors that wait for a thread.
#[derive(Debug, Default)]
struct Quarantine {
    loan: Option<Loan>,
    /// Threads whose tables are not closed yet.
    closing: Vec<Closing>,
    /// Descriptors of this process that wait for a thread to close them.
    waiting: Vec<OwnedFd>,
    /// The numbers of this process's listeners.
    listeners: Vec<RawFd>,
}

/// Makes the socket that this process needs for all threads, so that a later close cannot fail for
/// lack of a descriptor. Also closes the descriptors that wait.
///
/// # Errors
/// [`Error::System`] if the socket cannot be made.
pub(crate) fn prepare() -> Result<()> {
    close_waiting();
    loan_name().map(drop)
}

/// A thread's work with the descriptors that it borrows.
type Work<T> = Box<dyn FnOnce(&[BorrowedFd<'_>]) -> T + Send>;

/// State that the caller and its thread share. It is a single allocation, because a process that
/// has touched less memory ends sooner.
struct Exchange<T> {
    stage: Mutex<ThreadStage<T>>,
    changed: Condvar,
}

enum ThreadStage<T> {
    /// The thread creates its table.
    Starting,
    /// The thread waits for descriptors at this address.
    Ready(SocketAddrUnix, Pid),
    /// The thread could not make a table, and ends.
    Failed(Error),
    /// The thread has its descriptors and runs the work.
    Lent(Option<Work<T>>),
    /// The thread waits for the caller's [`ThreadHandle`] to be dropped.
    Done(Option<T>),
    /// The thread ends.
    Released,
}

/// Keeps a thread and its table alive. When it is dropped, the thread ends and closes the table.
pub(crate) struct ThreadHandle<T>(Arc<Exchange<T>>);

impl<T> Drop for ThreadHandle<T> {
    fn drop(&mut self) {
        self.0.enter(ThreadStage::Released);
    }
}

/// A thread that has started and may not have ended yet.
#[derive(Debug)]
struct Closing {
    thread: Pid,
    /// The user whose descriptors the thread receives, if it receives any.
    user: Option<u32>,
    since: Instant,
}

/// Runs `work` on a new thread with copies of `lent` and no other descriptor, and returns its
/// result. Blocks until `work` returns. If `work` receives descriptors from a peer, `user` is the
/// peer's user. The thread closes its table once the [`ThreadHandle`] is dropped; no caller waits
/// for that.
///
/// `work` must not drop a descriptor: it sends the descriptors that the caller needs over a
/// borrowed socket, and forgets the others.
///
/// # Errors
/// [`Error::System`] if the kernel refuses a thread, a socket or the table.
pub(crate) fn run<T: Send + 'static>(
    lent: &[BorrowedFd<'_>],
    user: Option<u32>,
    work: impl FnOnce(&[BorrowedFd<'_>]) -> T + Send + 'static,
) -> Result<(T, ThreadHandle<T>)> {
    let hold = start(user, lent).or_else(|error| {
        if error.is_shortage() {
            return Err(error);
        }
        // The program may have closed the loan socket, or left its network namespace.
        renew_loan()?;
        start(user, lent).map_err(|_| error)
    })?;
    hold.0.enter(ThreadStage::Lent(Some(Box::new(work))));
    let done = hold.0.when(|stage| match stage {
        ThreadStage::Done(done) => Some(done.take()),
        _ => None,
    });
    Ok((done.ok_or_else(lost)?, hold))
}

/// Starts a thread and lends it these descriptors. The thread waits for its work, or for the
/// [`ThreadHandle`] to be dropped.
fn start<T: Send + 'static>(user: Option<u32>, lent: &[BorrowedFd<'_>]) -> Result<ThreadHandle<T>> {
    let name = loan_name()?;
    let exchange = Exchange { stage: Mutex::new(ThreadStage::Starting), changed: Condvar::new() };
    let hold = ThreadHandle(Arc::new(exchange));
    let thread = Serving(Arc::clone(&hold.0));
    thread::start(c"tontine-fds", move || thread.serve(&name))?;
    let (address, thread) = hold.0.when(|stage| match stage {
        ThreadStage::Ready(address, thread) => Some(Ok((address.clone(), *thread))),
        ThreadStage::Failed(error) => Some(Err(error.clone())),
        ThreadStage::Done(_) => Some(Err(lost())),
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
    fn lock(&self) -> MutexGuard<'_, ThreadStage<T>> {
        // No caller panics while it holds the lock.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, stage: ThreadStage<T>) {
        *self.lock() = stage;
        self.changed.notify_one();
    }

    /// Blocks until `found` returns a value for the current stage, and returns that value.
    fn when<R>(&self, mut found: impl FnMut(&mut ThreadStage<T>) -> Option<R>) -> R {
        let mut stage = self.lock();
        loop {
            if let Some(found) = found(&mut stage) {
                return found;
            }
            stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread's end of an exchange. If a panic drops this value before the work is done, the caller
/// receives no result.
struct Serving<T>(Arc<Exchange<T>>);

impl<T> Drop for Serving<T> {
    fn drop(&mut self) {
        let mut stage = self.0.lock();
        if matches!(*stage, ThreadStage::Starting | ThreadStage::Ready(..) | ThreadStage::Lent(_)) {
            *stage = ThreadStage::Done(None);
            self.0.changed.notify_one();
        }
    }
}

impl<T> Serving<T> {
    fn serve(&self, name: &SocketAddrUnix) {
        let table = match LentTable::new(name) {
            Ok(table) => table,
            Err(error) => return self.0.enter(ThreadStage::Failed(error)),
        };
        let (address, thread) = table.address();
        self.0.enter(ThreadStage::Ready(address, thread));
        // The caller lends the descriptors before it passes the work.
        let work = self.0.when(|stage| match stage {
            ThreadStage::Lent(work) => Some(work.take()),
            ThreadStage::Released => Some(None),
            _ => None,
        });
        if let (Some(work), Ok(lent)) = (work, table.borrow()) {
            // The descriptors are not dropped: they are closed when the thread ends.
            let lent = ManuallyDrop::new(lent);
            let copies: Vec<BorrowedFd<'_>> = lent.iter().map(AsFd::as_fd).collect();
            let done = work(&copies);
            self.0.enter(ThreadStage::Done(Some(done)));
            self.0.when(|stage| matches!(stage, ThreadStage::Released).then_some(()));
        }
        table.close_copies();
    }
}

/// Makes a listener. No thread keeps a copy of it once [`close_listener`] has closed it.
///
/// # Errors
/// The error of `make`, or [`Error::System`] without memory.
pub(crate) fn make_listener(make: impl FnOnce() -> Result<OwnedFd>) -> Result<OwnedFd> {
    let mut quarantine = quarantine()?;
    let listener = make()?;
    quarantine.listeners.push(listener.as_raw_fd());
    Ok(listener)
}

/// Closes a listener: immediately if it `is_empty`, otherwise on a new thread, because connections
/// are left in its queue.
pub(crate) fn close_listener(listener: OwnedFd, is_empty: bool) {
    // A thread that has copied the listener has closed its copy before it released this lock.
    let Ok(mut quarantine) = quarantine() else { return };
    quarantine.listeners.retain(|&number| number != listener.as_raw_fd());
    if is_empty {
        return drop(listener);
    }
    drop(quarantine);
    close([listener]);
}

/// Closes descriptors of this process on a new thread, which is their last holder. Does not wait
/// for the thread.
///
/// If the kernel refuses a thread, or too many threads run, the descriptors stay open until the
/// next call or the next connection.
pub(crate) fn close(fds: impl IntoIterator<Item = OwnedFd>) {
    if let Ok(mut quarantine) = quarantine() {
        quarantine.waiting.extend(fds);
    }
    close_waiting();
}

/// Starts threads for the descriptors that wait to be closed. Returns the number of descriptors
/// that still wait.
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
                // The values are dropped in this order, so that the thread is the last holder.
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

/// Returns `true` while too many descriptors wait to be closed, so that no connection may be
/// accepted. Waits at most [`END_TIMEOUT`] for threads that are ending.
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

/// Returns `true` if files that peers passed block all threads that receive from this user. Waits
/// at most [`END_TIMEOUT`] for threads that are ending.
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
        // Only recently started threads can still be ending; older ones are blocked.
        let is_young = |one: &Closing| one.user.is_some() && one.since.elapsed() < END_TIMEOUT;
        if Instant::now() >= deadline || !quarantine.closing.iter().any(is_young) {
            return true;
        }
        drop(quarantine);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn quarantine() -> Result<MutexGuard<'static, Quarantine>> {
    // A panic while the lock is held leaves correct lists.
    Ok(QUARANTINE.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Quarantine {
    /// Forgets threads that have closed their tables.
    fn forget_ended(&mut self) {
        self.closing.retain(|one| exists(one.thread));
    }
}

/// Returns `true` while a thread of this process has this id. The kernel frees a thread's id only
/// after it has closed the thread's table.
fn exists(thread: Pid) -> bool {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: signal 0 is not sent; the call only checks that the thread exists.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread.as_raw_nonzero().get(), 0) == 0 }
}

/// Returns the address of this process's loan socket; the first call makes the socket.
fn loan_name() -> Result<SocketAddrUnix> {
    let mut quarantine = quarantine()?;
    if quarantine.loan.is_none() {
        quarantine.loan = Some(Loan::new()?);
    }
    let loan = quarantine.loan.as_ref().map(|loan| loan.name.clone());
    loan.ok_or(Error::system("socket", Errno::NOTSOCK))
}

/// Replaces the loan socket with one whose name is in the calling thread's network namespace.
fn renew_loan() -> Result<()> {
    let mut quarantine = quarantine()?;
    if let Some(loan) = quarantine.loan.replace(Loan::new()?) {
        let is_ours = rustix::net::getsockname(&loan.socket)
            .is_ok_and(|name| SocketAddrUnix::try_from(name) == Ok(loan.name.clone()));
        if !is_ours {
            // The program has closed the socket; its number may now belong to another file.
            std::mem::forget(loan.socket);
        }
    }
    Ok(())
}

/// The process's end of a loan: a datagram socket that lends descriptors and receives nothing.
#[derive(Debug)]
struct Loan {
    socket: OwnedFd,
    name: SocketAddrUnix,
}

impl Loan {
    fn new() -> Result<Self> {
        let (socket, name) = named_socket()?;
        // Otherwise any process could send to the name.
        rustix::net::shutdown(&socket, Shutdown::Read)
            .map_err(|errno| Error::system("shutdown", errno))?;
        Ok(Self { socket, name })
    }

    fn lend(&self, to: &SocketAddrUnix, lent: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LENT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(lent.len() <= MAX_LENT, "{} descriptors to lend", lent.len());
        if !lent.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(lent));
            debug_assert!(fits, "space for the maximum");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::in_child;

    fn answers(number: u32) -> bool {
        run(&[], None, move |lent| (lent.len(), number)).is_ok_and(|(got, _)| got == (0, number))
    }

    /// Regression: after a program had closed all descriptors (`closefrom`), it could make no
    /// connection: threads borrow descriptors over the loan socket, which it had closed as well.
    #[test]
    fn closed_quarantine_socket_is_replaced() {
        assert!(in_child(|| {
            let before = answers(1);
            let Some(closed) = quarantine()
                .ok()
                .and_then(|quarantine| Some(quarantine.loan.as_ref()?.socket.as_raw_fd()))
            else {
                return false;
            };
            // SAFETY: the library must tolerate that a program closes a descriptor that it does not
            // own.
            unsafe { libc::close(closed) };
            before && answers(2) && answers(3)
        }));
    }

    /// Regression: the loan socket's name belongs to a network namespace, and a thread in another
    /// namespace could not find it.
    #[test]
    fn thread_in_other_network_namespace_gets_new_socket() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root can make a network namespace");
        }
        assert!(in_child(|| {
            let before = answers(1);
            // SAFETY: the call takes an integer.
            let left = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            before && left && answers(2) && answers(3)
        }));
    }

    /// Regression: the kernel chose the names, from 2^20 that any user could take. A handshake
    /// waited for up to 6 s while the kernel tried them.
    #[test]
    fn names_are_random_and_not_automatic() {
        let names = [named_socket(), named_socket()].map(|named| named.expect("a socket").1);
        for name in &names {
            assert_eq!(name.abstract_name().expect("an abstract name").len(), 16);
        }
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn panic_in_work_returns_error() {
        assert!(in_child(|| {
            let lost = run(&[], None, |_| panic!("as planned")).map(|((), _)| ());
            lost.is_err_and(|error| error.errno() == libc::EAGAIN) && answers(1)
        }));
    }

    #[test]
    fn quarantine_thread_ends_only_when_handle_drops() {
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
            for _ in 0..60_000 {
                if closing() == 0 {
                    return held;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        }));
    }
}
