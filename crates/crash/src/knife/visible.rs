//! What others can see of a victim: [`Visible`].
//!
//! That is every byte of memory that it shares and may write, and the head of the list by which the
//! kernel finds its robust mutexes when it dies. Whatever lies in the kernel (pipes, queues,
//! sockets) changes by system calls, and these are counted.
//!
//! Memory that it shares and may only read is written by others, who rest while it is stepped.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};

use rustix::process::Pid;

use super::recording::Moment;
use super::trace::Trace;
use tontine_host::trouble::{During, Result, Trouble};

/// The head of a robust list: the list, an offset, the mutex in the making.
const ROBUST_HEAD: usize = 24;

/// Bytes that one instruction stores at most.
const WIDEST: u64 = 64;

/// What a step may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Touched {
    /// No memory but the stack's.
    Nothing,
    /// What lies at this address.
    At(u64),
    /// Whatever there is.
    #[default]
    Anything,
}

/// The visible state, point for point, and the classes that it makes.
#[derive(Debug)]
pub(super) struct Visible {
    trace: Trace,
    pid: Pid,
    /// Whether nobody else changes what is shared meanwhile.
    alone: bool,
    regions: Vec<(u64, usize)>,
    now: Vec<u8>,
    last: Vec<u8>,
    digest: u64,
    classes: HashMap<(u64, u32, Option<Moment>), u32>,
}

impl Visible {
    /// Looks the victim's mappings up.
    pub(super) fn new(trace: Trace, pid: Pid, alone: bool) -> Result<Self> {
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

    /// Looks the mappings up again, after a system call that may have changed them.
    pub(super) fn look_up(&mut self) -> Result<()> {
        let maps = maps(self.pid)?;
        self.regions = maps.lines().filter_map(shared_and_writable).collect();
        self.regions.extend(self.trace.robust_list().map(|head| (head, ROBUST_HEAD)));
        let length = self.regions.iter().map(|(_, length)| length).sum();
        self.now = vec![0; length];
        self.last = Vec::new();
        Ok(())
    }

    /// The class of the state as it is now. A victim that is about to enter a call, asleep in one
    /// or back from the operation is in a class of its own each time.
    pub(super) fn class(&mut self, calls: u32, moment: Moment, touched: Touched) -> Result<u32> {
        let same = self.is_untouched(touched);
        // Where tests run, what is said of instructions is seen to be so.
        if !same || cfg!(debug_assertions) {
            let before = self.digest;
            self.look()?;
            if same && self.digest != before {
                return Err(Trouble::fail("an instruction stored to memory unexpectedly"));
            }
        }
        let apart = !matches!(moment, Moment::Instruction | Moment::Exit);
        let next = self.classes.len() as u32;
        let key = (self.digest, calls, apart.then_some(moment));
        Ok(*self.classes.entry(key).or_insert(next))
    }

    /// Whether the last step cannot have changed anything of it.
    fn is_untouched(&self, touched: Touched) -> bool {
        let near = |place: u64| {
            let ends = place.saturating_add(WIDEST);
            let end = |from: u64, length: usize| from.saturating_add(length as u64);
            self.regions.iter().any(|(from, length)| *from < ends && place < end(*from, *length))
        };
        let touched = match touched {
            Touched::Nothing => false,
            Touched::At(place) => near(place),
            Touched::Anything => true,
        };
        self.alone && !touched && !self.last.is_empty()
    }

    /// Reads all of it.
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

    /// How many classes there have been.
    pub(super) fn classes(&self) -> u32 {
        self.classes.len() as u32
    }
}

/// The text of `/proc/PID/maps`.
pub(super) fn maps(pid: Pid) -> Result<String> {
    let path = format!("/proc/{}/maps", pid.as_raw_nonzero());
    fs::read_to_string(&path).during(&path)
}

/// `7f00-7f10 rw-s 00000000 00:01 5 /dev/shm/x`: where it begins, and how long it is.
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
    fn only_what_is_shared_and_writable_counts() {
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
