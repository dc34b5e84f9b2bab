//! Memory that one process writes and others read: [`OwnRegion`], [`PeerRegion`].
//!
//! Each region is a memfd. Its maker maps it writable and then seals it, so that no other process,
//! not even a process that reopens it through `/proc`, can write it, shrink it or punch holes into
//! it; the maker's own mapping stays writable. A process that receives the descriptor trusts it
//! only after [`PeerRegion::map`] has checked it; [`InvalidRegion`] names the failed check. After
//! the check, reading the region cannot fault, but its content is still untrusted.
//!
//! Neighbours: `life::word` keeps a process's page in a region, the lanes their chunks and control
//! pages. These modules define the offsets.

#![allow(unsafe_code, reason = "maps and unmaps files, and moves mappings between threads")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::fork::Guard;
use super::limits;
use crate::error::{Error, Peer, Result};

/// Seals that make a region safe to read: only its maker can write it, and its size is final.
const SEALS: SealFlags =
    SealFlags::FUTURE_WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// `f_type` of tmpfs, the file system of memfds without huge pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Unit of `st_blocks` in bytes, independent of the file system's block size.
const STAT_BLOCK: u64 = 512;

/// Maximum number of signals that may interrupt the allocation of a region before it fails.
const INTERRUPTIONS: usize = 1000;

/// A sealed memfd that only this process writes. All its blocks are allocated, and forked children
/// do not inherit its writable mapping.
#[derive(Debug)]
pub(crate) struct OwnRegion {
    base: NonNull<u8>,
    size: usize,
    guard: Guard,
}

// SAFETY: a mapping belongs to the process, not to a thread; the handle returns its address only.
unsafe impl Send for OwnRegion {}

impl OwnRegion {
    /// Makes a region of `size` zero bytes, which `/proc/PID/maps` shows as `name`. The returned
    /// descriptor is only passed to other processes.
    ///
    /// A child that another thread forks during this call may inherit the mapping, but never uses
    /// it.
    ///
    /// # Errors
    /// [`Error::System`]: ENOSPC and ENOMEM if the memory is not available; [`Error::FileTooLarge`]
    /// if the region would exceed the file size limit.
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

    /// Returns the address of the first byte. `size` bytes are readable and writable until the
    /// region is dropped; in a forked child, none of them is mapped.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of bytes.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for OwnRegion {
    fn drop(&mut self) {
        // A forked child did not inherit the mapping, and may have reused its addresses.
        if !self.guard.is_forked() {
            unmap(self.base, self.size);
        }
    }
}

/// Another process's region, checked and mapped read-only.
///
/// A forked child inherits the mapping and can read it like the parent. Dropping the child's handle
/// unmaps only the child's mapping.
#[derive(Debug)]
pub(crate) struct PeerRegion {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; the handle returns its address only.
unsafe impl Send for PeerRegion {}

impl PeerRegion {
    /// Checks a descriptor that a peer passed, and maps all `size` bytes of it.
    ///
    /// # Errors
    /// [`InvalidRegion`] if an honest peer would not have passed this descriptor.
    pub(crate) fn map(fd: BorrowedFd<'_>, size: usize) -> Result<Self, InvalidRegion> {
        check(fd, size)?;
        match map(fd, size, ProtFlags::READ) {
            Ok(base) => Ok(Self { base, size }),
            // The descriptor is open for writing only.
            Err(Errno::ACCESS) => Err(InvalidRegion::Unreadable),
            Err(errno) => Err(InvalidRegion::System("mmap", errno)),
        }
    }

    /// Returns the address of the first byte. `size` bytes are readable until the region is
    /// dropped; its maker may write them at any time.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of bytes.
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

/// Reason why a passed descriptor is not a valid region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvalidRegion {
    /// The file has no seals, so it is not a memfd.
    NotMemory,
    /// The file is a memfd of huge pages, or belongs to another file system.
    NotTmpfs,
    /// The maker or another process could still change the file.
    Unsealed,
    /// The file is larger or smaller than announced.
    WrongSize,
    /// The file has holes: reading them would fail, or allocate memory charged to this process.
    Sparse,
    /// The file has more memory than its size: the last process to unmap it waits until the kernel
    /// has freed that memory.
    Oversized,
    /// The descriptor is open for writing only.
    Unreadable,
    /// This process could not map the file. This is not the peer's fault.
    System(&'static str, Errno),
}

impl InvalidRegion {
    /// Returns the text of the error, with the expected and the found value.
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

    /// Converts the reason into an error that names the peer.
    pub(crate) fn into_error(self, peer: Peer) -> Error {
        match self {
            Self::System(call, errno) => Error::system(call, errno),
            unfit => Error::Protocol { peer, what: unfit.what() },
        }
    }
}

/// Checks the file with system calls only. The seals come first, because the kernel knows them
/// without a request to the file system, which a hostile peer might run and which might then never
/// answer.
fn check(fd: BorrowedFd<'_>, size: usize) -> Result<(), InvalidRegion> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| InvalidRegion::NotMemory)?;
    let system =
        rustix::fs::fstatfs(fd).map_err(|errno| InvalidRegion::System("fstatfs", errno))?;
    if u64::try_from(system.f_type) != Ok(TMPFS_MAGIC) {
        return Err(InvalidRegion::NotTmpfs);
    }
    if !seals.contains(SEALS) {
        return Err(InvalidRegion::Unsealed);
    }
    let file = rustix::fs::fstat(fd).map_err(|errno| InvalidRegion::System("fstat", errno))?;
    if u64::try_from(file.st_size) != Ok(size as u64) {
        return Err(InvalidRegion::WrongSize);
    }
    let allocated = u64::try_from(file.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK);
    // `st_blocks` includes blocks after the end (`FALLOC_FL_KEEP_SIZE`), which could compensate for
    // holes inside.
    let inside = pages_inside(fd, 0, size);
    if allocated < size as u64 || inside.is_some_and(|bytes| bytes < size) {
        return Err(InvalidRegion::Sparse);
    }
    // One huge page may extend past the end. The seal against growing forbids more blocks there.
    let huge_page = page_bytes() * (page_bytes() / 8);
    if allocated > (size as u64).saturating_add(huge_page) {
        return Err(InvalidRegion::Oversized);
    }
    Ok(())
}

/// Returns the number of bytes in allocated pages, in memory or swapped out, in the range of `size`
/// bytes from `at`. Returns `None` if the kernel does not report them (before 6.5). The kernel
/// reports them only for descriptors that are open for writing, as an honest peer's descriptor is.
/// For a descriptor that was reopened for reading, the result is 0.
///
/// `SEEK_HOLE` is not suitable: it counts a page that was allocated and not yet written to as a
/// hole (`folio_seek_hole_data` in `mm/filemap.c`). No page is accessed; 16,384 pages take about
/// 0.1 ms. The result stays valid: `F_SEAL_FUTURE_WRITE` prevents even the maker from punching
/// holes (`shmem_fallocate` in `mm/shmem.c`), including with `MADV_REMOVE`; tests try both.
pub(crate) fn pages_inside(fd: BorrowedFd<'_>, at: usize, size: usize) -> Option<usize> {
    const CACHESTAT: libc::c_long = 451;
    let range = [at as u64, size as u64];
    // Numbers of pages: cached, dirty, in write-back, evicted, recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads two integers of the range and writes five counts.
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
    // SAFETY: the call takes and returns integers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn create(name: &str) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before Linux 6.3 do not accept one of the flags.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
    .map_err(|errno| Error::system("memfd_create", errno))
}

fn allocate(fd: BorrowedFd<'_>, size: usize) -> Result<()> {
    if let Some(limit) = limits::exceeded_file_limit(size as u64) {
        return Err(Error::FileTooLarge { requested: size as u64, limit });
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
    // SAFETY: this is a new mapping at an address that the kernel chooses; no mapping is replaced.
    let base =
        unsafe { rustix::mm::mmap(ptr::null_mut(), size, protection, MapFlags::SHARED, fd, 0)? };
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

fn unmap(base: NonNull<u8>, size: usize) {
    // SAFETY: the call is made once for a mapping that this module made, by the handle that owns
    // it; users of the address do not outlive the handle.
    let unmapped = unsafe { rustix::mm::munmap(base.as_ptr().cast(), size) };
    debug_assert!(unmapped.is_ok(), "munmap of this process's mapping: {unmapped:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::in_child;

    const SIZE: usize = 8192;

    fn memfd(flags: MemfdFlags) -> OwnedFd {
        rustix::fs::memfd_create("hostile", flags | MemfdFlags::CLOEXEC).expect("memfd")
    }

    fn refusal(fd: &OwnedFd) -> InvalidRegion {
        PeerRegion::map(fd.as_fd(), SIZE).expect_err("unfit")
    }

    #[test]
    fn peer_region_reads_bytes_of_own_region() {
        let (own, fd) = OwnRegion::new("test", SIZE).expect("region");
        let peer = PeerRegion::map(fd.as_fd(), SIZE).expect("fit");
        assert_eq!((own.size(), peer.size()), (SIZE, SIZE));
        // SAFETY: both mappings exist, and only this test uses them.
        unsafe {
            own.base().add(SIZE - 1).write_volatile(7);
            assert_eq!(peer.base().add(SIZE - 1).read_volatile(), 7);
        }
        drop(own);
        // SAFETY: the peer's mapping outlives the owner's.
        assert_eq!(unsafe { peer.base().add(SIZE - 1).read_volatile() }, 7);
    }

    #[test]
    fn sealed_region_is_writable_only_by_its_creator() {
        let (own, fd) = OwnRegion::new("test", SIZE).expect("region");
        let writable = map(fd.as_fd(), SIZE, ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(writable.expect_err("sealed"), Errno::PERM);
        let peer = PeerRegion::map(fd.as_fd(), SIZE).expect("fit");
        // SAFETY: the range is the peer's mapping; the call fails, or only extends its permissions.
        let widened = unsafe {
            libc::mprotect(peer.base().as_ptr().cast(), SIZE, libc::PROT_READ | libc::PROT_WRITE)
        };
        assert_eq!(widened, -1);
        assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&fd, punch, 0, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
        // SAFETY: the range is the maker's mapping, whose bytes are not read.
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
    fn invalid_region_error_names_defect() {
        let (_own, whole) = OwnRegion::new("test", SIZE).expect("region");
        let smaller = PeerRegion::map(whole.as_fd(), SIZE / 2).expect_err("unfit");
        let larger = PeerRegion::map(whole.as_fd(), SIZE * 2).expect_err("unfit");
        assert_eq!((smaller, larger), (InvalidRegion::WrongSize, InvalidRegion::WrongSize));

        let sparse = memfd(MemfdFlags::ALLOW_SEALING);
        rustix::fs::ftruncate(&sparse, SIZE as u64).expect("ftruncate");
        for seal in [SealFlags::FUTURE_WRITE, SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            assert_eq!(refusal(&sparse), InvalidRegion::Unsealed, "before {seal:?}");
            rustix::fs::fcntl_add_seals(&sparse, seal).expect("seal");
        }
        assert_eq!(refusal(&sparse), InvalidRegion::Sparse);

        let (pipe, _other) = rustix::pipe::pipe().expect("pipe");
        assert_eq!(refusal(&pipe), InvalidRegion::NotMemory);
        // Not a file that may be in a tmpfs, as programs are in an initial file system.
        let file = OwnedFd::from(std::fs::File::open("/proc/self/maps").expect("file"));
        assert_eq!(refusal(&file), InvalidRegion::NotMemory);
        let huge = memfd(MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING);
        rustix::fs::fcntl_add_seals(&huge, SEALS).expect("seal");
        assert_eq!(refusal(&huge), InvalidRegion::NotTmpfs);
        assert_eq!(refusal(&memfd(MemfdFlags::empty())), InvalidRegion::Unsealed);
    }

    /// Regression: only the number of blocks was checked. Enough blocks after the end made 64 MiB
    /// of holes look allocated, and reading them was charged to the reading process.
    #[test]
    fn blocks_after_end_do_not_hide_holes() {
        let large = 1 << 20;
        let fd = memfd(MemfdFlags::ALLOW_SEALING);
        rustix::fs::ftruncate(&fd, large).expect("ftruncate");
        let behind = FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&fd, behind, large, large).expect("fallocate");
        rustix::fs::fcntl_add_seals(&fd, SEALS).expect("seal");
        let size = large as usize;
        if pages_inside(fd.as_fd(), 0, size).is_some() {
            let unfit = PeerRegion::map(fd.as_fd(), size).expect_err("unfit");
            assert_eq!(unfit, InvalidRegion::Sparse);
        }
        let (own, whole) = OwnRegion::new("test", size).expect("region");
        PeerRegion::map(whole.as_fd(), size).expect("fit, before it was written to");
        // SAFETY: the byte is inside this process's own mapping, which only this test uses.
        unsafe { own.base().add(5 << 12).write_volatile(1) };
        PeerRegion::map(whole.as_fd(), size).expect("fit, and after");
    }

    /// Regression: a peer reserved memory after the end of a memfd and exited. The process that
    /// unmapped the file last waited until the kernel had freed all of it, 0.1 s or more per GiB.
    #[test]
    fn memory_after_end_of_region_is_refused() {
        let fd = memfd(MemfdFlags::ALLOW_SEALING);
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, SIZE as u64).expect("fallocate");
        let hidden = page_bytes() * (page_bytes() / 8) + (1 << 20);
        let behind = |at: u64| rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, at, hidden);
        behind(SIZE as u64).expect("fallocate");
        rustix::fs::fcntl_add_seals(&fd, SEALS).expect("seal");
        assert_eq!(refusal(&fd), InvalidRegion::Oversized);
        assert_eq!(behind(SIZE as u64 + hidden), Err(Errno::PERM), "no allocation after sealing");
    }

    #[test]
    fn invalid_region_blames_peer_failed_call_does_not() {
        let peer = Peer { pid: Some(1), uid: 2 };
        assert_eq!(
            InvalidRegion::Sparse.into_error(peer),
            Error::Protocol { peer, what: InvalidRegion::Sparse.what() }
        );
        assert_eq!(
            InvalidRegion::System("mmap", Errno::NOMEM).into_error(peer).errno(),
            libc::ENOMEM
        );
    }

    #[test]
    fn forked_child_keeps_peer_region_and_unmaps_no_memory() {
        let (own, fd) = OwnRegion::new("test", SIZE).expect("region");
        let peer = PeerRegion::map(fd.as_fd(), SIZE).expect("fit");
        let (own, inherited) = (&own, &peer);
        assert!(in_child(move || {
            // SAFETY: these are copies of the parent's handles; the parent drops its own, and each
            // copy is used by one process.
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
            // SAFETY: the page was mapped above, and the drop must not have unmapped it.
            unsafe { stranger.cast::<u8>().write_volatile(3) };
            // SAFETY: the page is inherited and read-only.
            let readable = unsafe { peer.base().read_volatile() } == 0;
            drop(peer);
            readable
        }));
        // SAFETY: the page is still mapped here.
        assert_eq!(unsafe { peer.base().read_volatile() }, 0);
    }
}
