//! `waiting-cost`: the processor time that the receiver of a mailbox uses while it waits:
//! [`WaitingCost`].
//!
//! One invocation measures one receiver, with one connected sender, in two situations: the sender
//! is silent, and each wait ends by its timeout ([`TIMEOUT`]); then one message arrives per
//! [`PERIOD`]. The variants are wait strategies. Both ends have them.
//!
//! The processor time is that of the receiver's thread. Time that a wait takes from other threads,
//! such as interrupts by `membarrier`, is not part of it. `round-trip` and `wake-up` measure the
//! latency.

mod explained;

use std::cell::Cell;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::SocketType;
use rustix::time::{ClockId, clock_gettime};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender, WaitStrategy};
use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin::{self, Pinned};
use tontine_host::peer::{ChildError, PeerHandle};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{
    announced, failed, life, refused, until_announced, until_welcome,
};

/// Timeout of a wait in which nothing arrives.
const TIMEOUT: Duration = Duration::from_millis(1);
/// Interval between two messages.
const PERIOD: Duration = Duration::from_millis(1);
/// Timeout for a message.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of warm-up waits, and of warm-up messages, in which the default adapts.
const WARM_UP: usize = 150;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct WaitingCost;

impl Experiment for WaitingCost {
    fn name(&self) -> &'static str {
        "waiting-cost"
    }

    fn summary(&self) -> &'static str {
        "What processor time does a receiver use while it waits for messages?"
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

    fn params(&self, variant: &str, _: &Topology, _: Size) -> Vec<Params> {
        match variant {
            "mailbox-spin-then-sleep" => ["1", "5", "20", "50"]
                .map(|us| Params::from([("spin_us".to_owned(), us.to_owned())]))
                .to_vec(),
            _ => vec![Params::new()],
        }
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.waits()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        measure(&options(&task.variant, &task.params)?, task.size.waits())
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        vec![("mailbox-default", "mailbox-sleep")]
    }
}

/// Returns the options of a variant.
///
/// # Errors
/// Returns `Failed` if there is no such variant, or its parameter is not a number.
fn options(variant: &str, params: &Params) -> Result<Options> {
    match variant {
        "mailbox-default" => Ok(Options::new()),
        "mailbox-sleep" => Ok(Options::new().wait_strategy(WaitStrategy::Sleep)),
        "mailbox-spin-then-sleep" => {
            let text = params.get("spin_us").map_or("", String::as_str);
            let us = text.parse().map_err(|_| {
                MeasureError::fail(format!("expected spin_us to be a number, found `{text}`"))
            })?;
            let strategy = WaitStrategy::SpinThenSleep(Duration::from_micros(us));
            Ok(Options::new().wait_strategy(strategy))
        }
        other => Err(MeasureError::fail(format!("waiting-cost has no variant {other}"))),
    }
}

/// Measures `waits` waits that end by their timeout, then `waits` messages.
fn measure(options: &Options, waits: usize) -> Result<Observed> {
    let allowed = pin::allowed()?;
    let (Some(&here), Some(&there)) = (allowed.first(), allowed.last()) else {
        return Err(MeasureError::skip("sched_getaffinity: no processor"));
    };
    let (read, write) = unix_pair(SocketType::SEQPACKET)?;
    let (read, write) = (Cell::new(Some(read)), Cell::new(Some(write)));
    let (mut started, mut start) = std::io::pipe().setting_up("pipe2")?;
    let twice = || MeasureError::fail("a socket was taken twice");
    let words = ChildError::new()?;
    let child = Child::fork(|| {
        drop(read.take());
        let sent = pin::pin_to(there).and_then(|()| {
            let mut sender = announced(options, write.take().ok_or_else(twice)?)?;
            until_welcome(&mut sender, PeerHandle::Parent)?;
            started.read_exact(&mut [0]).during("read")?;
            send_paced(&mut sender)
        });
        let Err::<(), MeasureError>(trouble) = sent else { return 0 };
        words.say(&trouble);
        1
    })?;
    drop(write.take());
    let _pinned = Pinned::to(here)?;
    life()?;
    let taken = options.unbound().map_err(refused).and_then(|mut mailbox| {
        mailbox.adopt(read.take().ok_or_else(twice)?).map_err(refused)?;
        until_announced(&mut mailbox, &[PeerHandle::Child(child.pid())])?;
        let empty_wait = empty_waits(&mut mailbox, waits)?;
        start.write_all(&[1]).during("write")?;
        Ok((empty_wait, messages(&mut mailbox, waits)?))
    });
    let (empty_wait, per_message) = taken.map_err(|ours| words.heard().unwrap_or(ours))?;
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

/// Sends at most one message per [`PERIOD`], indefinitely. The loop is closed: while the receiver
/// has not acknowledged a message, none is sent, so that each message ends a wait.
fn send_paced(sender: &mut Sender) -> Result<()> {
    let mut due = Instant::now();
    loop {
        if sender.unread_bytes() == 0 {
            sender.send(&[1; 8]).map_err(failed("send"))?;
        }
        due = Instant::now().max(due + PERIOD);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
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
    in_turn(messages, || mailbox.recv_timeout(PATIENCE).map(|_| ()).map_err(failed("recv")))
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

const VARIANTS: &[Variant] = &[
    Variant {
        name: "mailbox-default",
        summary: "default options: poll while that pays, then sleep",
    },
    Variant { name: "mailbox-sleep", summary: "sleep immediately" },
    Variant { name: "mailbox-spin-then-sleep", summary: "poll for `spin_us` µs, then sleep" },
];

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn every_wait_strategy_yields_processor_times() {
        in_a_process_of_its_own(|| {
            for variant in VARIANTS {
                for params in
                    WaitingCost.params(variant.name, &Topology::of_this_machine(), Size::Quick)
                {
                    let name = format!("{} {params:?}", variant.name);
                    let options =
                        options(variant.name, &params).map_err(|trouble| trouble.to_string())?;
                    let observed = match measure(&options, 5) {
                        Err(MeasureError::Skipped(why)) => {
                            eprintln!("skipped: {name}: {why}");
                            continue;
                        }
                        other => other.map_err(|trouble| format!("{name}: {trouble}"))?,
                    };
                    let [empty, each, busy] = &observed.series[..] else {
                        return Err(format!("{name}: {:?}", observed.series));
                    };
                    let of_times = [empty, each].into_iter().flat_map(|times| &times.samples);
                    let share = busy.samples[0];
                    let used = share * busy.batch as f64;
                    let whole = (used - each.samples.iter().sum::<f64>()).abs() < 1.0;
                    if [empty, each].iter().any(|times| times.samples.len() != 5)
                        || of_times.into_iter().any(|&ns| ns <= 0.0)
                        || !(0.0..=1.0).contains(&share)
                        || !whole
                    {
                        return Err(format!("{name}: {:?}", observed.series));
                    }
                }
            }
            Ok(())
        });
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        let few = Params::from([("spin_us".into(), "pigeon".into())]);
        for (variant, params) in [("pigeon", Params::new()), ("mailbox-spin-then-sleep", few)] {
            let found = options(variant, &params).expect_err("no pigeons");
            assert!(found.why().contains("pigeon"), "{found}");
        }
    }
}
