//! The floor: a flag that two processes pass back and forth by plain loads and stores.
//!
//! The fastest variant of the flag depends on the processor, so four variants are tried first, in
//! turn: one line that both ends write or a line for each end, with or without a pause in the loop.
//! Only the fastest variant is timed.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tontine_host::error::Result;
use tontine_host::os::shared::{Shareable, SharedMapping};
use tontine_host::peer::{PeerHandle, spin_until};

use super::harness::{self, RoundPlan, RoundTripEnd, Timed};

/// Number of passes of the trial. The best pass of each variant counts.
const PASSES: usize = 3;
/// Maximum number of rounds of one variant in one pass.
const TRIAL: usize = 5_000;

/// The four variants: (lines, pause).
const WAYS: [(usize, bool); 4] = [(1, false), (1, true), (2, false), (2, true)];

#[derive(Debug)]
#[repr(C, align(128))]
struct FlagLine(AtomicU32);

#[derive(Debug)]
#[repr(C)]
struct FlagLines {
    /// For each variant: the line of the request and the line of the reply.
    ways: [[FlagLine; 2]; 4],
    /// The index of the fastest variant, plus one.
    chosen: FlagLine,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for FlagLines {}

/// Times the flag. The note names the fastest variant.
pub(super) fn run(plan: &RoundPlan) -> Result<(Timed, String)> {
    let board = SharedMapping::<FlagLines>::anonymous()?;
    let trial = plan.warm_up.clamp(1, TRIAL);
    let ping = |peer: PeerHandle<'_>| {
        let mut best = [f64::INFINITY; 4];
        let mut ends = [0, 1, 2, 3].map(|way| FlagEnd::ping(&board, way, peer));
        for _ in 0..PASSES {
            for (end, best) in ends.iter_mut().zip(&mut best) {
                let began = Instant::now();
                end.bare(trial)?;
                *best = best.min(began.elapsed().as_secs_f64());
            }
        }
        let won = (0..4).min_by(|&a, &b| best[a].total_cmp(&best[b])).unwrap_or(0);
        // SYNC flag-chosen: pairs with the load with which the echo waits for this store.
        board.chosen.0.store(won as u32 + 1, Ordering::Release);
        let timed = ends[won].time(plan)?;
        let tried: Vec<String> = (0..4)
            .map(|way| {
                let ns = best[way] * 1e9 / (2 * trial) as f64;
                format!("{}: {ns:.1} ns", describe(way))
            })
            .collect();
        let note = format!("fastest way: {} (trial: {})", describe(won), tried.join(", "));
        Ok((timed, note))
    };
    let echo = |peer: PeerHandle<'_>| {
        let mut ends = [0, 1, 2, 3].map(|way| FlagEnd::echo(&board, way, peer));
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

fn describe(way: usize) -> String {
    let (lines, pause) = WAYS[way];
    let lines = if lines == 1 { "one line" } else { "two lines" };
    let pause = if pause { "with pause" } else { "without pause" };
    format!("{lines} {pause}")
}

/// One end of one variant. Each message is a number that no earlier message had.
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
    fn ping(board: &'a FlagLines, way: usize, peer: PeerHandle<'a>) -> Self {
        let (lines, pause) = WAYS[way];
        let [ask, answer] = &board.ways[way];
        let back = if lines == 1 { &ask.0 } else { &answer.0 };
        let (out, next, awaited) = (&ask.0, 1, 2);
        Self { out, back, next, awaited, pause, peer }
    }

    fn echo(board: &'a FlagLines, way: usize, peer: PeerHandle<'a>) -> Self {
        let ping = Self::ping(board, way, peer);
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
