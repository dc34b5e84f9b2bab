//! The construction of a [`Recording`]: [`StopLog`] adds one [`WalkStop`] at a time.

use rustix::process::Pid;

use super::recording::{RecordedPoint, Recording, StopKind};
use super::trace::TracedTask;
use super::visible::{SharedState, StoreEffect, maps};
use tontine_bench::error::Result;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WalkStop {
    pub(super) address: u64,
    pub(super) arrival: u32,
    pub(super) repeated: u32,
    pub(super) calls: u32,
    pub(super) moment: StopKind,
    /// Memory that may have changed since the previous stop.
    pub(super) touched: StoreEffect,
}

/// A recording that is not complete yet.
pub(super) struct StopLog {
    pid: Pid,
    visible: SharedState,
    points: Vec<RecordedPoint>,
}

impl StopLog {
    /// Creates an empty log for a victim at its first mark; `alone` is true if no other thread or
    /// process runs.
    pub(super) fn new(trace: TracedTask, pid: Pid, alone: bool) -> Result<Self> {
        let visible = SharedState::new(trace, pid, alone)?;
        Ok(Self { pid, visible, points: Vec::new() })
    }

    /// Adds one stop.
    pub(super) fn enter(&mut self, position: WalkStop) -> Result<()> {
        if position.moment == StopKind::Exit {
            self.visible.look_up()?;
        }
        self.points.push(RecordedPoint {
            address: position.address,
            code: String::new(),
            arrival: position.arrival,
            repeated: position.repeated,
            calls: position.calls,
            moment: position.moment,
            class: self.visible.class(position.calls, position.moment, position.touched)?,
        });
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns `true` if the last stop was the end of the operation.
    pub(super) fn is_whole(&self) -> bool {
        self.points.last().is_some_and(|last| last.moment == StopKind::Returned)
    }

    /// Names all points and returns the recording.
    pub(super) fn finish(mut self, stepped: bool) -> Result<Recording> {
        let objects = Objects::of(&maps(self.pid)?);
        for point in &mut self.points {
            point.code = objects.name(point.address);
        }
        Ok(Recording { points: self.points, classes: self.visible.classes(), stepped })
    }
}

/// The objects that a process has mapped, which give addresses their names.
struct Objects(Vec<(u64, u64, u64, String)>);

impl Objects {
    fn of(maps: &str) -> Self {
        let object = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [range, _, offset, _, _, path, ..] = words[..] else {
                return None;
            };
            let (from, to) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            Some((number(from)?, number(to)?, number(offset)?, name))
        };
        Self(maps.lines().filter_map(object).collect())
    }

    fn name(&self, address: u64) -> String {
        let object = self.0.iter().find(|(from, to, ..)| (*from..*to).contains(&address));
        match object {
            Some((from, _, offset, name)) => format!("{name}+{:#x}", address - from + offset),
            None => format!("{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_named_by_object_and_offset() {
        let objects = Objects::of(
            "7f00000-7f10000 r-xp 00002000 00:01 5 /usr/lib/libc.so.6\n\
             8000000-8001000 rw-p 00000000 00:00 0\n",
        );
        assert_eq!(objects.name(0x7f0_0010), "libc.so.6+0x2010");
        assert_eq!(objects.name(0x800_0000), "0x8000000");
    }
}
