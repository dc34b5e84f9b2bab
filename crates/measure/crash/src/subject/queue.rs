//! Mechanisms that carry numbered messages from a sender to a receiver: [`QueueSubject`], whose two
//! ends are [`Endpoint`]s.

use std::io;
use std::time::Duration;

use tontine_mechanisms::operation::QueueEnd;

use super::CrashTarget;
use crate::message::TrialMessage;
use crate::run_dir::RunDir;

/// A mechanism that carries messages from a sender to a receiver.
pub trait QueueSubject: CrashTarget {
    /// Creates the resources that both ends need, once per run, in a worker.
    fn create(&self, place: &RunDir) -> io::Result<()> {
        let _ = place;
        Ok(())
    }

    /// Opens one end, in a worker.
    fn open(&self, place: &RunDir, end: QueueEnd) -> io::Result<Box<dyn Endpoint>>;
}

/// An open end, closed when dropped.
pub trait Endpoint {
    /// Sends a message, after waiting for free space if necessary.
    fn send(&mut self, message: &TrialMessage) -> io::Result<()>;

    /// Receives one message and returns its length; `None` if none arrived in time.
    fn receive(&mut self, into: &mut TrialMessage, wait: Wait) -> io::Result<Option<usize>>;

    /// Takes back the messages that a dead receiver did not read, if the mechanism can.
    fn unread(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Looks for the successor of a dead receiver, and hands over to it.
    fn look_for_successor(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limit on the wait for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Wait until a message arrives.
    Ever,
    AtMost(Duration),
}
