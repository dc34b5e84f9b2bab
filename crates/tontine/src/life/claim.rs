//! Proof that the last owner of a path has ended, and a promise to be the only one: [`Claim`].
//!
//! A claim is a POSIX record lock (`F_SETLK`) on the first byte of `PATH.lock`. Unlike a life
//! word it can be taken over, and the kernel hands it over no sooner than the whole process that
//! held it has ended, or has called `exec`. A forked child does not inherit it. It works across
//! PID namespaces. Of two that want it one gets it, and the other is told who.
//!
//! Record locks have a trap: closing *any* descriptor of the file drops the process's lock. So a
//! process opens each lock file once, never duplicates the descriptor, and looks into a registry
//! before it opens one; a forked child leaves its parent's descriptors alone. Somebody else in the
//! process who opens and closes the lock file would drop the lock: nobody has a reason to, but
//! for a second copy of this crate in the process, whose
//! registry is another. The listener would not tell
//! it either: after an `exec` a worker's copy of it still names this process.
//!
//! The trap has a second side: closing the lock file drops *every* record lock of the process on
//! that file. A lock file is therefore an empty regular file with one name. Before any other file
//! is opened, a claim refuses it: a user who may write the folder could have linked a database
//! there.
//!
//! The file is never unlinked: two processes could then hold locks of two files with one name.
//! Neighbours: the mailbox's address takes a claim before it touches the socket. A claim does not
//! wait, and says nothing of what is at `PATH` itself.

#![allow(unsafe_code, reason = "fcntl with record locks")]

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sys::fork::{Guard, PerProcess};

/// Nobody but the owner's user may lock it, unless asked.
const MODE: u32 = 0o600;

/// The holder may end between our attempt and our question who it is; so often, before we give up.
const ATTEMPTS: usize = 8;

/// The files that this process has locked. A forked child starts with none.
static LOCKED: PerProcess<Mutex<Vec<FileId>>> = PerProcess::new(Mutex::default);

/// The exclusive ownership of a path, until it is dropped or the process ends.
///
/// ```
/// use tontine::life::Claim;
///
/// # fn main() -> tontine::Result<()> {
/// # let path = std::env::temp_dir().join(format!("tontine-claim-{}", std::process::id()));
/// let claim = Claim::take(&path)?;
/// let rival = Claim::take(&path).expect_err("one owner at a time");
/// assert!(rival.to_string().contains("is in use by pid"));
/// drop(claim);
/// Claim::take(&path)?;
/// # let _ = std::fs::remove_file(path.with_extension("lock"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Claim {
    /// Not to be closed in a forked child, hence not by its own drop.
    file: ManuallyDrop<File>,
    id: FileId,
    guard: Guard,
}

/// A file, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: (u32, u32),
    inode: u64,
}

impl Claim {
    /// Takes ownership of `path` by locking `path` with `.lock` appended, which is made if it is
    /// not there. Returns at once. Success proves that the last owner has ended.
    ///
    /// # Errors
    /// [`Error::InUse`] with the holder's pid, where somebody lives who owns it (this process
    /// included); [`Error::BadAddress`] if the lock file is not an empty regular file with one
    /// name; [`Error::SystemAt`] where the file cannot be opened or locked.
    pub fn take(path: &Path) -> Result<Self> {
        Self::take_with_mode(path, MODE)
    }

    /// As [`Claim::take`]; a lock file that is not there is made with this mode, less the umask.
    pub(crate) fn take_with_mode(path: &Path, mode: u32) -> Result<Self> {
        let guard = Guard::here()?;
        let lock_path = lock_path(path);
        let in_use = |holder| Error::InUse { address: path.display().to_string(), holder };
        let at = |error: Error| error.at(lock_path.display());
        // Before the registry is locked: a file system that never answers holds this call alone.
        let found = find(&lock_path)?;
        let mut locked = locked()?;
        // Before it is opened: closing a second descriptor would drop our own lock.
        if found.is_some_and(|id| locked.contains(&id)) {
            return Err(in_use(Some(std::process::id())));
        }
        let file = open(&lock_path, mode).map_err(at)?;
        let id = match identify(&file, &lock_path) {
            Ok(id) if !locked.contains(&id) => id,
            refused => {
                // The name was moved onto another file between the two looks: the descriptor has
                // to stay, or a lock of this process goes.
                std::mem::forget(file);
                refused?;
                return Err(in_use(Some(std::process::id())));
            }
        };
        for _ in 0..ATTEMPTS {
            if try_lock(&file).map_err(at)? {
                locked.push(id);
                return Ok(Self { file: ManuallyDrop::new(file), id, guard });
            }
            if let Holder::Somebody(pid) = holder(&file).map_err(at)? {
                return Err(in_use(pid));
            }
        }
        Err(in_use(None))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // In a child the lock is the parent's, or by now the child's own by another descriptor,
        // which closing this one would drop.
        if self.guard.is_forked() {
            return;
        }
        // Without a registry nobody in this process could have been given the claim.
        let Ok(mut locked) = locked() else { return };
        locked.retain(|id| *id != self.id);
        // SAFETY: dropped here once; the file is not used afterwards. Under the registry's lock, so
        // that nobody opens the file before it is closed.
        unsafe { ManuallyDrop::drop(&mut self.file) };
    }
}

/// What `F_GETLK` said.
enum Holder {
    /// Somebody, whose pid is known if it can be seen from here.
    Somebody(Option<u32>),
    /// Nobody any more.
    Gone,
}

/// `PATH.lock`.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".lock");
    name.into()
}

fn locked() -> Result<MutexGuard<'static, Vec<FileId>>> {
    // A panic in there leaves a list that is still right.
    Ok(LOCKED.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Identifies the lock file, if there is one, by a descriptor that opens nothing: closing it drops
/// no lock, no device starts, no FIFO waits.
///
/// # Errors
/// Like [`identify`].
fn find(path: &Path) -> Result<Option<FileId>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(named) => identify(named, path).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::system("open of the lock file", errno).at(path.display())),
    }
}

/// Identifies a lock file: an empty regular file with one name. Of any other file closing a
/// descriptor could drop record locks of this process.
///
/// # Errors
/// [`Error::BadAddress`] for a file of another kind, [`Error::SystemAt`].
fn identify(file: impl AsFd, path: &Path) -> Result<FileId> {
    // From what the kernel knows, without asking the file system.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, c"", flags, StatxFlags::BASIC_STATS)
        .map_err(|errno| Error::system("statx", errno).at(path.display()))?;
    let why = match FileType::from_raw_mode(found.stx_mode.into()) {
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
        FileType::RegularFile => {
            let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
            return Ok(FileId { device: (major, minor), inode: found.stx_ino });
        }
        _ => {
            "expected a regular file as its lock file, found another kind; \
             remove it or choose another path"
        }
    };
    Err(Error::BadAddress { address: path.display().to_string(), why })
}

/// Close-on-exec, as all that the standard library opens. Never through a symbolic link, nor
/// waiting for the other end of a FIFO.
fn open(path: &Path, mode: u32) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| Error::io("open of the lock file", &error))
}

/// Whether we hold the lock now.
fn try_lock(file: &File) -> Result<bool> {
    let mut lock = first_byte();
    match record_lock(file, libc::F_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(Error::system("fcntl(F_SETLK)", errno)),
    }
}

fn holder(file: &File) -> Result<Holder> {
    let mut lock = first_byte();
    record_lock(file, libc::F_GETLK, &mut lock)
        .map_err(|errno| Error::system("fcntl(F_GETLK)", errno))?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(Holder::Gone);
    }
    // 0 from another PID namespace, -1 for a lock that belongs to a descriptor.
    Ok(Holder::Somebody(u32::try_from(lock.l_pid).ok().filter(|pid| *pid != 0)))
}

fn first_byte() -> libc::flock {
    // SAFETY: integers only, for which zero is a value.
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
