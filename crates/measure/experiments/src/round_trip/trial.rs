//! A trial of two ways to do the same, of which the machine decides the faster: [`faster`]. The
//! floors of the hardware ([`flag`]) try a loop with and without a pause; a mailbox whose ends
//! sleep ([`sleeping_mailbox`]) tries two ways to share the fences.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tontine::mailbox::{Fences, Options, WaitStrategy};
use tontine_mechanisms::mailbox::{Post, posts};

use super::end::{RoundTripEnd, Timed};
use super::harness::{Adapted, RoundPlan, RoundRunner};
use crate::prelude::*;

/// Number of passes of the trial. The best pass of each way counts.
const PASSES: usize = 3;

type BothWays<'a> = [Box<dyn RoundRunner + 'a>; 2];

/// The rounds of the way that won.
struct FasterWay {
    timed: Timed,
    index: usize,
    /// Nanoseconds per message in the trial.
    trial_ns: [f64; 2],
}

/// Runs at most `most` rounds of each way in each pass, in turn, and then times the faster way.
fn faster<'a, A>(
    plan: &RoundPlan<'_>,
    most: usize,
    halves: (A, A),
    open: impl Fn(A, PeerHandle<'static>, usize) -> Result<BothWays<'a>>,
) -> Result<FasterWay> {
    // The index of the faster way, plus one.
    let chosen = SharedMapping::<AtomicU32>::anonymous()?;
    let trial = plan.warm_up.clamp(1, most);
    let ping = |half, peer| {
        let mut ends = open(half, peer, 0)?;
        let mut best = [f64::INFINITY; 2];
        for _ in 0..PASSES {
            for (end, best) in ends.iter_mut().zip(&mut best) {
                let began = Instant::now();
                end.bare(trial)?;
                *best = best.min(began.elapsed().as_secs_f64());
            }
        }
        let index = usize::from(best[1] < best[0]);
        // SYNC trial-chosen: pairs with the load with which the echo waits for this store.
        chosen.store(index as u32 + 1, Ordering::Release);
        let timed = ends[index].time(plan)?;
        let trial_ns = best.map(|seconds| seconds * 1e9 / (2 * trial) as f64);
        Ok(FasterWay { timed, index, trial_ns })
    };
    let echo = |half, peer| {
        let mut ends = open(half, peer, 1)?;
        for _ in 0..PASSES {
            ends.iter_mut().try_for_each(|end| end.answer_rounds(trial))?;
        }
        // SYNC trial-chosen: pairs with the ping's store.
        spin_until(&[peer], true, || chosen.load(Ordering::Acquire) != 0)?;
        ends[chosen.load(Ordering::Relaxed) as usize - 1].answer(plan)
    };
    in_two_processes(plan.cpus(), halves, ping, echo)
}

#[derive(Debug)]
#[repr(C, align(128))]
struct FlagLine(AtomicU32);

/// For each kind of loop, the lines of the request and of the reply.
#[derive(Debug)]
#[repr(C)]
struct FlagLines([[FlagLine; 2]; 2]);

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for FlagLines {}

/// Times a flag that two processes pass back and forth by plain loads and stores, in one cache line
/// that both ends write or, if `two_lines`, in a line for each direction. The note names the faster
/// kind of loop.
pub(super) fn flag(plan: &RoundPlan<'_>, two_lines: bool) -> Result<(Timed, String)> {
    let lines = SharedMapping::<FlagLines>::anonymous()?;
    let lines = &*lines;
    let found = faster(plan, 5_000, ((), ()), |(), peer, side| {
        Ok([
            Box::new(FlagEnd::<false>::new(&lines.0[0], two_lines, side, peer)),
            Box::new(FlagEnd::<true>::new(&lines.0[1], two_lines, side, peer)),
        ])
    })?;
    let FasterWay { timed, index, trial_ns: [without, with] } = found;
    let note = format!(
        "the faster loop is the one {} a pause (trial: {without:.1} ns without, {with:.1} ns with)",
        ["without", "with"][index]
    );
    Ok((timed, note))
}

/// An end with a kind of loop. Each message is a number that no earlier message had.
struct FlagEnd<'a, const PAUSE: bool> {
    out: &'a AtomicU32,
    back: &'a AtomicU32,
    next: u32,
    awaited: u32,
    peer: PeerHandle<'a>,
}

impl<'a, const PAUSE: bool> FlagEnd<'a, PAUSE> {
    /// Creates the ping (`side` 0) or the echo (1).
    fn new(
        [request, reply]: &'a [FlagLine; 2],
        two_lines: bool,
        side: usize,
        peer: PeerHandle<'a>,
    ) -> Self {
        let reply = if two_lines { reply } else { request };
        match side {
            0 => Self { out: &request.0, back: &reply.0, next: 1, awaited: 2, peer },
            _ => Self { out: &reply.0, back: &request.0, next: 2, awaited: 1, peer },
        }
    }
}

impl<const PAUSE: bool> RoundTripEnd for FlagEnd<'_, PAUSE> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        // SYNC flag: pairs with the other end's load in `wait`.
        self.out.store(self.next, Ordering::Release);
        self.next = self.next.wrapping_add(2);
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        let (back, awaited) = (self.back, self.awaited);
        self.awaited = awaited.wrapping_add(2);
        // SYNC flag: pairs with the other end's store in `send`.
        spin_until(&[self.peer], PAUSE, || back.load(Ordering::Acquire) == awaited)
    }
}

/// Times mailboxes whose ends sleep. The note names the end that fences.
pub(super) fn sleeping_mailbox(plan: &RoundPlan<'_>) -> Result<(Timed, String)> {
    let ((here_0, there_0), (here_1, there_1)) = (posts(1)?, posts(1)?);
    let halves = ([here_0, here_1], [there_0, there_1]);
    let options = [Fences::Asymmetric, Fences::Symmetric]
        .map(|fences| Options::new().wait_strategy(WaitStrategy::Sleep).fences(fences));
    let found = faster(plan, 500, halves, |[asymmetric, symmetric]: [Post; 2], peer, _| {
        let asymmetric = asymmetric.open(&options[0], &[peer])?;
        let symmetric = symmetric.open(&options[1], &[peer])?;
        Ok([
            Box::new(Adapted::<_, 8> { end: asymmetric, peers: [peer] }),
            Box::new(Adapted::<_, 8> { end: symmetric, peers: [peer] }),
        ])
    })?;
    let FasterWay { timed, index, trial_ns } = found;
    let names = ["the sleeper (membarrier)", "both ends"];
    let us = trial_ns.map(|ns| ns / 1e3);
    let note = format!(
        "fences by {}, the faster way (trial: {} {:.1} µs, {} {:.1} µs)",
        names[index], names[0], us[0], names[1], us[1]
    );
    Ok((timed, note))
}
