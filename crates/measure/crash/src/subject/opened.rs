//! The registry's mechanisms whose ends find each other by name, as targets: [`registered`].

use std::io;
use std::marker::PhantomData;

use tontine_mechanisms::about::{Explored, Mechanism};
use tontine_mechanisms::driver::{NamedDriver, NamedUser};
use tontine_mechanisms::end::{Inlet, Outlet, Patient, TransferError};
use tontine_mechanisms::registry;

use super::{CrashTarget, Endpoint, QueueEnd, QueueSubject, TargetKind, Wait, refused};
use crate::message::TrialMessage;
use crate::run_dir::RunDir;

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
    fn facts(&self) -> Explored {
        self.facts
    }

    fn kind(&self) -> TargetKind<'_> {
        TargetKind::Queue(self)
    }
}

impl<N: NamedDriver> QueueSubject for Opened<N> {
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
