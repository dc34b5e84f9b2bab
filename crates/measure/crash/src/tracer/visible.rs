//! The state of a victim that others can see: [`SharedState`].
//!
//! It consists of every byte of memory that the victim shares and may write, and of the head of the
//! list by which the kernel finds its robust mutexes when it dies. State in the kernel (pipes,
//! queues, sockets) changes only by system calls, which are counted.
//!
//! Memory that the victim shares but may only read is written by others, which sleep while the
//! victim is stepped.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};

use rustix::process::Pid;

use super::recording::StopKind;
use super::stores::WIDEST;
use super::trace::TracedTask;
use tontine_bench::error::{ErrorContext, MeasureError, Result};

/// Size of the head of a robust list in bytes: the list, an offset, and the pending mutex.
const ROBUST_HEAD: usize = 24;

/// Memory that a step may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum StoreEffect {
    /// No memory except the stack.
    Nothing,
    /// Memory at this address.
    At(u64),
    /// Any memory.
    #[default]
    Anything,
}

/// The visible state at successive points, and the resulting classes.
#[derive(Debug)]
pub(super) struct SharedState {
    trace: TracedTask,
    pid: Pid,
    /// `true` if no other process changes the shared memory during the walk.
    alone: bool,
    regions: Vec<(u64, usize)>,
    now: Vec<u8>,
    last: Vec<u8>,
    digest: u64,
    classes: HashMap<(u64, u32, Option<StopKind>), u32>,
}

impl SharedState {
    pub(super) fn new(trace: TracedTask, pid: Pid, alone: bool) -> Result<Self> {
        let mut visible = Self {
            trace,
            pid,
            alone,
            regions: Vec::new(),
            now: Vec::new(),
            last: Vec::new(),
            digest: 0,
            classes: HashMap::new(),
        };
        visible.look_up()?;
        Ok(visible)
    }

    /// Reads the mappings again after a system call that may have changed them.
    pub(super) fn look_up(&mut self) -> Result<()> {
        let maps = maps(self.pid)?;
        self.regions = maps.lines().filter_map(shared_and_writable).collect();
        self.regions.extend(self.trace.robust_list().map(|head| (head, ROBUST_HEAD)));
        let length = self.regions.iter().map(|(_, length)| length).sum();
        self.now = vec![0; length];
        self.last = Vec::new();
        Ok(())
    }

    /// Returns the class of the current state. A victim that is about to enter a call, is asleep in
    /// one or is back from the operation has a new class each time.
    pub(super) fn class(
        &mut self,
        calls: u32,
        moment: StopKind,
        touched: StoreEffect,
    ) -> Result<u32> {
        let same = self.is_untouched(touched);
        // Debug builds compare the decoding of instructions with the memory.
        if !same || cfg!(debug_assertions) {
            let before = self.digest;
            self.look()?;
            if same && self.digest != before {
                return Err(MeasureError::fail("an instruction stored to memory unexpectedly"));
            }
        }
        let apart = !matches!(moment, StopKind::Instruction | StopKind::Exit);
        let next = self.classes.len() as u32;
        let key = (self.digest, calls, apart.then_some(moment));
        Ok(*self.classes.entry(key).or_insert(next))
    }

    /// Returns `true` if the last step cannot have changed any of the state.
    fn is_untouched(&self, touched: StoreEffect) -> bool {
        let near = |place: u64| {
            let ends = place.saturating_add(WIDEST);
            let end = |from: u64, length: usize| from.saturating_add(length as u64);
            self.regions.iter().any(|(from, length)| *from < ends && place < end(*from, *length))
        };
        let touched = match touched {
            StoreEffect::Nothing => false,
            StoreEffect::At(place) => near(place),
            StoreEffect::Anything => true,
        };
        self.alone && !touched && !self.last.is_empty()
    }

    /// Reads all visible memory and updates the digest.
    fn look(&mut self) -> Result<()> {
        self.trace.read(&self.regions, &mut self.now).during("process_vm_readv")?;
        if self.now != self.last {
            let mut hasher = DefaultHasher::new();
            self.regions.hash(&mut hasher);
            self.now.hash(&mut hasher);
            self.digest = hasher.finish();
            std::mem::swap(&mut self.now, &mut self.last);
            self.now.resize(self.last.len(), 0);
        }
        Ok(())
    }

    pub(super) fn classes(&self) -> u32 {
        self.classes.len() as u32
    }
}

pub(super) fn maps(pid: Pid) -> Result<String> {
    let path = format!("/proc/{}/maps", pid.as_raw_nonzero());
    fs::read_to_string(&path).during(&path)
}

/// Parses `7f00-7f10 rw-s 00000000 00:01 5 /dev/shm/x` and returns the start and the length of the
/// mapping.
fn shared_and_writable(line: &str) -> Option<(u64, usize)> {
    let mut words = line.split_whitespace();
    let (range, access) = (words.next()?, words.next()?);
    let (from, to) = range.split_once('-')?;
    let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
    let shared = access.starts_with("rw") && access.ends_with('s');
    shared.then_some((from, usize::try_from(to.checked_sub(from)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_or_read_only_mappings_are_skipped() {
        let shared = "7f5a0000-7f5a2000 rw-s 00000000 00:1a 77   /dev/shm/ring";
        assert_eq!(shared_and_writable(shared), Some((0x7f5a_0000, 0x2000)));
        for line in [
            "7f5a0000-7f5a2000 r--s 00000000 00:1a 77   /dev/shm/ring",
            "7f5a0000-7f5a2000 rw-p 00000000 00:00 0    [heap]",
            "rubbish",
        ] {
            assert_eq!(shared_and_writable(line), None, "{line}");
        }
    }
}
