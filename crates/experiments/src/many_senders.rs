//! `many-senders`: the cost of additional senders of a mailbox, and of a send to a dead receiver:
//! [`ManySenders`].
//!
//! - `mailbox-idle`: one busy sender's latency while other senders are connected and silent. Both
//!   directions of the round trip end in a mailbox with as many idle senders; the same invocation
//!   times the round trip without them, and the ratio compares the two.
//! - `mailbox-streams`: messages of 8 bytes from several senders that all belong to one process,
//!   which sends a burst on each lane in turn. The figure includes no switching between processes.
//! - `dead-send`: the cost of a `send` that returns EOWNERDEAD.
//!
//! A sender takes three descriptors at each end, so the experiment first raises the limit of
//! descriptors; if the limit stays too low, the cell is skipped. Mechanisms are compared in
//! `round-trip` and `throughput`, not here.

mod explained;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::SocketType;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tontine::Error;
use tontine::mailbox::{Options, Sender, WaitStrategy};
use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::{Observed, PairedRatio, Series};
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::{Child, exit_at_once};
use tontine_host::os::pin::{self, Pinned};
use tontine_host::peer::{ChildError, PeerHandle};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{
    announced, failed, life, refused, until_announced, until_welcome,
};

use super::round_trip::{self, StampMode};

/// Number of messages of a stream on one lane before the next lane's turn.
const BURST: usize = 16;
/// Number of messages between two stamps, in a stream and to a dead receiver.
const BATCH: usize = 4096;
/// Size of each lane in a stream, in bytes.
const LANE: u64 = 4096;
/// Number of descriptors for other uses than senders.
const SPARE: u64 = 64;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct ManySenders;

impl Experiment for ManySenders {
    fn name(&self) -> &'static str {
        "many-senders"
    }

    fn summary(&self) -> &'static str {
        "What does a mailbox's sender count cost, and a send to a dead receiver?"
    }

    fn topic(&self) -> Topic {
        Topic::Messages
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let (name, numbers): (&str, &[usize]) = match (variant, size) {
            ("mailbox-idle", Size::Quick) => ("idle", &[0, 7, 999]),
            ("mailbox-idle", _) => ("idle", &[0, 7, 99, 999]),
            ("mailbox-streams", Size::Quick) => ("senders", &[1, 100]),
            ("mailbox-streams", _) => ("senders", &[1, 10, 100, 1000]),
            _ => return vec![Params::new()],
        };
        let cell = |number: &usize| Params::from([(name.to_owned(), number.to_string())]);
        numbers.iter().map(cell).collect()
    }

    /// Returns the number of rounds for `mailbox-idle`, the number of messages for the others.
    fn operations(&self, variant: &str, size: Size) -> usize {
        match variant {
            "mailbox-idle" => size.spinning_rounds(),
            _ => size.checks(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let number = |name: &str| -> Result<usize> {
            let text = task.params.get(name).map_or("", String::as_str);
            text.parse().map_err(|_| {
                MeasureError::fail(format!("expected {name} to be a number, found `{text}`"))
            })
        };
        let operations = self.operations(&task.variant, task.size);
        match task.variant.as_str() {
            "mailbox-idle" => beside_idle(number("idle")?, operations, task.size),
            "mailbox-streams" => streams(number("senders")?, operations),
            "dead-send" => to_the_dead(operations),
            other => Err(MeasureError::fail(format!("many-senders has no variant {other}"))),
        }
    }
}

/// Returns a placement with two processors, one for each end, because the ends spin.
fn apart() -> Result<Placement> {
    let placement = Topology::of_this_machine().placement("cross-core");
    placement.filter(|place| place.here != place.there).ok_or_else(|| {
        MeasureError::skip(
            "needs two processors: two spinning ends on one only wait for each other",
        )
    })
}

fn beside_idle(idle: usize, rounds: usize, size: Size) -> Result<Observed> {
    // Until the fork this process holds two mailboxes, and both ends of a socket for each sender.
    make_room_for(7 * idle as u64)?;
    let warm_up = size.warm_up(rounds);
    let (alone, loaded) =
        round_trip::beside_idle(idle, rounds, warm_up, apart()?, StampMode::Batched)?;
    let value = order::median(&loaded.one_way).zip(order::median(&alone.one_way));
    let ratios = value.map(|(loaded, alone)| PairedRatio {
        name: format!("beside {idle} idle / alone"),
        value: loaded / alone,
    });
    let series = vec![
        Series::ns("one_way", loaded.one_way).batched(loaded.batch),
        Series::ns("one_way_alone", alone.one_way).batched(alone.batch),
    ];
    Ok(Observed { series, ratios: ratios.into_iter().collect(), ..Observed::default() })
}

/// Times the messages that one process streams to this process with `senders` senders.
fn streams(senders: usize, messages: usize) -> Result<Observed> {
    make_room_for(5 * senders as u64)?;
    let placement = apart()?;
    let clock = Clock::calibrated();
    let options = Options::new()
        .first_chunk(LANE)
        .lane_cap(LANE)
        .mailbox_cap(4 * LANE * senders as u64)
        .max_lanes(senders)
        .wait_strategy(WaitStrategy::Spin);
    let pairs =
        (0..senders).map(|_| unix_pair(SocketType::SEQPACKET)).collect::<Result<Vec<_>>>()?;
    let (read, write): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
    let (read, write) = (Cell::new(read), Cell::new(write));
    let words = ChildError::new()?;
    let child = Child::fork(|| {
        drop(read.take());
        let streamed = pin::pin_to(placement.there).and_then(|()| {
            let mut lanes = write
                .take()
                .into_iter()
                .map(|socket| announced(&options, socket))
                .collect::<Result<Vec<_>>>()?;
            lanes.iter_mut().try_for_each(|sender| until_welcome(sender, PeerHandle::Parent))?;
            loop {
                go_round(&mut lanes)?;
            }
        });
        let Err::<(), MeasureError>(trouble) = streamed else { return 0 };
        words.say(&trouble);
        1
    })?;
    drop(write.take());
    let _pinned = Pinned::to(placement.here)?;
    let peers = [PeerHandle::Child(child.pid())];
    life()?;
    let taken = options.unbound().map_err(refused).and_then(|mut mailbox| {
        for socket in read.take() {
            mailbox.adopt(socket).map_err(refused)?;
            until_announced(&mut mailbox, &peers)?;
        }
        let mut take = || mailbox.recv().map(|_| ()).map_err(failed("recv"));
        in_batches(clock, messages, &mut take)
    });
    let message = taken.map_err(|ours| words.heard().unwrap_or(ours))?;
    Ok(Observed {
        series: vec![Series::ns("message", message).batched(BATCH)],
        ..Observed::default()
    })
}

/// Sends a burst on each lane that has free space. A full lane is skipped until its next turn.
fn go_round(lanes: &mut [Sender]) -> Result<()> {
    for lane in lanes {
        for _ in 0..BURST {
            match lane.try_send(&[1; 8]) {
                Ok(()) => {}
                Err(Error::WouldBlock) => break,
                Err(error) => return Err(failed("send")(error)),
            }
        }
    }
    Ok(())
}

/// Sends to a receiver that has died.
fn to_the_dead(sends: usize) -> Result<Observed> {
    let clock = Clock::calibrated();
    let (read, write) = unix_pair(SocketType::SEQPACKET)?;
    let (read, write) = (Cell::new(Some(read)), Cell::new(Some(write)));
    let options = Options::new();
    let twice = || MeasureError::fail("a socket was taken twice");
    let words = ChildError::new()?;
    let mut child = Child::fork(|| {
        drop(write.take());
        let met = life().and_then(|_| {
            let mut mailbox = options.unbound().map_err(refused)?;
            mailbox.adopt(read.take().ok_or_else(twice)?).map_err(refused)?;
            until_announced(&mut mailbox, &[])?;
            Ok(mailbox)
        });
        match met {
            // The process dies with the mailbox open, because dropping the mailbox would close it.
            Ok(_open) => exit_at_once(0),
            Err(trouble) => words.say(&trouble),
        }
        1
    })?;
    drop(read.take());
    let _pinned = Pinned::to(*pin::allowed()?.first().unwrap_or(&0))?;
    let mut sender = announced(&options, write.take().ok_or_else(twice)?)?;
    let ended = child.wait();
    if let Some(trouble) = words.heard() {
        return Err(trouble);
    }
    ended?;
    // The welcome arrived before the death; the first call receives it and detects the death.
    let dead = |said| match said {
        Err(Error::OwnerDied { .. }) => Ok(()),
        other => Err(MeasureError::fail(format!("expected EOWNERDEAD, found {other:?}"))),
    };
    let began = Instant::now();
    while sender.send(&[1; 8]).is_ok() {
        if began.elapsed() > Duration::from_secs(5) {
            return Err(MeasureError::fail("a dead receiver took messages for five seconds"));
        }
    }
    let send = in_batches(clock, sends, &mut || dead(sender.send(&[1; 8])))?;
    Ok(Observed { series: vec![Series::ns("send", send).batched(BATCH)], ..Observed::default() })
}

/// Returns the nanoseconds per call of `once`, in batches, after a warm-up of a tenth as many
/// calls.
#[inline(never)]
fn in_batches(
    clock: Clock,
    times: usize,
    once: &mut impl FnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    let batches = times.div_ceil(BATCH);
    for _ in 0..batches * BATCH / 10 {
        once()?;
    }
    let mut stamps = Vec::with_capacity(batches + 1);
    stamps.push(clock.stop());
    for _ in 0..batches {
        for _ in 0..BATCH {
            once()?;
        }
        stamps.push(clock.stop());
    }
    let each = stamps.windows(2).map(|pair| clock.ns_between(pair[0], pair[1]));
    Ok(each.map(|ns| ns / BATCH as f64).collect())
}

/// Raises the limit of descriptors to the required number, if the hard limit allows it.
fn make_room_for(descriptors: u64) -> Result<()> {
    let needed = descriptors + SPARE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < needed) {
        let most = maximum.unwrap_or(0);
        return Err(MeasureError::skip(format!("needs {needed} descriptors; the limit is {most}")));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).setting_up("setrlimit")
}

const VARIANTS: &[Variant] = &[
    Variant {
        name: "mailbox-idle",
        summary: "one way, both ends spin, next to `idle` connected senders that are silent",
    },
    Variant {
        name: "mailbox-streams",
        summary: "messages of 8 bytes in turn from `senders` senders of one process",
    },
    Variant { name: "dead-send", summary: "a send to a mailbox whose receiver has died" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_senders_are_timed_with_and_without() {
        match beside_idle(3, 200, Size::Quick) {
            Ok(observed) => {
                let names: Vec<&str> =
                    observed.series.iter().map(|series| series.metric.as_str()).collect();
                assert_eq!(names, ["one_way", "one_way_alone"]);
                assert_eq!(observed.ratios.len(), 1);
                assert!(observed.ratios[0].name.contains("3 idle"));
            }
            Err(MeasureError::Skipped(why)) => eprintln!("skipped: {why}"),
            Err(trouble) => panic!("{trouble}"),
        }
    }

    #[test]
    fn many_lanes_stream_and_dead_receiver_is_reported() {
        for found in [streams(70, 100), to_the_dead(100)] {
            match found {
                Ok(observed) => {
                    assert!(observed.series[0].samples.iter().all(|&ns| ns > 0.0));
                    assert_eq!(observed.series[0].batch, BATCH);
                }
                Err(MeasureError::Skipped(why)) => eprintln!("skipped: {why}"),
                Err(trouble) => panic!("{trouble}"),
            }
        }
    }

    #[test]
    fn descriptor_limit_too_low_skips_and_names_it() {
        let most = getrlimit(Resource::Nofile).maximum;
        let Some(most) = most else { return eprintln!("skipped: no limit here") };
        let why = make_room_for(most + 1).expect_err("too many").to_string();
        assert!(why.starts_with("skipped: needs") && why.contains(&most.to_string()), "{why}");
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        let task = |variant: &str, params| InvocationTask {
            experiment: "many-senders".into(),
            variant: variant.into(),
            params,
            size: Size::Quick,
        };
        let found = ManySenders.run(&task("pigeon", Params::new())).expect_err("no pigeons");
        assert!(found.why().contains("pigeon"), "{found}");
        let few = Params::from([("idle".into(), "few".into())]);
        let found = ManySenders.run(&task("mailbox-idle", few)).expect_err("no number");
        assert!(found.why().contains("few"), "{found}");
    }
}
