//! The program that an actor runs: [`serve`] obeys one [`order::Order`] a line until nobody is
//! left to give any.
//!
//! A *marked* order is framed by two breakpoint instructions: what lies between them is what the
//! explorer steps through. Everything else (reading the order, the reply) stays outside.
//! `boost/message_queue.cpp` does the same in C++. [`crate::stage`] is the other side.

#![allow(unsafe_code, reason = "breakpoint instructions")]

pub mod order;

use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use self::order::{Act, Order, Reply};
use crate::message::{LENGTH, Seen, numbered};
use crate::place::Place;
use crate::subject::{self, Endpoint, Kind, Queue, Wait};
use crate::trouble;

/// Serves as an actor: standard input brings orders, standard output takes replies. The arguments
/// are the subject's name and the folder of the [`Place`].
///
/// # Errors
/// Where the arguments name no subject, an order makes no sense, or the pipes fail.
pub fn serve(subject: &OsStr, folder: &OsStr) -> io::Result<()> {
    let subject = subject
        .to_str()
        .and_then(subject::find)
        .ok_or_else(|| io::Error::other(format!("no subject is named {subject:?}")))?;
    let place = Place::of(folder.into());
    let Kind::Queue(queue) = subject.kind();
    let mut actor = Actor { queue, place, endpoint: None };
    let mut replies = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let order: Order = line?.parse().map_err(io::Error::other)?;
        let reply = actor.obey(&order);
        writeln!(replies, "{reply}")?;
        replies.flush()?;
    }
    Ok(())
}

struct Actor {
    queue: &'static dyn Queue,
    place: Place,
    endpoint: Option<Box<dyn Endpoint>>,
}

impl Actor {
    fn obey(&mut self, order: &Order) -> Reply {
        let done = match order.act {
            Act::Create => self.queue.create(&self.place).map(|()| Vec::new()),
            Act::Open(end) => framed(order.marked, || self.queue.open(&self.place, end))
                .map(|endpoint| self.endpoint = Some(endpoint))
                .map(|()| Vec::new()),
            Act::Close => {
                let endpoint = self.endpoint.take();
                framed(order.marked, || drop(endpoint));
                Ok(Vec::new())
            }
            Act::Send(number) => {
                let message = numbered(number);
                self.endpoint()
                    .and_then(|endpoint| framed(order.marked, || endpoint.send(&message)))
                    .map(|()| Vec::new())
            }
            Act::Receive => {
                let mut into = [0; LENGTH];
                self.endpoint()
                    .and_then(|endpoint| {
                        framed(order.marked, || endpoint.receive(&mut into, Wait::Ever))
                    })
                    .map(|length| length.map(|length| Seen::of(&into[..length])))
                    .map(|seen| seen.into_iter().collect())
            }
            Act::Drain { until, quiet_ms } => {
                self.endpoint().and_then(|endpoint| drain(endpoint, until, quiet_ms))
            }
            Act::Unread => self.endpoint().map(|endpoint| {
                endpoint.unread().iter().map(|message| Seen::of(message)).collect()
            }),
            Act::LookForSuccessor => self
                .endpoint()
                .and_then(|endpoint| endpoint.look_for_successor())
                .map(|()| Vec::new()),
        };
        match done {
            Ok(seen) => Reply::Done(seen),
            Err(error) if trouble::refused(&error) => Reply::Lacking(error.to_string()),
            Err(error) => Reply::Refused(error.to_string()),
        }
    }

    fn endpoint(&mut self) -> io::Result<&mut (dyn Endpoint + 'static)> {
        self.endpoint.as_deref_mut().ok_or_else(|| io::Error::other("this end is not open"))
    }
}

/// Receives until the message `until` has come, and then whatever comes before it is quiet. Ends
/// only with that message: whoever gave the order has a deadline.
fn drain(endpoint: &mut dyn Endpoint, until: u32, quiet_ms: u64) -> io::Result<Vec<Seen>> {
    let pause = Duration::from_millis(quiet_ms);
    let mut seen = Vec::new();
    let mut into = [0; LENGTH];
    let mut quiet_since: Option<Instant> = None;
    loop {
        if let Some(length) = endpoint.receive(&mut into, Wait::AtMost(pause))? {
            let one = Seen::of(&into[..length]);
            seen.push(one);
            if one == Seen::Whole(until) || quiet_since.is_some() {
                quiet_since = Some(Instant::now());
            }
            // A torn length or header may repeat itself without end; a few are proof enough.
            if seen.len() > MOST_SEEN {
                return Ok(seen);
            }
        } else if quiet_since.is_some_and(|since| since.elapsed() >= pause) {
            return Ok(seen);
        }
    }
}

/// Messages that are received in one go before something must be wrong.
const MOST_SEEN: usize = 4_096;

/// Runs `act` between two marks, if asked to.
#[inline(never)]
fn framed<T>(marked: bool, act: impl FnOnce() -> T) -> T {
    if marked {
        mark();
    }
    let done = act();
    if marked {
        mark();
    }
    done
}

/// A stop for the tracer. Without one it ends the process.
#[inline(always)]
fn mark() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `int3` changes no register and no memory. The tracer, without which no order is
    // marked, continues behind it.
    unsafe {
        std::arch::asm!("int3");
    }
}
