//! A shared heap's memory: the sealed memfd, its mapping and its record locks ([`HeapSpace`]).
//!
//! Every member maps the whole file, which costs address space but no memory. Memory is allocated
//! by the slab, and returned by punching holes. The contents are untrusted, except for the values
//! that [`HeapSpace::open`] has compared with the file's size.
//!
//! Record locks belong to a process and a file, and closing any descriptor of the file releases
//! them. A process therefore opens a heap only once; [`OPEN`] lists the heaps that it has open.

#![allow(unsafe_code, reason = "maps a file, and makes references to the atomics in it")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::layout::{
    ArenaSlot, GRANULE, Geometry, HeapHeader, MAGIC, MemberSlot, SLAB, SlabSlot, VERSION, WORDS,
};
use crate::heap::{HeapError, Result};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::fork::{Guard, PerProcess};
use crate::sys::limits;
use crate::sys::region::pages_inside;

/// The seals of every heap's file.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// Byte that is locked while a heap is initialised.
const MAKING: u64 = 0;
/// Byte that is locked while a role is taken. The bytes between [`MAKING`] and this byte belong to
/// the members.
const ROLES: u64 = 1 + super::layout::MEMBERS as u64;
/// Maximum number of times that an interrupted call is repeated.
const INTERRUPTIONS: usize = 1000;
/// Maximum number of checks whether a heap was initialised.
const LOOKS: usize = 500;
/// Interval between two of these checks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// The heaps that this process has open. A forked child starts with an empty list.
static OPEN: PerProcess<Mutex<Vec<FileId>>> = PerProcess::new(Mutex::default);

/// The identity of a file, which all its descriptors share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A heap's memory, mapped.
#[derive(Debug)]
pub(super) struct HeapSpace {
    base: NonNull<u8>,
    geometry: Geometry,
    /// The file stays open in a forked child, because closing it would release the locks of the
    /// child's own heap.
    file: ManuallyDrop<OwnedFd>,
    id: FileId,
    guard: Guard,
}

// SAFETY: a mapping belongs to the process; its address is used only for atomics, and for bytes of
// blocks that this process holds.
unsafe impl Send for HeapSpace {}
// SAFETY: as above.
unsafe impl Sync for HeapSpace {}

impl HeapSpace {
    /// Creates a heap with `slabs` slabs.
    pub(super) fn create(slabs: usize, canaries: bool) -> Result<Self> {
        let geometry = Geometry::of(slabs);
        let file = new_file(&geometry, canaries)?;
        let mut open = registry()?;
        let space = Self::enter(file, geometry, &mut open)?;
        drop(open);
        space.begin()
    }

    /// Opens the heap in a file. Keeps the descriptor, which must be the only one of this process.
    pub(super) fn open(file: OwnedFd) -> Result<Self> {
        // This call comes first, and without the registry's lock. If the file is of another kind,
        // its file system may never reply, and then only this call hangs.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| HeapError::NotAHeap {
            what: "expected a memfd, found a descriptor of another kind",
        })?;
        // The lock is held until a file that is not a heap has been closed, because closing the
        // file would release the locks of another thread that opened the same file in the meantime.
        let mut open = registry()?;
        let space = Self::examine(file, seals, &mut open)?;
        drop(open);
        space.may_be_made()?;
        space.begin()
    }

    /// Checks the file and maps it. After an error, the file is closed, unless this process has the
    /// heap open. The file then stays open permanently.
    fn examine(file: OwnedFd, seals: SealFlags, open: &mut Vec<FileId>) -> Result<Self> {
        let stat = rustix::fs::fstat(&file).map_err(system("fstat"))?;
        if open.contains(&FileId::of(&stat)) {
            // Closing the file would release the locks of the heap that is open.
            std::mem::forget(file);
            return Err(HeapError::AlreadyOpen);
        }
        if !seals.contains(SEALS) {
            let what = "expected a memfd sealed against shrinking, growing and further seals, \
                        found a seal missing";
            return Err(HeapError::NotAHeap { what });
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            let what =
                "expected a memfd that all members may write, found it sealed against writing";
            return Err(HeapError::NotAHeap { what });
        }
        let geometry = u64::try_from(stat.st_size).ok().and_then(Geometry::of_size).ok_or(
            HeapError::NotAHeap {
                what: "expected the size of a heap, found a size that no heap has",
            },
        )?;
        let flags = rustix::fs::fcntl_getfl(&file).map_err(system("fcntl(F_GETFL)"))?;
        if !flags.contains(rustix::fs::OFlags::RDWR) {
            let what = "expected a descriptor open for reading and writing, found one that is not";
            return Err(HeapError::NotAHeap { what });
        }
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)
            .map_err(system("fcntl(F_SETFD)"))?;
        Self::enter(file, geometry, open)
    }

    /// Maps the file, and adds it to the list of open heaps.
    fn enter(file: OwnedFd, geometry: Geometry, open: &mut Vec<FileId>) -> Result<Self> {
        let guard = Guard::here().map_err(HeapError::from_guard)?;
        let id = FileId::of(&rustix::fs::fstat(&file).map_err(system("fstat"))?);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the call creates a new mapping at an address that the kernel chooses; it replaces
        // no other mapping.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), geometry.size(), access, flags, &file, 0) };
        let base = NonNull::new(base.map_err(system("mmap"))?.cast()).expect("no null mapping");
        open.push(id);
        Ok(Self { base, geometry, file: ManuallyDrop::new(file), id, guard })
    }

    /// Completes the opening. From this point on, dropping the value closes the heap.
    fn begin(self) -> Result<Self> {
        let (base, size) = (self.base.as_ptr().cast(), self.geometry.size());
        // SAFETY: the range is this mapping; the advice changes nothing in this process.
        unsafe { rustix::mm::madvise(base, size, Advice::LinuxDontFork) }
            .map_err(system("madvise(MADV_DONTFORK)"))?;
        self.wait_until_made()?;
        self.believe()?;
        Ok(self)
    }

    /// Initialises the header, and stores `ready` last.
    fn make(&self) -> Result<()> {
        self.fetch(0, self.geometry.tables())?;
        let header = self.header();
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.slabs.store(self.geometry.slabs() as u64, Ordering::Relaxed);
        // SYNC ready: pairs with the loads in `wait_until_made`.
        header.ready.store(1, Ordering::Release);
        Ok(())
    }

    /// Waits until the heap is initialised. The first process initialises it. If that process dies,
    /// the next process does.
    fn wait_until_made(&self) -> Result<()> {
        for _ in 0..LOOKS {
            // SYNC ready: pairs with the store in `make`.
            if self.header().ready.load(Ordering::Acquire) != 0 {
                return Ok(());
            }
            if self.try_lock(MAKING)? {
                // SYNC ready: pairs with the store in `make`, by the last holder of the lock.
                let made = match self.header().ready.load(Ordering::Acquire) {
                    0 => self.make(),
                    _ => Ok(()),
                };
                self.unlock(MAKING)?;
                return made;
            }
            sleep(BETWEEN_LOOKS);
        }
        Err(HeapError::NotAHeap {
            what: "expected a complete heap, found one that is still being created",
        })
    }

    /// Returns an error if the file has contents other than a heap's, because such a file must not
    /// be initialised as a heap.
    fn may_be_made(&self) -> Result<()> {
        let header = self.header();
        let (magic, version) =
            (header.magic.load(Ordering::Relaxed), header.version.load(Ordering::Relaxed));
        match (magic, version) {
            (0, 0) | (MAGIC, 0 | VERSION) | (0, VERSION) => Ok(()),
            (MAGIC, found) => Err(HeapError::VersionMismatch { found, expected: VERSION }),
            _ => Err(HeapError::NotAHeap {
                what: "expected a heap's first bytes, found other bytes",
            }),
        }
    }

    /// Checks the header against the layout's version and the size of the file.
    fn believe(&self) -> Result<()> {
        let header = self.header();
        if header.magic.load(Ordering::Relaxed) != MAGIC {
            let what = "expected a heap's first bytes, found other bytes";
            return Err(HeapError::NotAHeap { what });
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(HeapError::VersionMismatch { found: version, expected: VERSION });
        }
        if header.slabs.load(Ordering::Relaxed) != self.geometry.slabs() as u64 {
            let what = "expected as many slabs as the file's size holds, found another number";
            return Err(HeapError::NotAHeap { what });
        }
        Ok(())
    }

    /// Returns `true` in a forked child, which does not have the mapping.
    #[inline(always)]
    pub(super) fn is_forked(&self) -> bool {
        self.guard.is_forked()
    }

    #[inline(always)]
    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the file. A duplicate of it must not be closed in this process.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the address of a granule's first byte.
    #[inline(always)]
    pub(super) fn block(&self, granule: usize) -> NonNull<u8> {
        debug_assert!(granule < self.geometry.slabs() * super::layout::GRANULES);
        // SAFETY: the address is within the mapping, because callers have checked the granule
        // against the geometry.
        unsafe { self.base.add(self.geometry.block(granule)) }
    }

    /// Returns the granule of the block that begins at an address.
    #[inline(always)]
    pub(super) fn granule_at(&self, first: NonNull<u8>) -> usize {
        let offset = first.addr().get().wrapping_sub(self.block(0).addr().get());
        debug_assert!(offset.is_multiple_of(GRANULE) && offset < self.geometry.slabs() * SLAB);
        offset / GRANULE
    }

    /// Returns the block word of a granule.
    #[inline(always)]
    pub(super) fn word(&self, granule: usize) -> &AtomicU64 {
        debug_assert!(granule < self.geometry.slabs() * super::layout::GRANULES);
        // SAFETY: the word is within the mapping and aligned, and is accessed only through atomics.
        unsafe { self.at(self.geometry.word(granule)) }
    }

    /// Returns the destination of a granule.
    #[inline(always)]
    pub(super) fn destination(&self, granule: usize) -> &AtomicU64 {
        debug_assert!(granule < self.geometry.slabs() * super::layout::GRANULES);
        // SAFETY: the reason is the same as in `word`.
        unsafe { self.at(self.geometry.destination(granule)) }
    }

    /// Prefetches two cache lines of a block that its new holder will write: the first line of the
    /// block, and the line of its word. Both then arrive from the other processor at the same time,
    /// whereas two stores would wait for one line after the other.
    #[inline(always)]
    pub(super) fn prefetch(&self, granule: usize) {
        for at in [self.geometry.word(granule), self.geometry.block(granule)] {
            prefetch_to_write(self.base.as_ptr().wrapping_add(at));
        }
    }

    /// Prefetches a third line, which contains the destination. The new holder writes it if it
    /// hands the block over again.
    #[inline(always)]
    pub(super) fn prefetch_destination(&self, granule: usize) {
        let at = self.geometry.destination(granule);
        prefetch_to_write(self.base.as_ptr().wrapping_add(at));
    }

    #[inline(always)]
    pub(super) fn header(&self) -> &HeapHeader {
        // SAFETY: the header is at the start of the mapping, and consists of atomics.
        unsafe { self.at(0) }
    }

    /// Returns a member's slot.
    ///
    /// # Panics
    /// Panics if the slot does not exist.
    pub(super) fn member(&self, slot: usize) -> &MemberSlot {
        assert!(slot < super::layout::MEMBERS);
        // SAFETY: the slot is within the table, and consists of atomics.
        unsafe { self.at(Geometry::member(slot)) }
    }

    /// Returns an arena's slot.
    ///
    /// # Panics
    /// Panics if the slot does not exist.
    pub(super) fn arena(&self, index: usize) -> &ArenaSlot {
        assert!(index < super::layout::ARENAS);
        // SAFETY: the slot is within the table, and consists of atomics.
        unsafe { self.at(Geometry::arena(index)) }
    }

    /// Returns a slab's entry.
    ///
    /// # Panics
    /// Panics if the slab does not exist.
    #[inline]
    pub(super) fn slab(&self, number: usize) -> &SlabSlot {
        assert!(number < self.geometry.slabs());
        // SAFETY: the entry is within the table, and consists of atomics.
        unsafe { self.at(Geometry::slab(number)) }
    }

    /// # Safety
    /// A `T` at this offset is within the mapping, is aligned, and consists of atomics.
    #[inline(always)]
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller upholds the contract, and the mapping exists as long as `self` does.
        unsafe { self.base.add(offset).cast::<T>().as_ref() }
    }

    /// Allocates memory for a slab and its words.
    pub(super) fn fetch_slab(&self, number: usize) -> Result<()> {
        let granule = number * super::layout::GRANULES;
        self.fetch(self.geometry.word(granule), WORDS)?;
        self.fetch(self.geometry.block(granule), SLAB)
    }

    /// Allocates memory for the destinations of a slab's blocks.
    pub(super) fn fetch_destinations(&self, number: usize) -> Result<()> {
        self.fetch(self.geometry.destination(number * super::layout::GRANULES), WORDS)
    }

    /// Returns the memory of adjacent slabs to the kernel, but keeps the memory of their words.
    pub(super) fn punch(&self, first: usize, slabs: usize) -> Result<()> {
        let at = self.geometry.block(first * super::layout::GRANULES);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.allocate(flags, at, slabs * SLAB, "fallocate(FALLOC_FL_PUNCH_HOLE)")
    }

    fn fetch(&self, at: usize, bytes: usize) -> Result<()> {
        self.allocate(FallocateFlags::empty(), at, bytes, "fallocate")
    }

    fn allocate(
        &self,
        flags: FallocateFlags,
        at: usize,
        bytes: usize,
        call: &'static str,
    ) -> Result<()> {
        let mut answer = Err(Errno::INTR);
        for _ in 0..INTERRUPTIONS {
            answer = rustix::fs::fallocate(&*self.file, flags, at as u64, bytes as u64);
            if answer != Err(Errno::INTR) {
                break;
            }
        }
        answer.map_err(system(call))
    }

    /// Returns the number of bytes of a slab that have memory, or `None` if the kernel does not
    /// report it.
    pub(super) fn backed(&self, slab: usize) -> Option<usize> {
        let at = self.geometry.block(slab * super::layout::GRANULES);
        pages_inside(self.file(), at, SLAB)
    }

    /// Acquires the record lock of a member's slot. Returns `false` if the slot's member is alive,
    /// or another process holds the lock. The caller must hold a lock inside this process, because
    /// record locks do not exclude threads of one process.
    pub(super) fn try_lock_member(&self, slot: usize) -> Result<bool> {
        self.try_lock(1 + slot as u64)
    }

    /// Releases the record lock of a member's slot.
    pub(super) fn unlock_member(&self, slot: usize) -> Result<()> {
        self.unlock(1 + slot as u64)
    }

    /// Acquires the record lock under which roles are taken. Returns `false` if another process
    /// holds it.
    pub(super) fn try_lock_roles(&self) -> Result<bool> {
        self.try_lock(ROLES)
    }

    /// Releases the record lock under which roles are taken.
    pub(super) fn unlock_roles(&self) -> Result<()> {
        self.unlock(ROLES)
    }

    fn try_lock(&self, byte: u64) -> Result<bool> {
        match self.record_lock(libc::F_WRLCK, byte) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(system("fcntl(F_SETLK)")(errno)),
        }
    }

    fn unlock(&self, byte: u64) -> Result<()> {
        self.record_lock(libc::F_UNLCK, byte).map_err(system("fcntl(F_SETLK)"))
    }

    fn record_lock(&self, kind: i32, byte: u64) -> Result<(), Errno> {
        // SAFETY: the structure has only integers, for which zero is valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as _;
        lock.l_whence = libc::SEEK_SET as _;
        lock.l_start = byte as _;
        lock.l_len = 1;
        // SAFETY: the command reads one `flock`.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLK, &raw const lock) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(()),
        }
    }
}

/// Prefetches a cache line for writing, on processors that support it.
#[inline(always)]
fn prefetch_to_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // The intrinsic would prefetch for reading, unless the whole program were compiled for
        // processors that have this instruction. Other processors ignore it.
        // SAFETY: the instruction has no effect that a program can see, and never faults.
        unsafe {
            std::arch::asm!("prefetchw byte ptr [{}]", in(reg) at,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

impl Drop for HeapSpace {
    fn drop(&mut self) {
        // A forked child did not inherit the mapping, and its addresses may now belong to another
        // mapping.
        if self.guard.is_forked() {
            return;
        }
        // SAFETY: this handle owns the mapping, and every block borrows the handle.
        let unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.geometry.size()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        let Ok(mut open) = registry() else { return };
        open.retain(|id| *id != self.id);
        // SAFETY: the file is dropped once, here, and is not used afterwards. The registry's lock
        // keeps other threads from opening the same file before it is closed.
        unsafe { ManuallyDrop::drop(&mut self.file) };
    }
}

/// Creates the file of a heap, with all settings that only its creator knows. The seals are added
/// last: a file without seals is not a heap, and any process can complete a file with seals.
fn new_file(geometry: &Geometry, canaries: bool) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match rustix::fs::memfd_create("tontine-heap", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not support `NOEXEC_SEAL`.
        Err(Errno::INVAL) => rustix::fs::memfd_create("tontine-heap", flags),
        made => made,
    };
    let file = made.map_err(system("memfd_create"))?;
    let requested = geometry.size() as u64;
    if let Some(limit) = limits::exceeded_file_limit(requested) {
        return Err(HeapError::FileTooLarge { requested, limit });
    }
    rustix::fs::ftruncate(&file, requested).map_err(system("ftruncate"))?;
    if canaries {
        let at = std::mem::offset_of!(HeapHeader, canaries) as u64;
        rustix::io::pwrite(&file, &1_u64.to_le_bytes(), at).map_err(system("pwrite"))?;
    }
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("fcntl(F_ADD_SEALS)"))?;
    Ok(file)
}

fn registry() -> Result<MutexGuard<'static, Vec<FileId>>> {
    // A panic under the lock leaves the list valid.
    Ok(OPEN.get().map_err(HeapError::from_guard)?.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn system(call: &'static str) -> impl Fn(Errno) -> HeapError {
    move |errno| HeapError::System { call, errno: errno.raw_os_error() }
}

#[cfg(test)]
mod tests {
    use super::super::{Heap, canary};
    use super::*;

    /// Regression: a creator died before it initialised its heap, and the next process initialised
    /// it without canaries. Blocks were then shorter than members with canaries assumed.
    #[test]
    fn successor_initialises_heap_of_dead_creator() {
        for canaries in [false, true] {
            let file = new_file(&Geometry::of(4), canaries).expect("there is memory");
            // SAFETY: this is the process's only descriptor of the file.
            let heap = unsafe { Heap::open(file) }.expect("initialised");
            let block = heap.alloc(10).expect("space").into_handle();
            let len = heap.claim(block).expect("ours").len();
            assert_eq!(len, if canaries { 10 } else { 64 });
            assert_eq!(heap.core.behind(), if canaries { canary::BYTES } else { 0 });
        }
    }
}
