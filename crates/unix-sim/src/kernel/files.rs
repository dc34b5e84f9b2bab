//! Descriptors ([`DescriptorTable`]) and the files that they name ([`OpenFile`]): ends of pipes and
//! of terminals, and the null device.

use std::mem;
use std::sync::Arc;

use tontine_unix::{Errno, Fd, Resource, Result, SigCode, SigInfo, Signal};

use super::Kernel;
use super::awaited::PipeEnd;
use super::call::{Caller, RestartRule, Unfinished};
use super::generate::To;
use super::pipe::{KernelPipe, PipeRead, PipeWrite};
use super::proc::Proc;
use super::sleepers::Sleepers;
use super::terminal::Terminal;
use super::thread::WaitChannel;
use crate::costs::CostKind;
use crate::executor;
use crate::lock::SimpleLock;
use crate::lock::lock_order::TLock;

/// The descriptors of a process, by number. Numbers past the end of the list are
/// [`FileEntry::untouched`]: with an empty list, the standard descriptors are the null device. Most
/// processes have an empty list. A process that has ended has one too, but no call reads it.
#[derive(Debug, Clone, Default)]
pub(super) struct DescriptorTable(Vec<FileEntry>);

/// The entry for a descriptor number.
#[derive(Debug, Clone)]
enum FileEntry {
    Free,
    /// The null device. It needs no [`OpenFile`], which all processes would share.
    Null,
    Open(Descriptor),
}

/// Number of standard descriptors.
const STANDARD: usize = 3;

/// Maximum value of any limit, as in `/proc/sys/fs/nr_open`.
pub(super) const MOST: u64 = 1 << 20;

#[derive(Debug, Clone)]
struct Descriptor {
    file: Arc<OpenFile>,
    /// `true` for every new descriptor, `false` for copies that `dup2` makes.
    closed_by_exec: bool,
}

/// The file that a descriptor names. It is closed when its last descriptor is closed.
#[derive(Debug)]
pub(super) struct OpenFile {
    end: FileEnd,
    /// The kernel, which is notified when the file is closed.
    kernel: super::KernelHandle,
}

#[derive(Debug)]
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
#[derive(Debug)]
pub(super) struct Channel {
    state: SimpleLock<TLock, ChannelState>,
}

#[derive(Debug)]
struct ChannelState {
    pipe: KernelPipe,
    sleepers: Sleepers,
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
    fn get(&self, kernel: &Kernel, descriptor: Fd) -> Result<Arc<OpenFile>> {
        let at = usize::try_from(descriptor.0).map_err(|_| Errno::EBADF)?;
        match self.0.get(at).unwrap_or(&FileEntry::untouched(at)) {
            FileEntry::Free => Err(Errno::EBADF),
            FileEntry::Null => Ok(OpenFile::new(kernel, FileEnd::Null)),
            FileEntry::Open(descriptor) => Ok(Arc::clone(&descriptor.file)),
        }
    }

    /// Returns the lowest free number below `limit`.
    fn lowest(&self, limit: u64) -> Result<usize> {
        let free = self.0.iter().position(|slot| matches!(slot, FileEntry::Free));
        let at = free.unwrap_or(self.0.len().max(STANDARD));
        if at as u64 >= limit.min(MOST) { Err(Errno::EMFILE) } else { Ok(at) }
    }

    /// Returns the entry of this number.
    fn slot(&mut self, at: usize) -> &mut FileEntry {
        let untouched = self.0.len()..=at;
        self.0.extend(untouched.map(FileEntry::untouched));
        &mut self.0[at]
    }

    /// Opens `file` under the lowest free number.
    fn insert(&mut self, file: Arc<OpenFile>, limit: u64) -> Result<Fd> {
        let at = self.lowest(limit)?;
        *self.slot(at) = FileEntry::Open(Descriptor { file, closed_by_exec: true });
        Ok(Fd(at as i32))
    }

    /// Opens descriptor `at` of a process that starts with a terminal.
    pub(super) fn open_at(&mut self, file: Arc<OpenFile>, at: Fd) {
        self.replace(file, at, MOST).expect("a small number");
    }

    /// Makes `to` another name of `file`. Returns the previous file of `to`.
    fn replace(
        &mut self,
        file: Arc<OpenFile>,
        to: Fd,
        limit: u64,
    ) -> Result<Option<Arc<OpenFile>>> {
        let at = usize::try_from(to.0).map_err(|_| Errno::EBADF)?;
        if at as u64 >= limit.min(MOST) {
            return Err(Errno::EBADF);
        }
        let now = FileEntry::Open(Descriptor { file, closed_by_exec: false });
        Ok(mem::replace(self.slot(at), now).file())
    }

    /// Removes a descriptor. Returns its file, or `None` if it was the null device.
    fn remove(&mut self, descriptor: Fd) -> Result<Option<Arc<OpenFile>>> {
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
    fn open(&self) -> impl Iterator<Item = &Descriptor> {
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
    fn executed(&mut self) -> Vec<FileEntry> {
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
    fn number(&self) -> i32 {
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

impl Caller<'_> {
    pub(super) fn file(&self, descriptor: Fd) -> Result<Arc<OpenFile>> {
        self.state().files.get(self.kernel, descriptor)
    }

    pub(super) fn make_pipe(&self) -> Result<(Fd, Fd)> {
        self.guarded(|| {
            let state = ChannelState { pipe: KernelPipe::new(), sleepers: Sleepers::default() };
            let channel =
                Arc::new(Channel { state: SimpleLock::new(self.kernel.instance(), state) });
            self.add_two(FileEnd::Reader(Arc::clone(&channel)), FileEnd::Writer(channel))
        })
    }

    /// Adds two descriptors, or none if either cannot be added.
    pub(super) fn add_two(&self, one: FileEnd, other: FileEnd) -> Result<(Fd, Fd)> {
        let first = self.add(one)?;
        match self.add(other) {
            Ok(second) => Ok((first, second)),
            Err(errno) => {
                let closed = self.state().files.remove(first);
                drop(closed);
                Err(errno)
            }
        }
    }

    /// Checks that another descriptor can be created.
    pub(super) fn check_space(&self) -> Result<()> {
        let state = self.state();
        state.files.lowest(state.limits.of(Resource::Descriptors).soft).map(drop)
    }

    pub(super) fn add(&self, end: FileEnd) -> Result<Fd> {
        let file = OpenFile::new(self.kernel, end);
        let mut state = self.state();
        let limit = state.limits.of(Resource::Descriptors).soft;
        let added = state.files.insert(Arc::clone(&file), limit);
        // This may be the last reference, so it is dropped after the lock.
        drop(state);
        added
    }

    pub(super) fn read_from(&self, descriptor: Fd, buffer: &mut [u8]) -> Result<usize> {
        self.interruptible(RestartRule::Restart, || {
            let file = self.file(descriptor)?;
            self.note_sleep_object(&file.end);
            match &file.end {
                FileEnd::Null => Ok(0),
                FileEnd::Reader(channel) => self.read_pipe(channel, buffer),
                FileEnd::Writer(_) => Err(Errno::EBADF.into()),
                FileEnd::Terminal(terminal) => self.read_terminal(terminal, buffer),
                FileEnd::Controlling(terminal) => self.read_output(terminal, buffer),
            }
        })
    }

    pub(super) fn write_to(&self, descriptor: Fd, bytes: &[u8]) -> Result<usize> {
        let mut written = 0;
        self.interruptible(RestartRule::Restart, || {
            let file = self.file(descriptor)?;
            self.note_sleep_object(&file.end);
            match &file.end {
                FileEnd::Null => Ok(bytes.len()),
                FileEnd::Reader(_) => Err(Errno::EBADF.into()),
                FileEnd::Writer(channel) => self.write_pipe(channel, bytes, &mut written),
                FileEnd::Terminal(terminal) => self.write_terminal(terminal, bytes, &mut written),
                FileEnd::Controlling(terminal) => self.write_input(terminal, bytes, &mut written),
            }
        })
    }

    /// Records the object that a read or a write may sleep for.
    fn note_sleep_object(&self, end: &FileEnd) {
        match end {
            FileEnd::Reader(channel) | FileEnd::Writer(channel) => {
                self.thread.waits_for(WaitChannel::Pipe(channel.number()));
            }
            FileEnd::Terminal(_) | FileEnd::Controlling(_) => {
                self.thread.waits_for(WaitChannel::Terminal)
            }
            FileEnd::Null => {}
        }
    }

    fn read_pipe(
        &self,
        channel: &Channel,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, Unfinished> {
        loop {
            executor::spend(CostKind::Bytes);
            {
                let mut state = channel.state.lock(&self.kernel.locks);
                match state.pipe.read(buffer) {
                    PipeRead::Bytes(n) => {
                        state.sleepers.wake();
                        return Ok(n);
                    }
                    PipeRead::End => return Ok(0),
                    PipeRead::WouldWait => state.sleepers.add(executor::current()),
                }
            }
            self.sleep_once()?;
        }
    }

    fn write_pipe(
        &self,
        channel: &Channel,
        bytes: &[u8],
        written: &mut usize,
    ) -> std::result::Result<usize, Unfinished> {
        while *written < bytes.len() {
            executor::spend(CostKind::Bytes);
            let wrote = {
                let mut state = channel.state.lock(&self.kernel.locks);
                let wrote = state.pipe.write(&bytes[*written..]);
                match wrote {
                    PipeWrite::Bytes(_) => state.sleepers.wake(),
                    PipeWrite::WouldWait => state.sleepers.add(executor::current()),
                    PipeWrite::Broken => {}
                }
                wrote
            };
            match wrote {
                PipeWrite::Bytes(n) => *written += n,
                PipeWrite::Broken => {
                    self.signal_broken_pipe();
                    if *written > 0 {
                        break;
                    }
                    return Err(Errno::EPIPE.into());
                }
                PipeWrite::WouldWait if self.sleep_for_space(*written)? => {}
                PipeWrite::WouldWait => break,
            }
        }
        Ok(*written)
    }

    /// Sends SIGPIPE to this thread, as if from itself, even if part of the data was written.
    fn signal_broken_pipe(&self) {
        let (pid, uid) = (self.proc.number(), self.proc.ids().real);
        let info = SigInfo { code: SigCode::User, pid, uid, ..SigInfo::kernel(Signal::PIPE) };
        self.kernel.post_own(&mut self.state(), info, To::Thread(self.thread.tid()));
    }

    pub(super) fn close_one(&self, descriptor: Fd) -> Result<()> {
        self.guarded(|| {
            let closed = self.state().files.remove(descriptor);
            closed.map(drop)
        })
    }

    pub(super) fn duplicate(&self, from: Fd, to: Fd) -> Result<()> {
        self.guarded(|| {
            let file = self.file(from)?;
            if from == to {
                return Ok(());
            }
            let before = {
                let mut state = self.state();
                let limit = state.limits.of(Resource::Descriptors).soft;
                state.files.replace(file, to, limit)
            };
            before.map(drop)
        })
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

impl Kernel {
    /// Sets the descriptors of a process that is about to call exec for `spawn`: the second
    /// descriptor of each pair then names the file that the first one named before the call.
    pub(super) fn move_descriptors(&self, proc: &Proc, moves: &[(Fd, Fd)]) -> Result<()> {
        let mut closed = Vec::new();
        let mut state = proc.lock(&self.locks);
        let limit = state.limits.of(Resource::Descriptors).soft;
        let files: Vec<_> =
            moves.iter().map(|&(from, _)| state.files.get(self, from)).collect::<Result<_>>()?;
        let moved = files.into_iter().zip(moves).try_for_each(|(file, &(_, to))| {
            closed.extend(state.files.replace(file, to, limit)?);
            Ok(())
        });
        drop(state);
        moved
    }

    /// Closes the descriptors that `exec` closes.
    pub(super) fn close_for_exec(&self, proc: &Proc) {
        let mut state = proc.lock(&self.locks);
        let closes = state.files.open().any(|descriptor| descriptor.closed_by_exec);
        let closed = closes.then(|| state.files.executed());
        drop(state);
        drop(closed);
    }
}
