//! `survival`: what SIGKILL of one end does to the other, mechanism by mechanism: [`Survival`].
//!
//! Two processes pass numbered messages to and fro; one of them, chosen at random, is killed at a
//! random moment. [`referee`] starts and kills them and says what became of the survivor;
//! [`player`] is what each of the two does and writes down; [`message`] tells a torn message from a
//! whole one. Each mechanism is a file with an `End`.
//!
//! - *wedged*: the survivor has not noticed by the deadline and is still blocked or spinning;
//! - *torn*: it received a message that was never sent so;
//! - *lost*: a `send` had returned, and its message was not received and never will be: the
//!   mechanism had taken charge of it and did not deliver. Where the sender was killed that is
//!   `lost_with_sender`; where the receiver was, unread mail went with it, unless the mechanism
//!   gave it back to the survivor;
//! - *notice*: how long until the survivor noticed, of those that did.
//!
//! Mail that nobody has read goes with its reader wherever the mechanism keeps it out of the
//! sender's reach, and a dying process still takes mail for some ten microseconds: so `lost` is
//! near 100 % for all of these. The library's mailbox keeps it within reach.
//!
//! Nobody helps the survivor: no timer, no question about the peer. What it notices, the mechanism
//! tells. What it does not do: kill at every instruction, or repair anything.

mod condvar;
mod descriptor;
mod explained;
mod futex;
mod mailbox;
mod message;
mod player;
mod queue;
mod referee;
mod semaphore;
mod signal;
mod slot;
mod spinlock;

#[cfg(feature = "peers")]
mod iceoryx;
#[cfg(feature = "peers")]
mod zeromq;

use std::time::Duration;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{Params, Task};
use tontine_host::clock::Clock;
use tontine_host::os::pin;
use tontine_host::trouble::{Result, Trouble};

use referee::{Fate, Plan, kills};

/// How long after the kill a survivor that has not noticed counts as wedged.
const DEADLINE: Duration = Duration::from_millis(200);

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Survival;

impl Experiment for Survival {
    fn name(&self) -> &'static str {
        "survival"
    }

    fn summary(&self) -> &'static str {
        "Of N random kills of either end: is the survivor wedged, what is torn, what is lost?"
    }

    fn topic(&self) -> Topic {
        Topic::Death
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    /// One cell: either end is killed, at random.
    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        vec![Params::new()]
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.kills()
    }

    fn run(&self, task: &Task) -> Result<Observed> {
        measure(&task.variant, task.size.kills(), DEADLINE).map(|fates| observed(&fates))
    }
}

/// Kills so many times and says what became of each survivor.
fn measure(variant: &str, count: usize, deadline: Duration) -> Result<Vec<Fate>> {
    let allowed = pin::allowed()?;
    let (Some(&first), Some(&second)) = (allowed.first(), allowed.last()) else {
        return Err(Trouble::skip("sched_getaffinity: no processor"));
    };
    let spins = spins(variant);
    if spins && first == second {
        return Err(Trouble::skip("needs two processors; two ends that spin on one only wait"));
    }
    let clock = Clock::calibrated();
    let plan = &Plan { count, processors: [first, second], spins, deadline, clock };
    match variant {
        "spinlock-tas-process" => kills(plan, spinlock::pair::<false>),
        "spinlock-ttas-process" => kills(plan, spinlock::pair::<true>),
        "semaphore-process" => kills(plan, semaphore::pair),
        "futex" => kills(plan, futex::pair),
        "condvar" => kills(plan, condvar::pair),
        "eventfd" => kills(plan, descriptor::eventfds),
        "pipe" => kills(plan, descriptor::pipes),
        "unix-stream" => kills(plan, || descriptor::unix(rustix::net::SocketType::STREAM)),
        "unix-seqpacket" => kills(plan, || descriptor::unix(rustix::net::SocketType::SEQPACKET)),
        "tcp-loopback" => kills(plan, descriptor::tcp),
        "posix-mq" => kills(plan, queue::pair),
        "signal" => kills(plan, signal::pair),
        "mailbox" => kills(plan, mailbox::pair),
        other => peers(other, plan),
    }
}

#[cfg(feature = "peers")]
fn peers(variant: &str, plan: &Plan) -> Result<Vec<Fate>> {
    match variant {
        "zmq-ipc" => kills(plan, zeromq::pair),
        "iceoryx2" => kills(plan, iceoryx::pair),
        other => Err(Trouble::fail(format!("survival has no variant {other}"))),
    }
}

#[cfg(not(feature = "peers"))]
fn peers(variant: &str, _: &Plan) -> Result<Vec<Fate>> {
    if VARIANTS.iter().any(|known| known.name == variant) {
        Err(Trouble::skip("built without the feature `peers`"))
    } else {
        Err(Trouble::fail(format!("survival has no variant {variant}")))
    }
}

/// Whether both ends of a variant spin.
fn spins(variant: &str) -> bool {
    variant.starts_with("spinlock") || variant == "iceoryx2"
}

/// The shares, the times of those that noticed, and the counts behind them.
fn observed(fates: &[Fate]) -> Observed {
    let share = |metric: &str, of: fn(&Fate) -> bool| {
        let samples = fates.iter().map(|fate| if of(fate) { 1.0 } else { 0.0 }).collect();
        Series::ns(metric, samples).in_unit("share").by_mean()
    };
    let mut series = vec![
        share("wedged", |fate| fate.notice_ns.is_none()),
        share("torn", |fate| fate.torn),
        share("lost", |fate| fate.lost_with_sender || fate.lost_with_receiver),
        share("lost_with_sender", |fate| fate.lost_with_sender),
    ];
    let mut notes = Vec::new();
    let noticed: Vec<f64> = fates.iter().filter_map(|fate| fate.notice_ns).collect();
    if noticed.is_empty() {
        notes.push("nobody noticed: no notice".to_owned());
    } else {
        series.push(Series::ns("notice", noticed));
    }
    Observed { series, notes, ..Observed::default() }
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("spinlock-tas-process", "a slot under a spinlock that swaps until it wins"),
    variant("spinlock-ttas-process", "a slot under a spinlock that looks before it swaps"),
    variant("semaphore-process", "two slots, each with a POSIX semaphore"),
    variant("futex", "two slots and a futex word that says whose turn it is"),
    variant("condvar", "a slot under a pthread mutex, not robust, with a condition variable"),
    variant("eventfd", "two eventfds that carry the message's number; both ends hold both"),
    variant("pipe", "two pipes"),
    variant("unix-stream", "a pair of UNIX stream sockets"),
    variant("unix-seqpacket", "a pair of UNIX seqpacket sockets"),
    variant("tcp-loopback", "a TCP connection over loopback"),
    variant("posix-mq", "two POSIX message queues"),
    variant("signal", "SIGUSR1, which carries nothing, taken by sigwaitinfo"),
    variant("zmq-ipc", "ZeroMQ PAIR sockets over ipc"),
    variant("iceoryx2", "iceoryx2 publish-subscribe, both ends poll"),
    variant("mailbox", "a tontine mailbox at each end, both sleep; what is unread is taken back"),
];

#[cfg(test)]
mod tests;
