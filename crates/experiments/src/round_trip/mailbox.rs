//! The library's mailboxes with sleeping ends, and mailboxes with idle senders.
//!
//! A sleeping end needs fences, and the two ends can share them in two ways. The faster way depends
//! on the machine, so both are tried first and the faster one is timed.

use std::cell::Cell;
use std::iter::repeat;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tontine::mailbox::{Fences, Options, WaitStrategy};
use tontine_host::error::Result;
use tontine_host::os::shared::SharedMapping;
use tontine_host::peer::{PeerHandle, spin_until};
use tontine_mechanisms::mailbox::{Correspondent, Post, posts};

use super::harness::{self, RoundPlan, Timed};
use super::opened::Adapted;

/// Number of passes of the trial. The best pass of each way counts.
const PASSES: usize = 3;
/// Maximum number of rounds of one way in one pass.
const TRIAL: usize = 500;

/// Times a mailbox whose ends spin, then a mailbox with `idle` additional silent senders connected
/// to each end.
pub(super) fn beside_idle(plan: &RoundPlan, idle: usize) -> Result<(Timed, Timed)> {
    let mut timed = among(plan, &[0, idle])?;
    let crowded = timed.swap_remove(1);
    Ok((timed.swap_remove(0), crowded))
}

/// Times one mailbox after another, each with its number of idle senders.
fn among(plan: &RoundPlan, idle: &[usize]) -> Result<Vec<Timed>> {
    let pairs = idle.iter().map(|idle| posts(1 + idle)).collect::<Result<Vec<_>>>()?;
    let (here, there): (Vec<Post>, Vec<Post>) = pairs.into_iter().unzip();
    let (here, there) = (Cell::new(here), Cell::new(there));
    let most = idle.iter().max().unwrap_or(&0);
    let options = Options::new().wait_strategy(WaitStrategy::Spin).max_lanes(1 + most);
    // Each process drops the other process's ends.
    harness::between_processes(
        plan,
        |peer| {
            drop(there.take());
            let mut ends = opened(here.take(), repeat(&options), peer)?;
            ends.iter_mut().map(|end| harness::time(plan, end)).collect()
        },
        |peer| {
            drop(here.take());
            let mut ends = opened(there.take(), repeat(&options), peer)?;
            ends.iter_mut().try_for_each(|end| harness::answer(plan, end))
        },
    )
}

/// An end that sends words.
type WordEnd<'a> = Adapted<'a, Correspondent, 8>;

fn opened<'a, 'o>(
    posts: Vec<Post>,
    options: impl IntoIterator<Item = &'o Options>,
    peer: PeerHandle<'a>,
) -> Result<Vec<WordEnd<'a>>> {
    let open = |(post, options): (Post, _)| Ok(WordEnd::new(post.open(options, &[peer])?, peer));
    posts.into_iter().zip(options).map(open).collect()
}

/// Times mailboxes whose ends sleep. The note names the end that fences.
pub(super) fn sleeping(plan: &RoundPlan) -> Result<(Timed, String)> {
    let ways = [Fences::Asymmetric, Fences::Symmetric];
    let chosen = SharedMapping::<AtomicU32>::anonymous()?;
    let trial = plan.warm_up.clamp(1, TRIAL);
    let pairs = [posts(1)?, posts(1)?];
    let (here, there): (Vec<Post>, Vec<Post>) = pairs.into_iter().unzip();
    let (here, there) = (Cell::new(here), Cell::new(there));
    let options = ways.map(|way| Options::new().wait_strategy(WaitStrategy::Sleep).fences(way));
    let ping = |peer: PeerHandle<'_>| {
        drop(there.take());
        let mut ends = opened(here.take(), &options, peer)?;
        let mut best = [f64::INFINITY; 2];
        for _ in 0..PASSES {
            for (end, best) in ends.iter_mut().zip(&mut best) {
                let began = Instant::now();
                harness::bare(trial, end)?;
                *best = best.min(began.elapsed().as_secs_f64());
            }
        }
        let won = usize::from(best[1] < best[0]);
        // SYNC mailbox-chosen: pairs with the load with which the echo waits for this store.
        chosen.store(won as u32 + 1, Ordering::Release);
        let timed = harness::time(plan, &mut ends[won])?;
        let us = best.map(|seconds| seconds * 1e6 / (2 * trial) as f64);
        let names = ["the sleeper (membarrier)", "both ends"];
        let note = format!(
            "fences by {}, the faster way (trial: {} {:.1} µs, {} {:.1} µs)",
            names[won], names[0], us[0], names[1], us[1]
        );
        Ok((timed, note))
    };
    let echo = |peer: PeerHandle<'_>| {
        drop(here.take());
        let mut ends = opened(there.take(), &options, peer)?;
        for _ in 0..PASSES {
            for end in &mut ends {
                harness::answer_rounds(trial, end)?;
            }
        }
        // SYNC mailbox-chosen: pairs with the ping's store.
        spin_until(peer, true, || chosen.load(Ordering::Acquire) != 0)?;
        let won = chosen.load(Ordering::Relaxed) as usize - 1;
        harness::answer(plan, &mut ends[won])
    };
    harness::between_processes(plan, ping, echo)
}
