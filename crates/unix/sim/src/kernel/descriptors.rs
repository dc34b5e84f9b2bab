//! Descriptors ([`DescriptorTable`]) and the files that they name ([`OpenFile`]): ends of pipes and
//! of terminals, and the null device. [`files`](super::files) implements the system calls.

use std::mem;
use std::sync::Arc;

use tontine_unix::{Errno, Fd, Result};

use super::Kernel;
use super::limits::MOST_DESCRIPTORS;
use super::pipe::{KernelPipe, PipeEnd};
use super::session::Terminal;
use super::sleepers::Sleepers;
use crate::lock::SimpleLock;
use crate::lock::lock_order::TLock;

/// The descriptors of a process, by number. Numbers past the end of the list are
/// [`FileEntry::untouched`]: with an empty list, the standard descriptors are the null device. Most
/// processes have an empty list. A process that has ended has one too, but no call reads it.
#[derive(Clone, Default)]
pub(super) struct DescriptorTable(Vec<FileEntry>);

/// The entry for a descriptor number.
#[derive(Clone)]
pub(super) enum FileEntry {
    Free,
    /// The null device. It needs no [`OpenFile`], which all processes would share.
    Null,
    Open(Descriptor),
}

/// Number of standard descriptors.
const STANDARD: usize = 3;

#[derive(Clone)]
pub(super) struct Descriptor {
    file: Arc<OpenFile>,
    /// `true` for every new descriptor, `false` for copies that `dup2` makes.
    pub(super) closed_by_exec: bool,
}

/// The file that a descriptor names. It is closed when its last descriptor is closed.
pub(super) struct OpenFile {
    pub(super) end: FileEnd,
    /// The kernel, which is notified when the file is closed.
    kernel: super::KernelHandle,
}

pub(super) enum FileEnd {
    /// The null device: reads return end-of-file, and writes are discarded.
    Null,
    /// The reading end of a pipe.
    Reader(Arc<Channel>),
    /// The writing end of a pipe.
    Writer(Arc<Channel>),
    /// The end of a terminal that processes use.
    Terminal(Arc<Terminal>),
    /// The controlling end of a terminal, which a user holds.
    Controlling(Arc<Terminal>),
}

/// A pipe, and the fibers that wait for it to change.
pub(super) struct Channel {
    pub(super) state: SimpleLock<TLock, ChannelState>,
}

pub(super) struct ChannelState {
    pub(super) pipe: KernelPipe,
    pub(super) sleepers: Sleepers,
}

impl FileEntry {
    /// Returns the entry of a number that the process has neither opened nor closed: the null
    /// device for standard descriptors.
    fn untouched(at: usize) -> Self {
        if at < STANDARD { Self::Null } else { Self::Free }
    }

    fn open(&self) -> Option<&Descriptor> {
        match self {
            Self::Open(descriptor) => Some(descriptor),
            Self::Free | Self::Null => None,
        }
    }

    fn file(self) -> Option<Arc<OpenFile>> {
        match self {
            Self::Open(descriptor) => Some(descriptor.file),
            Self::Free | Self::Null => None,
        }
    }
}

impl DescriptorTable {
    pub(super) fn get(&self, kernel: &Kernel, descriptor: Fd) -> Result<Arc<OpenFile>> {
        let at = usize::try_from(descriptor.0).map_err(|_| Errno::EBADF)?;
        match self.0.get(at).unwrap_or(&FileEntry::untouched(at)) {
            FileEntry::Free => Err(Errno::EBADF),
            FileEntry::Null => Ok(OpenFile::new(kernel, FileEnd::Null)),
            FileEntry::Open(descriptor) => Ok(Arc::clone(&descriptor.file)),
        }
    }

    /// Returns the lowest free number below `limit`.
    pub(super) fn lowest(&self, limit: u64) -> Result<usize> {
        let free = self.0.iter().position(|slot| matches!(slot, FileEntry::Free));
        let at = free.unwrap_or(self.0.len().max(STANDARD));
        if at as u64 >= limit.min(MOST_DESCRIPTORS) { Err(Errno::EMFILE) } else { Ok(at) }
    }

    /// Returns the entry of this number.
    fn slot(&mut self, at: usize) -> &mut FileEntry {
        let untouched = self.0.len()..=at;
        self.0.extend(untouched.map(FileEntry::untouched));
        &mut self.0[at]
    }

    /// Opens `file` under the lowest free number.
    pub(super) fn insert(&mut self, file: Arc<OpenFile>, limit: u64) -> Result<Fd> {
        let at = self.lowest(limit)?;
        *self.slot(at) = FileEntry::Open(Descriptor { file, closed_by_exec: true });
        Ok(Fd(at as i32))
    }

    /// Opens descriptor `at` of a process that starts with a terminal.
    pub(super) fn open_at(&mut self, file: Arc<OpenFile>, at: Fd) {
        self.replace(file, at, MOST_DESCRIPTORS).expect("a small number");
    }

    /// Makes `to` another name of `file`. Returns the previous file of `to`.
    pub(super) fn replace(
        &mut self,
        file: Arc<OpenFile>,
        to: Fd,
        limit: u64,
    ) -> Result<Option<Arc<OpenFile>>> {
        let at = usize::try_from(to.0).map_err(|_| Errno::EBADF)?;
        if at as u64 >= limit.min(MOST_DESCRIPTORS) {
            return Err(Errno::EBADF);
        }
        let now = FileEntry::Open(Descriptor { file, closed_by_exec: false });
        Ok(mem::replace(self.slot(at), now).file())
    }

    /// Removes a descriptor. Returns its file, or `None` if it was the null device.
    pub(super) fn remove(&mut self, descriptor: Fd) -> Result<Option<Arc<OpenFile>>> {
        let at = usize::try_from(descriptor.0).map_err(|_| Errno::EBADF)?;
        if at >= self.0.len().max(STANDARD) {
            return Err(Errno::EBADF);
        }
        match mem::replace(self.slot(at), FileEntry::Free) {
            FileEntry::Free => Err(Errno::EBADF),
            removed => Ok(removed.file()),
        }
    }

    /// Returns the descriptors that name an open file.
    pub(super) fn open(&self) -> impl Iterator<Item = &Descriptor> {
        self.0.iter().filter_map(FileEntry::open)
    }

    /// Returns the open ends of pipes, by the numbers of the pipes' locks. Each end appears once.
    pub(super) fn pipe_ends(&self) -> Vec<(i32, PipeEnd)> {
        let mut ends: Vec<_> =
            self.open().filter_map(|descriptor| descriptor.file.end.of_pipe()).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// Removes the entries that `exec` closes, and returns them.
    pub(super) fn executed(&mut self) -> Vec<FileEntry> {
        let closed =
            self.0.iter_mut().filter(|slot| slot.open().is_some_and(|it| it.closed_by_exec));
        closed.map(|slot| mem::replace(slot, FileEntry::Free)).collect()
    }
}

impl FileEnd {
    /// Returns the pipe's number, if the file is an end of a pipe.
    fn of_pipe(&self) -> Option<(i32, PipeEnd)> {
        match self {
            Self::Reader(channel) => Some((channel.number(), PipeEnd::Reader)),
            Self::Writer(channel) => Some((channel.number(), PipeEnd::Writer)),
            Self::Null | Self::Terminal(_) | Self::Controlling(_) => None,
        }
    }
}

impl Channel {
    /// Returns the number that identifies the pipe, which is the number of its lock.
    pub(super) fn number(&self) -> i32 {
        self.state.instance() as i32
    }
}

impl OpenFile {
    pub(super) fn new(kernel: &Kernel, end: FileEnd) -> Arc<Self> {
        if let FileEnd::Terminal(terminal) = &end {
            terminal.open(kernel);
        }
        Arc::new(Self { end, kernel: kernel.handle() })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let kernel = self.kernel.get();
        match &self.end {
            FileEnd::Null => {}
            FileEnd::Reader(channel) => {
                let mut state = channel.state.lock(&kernel.locks);
                state.pipe.drop_reader();
                state.sleepers.wake();
            }
            FileEnd::Writer(channel) => {
                let mut state = channel.state.lock(&kernel.locks);
                state.pipe.drop_writer();
                state.sleepers.wake();
            }
            FileEnd::Terminal(terminal) => terminal.close(kernel),
            FileEnd::Controlling(terminal) => terminal.hang_up(kernel),
        }
    }
}

impl OpenFile {
    /// Returns the terminal, and `true` if this is its controlling end.
    pub(super) fn terminal(&self) -> Result<(&Arc<Terminal>, bool)> {
        match &self.end {
            FileEnd::Terminal(terminal) => Ok((terminal, false)),
            FileEnd::Controlling(terminal) => Ok((terminal, true)),
            _ => Err(Errno::ENOTTY),
        }
    }
}
