//! `round-trip`: what one message costs, one way, by every mechanism that this machine offers.
//!
//! [`RoundTrip`] is the experiment. The protocol is in `harness`, each family of mechanisms in a
//! file of its own, and what they share with other experiments in `tontine_mechanisms`. The ends of
//! [`container`] are no children of the measuring process: they run inside namespaces, and hand
//! their samples out.
//!
//! It times one message at a time, hot: neither throughput nor, but for `wake-up` ([`paced`]),
//! waking after a pause.

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::{Observed, Series};
use tontine_bench::plant;
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{Params, Task};
use tontine_host::clock::Clock;
use tontine_host::clock::offset::Band;
use tontine_host::os::shared::Shared;
use tontine_host::trouble::{Result, Trouble};

use harness::Plan;
pub(crate) use harness::Stamps;
pub(crate) use harness::Timed;
pub(crate) use paced::Step;
use paced::{Board, Paced};

#[cfg(feature = "peers")]
mod channel;
mod condvar;
pub mod container;
mod descriptor;
mod explained;
mod flag;
mod futex;
mod hand_over;
mod harness;
#[cfg(feature = "peers")]
mod iceoryx;
mod mailbox;
mod message_queue;
mod paced;
mod semaphore;
mod signal;
mod spinlock;
#[cfg(feature = "peers")]
mod zeromq;

/// A stamp that costs more than this share of a round is said beside the figure.
const STAMP_LIMIT: f64 = 0.02;

/// What else is compared: the library's mailbox with its rivals, a block that is handed over and
/// containers with what they add to.
const BESIDES: [(&str, &str); 7] = [
    ("iceoryx2", "mailbox-spin"),
    ("crossbeam", "mailbox-spin"),
    ("hand-over", "mailbox-spin"),
    ("mailbox-sleep", "eventfd"),
    ("mailbox-sleep", "futex"),
    ("container-netns", "tcp-loopback"),
    ("container-tcp", "container-netns"),
];

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrip;

impl Experiment for RoundTrip {
    fn name(&self) -> &'static str {
        "round-trip"
    }

    fn summary(&self) -> &'static str {
        "How long is one message under way, by each mechanism between threads and processes?"
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

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let placements = topology.placements().iter();
        let mut names: Vec<&str> = if spins(variant) {
            placements.filter(|place| place.here != place.there).map(|place| place.name).collect()
        } else {
            let asked = ["cross-core", "same-core"];
            placements.map(|place| place.name).filter(|name| asked.contains(name)).collect()
        };
        if names.is_empty() {
            names.push("cross-core");
        }
        // An engine takes seconds to start two containers: too long for a look at both.
        if variant == "container-tcp" && size == Size::Quick {
            names.truncate(1);
        }
        names
            .into_iter()
            .map(|name| {
                Params::from([
                    ("placement".to_owned(), name.to_owned()),
                    ("pacing".to_owned(), "hot".to_owned()),
                ])
            })
            .collect()
    }

    fn operations(&self, variant: &str, size: Size) -> usize {
        match variant {
            "container-tcp" | "container-netns" => size.container_rounds(),
            _ if spins(variant) => size.spinning_rounds(),
            _ => size.blocking_rounds(),
        }
    }

    fn invocations(&self, variant: &str, size: Size) -> usize {
        match variant {
            // Two containers are made and removed for each.
            "container-tcp" => size.macro_invocations(),
            _ => size.invocations(),
        }
    }

    fn run(&self, task: &Task) -> Result<Observed> {
        let rounds = plant::brief(self.operations(&task.variant, task.size));
        let name = task.params.get("placement").map_or("cross-core", String::as_str);
        let placement = Topology::of_this_machine().placement(name).ok_or_else(|| match name {
            "cross-core" => Trouble::skip("needs two processors; this process may use one"),
            _ => Trouble::skip(format!("this machine has no placement {name}")),
        })?;
        measure(&task.variant, rounds, task.size.warm_up(rounds), placement, Stamps::Batched)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        VARIANTS
            .iter()
            .map(|variant| (variant.name, "flag"))
            .filter(|(name, _)| *name != "flag")
            .chain(BESIDES)
            .collect()
    }
}

/// Whether both ends of a variant spin.
fn spins(variant: &str) -> bool {
    variant.starts_with("spinlock")
        || ["flag", "rtrb", "iceoryx2", "mailbox-spin", "hand-over"].contains(&variant)
}

/// Measures `rounds` rounds of a variant after `warm_up` untimed ones, stamped as told.
///
/// # Errors
/// As [`Experiment::run`]; failed, where there is no such variant or a spinning one is to share a
/// processor.
pub(crate) fn measure(
    variant: &str,
    rounds: usize,
    warm_up: usize,
    placement: Placement,
    stamps: Stamps,
) -> Result<Observed> {
    let spinning = spins(variant);
    if spinning && placement.here == placement.there {
        return Err(Trouble::skip("needs two processors; two ends that spin on one only wait"));
    }
    let stamps = if spinning { stamps } else { Stamps::EveryRound };
    let clock = Clock::calibrated();
    let plan = Plan { rounds, warm_up, stamps, placement, clock, paced: None };
    let mut observed = Observed::default();
    let Timed { one_way, batch, single } = time(variant, &plan, &mut observed)?;
    if !single.is_empty() {
        observed.notes.extend(cost_of_stamps(&one_way, &single));
        observed.series.insert(0, Series::ns("one_way_single", single));
    }
    observed.series.insert(0, Series::ns("one_way", one_way).batched(batch));
    Ok(observed)
}

/// Times messages of a mechanism between two processes one way, each after a pause; a series for
/// each step, and what has to be said of them.
///
/// # Errors
/// As [`Experiment::run`].
pub(crate) fn one_way_after(
    variant: &str,
    steps: &[Step],
    warm_up: usize,
    placement: Placement,
) -> Result<(Vec<Vec<f64>>, Vec<String>)> {
    let board = Shared::<Board>::anonymous()?;
    let clock = Clock::calibrated();
    let mut observed = Observed::default();
    let mut offset = 0;
    if placement.here != placement.there {
        // Before the fork: the threads that it starts have ended again.
        let Band { low, high } = Band::between(clock, placement.here, placement.there)?;
        offset = low.midpoint(high);
        let within = clock.ns(high - low) / 2.0;
        observed.notes.push(format!(
            "offset band: the receiver's counter is {low} to {high} ticks ahead of the sender's; \
             the middle is subtracted, so each figure is sure to ± {within:.0} ns"
        ));
    }
    let paced = Some(Paced { steps, board: &board, offset });
    let plan = Plan { rounds: 0, warm_up, stamps: Stamps::EveryRound, placement, clock, paced };
    let mut one_way = time(variant, &plan, &mut observed)?.one_way.into_iter();
    let of_step = |step: &Step| one_way.by_ref().take(step.messages).collect();
    Ok((steps.iter().map(of_step).collect(), observed.notes))
}

/// Times one mechanism; what it has to say or to count besides goes into `observed`.
fn time(variant: &str, plan: &Plan, observed: &mut Observed) -> Result<Timed> {
    let Observed { series: skips, notes, .. } = observed;
    let mut lock = |(timed, skipped): (Timed, spinlock::Skipped)| {
        let share = skipped.skipped as f64 / skipped.rounds as f64;
        let series = Series::ns("skipped", vec![share]).in_unit("rounds/round").by_mean();
        skips.push(series.batched(skipped.rounds as usize));
        timed
    };
    let mut noted = |(timed, note): (Timed, String)| {
        notes.push(note);
        timed
    };
    Ok(match variant {
        "flag" => noted(flag::run(plan)?),
        "spinlock-tas" => lock(spinlock::run::<false>(plan, true)?),
        "spinlock-ttas" => lock(spinlock::run::<true>(plan, true)?),
        "spinlock-tas-process" => lock(spinlock::run::<false>(plan, false)?),
        "spinlock-ttas-process" => lock(spinlock::run::<true>(plan, false)?),
        "semaphore" => semaphore::run(plan, true)?,
        "semaphore-process" => semaphore::run(plan, false)?,
        "futex" => futex::run(plan)?,
        "condvar" => condvar::run(plan)?,
        "eventfd" => descriptor::eventfds(plan)?,
        "pipe" => descriptor::pipes(plan)?,
        "unix-stream" => descriptor::unix(plan, rustix::net::SocketType::STREAM)?,
        "unix-seqpacket" => descriptor::unix(plan, rustix::net::SocketType::SEQPACKET)?,
        "tcp-loopback" => descriptor::tcp(plan)?,
        "posix-mq" => message_queue::run(plan)?,
        "signal" => signal::run(plan)?,
        "mailbox-spin" => mailbox::spinning(plan)?,
        "mailbox-sleep" => noted(mailbox::sleeping(plan)?),
        "hand-over" => hand_over::run(plan)?,
        "container-tcp" => noted(container::engine(plan)?),
        "container-netns" => noted(container::namespaces(plan)?),
        other => peers(other, plan)?,
    })
}

/// Times a mailbox alone, then one with so many idle senders at each end.
///
/// # Errors
/// As [`Experiment::run`].
pub(crate) fn beside_idle(
    idle: usize,
    rounds: usize,
    warm_up: usize,
    placement: Placement,
    stamps: Stamps,
) -> Result<(Timed, Timed)> {
    mailbox::beside_idle(
        &Plan { rounds, warm_up, stamps, placement, clock: Clock::calibrated(), paced: None },
        idle,
    )
}

/// Says what a stamp a round adds to it, where that is not little.
fn cost_of_stamps(batches: &[f64], singles: &[f64]) -> Option<String> {
    let (bare, stamped) = (order::median(batches)?, order::median(singles)?);
    let share = stamped / bare - 1.0;
    (share > STAMP_LIMIT).then(|| {
        let percent = share * 100.0;
        format!(
            "one_way_single has a stamp in every round, which here makes it {percent:.0} % longer"
        )
    })
}

#[cfg(feature = "peers")]
fn peers(variant: &str, plan: &Plan) -> Result<Timed> {
    match variant {
        "zmq-inproc" => zeromq::inproc(plan),
        "zmq-ipc" => zeromq::ipc(plan),
        "crossbeam" => channel::crossbeam(plan),
        "rtrb" => channel::rings(plan),
        "iceoryx2" => iceoryx::run(plan),
        other => Err(Trouble::fail(format!("round-trip has no variant {other}"))),
    }
}

#[cfg(not(feature = "peers"))]
fn peers(variant: &str, _: &Plan) -> Result<Timed> {
    if VARIANTS.iter().any(|known| known.name == variant) {
        Err(Trouble::skip("built without the feature `peers`"))
    } else {
        Err(Trouble::fail(format!("round-trip has no variant {variant}")))
    }
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("flag", "a flag in shared memory, both processes spin: the floor of this hardware"),
    variant("spinlock-tas", "a bit under a spinlock that swaps until it wins; two threads"),
    variant("spinlock-ttas", "a bit under a spinlock that looks before it swaps; two threads"),
    variant("semaphore", "two POSIX semaphores; two threads"),
    variant("spinlock-tas-process", "spinlock-tas between two processes"),
    variant("spinlock-ttas-process", "spinlock-ttas between two processes"),
    variant("semaphore-process", "two POSIX semaphores in shared memory; two processes"),
    variant("futex", "a futex word in shared memory; two processes"),
    variant("condvar", "a process-shared pthread mutex and condition variable"),
    variant("eventfd", "two eventfds"),
    variant("pipe", "two pipes, one byte a message"),
    variant("unix-stream", "a pair of UNIX stream sockets, one byte a message"),
    variant("unix-seqpacket", "a pair of UNIX seqpacket sockets, one byte a message"),
    variant("tcp-loopback", "a TCP connection over loopback with TCP_NODELAY"),
    variant("posix-mq", "two POSIX message queues"),
    variant("signal", "SIGUSR1, blocked, taken by sigwaitinfo"),
    variant("zmq-inproc", "ZeroMQ PAIR sockets over inproc; two threads"),
    variant("zmq-ipc", "ZeroMQ PAIR sockets over ipc; two processes"),
    variant("crossbeam", "two bounded crossbeam channels; two threads"),
    variant("rtrb", "two rtrb rings, both threads spin"),
    variant("iceoryx2", "iceoryx2 publish-subscribe, both processes poll"),
    variant(
        "mailbox-spin",
        "a tontine mailbox at each end, 8 bytes a message, both processes spin",
    ),
    variant("mailbox-sleep", "a tontine mailbox at each end, 8 bytes a message, both sleep"),
    variant(
        "hand-over",
        "mailbox-spin, but what is sent is a block of the shared heap: 1 MiB, and no copy",
    ),
    variant(
        "container-tcp",
        "TCP with TCP_NODELAY between two containers of a Docker engine, on a network of their own",
    ),
    variant(
        "container-netns",
        "the same between two processes in namespaces of their own: bridge, veth, no engine",
    ),
];

#[cfg(test)]
mod tests;
