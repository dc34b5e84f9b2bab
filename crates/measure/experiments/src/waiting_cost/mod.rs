//! `waiting-cost`: the processor time that the receiver of a mailbox uses while it waits:
//! [`WaitingCost`].
//!
//! In one invocation the sender is first silent, and each wait ends by its timeout ([`TIMEOUT`]);
//! then one message arrives per [`PERIOD`]. Time that a wait takes from other threads, such as
//! interrupts by `membarrier`, is not part of the figure.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use std::io::{Read, Write};

use rustix::net::SocketType;
use rustix::time::{ClockId, clock_gettime};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender, WaitStrategy};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{
    announced, failed, life, refused, until_announced, until_welcome,
};

use crate::prelude::*;

/// Timeout of a wait in which nothing arrives.
const TIMEOUT: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_millis(1);
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of warm-up waits, and of warm-up messages, in which the default adapts.
const WARM_UP: usize = 150;

pub(crate) struct WaitingCost;

impl Experiment for WaitingCost {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, _: Size) -> Vec<Params> {
        match variant {
            "mailbox-spin-then-sleep" => {
                ["1", "5", "20", "50"].map(|us| params([("spin_us", us)])).to_vec()
            }
            _ => vec![Params::new()],
        }
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.waits()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        measure(&options(&task.variant, &task.params)?, task.size.waits())
    }
}

fn options(variant: &str, params: &Params) -> Result<Options> {
    match variant {
        "mailbox-default" => Ok(Options::new()),
        "mailbox-sleep" => Ok(Options::new().wait_strategy(WaitStrategy::Sleep)),
        "mailbox-spin-then-sleep" => {
            let us = number_in(params, "spin_us", 0..=1_000_000)?;
            let strategy = WaitStrategy::SpinThenSleep(Duration::from_micros(us as u64));
            Ok(Options::new().wait_strategy(strategy))
        }
        other => Err(unknown("waiting-cost", "variant", other)),
    }
}

/// Measures `waits` waits that end by their timeout, then `waits` messages.
fn measure(options: &Options, waits: usize) -> Result<Observed> {
    let allowed = pin::allowed()?;
    let (Some(&here), Some(&there)) = (allowed.first(), allowed.last()) else {
        skip!("sched_getaffinity: no processor");
    };
    let (mut started, mut start) = std::io::pipe().setting_up("pipe2")?;
    let stop = SharedMapping::<AtomicU32>::anonymous()?;
    let (empty_wait, per_message) = in_two_processes(
        [here, there],
        unix_pair(SocketType::SEQPACKET)?,
        |socket, sender| {
            life()?;
            let mut mailbox = options.unbound().map_err(refused)?;
            mailbox.adopt(socket).map_err(refused)?;
            until_announced(&mut mailbox, &[sender])?;
            let empty_wait = empty_waits(&mut mailbox, waits)?;
            start.write_all(&[1]).during("write")?;
            let per_message = messages(&mut mailbox, waits)?;
            stop.store(1, Ordering::Relaxed);
            Ok((empty_wait, per_message))
        },
        |socket, receiver| {
            let mut sender = announced(options, socket)?;
            until_welcome(&mut sender, receiver)?;
            started.read_exact(&mut [0]).during("read")?;
            send_paced(&mut sender, &stop)
        },
    )?;
    // The share of the periods, even if messages arrived more rarely. A try is a nanosecond in
    // which the receiver may run.
    let periods_ns = per_message.len() * PERIOD.as_nanos() as usize;
    let busy = per_message.iter().sum::<f64>() / periods_ns as f64;
    Ok(Observed {
        series: vec![
            Series::ns("empty_wait", empty_wait),
            Series::ns("per_message", per_message),
            Series::ns("busy", vec![busy]).in_unit("share").by_mean().batched(periods_ns),
        ],
        notes: vec![format!("each time contains a reading of the clock, {:.0} ns", reading())],
        ..Observed::default()
    })
}

/// Sends at most one message per [`PERIOD`], until stopped. The loop is closed: while the
/// receiver has not acknowledged a message, none is sent, so that each message ends a wait.
fn send_paced(sender: &mut Sender, stop: &AtomicU32) -> Result<()> {
    let mut due = Instant::now();
    while stop.load(Ordering::Relaxed) == 0 {
        if sender.unread_bytes() == 0 {
            match sender.send(&[1; 8]) {
                // The receiver has all its messages and drops its mailbox.
                Err(_) if stop.load(Ordering::Relaxed) != 0 => break,
                sent => sent.map_err(failed("send"))?,
            }
        }
        due = Instant::now().max(due + PERIOD);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Returns the processor time of each wait of an idle mailbox, in ns.
fn empty_waits(mailbox: &mut Mailbox, waits: usize) -> Result<Vec<f64>> {
    in_turn(waits, || match mailbox.recv_timeout(TIMEOUT) {
        Err(Error::TimedOut) => Ok(()),
        Err(error) => Err(failed("recv")(error)),
        Ok(_) => Err(MeasureError::fail("a message arrived before it was requested")),
    })
}

/// Returns the processor time of each message, in ns.
fn messages(mailbox: &mut Mailbox, messages: usize) -> Result<Vec<f64>> {
    in_turn(messages, || mailbox.recv_timeout(MESSAGE_TIMEOUT).map(|_| ()).map_err(failed("recv")))
}

/// Returns the thread's processor time of each of `count` calls, in ns, after [`WARM_UP`] calls. A
/// call's time extends to the beginning of the next, so the times add up to the time of the loop.
fn in_turn(count: usize, mut call: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    for _ in 0..WARM_UP {
        call()?;
    }
    let mut stamps = Vec::with_capacity(count + 1);
    stamps.push(processor_time());
    for _ in 0..count {
        call()?;
        stamps.push(processor_time());
    }
    let each = stamps.windows(2).map(|pair| (pair[1] - pair[0]).as_nanos() as f64);
    Ok(each.collect())
}

/// Returns the processor time that the calling thread has used.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32)
}

/// Returns the processor time of a reading of the clock, in ns.
fn reading() -> f64 {
    const READINGS: u32 = 100;
    let began = processor_time();
    let mut last = began;
    for _ in 0..READINGS {
        last = processor_time();
    }
    (last - began).as_nanos() as f64 / f64::from(READINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_strategy_yields_processor_times() {
        in_a_process_of_its_own(|| {
            let topology = Topology::of_this_machine();
            for variant in WaitingCost.variants() {
                for params in WaitingCost.params(variant.name, &topology, Size::Quick) {
                    let options = options(variant.name, &params).expect("options");
                    let name = (variant, &params);
                    let Some(found) = unless_skipped(measure(&options, 5), name) else { continue };
                    assert_eq!(metrics(&found), ["empty_wait", "per_message", "busy"]);
                    let [empty, each, busy] = &found.series[..] else { unreachable!() };
                    for times in [&empty.samples, &each.samples] {
                        assert!(times.len() == 5 && times.iter().all(|&ns| ns > 0.0), "{times:?}");
                    }
                    let used = busy.samples[0] * busy.batch as f64;
                    assert!((used - each.samples.iter().sum::<f64>()).abs() < 1.0, "{found:?}");
                }
            }
        });
    }
}
