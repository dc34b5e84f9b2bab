//! A traced worker in the middle of a marked command: [`TracedVictim`].
//!
//! [`TracedVictim::record`] steps through the operation once. [`TracedVictim::reach`] brings a
//! fresh victim to one of the recorded points: to an instruction by a breakpoint register and the
//! number of arrivals, to a system call by counting calls. A victim that takes another path than
//! the recording has *diverged*, and its run gives no verdict.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::WaitOptions;

use super::log::{StopLog, WalkStop};
use super::recording::{RecordedPoint, Recording, StopKind};
use super::registers::{MARK, Registers, is_system_call};
use super::stores::{StoreOperand, store_of};
use super::trace::{Resume, TracedTask};
use super::visible::StoreEffect;
use crate::actor::order::WorkerCommand;
use crate::worker_launcher::WorkerProcess;
use tontine_bench::error::{MeasureError, Result};

/// Maximum time without a stop before a victim counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum sleep in a system call after which a victim counts as blocked.
const ASLEEP: Duration = Duration::from_millis(8);

/// Maximum wait for the victim's other threads to fall asleep or end.
const SETTLED: Duration = Duration::from_secs(1);

/// Number of checks of the victim's state before the watcher begins to sleep between checks.
const SPINS: u32 = 64;

/// Time between two checks.
const PAUSE: Duration = Duration::from_micros(50);

/// Signal of a stop at a system call, distinct from SIGTRAP (PTRACE_O_TRACESYSGOOD).
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;

#[derive(Debug)]
pub(crate) struct TracedVictim<'a> {
    actor: &'a mut WorkerProcess,
    trace: TracedTask,
    /// `true` if the tracer waits for the victim's other threads.
    settles: bool,
    /// Instructions reached so far, valid as long as the mappings do not change.
    known: HashMap<u64, Instruction>,
}

/// The properties of an instruction that the walk needs.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    is_mark: bool,
    is_call: bool,
    store: StoreOperand,
}

impl Instruction {
    fn of(code: &[u8], at: u64) -> Self {
        let is_call = code.first_chunk().is_some_and(|code| is_system_call(*code));
        Self { is_mark: code.first() == Some(&MARK), is_call, store: store_of(code, at) }
    }

    /// Returns the memory visible to others that the instruction may change.
    fn touches(self, registers: &Registers) -> StoreEffect {
        match self.store {
            StoreOperand::Nowhere => StoreEffect::Nothing,
            StoreOperand::At(place) => StoreEffect::At(place.address(registers)),
            StoreOperand::Anywhere => StoreEffect::Anything,
        }
    }
}

/// Granularity of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granularity {
    /// Every instruction, and every system call.
    Steps,
    /// System calls only.
    Calls,
}

/// Approach to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approach {
    /// The victim runs to the point as fast as possible.
    Straight,
    /// The victim runs step by step, like the recording.
    Stepped,
}

/// Result of [`TracedVictim::reach`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReachResult {
    /// The victim is at the point.
    There,
    /// The victim took another path; contains the reason.
    Diverged(String),
}

/// Callback by which the other end releases a blocked victim.
pub(crate) type Release<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Event after which a resumed victim is examined.
#[derive(Debug, Clone, PartialEq, Eq)]
enum VictimEvent {
    /// The victim stopped; contains the signal.
    Stopped(i32),
    /// The victim sleeps in a system call.
    Asleep,
    Ended,
}

impl<'a> TracedVictim<'a> {
    /// Begins to trace a worker, sends it a marked command and brings it to the first mark.
    pub(crate) fn seize(actor: &'a mut WorkerProcess, order: WorkerCommand) -> Result<Self> {
        let trace = TracedTask::seize(actor.pid())?;
        let mut victim = Self { actor, trace, settles: true, known: HashMap::new() };
        victim.actor.tell(order)?;
        loop {
            match victim.awake()? {
                VictimEvent::Stopped(libc::SIGTRAP) if victim.is_behind_mark()? => {
                    return Ok(victim);
                }
                VictimEvent::Stopped(signal) => victim.trace.resume(Resume::Freely, signal)?,
                VictimEvent::Asleep | VictimEvent::Ended => {
                    return Err(MeasureError::fail("the victim ended before the operation"));
                }
            }
        }
    }

    /// Records the operation to its end at this granularity. Returns `None` if there would be more
    /// points than `longest`. `alone` is true if no other process and no other thread runs during
    /// the recording.
    pub(crate) fn record(
        &mut self,
        detail: Granularity,
        alone: bool,
        longest: usize,
        release: Release<'_>,
    ) -> Result<Option<Recording>> {
        match detail {
            Granularity::Steps => self.record_steps(alone, longest, release),
            Granularity::Calls => self.record_calls(longest, release),
        }
    }

    fn record_steps(
        &mut self,
        alone: bool,
        longest: usize,
        release: Release<'_>,
    ) -> Result<Option<Recording>> {
        let mut log = StopLog::new(self.trace, self.actor.pid(), alone)?;
        self.walk(release, &mut |position| {
            log.enter(position)?;
            Ok(log.len() >= longest)
        })?;
        if log.is_whole() { log.finish(true).map(Some) } else { Ok(None) }
    }

    fn record_calls(&mut self, longest: usize, release: Release<'_>) -> Result<Option<Recording>> {
        let mut log = StopLog::new(self.trace, self.actor.pid(), false)?;
        let mut here = WalkStop::default();
        while log.len() < longest {
            self.trace.resume(Resume::ToCall, 0)?;
            match self.stopped(&mut || Ok(()))? {
                CALL_STOP => {}
                libc::SIGTRAP if self.is_behind_mark()? => {
                    log.enter(WalkStop { moment: StopKind::Returned, ..here })?;
                    return log.finish(false).map(Some);
                }
                signal => return Err(MeasureError::fail(format!("stopped by signal {signal}"))),
            }
            here.address = self.trace.registers()?.at - CALL_LENGTH;
            self.walk_through_call(&mut here, release, &mut |position| {
                log.enter(position)?;
                Ok(false)
            })?;
        }
        Ok(None)
    }

    /// Resumes the victim after the second mark, so that the victim replies.
    pub(crate) fn finish(self) -> Result<()> {
        // A stepped victim is before the mark; a victim that ran freely is after it.
        let at = self.trace.registers()?.at;
        let before = self.trace.code(at)[0] == MARK;
        self.trace.resume(Resume::Freely, 0)?;
        if !before {
            return Ok(());
        }
        let mut victim = self;
        match victim.next_event()? {
            VictimEvent::Stopped(libc::SIGTRAP) => victim.trace.resume(Resume::Freely, 0),
            event => {
                let text = format!("expected the end of the operation, found {event:?}");
                Err(MeasureError::fail(text))
            }
        }
    }

    /// Brings the victim to a recorded point and leaves it there.
    pub(crate) fn reach(
        &mut self,
        point: &RecordedPoint,
        pace: Approach,
        release: Release<'_>,
    ) -> Result<ReachResult> {
        match point.moment {
            _ if pace == Approach::Stepped => self.step_to(point, release),
            StopKind::Instruction => self.reach_instruction(point, release),
            _ => self.reach_call(point, release),
        }
    }

    /// Brings the victim to an instruction; the processor itself stops it at each arrival.
    fn reach_instruction(
        &mut self,
        point: &RecordedPoint,
        release: Release<'_>,
    ) -> Result<ReachResult> {
        if self.trace.stop_at(Some(point.address)).is_err() {
            return self.step_to(point, release);
        }
        let (mut arrivals, mut stops) = (0, 0);
        loop {
            self.trace.resume(Resume::ToCall, 0)?;
            match self.stopped(release)? {
                CALL_STOP => stops += 1,
                libc::SIGTRAP if self.trace.registers()?.at == point.address => arrivals += 1,
                libc::SIGTRAP if self.is_behind_mark()? => return Ok(early(point, stops)),
                signal => {
                    return Ok(ReachResult::Diverged(format!("stopped by signal {signal}")));
                }
            }
            if stops / 2 > point.calls {
                return Ok(early(point, stops));
            }
            if arrivals == point.arrival {
                break;
            }
        }
        if stops / 2 != point.calls {
            return Ok(early(point, stops));
        }
        // If the breakpoint register could not be cleared, it could not have been set either.
        let _ = self.trace.stop_at(None);
        for _ in 0..point.repeated {
            self.trace.resume(Resume::Step, 0)?;
            self.stopped(release)?;
        }
        let at = self.trace.registers()?.at;
        Ok(if at == point.address {
            ReachResult::There
        } else {
            ReachResult::Diverged(format!(
                "repeated {} times, then found at {at:#x}",
                point.repeated
            ))
        })
    }

    /// Brings the victim to any point of a stepped recording by stepping like the recording.
    fn step_to(&mut self, point: &RecordedPoint, release: Release<'_>) -> Result<ReachResult> {
        let mut reached = ReachResult::Diverged("the operation took another path".to_owned());
        self.walk(release, &mut |position| {
            let same = position.address == point.address
                && position.arrival == point.arrival
                && position.repeated == point.repeated
                && position.calls == point.calls
                && position.moment == point.moment;
            if same {
                reached = ReachResult::There;
            }
            Ok(same)
        })?;
        Ok(reached)
    }

    /// Brings the victim to the entry, the middle or the exit of a system call, or to the end of
    /// the operation.
    fn reach_call(&mut self, point: &RecordedPoint, release: Release<'_>) -> Result<ReachResult> {
        let mut stops = 0;
        loop {
            self.trace.resume(Resume::ToCall, 0)?;
            match self.stopped(release)? {
                CALL_STOP => stops += 1,
                libc::SIGTRAP if self.is_behind_mark()? => {
                    let there = point.moment == StopKind::Returned && stops / 2 == point.calls;
                    return Ok(if there { ReachResult::There } else { early(point, stops) });
                }
                signal => {
                    return Ok(ReachResult::Diverged(format!("stopped by signal {signal}")));
                }
            }
            if stops / 2 > point.calls {
                return Ok(early(point, stops));
            }
            let entered = stops % 2 == 1;
            let wanted = match point.moment {
                StopKind::Entry | StopKind::Blocked => entered && stops / 2 == point.calls,
                StopKind::Exit => !entered && stops / 2 == point.calls,
                StopKind::Instruction | StopKind::Returned => false,
            };
            if !wanted {
                continue;
            }
            let at = self.trace.registers()?.at;
            // At the entry the instruction pointer is already past the instruction.
            let behind = point.address + if entered { CALL_LENGTH } else { 0 };
            if at != behind {
                return Ok(ReachResult::Diverged(format!("found another system call, at {at:#x}")));
            }
            if point.moment != StopKind::Blocked {
                return Ok(ReachResult::There);
            }
            self.trace.resume(Resume::ToCall, 0)?;
            return Ok(match self.next_event()? {
                VictimEvent::Asleep => ReachResult::There,
                _ => ReachResult::Diverged("the call did not block".to_owned()),
            });
        }
    }

    /// Steps through the operation until `visit` returns `true`.
    fn walk(
        &mut self,
        release: Release<'_>,
        visit: &mut dyn FnMut(WalkStop) -> Result<bool>,
    ) -> Result<()> {
        let mut arrivals: HashMap<u64, u32> = HashMap::new();
        let mut here = WalkStop::default();
        let mut touched = StoreEffect::Anything;
        loop {
            let registers = self.trace.registers()?;
            let at = registers.at;
            let instruction = self.instruction(at);
            here.touched = touched;
            if instruction.is_mark {
                visit(WalkStop { address: at, moment: StopKind::Returned, ..here })?;
                return Ok(());
            }
            here = if at == here.address {
                WalkStop { repeated: here.repeated + 1, moment: StopKind::Instruction, ..here }
            } else {
                let arrival = arrivals.entry(at).and_modify(|count| *count += 1).or_insert(1);
                let (arrival, moment) = (*arrival, StopKind::Instruction);
                WalkStop { address: at, arrival, repeated: 0, moment, ..here }
            };
            touched = instruction.touches(&registers);
            if visit(here)? {
                return Ok(());
            }
            if instruction.is_call {
                self.trace.resume(Resume::ToCall, 0)?;
                self.stopped(&mut || Ok(()))?;
                let remaps = REMAPPING.contains(&self.trace.registers()?.call);
                if self.walk_through_call(&mut here, release, visit)? {
                    return Ok(());
                }
                let arrival = arrivals.entry(here.address).and_modify(|count| *count += 1);
                here.arrival = *arrival.or_insert(1);
                touched = StoreEffect::Anything;
                if remaps {
                    self.known.clear();
                }
            }
            self.trace.resume(Resume::Step, 0)?;
            while let signal = self.stopped(&mut || Ok(()))?
                && signal != libc::SIGTRAP
            {
                self.trace.resume(Resume::Step, signal)?;
            }
        }
    }

    fn instruction(&mut self, at: u64) -> Instruction {
        let trace = self.trace;
        *self.known.entry(at).or_insert_with(|| Instruction::of(&trace.instruction(at), at))
    }

    /// Walks from the entry of a system call to its exit; returns `true` if `visit` did.
    fn walk_through_call(
        &mut self,
        here: &mut WalkStop,
        release: Release<'_>,
        visit: &mut dyn FnMut(WalkStop) -> Result<bool>,
    ) -> Result<bool> {
        here.moment = StopKind::Entry;
        if visit(*here)? {
            return Ok(true);
        }
        self.trace.resume(Resume::ToCall, 0)?;
        let mut event = self.next_event()?;
        if event == VictimEvent::Asleep {
            here.moment = StopKind::Blocked;
            if visit(*here)? {
                return Ok(true);
            }
            release()?;
            event = self.awake()?;
        }
        if event != VictimEvent::Stopped(CALL_STOP) {
            let text = format!("expected the return of a system call, found {event:?}");
            return Err(MeasureError::fail(text));
        }
        self.settle();
        let behind = self.trace.registers()?.at;
        *here = WalkStop {
            address: behind,
            arrival: 0,
            repeated: 0,
            calls: here.calls + 1,
            moment: StopKind::Exit,
            touched: StoreEffect::Anything,
        };
        visit(*here)
    }

    /// Waits until the victim's other threads sleep or have ended. Only system calls of the victim
    /// wake or start them, so its path to the next call then does not depend on theirs. Without
    /// this wait, a thread that was delayed on a busy machine made the victim sleep at a call where
    /// it had not slept in the recording, and later points were not reached.
    ///
    /// Once a thread has run for [`SETTLED`], later calls no longer wait.
    fn settle(&mut self) {
        let began = Instant::now();
        while self.settles && !self.actor.others_are_asleep() {
            self.settles = began.elapsed() < SETTLED;
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits for a stop and returns its signal. If the victim falls asleep before it stops,
    /// releases it once.
    fn stopped(&mut self, release: Release<'_>) -> Result<i32> {
        let mut event = self.next_event()?;
        if event == VictimEvent::Asleep {
            release()?;
            event = self.awake()?;
        }
        match event {
            VictimEvent::Stopped(signal) => Ok(signal),
            VictimEvent::Asleep | VictimEvent::Ended => {
                Err(MeasureError::fail("the victim ended unexpectedly"))
            }
        }
    }

    /// Waits for the next event other than sleep.
    fn awake(&mut self) -> Result<VictimEvent> {
        let began = Instant::now();
        loop {
            match self.next_event()? {
                VictimEvent::Asleep if began.elapsed() < TIMEOUT => {}
                VictimEvent::Asleep => {
                    let seconds = TIMEOUT.as_secs();
                    let text = format!("the operation blocked for {seconds} s, released or not");
                    return Err(MeasureError::fail(text));
                }
                event => return Ok(event),
            }
        }
    }

    /// Waits for the victim to stop, to sleep or to end.
    fn next_event(&mut self) -> Result<VictimEvent> {
        let began = Instant::now();
        let mut looks = 0;
        let mut asleep_since: Option<Instant> = None;
        loop {
            if let Some(status) = self.actor.wait(WaitOptions::NOHANG)? {
                return Ok(status
                    .stopping_signal()
                    .map_or(VictimEvent::Ended, VictimEvent::Stopped));
            }
            looks += 1;
            if looks < SPINS {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(PAUSE);
            if self.actor.state() == Some('S') {
                let since = *asleep_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= ASLEEP {
                    return Ok(VictimEvent::Asleep);
                }
            } else {
                asleep_since = None;
            }
            if began.elapsed() >= TIMEOUT {
                let seconds = TIMEOUT.as_secs();
                return Err(MeasureError::fail(format!(
                    "the victim ran for {seconds} s without a stop"
                )));
            }
        }
    }

    /// Returns `true` if the victim has just executed a mark. Valid only after a stop by SIGTRAP:
    /// elsewhere in the code, a byte with that value means nothing.
    fn is_behind_mark(&self) -> Result<bool> {
        let at = self.trace.registers()?.at;
        Ok(self.trace.code(at.wrapping_sub(1))[0] == MARK)
    }
}

/// System calls after which an address may contain other instructions.
const REMAPPING: [i64; 4] =
    [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect];

/// Length in bytes of the instruction that makes a system call.
const CALL_LENGTH: u64 = 2;

fn early(point: &RecordedPoint, stops: u32) -> ReachResult {
    ReachResult::Diverged(format!(
        "expected {} system calls before this point, found {}",
        point.calls,
        stops / 2
    ))
}
