//! Exclusive ownership of a path, with proof that the last owner has ended: [`PathLock`].
//!
//! A [`PathLock`] is a POSIX record lock (`F_SETLK`) on the first byte of `PATH.lock`. Unlike a
//! liveness word it can be taken over, and the kernel releases it only when the whole process that
//! held it has ended or called `exec`. A forked child does not inherit it. It works across PID
//! namespaces. If two processes request it, one acquires it, and the other receives the holder's
//! pid.
//!
//! Closing *any* descriptor of a file drops the process's record locks on it. So a process opens
//! each lock file once, never duplicates the descriptor, and checks a registry before it opens one;
//! a forked child does not close its parent's descriptors. If other code of the process opened and
//! closed the lock file, the lock would be dropped; only a second copy of this crate, with its own
//! registry, has a reason to do so. The listener cannot replace the lock as proof: after an `exec`,
//! a worker's copy of the listener still names this process.
//!
//! For the same reason, closing the lock file would drop record locks that the program itself holds
//! on that file. A lock file is therefore an empty regular file with one name. Any other file is
//! refused before it is opened: a user who may write to the folder could have linked a database
//! there.
//!
//! A clean end removes the file while it is locked. A process that had opened the file before, and
//! locks it afterwards, compares the name with the file, and begins again: otherwise two processes
//! could hold locks on two files with the same name. So a lock file that exists and is free was
//! left by a process that died. Neighbours: `mailbox::receiver::bound_path` acquires the lock of an
//! address before it changes the socket file. This module does not block, and does not access the
//! file at `PATH` itself.

#![allow(unsafe_code, reason = "fcntl with record locks")]

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sys::fork::{Guard, PerProcess};

/// Mode of a new lock file: only its owner may lock it.
const MODE: u32 = 0o600;

/// Maximum number of attempts to acquire a lock. An attempt is repeated if the holder ends before
/// its pid is queried, or if the file is removed meanwhile.
const ATTEMPTS: usize = 8;

/// The files that this process has locked; empty in a forked child.
static LOCKED: PerProcess<Mutex<Vec<FileId>>> = PerProcess::new(Mutex::default);

/// Exclusive ownership of a path among processes, until the value is dropped or its process ends.
///
/// The lock is on a file next to the path, `PATH.lock`, which is removed when the value is dropped,
/// and remains if its process dies. A forked child does not inherit the lock: dropping the child's
/// copy releases nothing.
///
/// # Examples
/// ```
/// use tontine::Error;
/// use tontine::life::PathLock;
///
/// # let path = std::env::temp_dir().join(format!("tontine-path-lock-{}", std::process::id()));
/// let lock = PathLock::acquire(&path)?;
/// let rival = PathLock::acquire(&path).expect_err("one owner at a time");
/// assert!(matches!(rival, Error::AddrInUse { holder: Some(_), .. }), "by this process");
/// drop(lock);
/// PathLock::acquire(&path)?;
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug)]
pub struct PathLock {
    /// Closed only by `PathLock::drop`, which leaves the file open in a forked child.
    file: ManuallyDrop<File>,
    lock_path: PathBuf,
    /// `true` if the file existed.
    is_inherited: bool,
    /// `true` if the file stays when this value is dropped.
    is_kept: bool,
    id: FileId,
    guard: Guard,
}

/// Identity of a file, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: (u32, u32),
    inode: u64,
}

impl FileId {
    fn of(found: &Statx) -> Self {
        Self { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino }
    }
}

impl PathLock {
    /// Acquires ownership of `path` by locking the file `path` with `.lock` appended, which is
    /// created if it does not exist. Never blocks. Success proves that the last owner has ended.
    ///
    /// # Errors
    /// - [`Error::AddrInUse`] with the holder's pid if a live process (or this one) owns the path.
    /// - [`Error::InvalidAddress`] if the lock file is not an empty regular file with one name, or
    ///   belongs to a user who is neither this process's nor root.
    /// - [`Error::SystemAt`] if the file cannot be opened or locked.
    /// - [`Error::System`] if there is no memory for the process's registry of locks.
    pub fn acquire(path: &Path) -> Result<Self> {
        let in_use = |holder| Error::AddrInUse { address: path.display().to_string(), holder };
        for _ in 0..ATTEMPTS {
            let Some(lock) = Self::acquire_file(lock_path(path), in_use)? else { continue };
            // The last owner may have removed the file since this process opened it. Then the name
            // leads to another file, or to none, and the lock excludes no process.
            let named = lock.is_named();
            if named.map_err(|errno| Error::system("statx", errno).at(lock.lock_path.display()))? {
                return Ok(lock);
            }
        }
        Err(in_use(None))
    }

    /// Locks the file that the name leads to now. Returns `None` if other processes make and remove
    /// the file too often.
    fn acquire_file(
        lock_path: PathBuf,
        in_use: impl Fn(Option<u32>) -> Error,
    ) -> Result<Option<Self>> {
        let guard = Guard::here()?;
        let at = |error: Error| error.at(lock_path.display());
        // The first call precedes the lock of the registry, so a silent file system blocks only
        // this call. The second sees a file that another thread has made meanwhile.
        find(&lock_path)?;
        let mut locked = locked()?;
        // The check precedes opening the file, because closing a second descriptor would drop this
        // process's lock.
        if find(&lock_path)?.is_some_and(|id| locked.contains(&id)) {
            return Err(in_use(Some(std::process::id())));
        }
        let Some((file, is_new)) = open(&lock_path).map_err(at)? else { return Ok(None) };
        let id = match identify(&file, &lock_path) {
            Ok(id) if !locked.contains(&id) => id,
            refused => {
                // Between the two checks, the name was given to another file. Its descriptor stays
                // open, because closing it could drop a lock of this process.
                std::mem::forget(file);
                refused?;
                return Err(in_use(Some(std::process::id())));
            }
        };
        for _ in 0..ATTEMPTS {
            if try_lock(&file).map_err(at)? {
                locked.push(id);
                let file = ManuallyDrop::new(file);
                drop(locked);
                let is_inherited = !is_new;
                return Ok(Some(Self { file, lock_path, is_inherited, is_kept: false, id, guard }));
            }
            if let LockHolder::Live(pid) = holder(&file).map_err(at)? {
                return Err(in_use(pid));
            }
        }
        Err(in_use(None))
    }

    /// Returns `true` if the name of the lock file leads to the locked file, `false` if it leads to
    /// another file or to none.
    ///
    /// # Errors
    /// The error of `statx`, if it does not tell.
    pub(crate) fn is_named(&self) -> Result<bool, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        match rustix::fs::statx(CWD, &self.lock_path, flags, StatxFlags::BASIC_STATS) {
            Ok(found) => Ok(FileId::of(&found) == self.id),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Returns `true` if the lock file existed before: its last owner has died.
    pub(crate) fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// Releases the lock, and leaves the file of an owner that died: it still marks that death.
    pub(crate) fn give_up(mut self) {
        self.is_kept = self.is_inherited;
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // In a forked child, the lock belongs to the parent. If the child has acquired its own lock
        // on the file, closing this descriptor would drop that lock.
        if self.guard.is_forked() {
            return;
        }
        // The lock is held until the file is closed: a process that opens the file before it is
        // removed, and locks it afterwards, finds that the name has changed.
        if !self.is_kept && self.is_named() == Ok(true) {
            let _ = std::fs::remove_file(&self.lock_path);
        }
        // `locked` cannot fail: without a registry, no thread of this process could have acquired
        // the lock.
        let Ok(mut locked) = locked() else { return };
        locked.retain(|id| *id != self.id);
        // SAFETY: the file is dropped once, here, and not used afterwards. The registry is locked,
        // so that no thread opens the file before it is closed.
        unsafe { ManuallyDrop::drop(&mut self.file) };
    }
}

/// The result of `F_GETLK`.
enum LockHolder {
    /// A live process, whose pid is known if this process's PID namespace shows it.
    Live(Option<u32>),
    /// The holder has ended since the attempt.
    Ended,
}

/// Returns `PATH.lock`.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".lock");
    name.into()
}

fn locked() -> Result<MutexGuard<'static, Vec<FileId>>> {
    // A panic while the lock is held leaves a correct list.
    Ok(LOCKED.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Identifies the lock file, if there is one, through an `O_PATH` descriptor. Closing such a
/// descriptor drops no lock; opening it starts no device and waits for no FIFO.
///
/// # Errors
/// The errors of [`identify`], and [`Error::SystemAt`] if the file cannot be opened.
fn find(path: &Path) -> Result<Option<FileId>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(named) => identify(named, path).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::system("open of the lock file", errno).at(path.display())),
    }
}

/// Identifies a lock file: an empty regular file with one name, of this process's user or of root.
/// Closing a descriptor of any other file could drop record locks of this process, and another user
/// could remove the file while it is locked.
///
/// # Errors
/// [`Error::InvalidAddress`] for a file of another kind, [`Error::SystemAt`] if `statx` fails.
fn identify(file: impl AsFd, path: &Path) -> Result<FileId> {
    // The kernel answers from its cache, without a request to the file system.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, c"", flags, StatxFlags::BASIC_STATS)
        .map_err(|errno| Error::system("statx", errno).at(path.display()))?;
    let own = rustix::process::geteuid().as_raw();
    let reason = match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::Symlink => {
            return Err(Error::system("open of the lock file", Errno::LOOP).at(path.display()));
        }
        FileType::RegularFile if found.stx_nlink > 1 => {
            "expected a lock file with one name, found one with several; \
             remove this name or choose another path"
        }
        FileType::RegularFile if found.stx_size > 0 => {
            "expected an empty lock file, found one with content; \
             move it away or choose another path"
        }
        FileType::RegularFile if ![own, 0].contains(&found.stx_uid) => {
            "expected a lock file of this user or of root, found another user's; \
             remove it or choose another path"
        }
        FileType::RegularFile => {
            return Ok(FileId::of(&found));
        }
        _ => {
            "expected a regular file as its lock file, found another kind; \
             remove it or choose another path"
        }
    };
    Err(Error::InvalidAddress { address: path.display().to_string(), reason })
}

/// Opens a lock file, or creates it, close-on-exec like every file that the standard library opens.
/// Follows no symbolic link and does not wait for the other end of a FIFO. Returns `true` with a
/// new file, and `None` if other processes make and remove the file too often.
fn open(path: &Path) -> Result<Option<(File, bool)>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(MODE);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let named = |error: io::Error| Error::io("open of the lock file", &error);
    for _ in 0..ATTEMPTS {
        match options.clone().create_new(true).open(path) {
            Ok(new) => return allow_owner(new, path).map(|new| Some((new, true))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(named(error)),
        }
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened.map(|found| Some((found, false))).map_err(named),
        }
    }
    Ok(None)
}

/// Gives a new lock file the permissions that its next owner needs, if the umask has removed them.
fn allow_owner(new: File, path: &Path) -> Result<File> {
    let mode = new.metadata().map_err(|error| Error::io("fstat of the lock file", &error))?.mode();
    if mode & 0o777 == MODE {
        return Ok(new);
    }
    match rustix::fs::fchmod(&new, Mode::from_raw_mode(MODE)) {
        Ok(()) => Ok(new),
        Err(errno) => {
            let _ = std::fs::remove_file(path);
            Err(Error::system("fchmod of the lock file", errno))
        }
    }
}

/// Returns `true` if this process holds the lock now.
fn try_lock(file: &File) -> Result<bool> {
    let mut lock = first_byte();
    match record_lock(file, libc::F_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(Error::system("fcntl(F_SETLK)", errno)),
    }
}

fn holder(file: &File) -> Result<LockHolder> {
    let mut lock = first_byte();
    record_lock(file, libc::F_GETLK, &mut lock)
        .map_err(|errno| Error::system("fcntl(F_GETLK)", errno))?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(LockHolder::Ended);
    }
    // The pid is 0 if the holder is in another PID namespace, and -1 if the lock belongs to a
    // descriptor.
    Ok(LockHolder::Live(u32::try_from(lock.l_pid).ok().filter(|pid| *pid != 0)))
}

fn first_byte() -> libc::flock {
    // SAFETY: the structure has only integers, for which zero is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = 0;
    lock.l_len = 1;
    lock
}

fn record_lock(file: &File, command: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: both commands read and write one `flock`, which is exclusively borrowed.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}
