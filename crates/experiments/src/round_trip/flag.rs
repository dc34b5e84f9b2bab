//! The two floors: a flag that two processes pass back and forth by plain loads and stores, in one
//! cache line that both ends write, or in a line for each direction.
//!
//! Whether a pause in the loop makes it faster depends on the processor, so both kinds of loop are
//! tried first, in turn. Only the faster kind is timed.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tontine_host::error::Result;
use tontine_host::os::shared::{Shareable, SharedMapping};
use tontine_host::peer::{PeerHandle, spin_until};

use super::harness::{self, RoundPlan, RoundTripEnd, Timed};

/// Number of passes of the trial. The best pass of each kind of loop counts.
const PASSES: usize = 3;
/// Maximum number of rounds of one kind of loop in one pass.
const TRIAL: usize = 5_000;

/// The kinds of loop: without and with a pause.
const PAUSES: [bool; 2] = [false, true];

#[derive(Debug)]
#[repr(C, align(128))]
struct FlagLine(AtomicU32);

#[derive(Debug)]
#[repr(C)]
struct FlagLines {
    /// For each kind of loop: the line of the request and the line of the reply.
    kinds: [[FlagLine; 2]; 2],
    /// The index of the faster kind, plus one.
    chosen: FlagLine,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for FlagLines {}

/// The cache lines of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// One line that both ends write.
    One,
    /// A line for each direction, which only one end writes.
    Two,
}

/// Times the flag. The note names the faster kind of loop.
pub(super) fn run(plan: &RoundPlan, lines: Lines) -> Result<(Timed, String)> {
    let board = SharedMapping::<FlagLines>::anonymous()?;
    let trial = plan.warm_up.clamp(1, TRIAL);
    let ping = |peer: PeerHandle<'_>| {
        let mut best = [f64::INFINITY; 2];
        let mut ends = [0, 1].map(|kind| FlagEnd::ping(&board, kind, lines, peer));
        for _ in 0..PASSES {
            for (end, best) in ends.iter_mut().zip(&mut best) {
                let began = Instant::now();
                end.bare(trial)?;
                *best = best.min(began.elapsed().as_secs_f64());
            }
        }
        let won = usize::from(best[1] < best[0]);
        // SYNC flag-chosen: pairs with the load with which the echo waits for this store.
        board.chosen.0.store(won as u32 + 1, Ordering::Release);
        let timed = ends[won].time(plan)?;
        let [without, with] = best.map(|best| best * 1e9 / (2 * trial) as f64);
        let chosen = if PAUSES[won] { "with" } else { "without" };
        let note = format!(
            "the faster loop is the one {chosen} a pause (trial: {without:.1} ns without, \
             {with:.1} ns with)"
        );
        Ok((timed, note))
    };
    let echo = |peer: PeerHandle<'_>| {
        let mut ends = [0, 1].map(|kind| FlagEnd::echo(&board, kind, lines, peer));
        for _ in 0..PASSES {
            for end in &mut ends {
                end.answer(trial)?;
            }
        }
        // SYNC flag-chosen: pairs with the ping's store.
        spin_until(peer, true, || board.chosen.0.load(Ordering::Acquire) != 0)?;
        let won = board.chosen.0.load(Ordering::Relaxed) as usize - 1;
        ends[won].answer(plan.answers())
    };
    harness::between_processes(plan, ping, echo)
}

/// One end with one kind of loop. Each message is a number that no earlier message had.
struct FlagEnd<'a> {
    out: &'a AtomicU32,
    back: &'a AtomicU32,
    /// The next number to send.
    next: u32,
    /// The next number to wait for.
    awaited: u32,
    pause: bool,
    peer: PeerHandle<'a>,
}

impl<'a> FlagEnd<'a> {
    fn ping(board: &'a FlagLines, kind: usize, lines: Lines, peer: PeerHandle<'a>) -> Self {
        let [ask, answer] = &board.kinds[kind];
        let back = if lines == Lines::One { &ask.0 } else { &answer.0 };
        Self { out: &ask.0, back, next: 1, awaited: 2, pause: PAUSES[kind], peer }
    }

    fn echo(board: &'a FlagLines, kind: usize, lines: Lines, peer: PeerHandle<'a>) -> Self {
        let ping = Self::ping(board, kind, lines, peer);
        let (out, back) = (ping.back, ping.out);
        Self { out, back, next: 2, awaited: 1, ..ping }
    }

    /// Runs rounds without stamps. The choice of whether to pause is made outside the loop.
    fn bare(&mut self, rounds: usize) -> Result<()> {
        if self.pause {
            harness::bare(rounds, &mut Looping::<true>(self))
        } else {
            harness::bare(rounds, &mut Looping::<false>(self))
        }
    }

    fn answer(&mut self, rounds: usize) -> Result<()> {
        if self.pause {
            harness::answer_rounds(rounds, &mut Looping::<true>(self))
        } else {
            harness::answer_rounds(rounds, &mut Looping::<false>(self))
        }
    }

    fn time(&mut self, plan: &RoundPlan) -> Result<Timed> {
        if self.pause {
            harness::time(plan, &mut Looping::<true>(self))
        } else {
            harness::time(plan, &mut Looping::<false>(self))
        }
    }
}

struct Looping<'l, 'a, const PAUSE: bool>(&'l mut FlagEnd<'a>);

impl<const PAUSE: bool> RoundTripEnd for Looping<'_, '_, PAUSE> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        // SYNC flag: pairs with the other end's load in `wait`.
        self.0.out.store(self.0.next, Ordering::Release);
        self.0.next = self.0.next.wrapping_add(2);
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        let (back, awaited) = (self.0.back, self.0.awaited);
        self.0.awaited = awaited.wrapping_add(2);
        // SYNC flag: pairs with the other end's store in `send`.
        spin_until(self.0.peer, PAUSE, || back.load(Ordering::Acquire) == awaited)
    }
}
