//! The registry's mechanisms whose ends find each other by name, as targets: [`registered`].

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use tontine_mechanisms::about::{Explored, Mechanism};
use tontine_mechanisms::driver::{NamedDriver, NamedUser};
use tontine_mechanisms::end::{Inlet, Outlet, Patient, TransferError};
use tontine_mechanisms::registry;

use super::{
    CrashTarget, Endpoint, Operation, PATIENCE, QueueEnd, QueueSubject, Role, TargetKind, Wait,
    refused,
};
use crate::message::TrialMessage;
use crate::run_dir::RunDir;

/// Returns all these targets, each with its mechanism.
pub(super) fn registered() -> Vec<(Mechanism, &'static dyn CrashTarget)> {
    registry::named(|| Registering).into_iter().flatten().collect()
}

struct Registering;

impl NamedUser for Registering {
    type Out = Option<(Mechanism, &'static dyn CrashTarget)>;

    fn named<N: NamedDriver>(self, mechanism: Mechanism) -> Self::Out {
        let opened = Opened::<N> { facts: mechanism.explored?, _ends: PhantomData };
        Some((mechanism, Box::leak(Box::new(opened))))
    }
}

struct Opened<N> {
    facts: Explored,
    _ends: PhantomData<fn() -> N>,
}

impl<N: NamedDriver> CrashTarget for Opened<N> {
    fn name(&self) -> &'static str {
        self.facts.name
    }

    fn summary(&self) -> &'static str {
        self.facts.summary
    }

    fn role(&self) -> Role {
        if self.facts.own { Role::Own } else { Role::Peer }
    }

    fn caveat(&self) -> &'static str {
        self.facts.caveat
    }

    fn operations(&self) -> &'static [Operation] {
        self.facts.operations
    }

    fn succession(&self, operation: Operation) -> Option<Operation> {
        let mut all = self.facts.successions.iter();
        all.find_map(|(first, then)| (*first == operation).then_some(*then))
    }

    fn is_long_succession(&self, operation: Operation) -> bool {
        self.facts.long_successions.contains(&operation)
    }

    fn patience(&self) -> Duration {
        self.facts.patience.unwrap_or(PATIENCE)
    }

    fn settles(&self) -> Duration {
        self.facts.settles
    }

    fn kind(&self) -> TargetKind<'_> {
        TargetKind::Queue(self)
    }
}

impl<N: NamedDriver> QueueSubject for Opened<N> {
    fn capacity(&self) -> u32 {
        (self.facts.capacity)()
    }

    fn makes_room(&self) -> u32 {
        (self.facts.makes_room)()
    }

    fn delivers_again(&self) -> bool {
        self.facts.delivers_again
    }

    fn hands_over(&self) -> bool {
        self.facts.hands_over
    }

    fn create(&self, place: &RunDir) -> io::Result<()> {
        N::create(place.location()).map_err(refused)
    }

    fn open(&self, place: &RunDir, end: QueueEnd) -> io::Result<Box<dyn Endpoint>> {
        let at = place.location();
        Ok(match end {
            QueueEnd::Sender => Box::new(ReservedSend(N::sender(at).map_err(refused)?)),
            QueueEnd::Receiver => Box::new(Receiving(N::receiver(at).map_err(refused)?)),
        })
    }
}

struct ReservedSend<O>(O);

impl<O: Outlet> Endpoint for ReservedSend<O> {
    fn send(&mut self, message: &TrialMessage) -> io::Result<()> {
        self.0.send(message, &[]).map_err(|ended| refused(ended.into()))
    }

    fn receive(&mut self, _into: &mut TrialMessage, _wait: Wait) -> io::Result<Option<usize>> {
        Err(io::Error::other("a sender cannot receive"))
    }

    fn unread(&mut self) -> Vec<Vec<u8>> {
        self.0.take_back()
    }

    fn look_for_successor(&mut self) -> io::Result<()> {
        self.0.look_for_successor().map_err(refused)
    }
}

struct Receiving<I>(I);

impl<I: Patient> Endpoint for Receiving<I> {
    fn send(&mut self, _message: &TrialMessage) -> io::Result<()> {
        Err(io::Error::other("a receiver cannot send"))
    }

    fn receive(&mut self, into: &mut TrialMessage, wait: Wait) -> io::Result<Option<usize>> {
        let copy = |message: &[u8]| {
            let length = message.len().min(into.len());
            into[..length].copy_from_slice(&message[..length]);
            length
        };
        let received = match wait {
            Wait::Ever => Inlet::receive(&mut self.0, &[], copy).map(Some),
            Wait::AtMost(wait) => self.0.receive_within(wait, copy),
        };
        match received {
            // Another sender may connect.
            Err(TransferError::Gone) => Ok(None),
            other => other.map_err(|ended| refused(ended.into())),
        }
    }
}
