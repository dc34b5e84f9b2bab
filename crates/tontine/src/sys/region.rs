//! Memory that one process writes and others read: [`OwnRegion`], [`PeerRegion`].
//!
//! Each region is a memfd. Its maker maps it writable and then seals it, so that nobody, not even a
//! process that reopens it by way of `/proc`, can write it, shrink it or punch holes into it; the
//! maker's own mapping stays writable. Whoever receives the descriptor believes nothing until
//! [`PeerRegion::map`] has checked it; [`Unfit`] says what was missing. From then on reading the
//! region cannot fault, and what is *in* it is still nothing but a claim.
//!
//! Neighbours: `life::word` keeps a process's page in one, the lanes their chunks and control
//! pages. What lies at which offset is theirs to know.

#![allow(unsafe_code, reason = "maps and unmaps files, and moves mappings between threads")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::fork::Guard;
use super::limits;
use crate::error::{Error, Peer, Result};

/// What makes a region readable without fear: nobody writes it but its maker, and its size is for
/// ever.
const SEALS: SealFlags =
    SealFlags::FUTURE_WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// `f_type` of tmpfs, where memfds live that are not of huge pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// What `st_blocks` counts in, whatever the file system's block size.
const STAT_BLOCK: u64 = 512;

/// A signal may interrupt the allocation of a large region; so many may, before we give up.
const INTERRUPTIONS: usize = 1000;

/// A memfd that this process alone writes: its blocks are allocated, its mapping is writable and
/// not inherited by forked children, and it is sealed.
#[derive(Debug)]
pub(crate) struct OwnRegion {
    base: NonNull<u8>,
    size: usize,
    guard: Guard,
}

// SAFETY: a mapping belongs to the process, not to a thread; the handle gives out its address only.
unsafe impl Send for OwnRegion {}

impl OwnRegion {
    /// Makes a region of `size` zero bytes; `name` is for people, in `/proc/PID/maps`. The
    /// descriptor is for passing on, and is needed for nothing else.
    ///
    /// A child forked by another thread during this call may inherit the mapping; it knows nothing
    /// of it.
    ///
    /// # Errors
    /// [`Error::System`]: ENOSPC and ENOMEM if the memory is not available;
    /// [`Error::FileTooLarge`].
    pub(crate) fn new(name: &str, size: usize) -> Result<(Self, OwnedFd)> {
        let guard = Guard::here()?;
        let fd = create(name)?;
        allocate(fd.as_fd(), size)?;
        let base = map(fd.as_fd(), size, ProtFlags::READ | ProtFlags::WRITE)
            .map_err(|errno| Error::system("mmap", errno))?;
        let region = Self { base, size, guard };
        // SAFETY: the range is the mapping just made; the advice changes nothing in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), size, Advice::LinuxDontFork) }
            .map_err(|errno| Error::system("madvise(MADV_DONTFORK)", errno))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)
            .map_err(|errno| Error::system("fcntl(F_ADD_SEALS)", errno))?;
        Ok((region, fd))
    }

    /// The first byte; `size` bytes are readable and writable until the region is dropped, except
    /// in a forked child, where nothing is.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for OwnRegion {
    fn drop(&mut self) {
        // A child did not inherit the mapping: by now its addresses may be somebody else's.
        if !self.guard.is_forked() {
            unmap(self.base, self.size);
        }
    }
}

/// Somebody else's region, checked and mapped read-only.
///
/// A forked child inherits the mapping, as it does no harm: it can be read there as in the parent,
/// and dropping the child's copy unmaps the child's copy only.
#[derive(Debug)]
pub(crate) struct PeerRegion {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: as for `OwnRegion`.
unsafe impl Send for PeerRegion {}

impl PeerRegion {
    /// Checks a descriptor that somebody passed, and maps all `size` bytes of it.
    ///
    /// # Errors
    /// [`Unfit`], where it is not what a well-meaning peer would have passed.
    pub(crate) fn map(fd: BorrowedFd<'_>, size: usize) -> Result<Self, Unfit> {
        check(fd, size)?;
        match map(fd, size, ProtFlags::READ) {
            Ok(base) => Ok(Self { base, size }),
            // Opened for writing only: EACCES.
            Err(Errno::ACCESS) => Err(Unfit::Unreadable),
            Err(errno) => Err(Unfit::System("mmap", errno)),
        }
    }

    /// The first byte; `size` bytes are readable until the region is dropped. Its maker may be
    /// writing them at any time.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for PeerRegion {
    fn drop(&mut self) {
        unmap(self.base, self.size);
    }
}

/// What a passed descriptor lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Not a file with seals: no memfd.
    NotMemory,
    /// A memfd of huge pages, or some other file system's.
    NotTmpfs,
    /// Its maker, or somebody else, could still change it.
    Unsealed,
    /// Larger or smaller than announced.
    WrongSize,
    /// Holes: reading them would allocate memory at the reader's expense, or fail.
    Sparse,
    /// More memory than its size: the process that unmaps it last waits for the kernel to free it.
    Oversized,
    /// Opened for writing only.
    Unreadable,
    /// Not the peer's fault: this process could not map it.
    System(&'static str, Errno),
}

impl Unfit {
    /// What was expected, and what was found.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::NotMemory => "expected a sealed memfd, found a descriptor of another kind",
            Self::NotTmpfs => "expected a memfd of ordinary pages, found another file system's",
            Self::Unsealed => {
                "expected a memfd sealed against writing, shrinking, growing and further seals, \
                 found a seal missing"
            }
            Self::WrongSize => "expected a memfd of the announced size, found another size",
            Self::Sparse => "expected a memfd with all its blocks allocated, found holes",
            Self::Oversized => {
                "expected a memfd with memory for its size, found more after its end"
            }
            Self::Unreadable => "expected a readable memfd, found it opened for writing only",
            Self::System(..) => "the memfd could not be mapped",
        }
    }

    /// The same as an error with a culprit.
    pub(crate) fn into_error(self, peer: Peer) -> Error {
        match self {
            Self::System(call, errno) => Error::system(call, errno),
            unfit => Error::Protocol { peer, what: unfit.what() },
        }
    }
}

/// Looks at nothing but what the kernel says of the file. The seals come first: they are known
/// without asking a file system that a hostile peer might run, and which might never answer.
fn check(fd: BorrowedFd<'_>, size: usize) -> Result<(), Unfit> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| Unfit::NotMemory)?;
    let system = rustix::fs::fstatfs(fd).map_err(|errno| Unfit::System("fstatfs", errno))?;
    if u64::try_from(system.f_type) != Ok(TMPFS_MAGIC) {
        return Err(Unfit::NotTmpfs);
    }
    if !seals.contains(SEALS) {
        return Err(Unfit::Unsealed);
    }
    let file = rustix::fs::fstat(fd).map_err(|errno| Unfit::System("fstat", errno))?;
    if u64::try_from(file.st_size) != Ok(size as u64) {
        return Err(Unfit::WrongSize);
    }
    let allocated = u64::try_from(file.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK);
    // The blocks may lie behind the end (`FALLOC_FL_KEEP_SIZE`), where they hide holes inside.
    let inside = pages_inside(fd, 0, size);
    if allocated < size as u64 || inside.is_some_and(|bytes| bytes < size) {
        return Err(Unfit::Sparse);
    }
    // One huge page may reach beyond the end. Sealed against growing, it gets no more behind it.
    let huge_page = page_bytes() * (page_bytes() / 8);
    if allocated > (size as u64).saturating_add(huge_page) {
        return Err(Unfit::Oversized);
    }
    Ok(())
}

/// Bytes of the pages that `size` bytes of the file from `at` on have, in memory or swapped out;
/// none where the kernel does not tell (before 6.5). It tells of what one may write, so an honest
/// peer's descriptor will do, and one that was opened anew for reading counts as having none.
///
/// `SEEK_HOLE` would not do: a page that was allocated and not yet written to counts as a hole
/// there
/// (`folio_seek_hole_data` in `mm/filemap.c`). Nothing is touched; 16,384 pages take some 0.1 ms.
/// What it says stays true: `F_SEAL_FUTURE_WRITE` forbids to punch holes, to the maker too
/// (`shmem_fallocate` in `mm/shmem.c`), `MADV_REMOVE` included, and tests try both.
pub(crate) fn pages_inside(fd: BorrowedFd<'_>, at: usize, size: usize) -> Option<usize> {
    const CACHESTAT: libc::c_long = 451;
    let range = [at as u64, size as u64];
    // Pages that are cached, dirty, in write-back, evicted, evicted lately.
    let mut counts = [0_u64; 5];
    // SAFETY: the range is two integers to read, the counts five to write.
    let answer = unsafe {
        libc::syscall(
            CACHESTAT,
            std::os::fd::AsRawFd::as_raw_fd(&fd),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0_u32,
        )
    };
    if answer != 0 {
        let writable = rustix::fs::fcntl_getfl(fd).is_ok_and(|mode| mode.contains(OFlags::RDWR));
        return (!writable).then_some(0);
    }
    let bytes = counts[0].saturating_add(counts[3]).saturating_mul(page_bytes());
    Some(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn page_bytes() -> u64 {
    // SAFETY: asks for a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn create(name: &str) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Older than Linux 6.3.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
    .map_err(|errno| Error::system("memfd_create", errno))
}

fn allocate(fd: BorrowedFd<'_>, size: usize) -> Result<()> {
    if let Some(limit) = limits::exceeded_file_limit(size as u64) {
        return Err(Error::FileTooLarge { asked: size as u64, limit });
    }
    let mut answer = Err(Errno::INTR);
    for _ in 0..INTERRUPTIONS {
        answer = rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, size as u64);
        if answer != Err(Errno::INTR) {
            break;
        }
    }
    answer.map_err(|errno| Error::system("fallocate", errno))
}

fn map(fd: BorrowedFd<'_>, size: usize, protection: ProtFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new mapping where the kernel finds room; nothing of this process is replaced.
    let base =
        unsafe { rustix::mm::mmap(ptr::null_mut(), size, protection, MapFlags::SHARED, fd, 0)? };
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

fn unmap(base: NonNull<u8>, size: usize) {
    // SAFETY: called once for a mapping that this module made, by the handle that owns it; whoever
    // took its address had to outlive no longer than the handle.
    let unmapped = unsafe { rustix::mm::munmap(base.as_ptr().cast(), size) };
    debug_assert!(unmapped.is_ok(), "munmap of a mapping of one's own: {unmapped:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::in_child;

    const SIZE: usize = 8192;

    fn memfd(flags: MemfdFlags) -> OwnedFd {
        rustix::fs::memfd_create("hostile", flags | MemfdFlags::CLOEXEC).expect("memfd")
    }

    fn refusal(fd: &OwnedFd) -> Unfit {
        PeerRegion::map(fd.as_fd(), SIZE).expect_err("unfit")
    }

    #[test]
    fn what_one_writes_the_other_reads() {
        let (own, fd) = OwnRegion::new("test", SIZE).expect("region");
        let peer = PeerRegion::map(fd.as_fd(), SIZE).expect("fit");
        assert_eq!((own.size(), peer.size()), (SIZE, SIZE));
        // SAFETY: both mappings are live and nobody else knows them.
        unsafe {
            own.base().add(SIZE - 1).write_volatile(7);
            assert_eq!(peer.base().add(SIZE - 1).read_volatile(), 7);
        }
        drop(own);
        // SAFETY: the peer's mapping outlives the owner's.
        assert_eq!(unsafe { peer.base().add(SIZE - 1).read_volatile() }, 7);
    }

    #[test]
    fn nobody_but_the_maker_can_write() {
        let (own, fd) = OwnRegion::new("test", SIZE).expect("region");
        let writable = map(fd.as_fd(), SIZE, ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(writable.expect_err("sealed"), Errno::PERM);
        let peer = PeerRegion::map(fd.as_fd(), SIZE).expect("fit");
        // SAFETY: the range is the peer's mapping; the call fails, or only widens what is allowed.
        let widened = unsafe {
            libc::mprotect(peer.base().as_ptr().cast(), SIZE, libc::PROT_READ | libc::PROT_WRITE)
        };
        assert_eq!(widened, -1);
        assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&fd, punch, 0, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
        // SAFETY: the range is the maker's mapping, whose bytes nobody reads.
        let removed = unsafe { libc::madvise(own.base().as_ptr().cast(), SIZE, libc::MADV_REMOVE) };
        assert_eq!(removed, -1);

        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        let Ok(again) = std::fs::OpenOptions::new().read(true).write(true).open(path) else {
            return;
        };
        assert_eq!(rustix::io::write(&again, b"x"), Err(Errno::PERM));
        let writable = map(again.as_fd(), SIZE, ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(writable.expect_err("sealed"), Errno::PERM);
    }

    #[test]
    fn each_lack_is_named() {
        let (_own, whole) = OwnRegion::new("test", SIZE).expect("region");
        let smaller = PeerRegion::map(whole.as_fd(), SIZE / 2).expect_err("unfit");
        let larger = PeerRegion::map(whole.as_fd(), SIZE * 2).expect_err("unfit");
        assert_eq!((smaller, larger), (Unfit::WrongSize, Unfit::WrongSize));

        let sparse = memfd(MemfdFlags::ALLOW_SEALING);
        rustix::fs::ftruncate(&sparse, SIZE as u64).expect("ftruncate");
        for seal in [SealFlags::FUTURE_WRITE, SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            assert_eq!(refusal(&sparse), Unfit::Unsealed, "before {seal:?}");
            rustix::fs::fcntl_add_seals(&sparse, seal).expect("seal");
        }
        assert_eq!(refusal(&sparse), Unfit::Sparse);

        let (pipe, _other) = rustix::pipe::pipe().expect("pipe");
        assert_eq!(refusal(&pipe), Unfit::NotMemory);
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").expect("file"));
        assert_eq!(refusal(&file), Unfit::NotMemory);
        let huge = memfd(MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING);
        rustix::fs::fcntl_add_seals(&huge, SEALS).expect("seal");
        assert_eq!(refusal(&huge), Unfit::NotTmpfs);
        assert_eq!(refusal(&memfd(MemfdFlags::empty())), Unfit::Unsealed);
    }

    /// Only the number of blocks was looked at: as many behind the end as were missing inside made
    /// 64 MiB of holes look whole, which whoever read them had to pay for.
    #[test]
    fn blocks_behind_the_end_do_not_count() {
        let large = 1 << 20;
        let fd = memfd(MemfdFlags::ALLOW_SEALING);
        rustix::fs::ftruncate(&fd, large).expect("ftruncate");
        let behind = FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&fd, behind, large, large).expect("fallocate");
        rustix::fs::fcntl_add_seals(&fd, SEALS).expect("seal");
        let size = large as usize;
        if pages_inside(fd.as_fd(), 0, size).is_some() {
            let unfit = PeerRegion::map(fd.as_fd(), size).expect_err("unfit");
            assert_eq!(unfit, Unfit::Sparse);
        }
        let (own, whole) = OwnRegion::new("test", size).expect("region");
        PeerRegion::map(whole.as_fd(), size).expect("fit, before it was written to");
        // SAFETY: inside our own mapping, which nobody else knows.
        unsafe { own.base().add(5 << 12).write_volatile(1) };
        PeerRegion::map(whole.as_fd(), size).expect("fit, and after");
    }

    /// A peer reserved memory behind the end of a memfd and exited. The process that unmapped the
    /// file last waited until the kernel had freed all of it, 0.1 s or more per GiB.
    #[test]
    fn memory_behind_the_end_is_refused() {
        let fd = memfd(MemfdFlags::ALLOW_SEALING);
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, SIZE as u64).expect("fallocate");
        let hidden = page_bytes() * (page_bytes() / 8) + (1 << 20);
        let behind = |at: u64| rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, at, hidden);
        behind(SIZE as u64).expect("fallocate");
        rustix::fs::fcntl_add_seals(&fd, SEALS).expect("seal");
        assert_eq!(refusal(&fd), Unfit::Oversized);
        assert_eq!(behind(SIZE as u64 + hidden), Err(Errno::PERM), "none once it is sealed");
    }

    #[test]
    fn a_lack_is_the_peers_fault_and_a_failure_is_not() {
        let peer = Peer { pid: Some(1), uid: 2 };
        assert_eq!(
            Unfit::Sparse.into_error(peer),
            Error::Protocol { peer, what: Unfit::Sparse.what() }
        );
        assert_eq!(Unfit::System("mmap", Errno::NOMEM).into_error(peer).errno(), libc::ENOMEM);
    }

    #[test]
    fn a_child_inherits_what_it_may_read_and_unmaps_nothing_else() {
        let (own, fd) = OwnRegion::new("test", SIZE).expect("region");
        let peer = PeerRegion::map(fd.as_fd(), SIZE).expect("fit");
        let (own, inherited) = (&own, &peer);
        assert!(in_child(move || {
            // SAFETY: copies of the parent's handles, of which the parent drops its own; each is
            // used by one process.
            let (own, peer) = unsafe { (ptr::read(own), ptr::read(inherited)) };
            // SAFETY: the address is free in the child, or the call fails.
            let stranger = unsafe {
                rustix::mm::mmap_anonymous(
                    own.base().as_ptr().cast(),
                    SIZE,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
                )
            };
            let Ok(stranger) = stranger else { return false };
            drop(own);
            // SAFETY: mapped above, and to be left alone by what was dropped.
            unsafe { stranger.cast::<u8>().write_volatile(3) };
            // SAFETY: inherited, and read-only.
            let readable = unsafe { peer.base().read_volatile() } == 0;
            drop(peer);
            readable
        }));
        // SAFETY: still mapped here.
        assert_eq!(unsafe { peer.base().read_volatile() }, 0);
    }
}
