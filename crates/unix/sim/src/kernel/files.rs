//! The system calls on descriptors, and those on pipes.

use std::sync::Arc;

use tontine_unix::{Errno, Fd, Resource, Result, SigCode, SigInfo, Signal};

use super::Kernel;
use super::call::{Caller, Partial, RestartRule};
use super::descriptors::{Channel, ChannelState, FileEnd, OpenFile};
use super::generate::To;
use super::pipe::{KernelPipe, PipeRead, PipeWrite};
use super::proc::Proc;
use super::sleepers::Sleepers;
use super::thread::WaitChannel;
use crate::costs::CostKind;
use crate::executor;
use crate::lock::SimpleLock;

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

    fn read_pipe(&self, channel: &Channel, buffer: &mut [u8]) -> Partial<usize> {
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

    fn write_pipe(&self, channel: &Channel, bytes: &[u8], written: &mut usize) -> Partial<usize> {
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
