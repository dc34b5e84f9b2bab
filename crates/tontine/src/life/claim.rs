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
//! The file is never unlinked: two processes could then hold locks of two files with one name.
//! Neighbours: the mailbox's address takes a claim before it touches the socket. A claim does not
//! wait, and says nothing of what is at `PATH` itself.

#![allow(unsafe_code, reason = "fcntl with record locks")]

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    device: u64,
    inode: u64,
}

impl Claim {
    /// Takes ownership of `path` by locking `path` with `.lock` appended, which is made if it is
    /// not there. Returns at once. Success proves that the last owner has ended.
    ///
    /// # Errors
    /// [`Error::InUse`] with the holder's pid, where somebody lives who owns it (this process
    /// included); [`Error::SystemAt`] where the file cannot be opened or locked.
    pub fn take(path: &Path) -> Result<Self> {
        Self::take_with_mode(path, MODE)
    }

    /// As [`Claim::take`]; a lock file that is not there is made with this mode, less the umask.
    pub(crate) fn take_with_mode(path: &Path, mode: u32) -> Result<Self> {
        let guard = Guard::here()?;
        let mut locked = locked()?;
        let lock_path = lock_path(path);
        let in_use = |holder| Error::InUse { address: path.display().to_string(), holder };
        // Before it is opened: closing a second descriptor would drop our own lock.
        if let Ok(metadata) = std::fs::metadata(&lock_path)
            && locked.contains(&FileId::from(&metadata))
        {
            return Err(in_use(Some(std::process::id())));
        }
        let at = |error: Error| error.at(lock_path.display());
        let file = open(&lock_path, mode).map_err(at)?;
        let metadata = file.metadata().map_err(|error| at(Error::io("fstat", &error)))?;
        let id = FileId::from(&metadata);
        if locked.contains(&id) {
            // The name was moved onto our own file between the two looks: the descriptor has to
            // stay, or the lock goes.
            std::mem::forget(file);
            return Err(in_use(Some(std::process::id())));
        }
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

impl From<&std::fs::Metadata> for FileId {
    fn from(metadata: &std::fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
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
