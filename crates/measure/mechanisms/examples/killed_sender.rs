//! Kills one of two processes that stream messages to a third, at a random moment, and prints how
//! long the messages of the other sender then fail to arrive, and how many of them never do:
//!
//! ```text
//! cargo run --release -p tontine-mechanisms --example killed_sender -- \
//!     MECHANISM BYTES KILLS MICROSECONDS
//! ```
//!
//! A mechanism is any that `throughput` measures with several senders. Between two messages, each
//! sender works for MICROSECONDS. If that is 0, the queue is full most of the time, and a sender
//! waits more than it sends. `survival` instead kills one end of a pair that has no other
//! peer.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tontine_bench::error::{MeasureError, Result};
use tontine_bench::os::child::Child;
use tontine_bench::os::pin;
use tontine_bench::os::shared::SharedMapping;
use tontine_bench::peer::ChildError;
use tontine_mechanisms::driver::{StreamDriver, StreamUser, Traffic};
use tontine_mechanisms::end::{Inlet, Outlet};
use tontine_mechanisms::registry;

/// Number of messages of each sender that must have arrived before the kill.
const BEGUN: u64 = 100;
/// Time after that within which the kill happens, uniformly distributed.
const WINDOW: Duration = Duration::from_millis(10);
/// Minimum time for which the receiver is observed after the kill.
const OBSERVED: Duration = Duration::from_millis(500);
/// Minimum length of a stall: longer than a loaded machine withholds a processor.
const STALL: Duration = Duration::from_secs(1);
/// Time without a message after which the other sender counts as stopped for good.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval between two checks of the counters.
const LOOK: Duration = Duration::from_millis(1);

/// The numbers of the senders.
const LIVING: usize = 0;
const VICTIM: usize = 1;
/// The counter of the living sender's lost messages; before it are those of received messages.
const LOST: usize = 2;

type KillCounters = [AtomicU64; 3];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let number = |text: String| {
        text.parse::<usize>().map_err(|error| MeasureError::fail(format!("{text}: {error}")))
    };
    let mechanism = next("cloudtoid");
    let bytes = number(next("65536"))?.max(size_of::<u64>());
    let kills = number(next("20"))?;
    let work = Duration::from_micros(number(next("20"))? as u64);
    let traffic = Traffic { bytes, senders: 2 };
    let mut costs = registry::streams(&mechanism, traffic, SenderKills { kills, traffic, work })??;

    costs.sort_unstable();
    let (calm, stalls) = costs.split_at(costs.partition_point(|cost| cost.silence < STALL));
    let stopped = stalls.iter().filter(|cost| cost.silence >= LIMIT).count();
    println!("{mechanism}, {bytes} bytes, {work:?} of work between messages; {kills} kills:");
    println!("  {} stalled the stream of the other sender, {stopped} for good", stalls.len());
    for (which, costs) in [("with", stalls), ("without", calm)] {
        if let (Some(first), Some(last)) = (costs.first(), costs.last()) {
            let lost = costs.iter().map(|cost| cost.lost);
            println!(
                "  {which} a stall: silent for {:.3?} to {:.3?}; {} to {} of its messages lost",
                first.silence,
                last.silence,
                lost.clone().min().unwrap_or_default(),
                lost.max().unwrap_or_default(),
            );
        }
    }
    Ok(())
}

/// The cost of one kill to the living sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KillCost {
    /// The longest time without a message.
    silence: Duration,
    /// Messages that were sent and did not arrive, although later ones did.
    lost: u64,
}

/// Kills a sender, in a fresh stream each time.
struct SenderKills {
    kills: usize,
    traffic: Traffic,
    work: Duration,
}

impl StreamUser for SenderKills {
    type Out = Result<Vec<KillCost>>;

    fn threads<S: StreamDriver<Out: Send>>(self) -> Self::Out {
        Err(MeasureError::fail("a kill of one thread also ends the others"))
    }

    fn processes<S: StreamDriver>(self) -> Self::Out {
        (0..self.kills).map(|_| kill_one::<S>(self.traffic, self.work)).collect()
    }
}

fn kill_one<S: StreamDriver>(traffic: Traffic, work: Duration) -> Result<KillCost> {
    let allowed = pin::allowed()?;
    let (Some(&here), Some(&there)) = (allowed.first(), allowed.last()) else {
        return Err(MeasureError::skip("sched_getaffinity: no processor"));
    };
    let fixture = S::set_up(traffic)?;
    let counters = SharedMapping::<KillCounters>::anonymous()?;
    let error = ChildError::new()?;
    let process = |processor: usize, body: &dyn Fn() -> Result<()>| {
        Child::fork(|| {
            let ended = pin::pin_to(processor).and_then(|()| body());
            ended.inspect_err(|trouble| error.say(trouble)).map_or(1, |()| 0)
        })
    };
    let send =
        |sender: usize| stream(&mut S::outlet(&fixture, sender)?, sender, traffic.bytes, work);
    let _receiver = process(here, &|| count(&mut S::inlet(&fixture, &[])?, &counters))?;
    let _living = process(there, &|| send(LIVING))?;
    let mut victim = process(there, &|| send(VICTIM))?;

    let received = |sender: usize| counters[sender].load(Ordering::Relaxed);
    let began = Instant::now();
    while received(LIVING).min(received(VICTIM)) < BEGUN {
        if let Some(trouble) = error.heard() {
            return Err(trouble);
        }
        if began.elapsed() > LIMIT {
            return Err(MeasureError::fail("expected messages of both senders, found none"));
        }
        sleep(LOOK);
    }
    let chance = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    sleep(WINDOW.mul_f64(chance));
    victim.kill()?;
    let killed = Instant::now();
    let (mut last, mut changed, mut silence) = (received(LIVING), killed, Duration::ZERO);
    while killed.elapsed() < OBSERVED || changed.elapsed() > OBSERVED / 4 && silence < LIMIT {
        sleep(LOOK);
        silence = silence.max(changed.elapsed());
        if received(LIVING) != last {
            (last, changed) = (received(LIVING), Instant::now());
        }
        if let Some(trouble) = error.heard() {
            return Err(trouble);
        }
    }
    Ok(KillCost { silence, lost: counters[LOST].load(Ordering::Relaxed) })
}

/// Sends messages that begin with their number and their sender, and works in between.
fn stream(outlet: &mut impl Outlet, sender: usize, bytes: usize, work: Duration) -> Result<()> {
    let mut message = vec![0; bytes];
    for number in 0_u64.. {
        message[..8].copy_from_slice(&(2 * number + sender as u64).to_ne_bytes());
        outlet.send(&message, &[])?;
        let began = Instant::now();
        while began.elapsed() < work {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Receives messages, and counts those that arrive and those of the living sender that do not.
fn count(inlet: &mut impl Inlet, counters: &KillCounters) -> Result<()> {
    let mut expected = 0;
    loop {
        let label = inlet.receive(&[], |message| message.first_chunk().copied())?;
        let label = label.ok_or_else(|| MeasureError::fail("expected a label, found less"))?;
        let label = u64::from_ne_bytes(label);
        let sender = (label % 2) as usize;
        if sender == LIVING {
            counters[LOST].fetch_add(label / 2 - expected, Ordering::Relaxed);
            expected = label / 2 + 1;
        }
        counters[sender].fetch_add(1, Ordering::Relaxed);
    }
}
