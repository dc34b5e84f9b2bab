//! `heap`: Tontine's shared heap, which must survive every kill.
//!
//! Handles of blocks pass between members through named pipes, one per receiver, each in a single
//! write: a killed member has either published a handle or not. Each member writes its identity to
//! a file.

#![allow(unsafe_code, reason = "opening a heap is unsafe, and a member outlives its blocks")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::PathBuf;
use std::ptr::NonNull;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use tontine::heap::HeapError;
use tontine::heap::shared::{Block, Heap as Shared, Member as Name, Parcel};
use tontine_mechanisms::about::Explored;

use super::heap::{Checked, HandedOver, HeapTarget, TargetMember};
use super::{CrashTarget, Operation, TargetKind};
use crate::run_dir::RunDir;

/// Size of the heap: ten slabs, all of which are needed by the longest script.
const BYTES: usize = 640 << 10;

pub(super) struct SharedHeapSubject;

impl CrashTarget for SharedHeapSubject {
    fn facts(&self) -> Explored {
        let facts = Explored::of_heap("heap", "Tontine's shared heap", &Operation::OF_A_HEAP);
        Explored { own: true, hands_over: true, ..facts }
    }

    /// A member that recovers a dead member may die during the recovery, regardless of where the
    /// first member died.
    fn succession(&self, _: Operation) -> Option<Operation> {
        Some(Operation::Recover)
    }

    /// A heap operation reads the entries of all members and arenas.
    fn longest(&self) -> usize {
        400_000
    }

    fn kind(&self) -> TargetKind<'_> {
        TargetKind::Heap(self)
    }
}

impl HeapTarget for SharedHeapSubject {
    fn recovers(&self) -> bool {
        true
    }

    fn create(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>> {
        let heap = Shared::create(BYTES).map_err(error)?;
        // SAFETY: only the descriptor's number is used.
        let number = unsafe { heap.descriptor() }.as_raw_fd();
        let file = format!("/proc/{}/fd/{number}", std::process::id());
        symlink(file, path(place))?;
        Ok(Box::new(HeapTenant::new(heap, place)))
    }

    fn join(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>> {
        let file = OwnedFd::from(File::options().read(true).write(true).open(path(place))?);
        // SAFETY: only the workers of one trial write to the file, all through this library; this
        // worker has no other descriptor of the file.
        let heap = unsafe { Shared::open(file) }.map_err(error)?;
        Ok(Box::new(HeapTenant::new(heap, place)))
    }
}

/// Returns the path of a link to the heap's file, as opened by the heap's creator. The creator
/// lives until the end of the trial.
fn path(place: &RunDir) -> PathBuf {
    place.folder().join("heap")
}

fn error(error: HeapError) -> io::Error {
    io::Error::other(error.to_string())
}

/// This process's membership.
struct HeapTenant {
    /// Pointer to the boxed heap, to which all blocks of the list belong.
    heap: NonNull<Shared>,
    blocks: Vec<Block<'static>>,
    folder: PathBuf,
    inbox: Option<File>,
    /// The other members, and the pipes from which they read.
    known: BTreeMap<u32, (Name, File)>,
}

impl HeapTenant {
    fn new(heap: Shared, place: &RunDir) -> Self {
        let heap = NonNull::from(Box::leak(Box::new(heap)));
        let folder = place.folder().to_owned();
        // No operation under test makes the list grow.
        let blocks = Vec::with_capacity(64);
        Self { heap, blocks, folder, inbox: None, known: BTreeMap::new() }
    }

    fn heap(&self) -> &'static Shared {
        // SAFETY: the heap lives until `self` is dropped. The blocks, which borrow it for longer,
        // are forgotten before that.
        unsafe { self.heap.as_ref() }
    }

    fn of(&self, what: &str, pid: u32) -> PathBuf {
        self.folder.join(format!("{what}-{pid:010}"))
    }
}

impl TargetMember for HeapTenant {
    fn allocate(&mut self, bytes: usize) -> io::Result<bool> {
        match self.heap().alloc(bytes) {
            Ok(block) => {
                self.blocks.push(block);
                Ok(true)
            }
            Err(HeapError::Full { .. }) => Ok(false),
            Err(other) => Err(error(other)),
        }
    }

    fn bytes(&mut self, at: usize) -> &mut [u8] {
        &mut self.blocks[at]
    }

    fn free(&mut self, at: usize) -> io::Result<()> {
        self.blocks.swap_remove(at).free().map_err(error)
    }

    fn listen(&mut self) -> io::Result<()> {
        let pid = std::process::id();
        let pipe = self.of("parcels", pid);
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR)?;
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        self.inbox = Some(File::options().read(true).write(true).custom_flags(flags).open(pipe)?);
        fs::write(self.of("member", pid), self.heap().member().to_u64().to_le_bytes())
    }

    fn meet(&mut self, pid: u32) -> io::Result<()> {
        let bytes = fs::read(self.of("member", pid))?;
        let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let name = Name::from_u64(number.ok_or(io::ErrorKind::UnexpectedEof)?);
        let pipe = File::options().write(true).open(self.of("parcels", pid))?;
        self.known.insert(pid, (name, pipe));
        Ok(())
    }

    fn hand_over(&mut self, at: usize, pid: u32) -> io::Result<()> {
        let block = self.blocks.swap_remove(at);
        let (to, pipe) = self.known.get_mut(&pid).ok_or(io::ErrorKind::NotFound)?;
        let parcel = match block.hand_over(*to) {
            Ok(parcel) => parcel,
            Err((why, block)) => {
                self.blocks.push(block);
                return Err(error(why));
            }
        };
        let published = pipe.write_all(&parcel.to_bytes());
        if published.is_err() {
            let block = self.heap().take_back(parcel).map_err(error)?;
            self.blocks.push(block);
        }
        published
    }

    fn accept(&mut self) -> io::Result<Option<HandedOver>> {
        let inbox = self.inbox.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut bytes = [0; Parcel::SIZE];
        match inbox.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        match self.heap().accept(Parcel::from_bytes(bytes)) {
            Ok(block) => {
                self.blocks.push(block);
                Ok(Some(HandedOver::Taken))
            }
            Err(HeapError::Stale { .. }) => Ok(Some(HandedOver::Stale)),
            Err(other) => Err(error(other)),
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        for (name, _) in self.known.values() {
            self.heap().reclaim_sent(*name).map_err(error)?;
        }
        let dead = self.heap().dead_members().map_err(error)?;
        self.heap().reclaim_received(&dead).map_err(error).map(drop)
    }

    fn recover(&mut self) -> io::Result<()> {
        self.heap().recover_and_trim().map_err(error).map(drop)
    }

    fn check(&mut self) -> io::Result<Checked> {
        let report = self.heap().check().map_err(error)?;
        Ok(match report.faults.first() {
            Some(fault) => Checked::Faulty(fault.to_string()),
            None => Checked::Sound { in_use: report.in_use(), committed: report.committed() },
        })
    }
}

impl Drop for HeapTenant {
    /// Leaves the heap without freeing any block, like a member that forgets its blocks.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut self.blocks));
        // SAFETY: the pointer is from the box in `new`, and none of the heap's blocks remains.
        drop(unsafe { Box::from_raw(self.heap.as_ptr()) });
    }
}
