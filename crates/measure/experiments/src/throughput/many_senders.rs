//! The cost of additional senders of a mailbox, and of a send to a dead receiver: [`run`].
//!
//! `mailbox-idle` times round trips between mailboxes with idle senders, and without them.
//! `mailbox-streams` sends bursts from senders that all belong to one process, so that the figure
//! includes no switching between processes. `mailbox-filled` receives messages that were sent
//! beforehand on many lanes, in causal order and without. A sender takes three descriptors at each
//! end.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::SocketType;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tontine::Error;
use tontine::mailbox::{Options, Order, Sender, WaitStrategy};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{
    announced, failed, life, refused, until_announced, until_welcome,
};

use super::{MOST, apart};
use crate::prelude::*;
use crate::round_trip;

/// Number of messages of a stream on one lane before the next lane's turn.
const BURST: usize = 16;
const BATCH: usize = 4096;
/// Size of each lane in a stream, in bytes.
const LANE: u64 = 4096;
const SPARE: u64 = 64;
/// Number of messages of 64 bytes that nearly fill a lane, with a stamp before each.
const FILL: usize = 40;
/// Minimum number of rounds in which lanes are filled.
const MIN_ROUNDS: usize = 32;

pub(super) fn has(variant: &str) -> bool {
    ["mailbox-idle", "mailbox-streams", "mailbox-filled", "dead-send"].contains(&variant)
}

pub(super) fn params(variant: &str, size: Size) -> Vec<Params> {
    let (name, numbers): (&str, &[usize]) = match (variant, size) {
        ("mailbox-idle", Size::Quick) => ("idle", &[0, 7, 999]),
        ("mailbox-idle", _) => ("idle", &[0, 7, 99, 999]),
        ("mailbox-streams", Size::Quick) => ("senders", &[1, 100]),
        ("mailbox-streams", _) => ("senders", &[1, 10, 100, 1000]),
        ("mailbox-filled", Size::Quick) => ("senders", &[1, 64]),
        ("mailbox-filled", _) => ("senders", &[1, 8, 64, 1000]),
        _ => return vec![Params::new()],
    };
    let cell = |number: &usize| crate::prelude::params([(name, &number.to_string())]);
    numbers.iter().map(cell).collect()
}

/// Returns the number of rounds for `mailbox-idle`, the number of messages for the others.
pub(super) fn operations(variant: &str, size: Size) -> usize {
    if variant == "mailbox-idle" { size.spinning_rounds() } else { size.checks() }
}

pub(super) fn run(task: &InvocationTask) -> Result<Observed> {
    let operations = operations(&task.variant, task.size);
    match task.variant.as_str() {
        "mailbox-idle" => {
            beside_idle(number_in(&task.params, "idle", 0..=MOST)?, operations, task.size)
        }
        "mailbox-streams" => streams(number_in(&task.params, "senders", 1..=MOST)?, operations),
        "mailbox-filled" => filled(number_in(&task.params, "senders", 1..=MOST)?, operations),
        _ => to_dead_receiver(operations),
    }
}

fn beside_idle(idle: usize, rounds: usize, size: Size) -> Result<Observed> {
    // Until the fork this process holds two mailboxes, and both ends of a socket for each sender.
    raise_descriptor_limit(7 * idle as u64)?;
    let [alone, loaded] = round_trip::beside_idle(idle, rounds, size.warm_up(rounds), apart()?)?;
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
    raise_descriptor_limit(5 * senders as u64)?;
    let placement = apart()?;
    let clock = Clock::calibrated();
    let options = Options::new().lane_cap(LANE).wait_strategy(WaitStrategy::Spin);
    let receiving = options.clone().mailbox_cap(4 * LANE * senders as u64).max_lanes(senders);
    let sending = options.first_chunk(LANE);
    let pairs =
        (0..senders).map(|_| unix_pair(SocketType::SEQPACKET)).collect::<Result<Vec<_>>>()?;
    let sockets: (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
    let stop = SharedMapping::<AtomicU32>::anonymous()?;
    let message = in_two_processes(
        [placement.here, placement.there],
        sockets,
        |sockets, sender| {
            life()?;
            let mut mailbox = receiving.unbound().map_err(refused)?;
            for socket in sockets {
                mailbox.adopt(socket).map_err(refused)?;
                until_announced(&mut mailbox, &[sender])?;
            }
            let mut take = || mailbox.recv().map(|_| ()).map_err(failed("recv"));
            let taken = in_batches(clock, messages, &mut take);
            stop.store(1, Ordering::Relaxed);
            taken
        },
        |sockets, receiver| {
            let lanes = sockets.into_iter().map(|socket| announced(&sending, socket));
            let mut lanes = lanes.collect::<Result<Vec<_>>>()?;
            lanes.iter_mut().try_for_each(|sender| until_welcome(sender, receiver))?;
            while stop.load(Ordering::Relaxed) == 0 {
                send_bursts(&mut lanes, &stop)?;
            }
            Ok(())
        },
    )?;
    Ok(Observed {
        series: vec![Series::ns("message", message).batched(BATCH)],
        ..Observed::default()
    })
}

/// Times the messages of `senders` lanes that were filled beforehand, in both orders alternately.
fn filled(senders: usize, messages: usize) -> Result<Observed> {
    raise_descriptor_limit(10 * senders as u64)?;
    let placement = apart()?;
    let clock = Clock::calibrated();
    let options = Options::new().lane_cap(LANE).wait_strategy(WaitStrategy::Spin);
    let receiving = options.clone().mailbox_cap(4 * LANE * senders as u64).max_lanes(senders);
    let sending = options.first_chunk(LANE);
    let orders = [Order::BySender, Order::Causal];
    let all = senders * orders.len();
    let pairs = (0..all).map(|_| unix_pair(SocketType::SEQPACKET)).collect::<Result<Vec<_>>>()?;
    let sockets: (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
    let in_one = senders * FILL;
    let rounds = messages.div_ceil(in_one).max(MIN_ROUNDS);
    // Odd while the receiver has its turn.
    let turn = SharedMapping::<AtomicU32>::anonymous()?;
    let turns = 2 * orders.len() as u32 * (rounds as u32 + 1);
    let wait_for = |number, peer: PeerHandle<'_>| {
        while turn.load(Ordering::Acquire) != number {
            peer.check()?;
        }
        Ok::<(), MeasureError>(())
    };
    let [by_sender, causal] = in_two_processes(
        [placement.here, placement.there],
        sockets,
        |mut sockets, sender| {
            life()?;
            let mut mailboxes = Vec::new();
            for order in orders {
                let mut mailbox = receiving.clone().order(order).unbound().map_err(refused)?;
                for socket in sockets.drain(..senders) {
                    mailbox.adopt(socket).map_err(refused)?;
                    until_announced(&mut mailbox, &[sender])?;
                }
                mailboxes.push(mailbox);
            }
            let mut taken = [Vec::new(), Vec::new()];
            for number in (1..turns).step_by(2) {
                wait_for(number, sender)?;
                let of = number as usize / 2 % orders.len();
                let began = clock.start();
                for _ in 0..in_one {
                    let _ = mailboxes[of].try_recv().map_err(failed("recv"))?;
                }
                let ns = clock.ns_between(began, clock.stop());
                taken[of].push(ns / in_one as f64);
                turn.store(number + 1, Ordering::Release);
            }
            // The first round of each is the warm-up.
            Ok(taken.map(|all| all[1..].to_vec()))
        },
        |sockets, receiver| {
            let lanes = sockets.into_iter().map(|socket| announced(&sending, socket));
            let mut lanes = lanes.collect::<Result<Vec<_>>>()?;
            lanes.iter_mut().try_for_each(|sender| until_welcome(sender, receiver))?;
            for number in (0..turns).step_by(2) {
                wait_for(number, receiver)?;
                let of = number as usize / 2 % orders.len();
                for lane in &mut lanes[of * senders..][..senders] {
                    for _ in 0..FILL {
                        lane.try_send(&[1; 64]).map_err(failed("send"))?;
                    }
                }
                turn.store(number + 1, Ordering::Release);
            }
            Ok(())
        },
    )?;
    let value = order::median(&causal).zip(order::median(&by_sender));
    let ratios = value.map(|(causal, by_sender)| PairedRatio {
        name: format!("causal / by sender, {senders} lanes"),
        value: causal / by_sender,
    });
    let series = vec![
        Series::ns("message_causal", causal).batched(in_one),
        Series::ns("message", by_sender).batched(in_one),
    ];
    Ok(Observed { series, ratios: ratios.into_iter().collect(), ..Observed::default() })
}

/// Sends a burst on each lane that has free space. A full lane is skipped until its next turn.
fn send_bursts(lanes: &mut [Sender], stop: &AtomicU32) -> Result<()> {
    for lane in lanes {
        for _ in 0..BURST {
            match lane.try_send(&[1; 8]) {
                Ok(()) => {}
                Err(Error::WouldBlock) => break,
                // The receiver has all its messages and drops its mailbox.
                Err(_) if stop.load(Ordering::Relaxed) != 0 => return Ok(()),
                Err(error) => return Err(failed("send")(error)),
            }
        }
    }
    Ok(())
}

fn to_dead_receiver(sends: usize) -> Result<Observed> {
    let clock = Clock::calibrated();
    let options = Options::new();
    let here = *pin::allowed()?.first().unwrap_or(&0);
    let dead = |sent| match sent {
        Err(Error::OwnerDied { .. }) => Ok(()),
        other => Err(MeasureError::fail(format!("expected EOWNERDEAD, found {other:?}"))),
    };
    let send = in_two_processes(
        [here, here],
        unix_pair(SocketType::SEQPACKET)?,
        |socket, receiver| {
            let mut sender = announced(&options, socket)?;
            while receiver.check().is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
            // The welcome arrived before the death; the first call receives it and detects the
            // death.
            let began = Instant::now();
            while sender.send(&[1; 8]).is_ok() {
                let soon = began.elapsed() < Duration::from_secs(5);
                ensure!(soon, "a dead receiver took messages for five seconds");
            }
            in_batches(clock, sends, &mut || dead(sender.send(&[1; 8])))
        },
        |socket, _| {
            life()?;
            let mut mailbox = options.unbound().map_err(refused)?;
            mailbox.adopt(socket).map_err(refused)?;
            until_announced(&mut mailbox, &[])?;
            // The process dies with the mailbox open, because dropping the mailbox would close it.
            exit_at_once(0)
        },
    )?;
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
fn raise_descriptor_limit(descriptors: u64) -> Result<()> {
    let needed = descriptors + SPARE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < needed) {
        let max = maximum.unwrap_or(0);
        skip!("needs {needed} descriptors; the limit is {max}");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).setting_up("setrlimit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_lanes_streams_and_dead_receiver_yield_their_series() {
        let cases = [
            (beside_idle(3, 200, Size::Quick), &["one_way", "one_way_alone"][..]),
            (streams(70, 100), &["message"]),
            (filled(70, 100), &["message_causal", "message"]),
            (to_dead_receiver(100), &["send"]),
        ];
        for (found, names) in cases {
            let Some(observed) = unless_skipped(found, names) else { continue };
            assert_eq!(metrics(&observed), names);
            assert!(observed.series[0].samples.iter().all(|&ns| ns > 0.0), "{names:?}");
            assert_eq!(observed.ratios.len(), names.len() - 1);
        }
    }

    #[test]
    fn descriptor_limit_too_low_skips_and_names_it() {
        let max = getrlimit(Resource::Nofile).maximum;
        let Some(max) = max else { return eprintln!("skipped: no limit here") };
        let why = raise_descriptor_limit(max + 1).expect_err("too many").to_string();
        assert!(why.starts_with("skipped: needs") && why.contains(&max.to_string()), "{why}");
    }
}
