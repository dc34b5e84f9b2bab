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
    /// Returns the number of messages that an empty queue accepts before the next `send` blocks or
    /// grows the queue.
    fn capacity(&self) -> u32;

    /// Returns the number of messages that must be taken out of a full queue before a blocked
    /// `send` returns.
    fn makes_room(&self) -> u32 {
        1
    }

    /// Returns `true` if messages that a dead receiver received may be delivered again
    /// (at-least-once delivery).
    fn delivers_again(&self) -> bool {
        false
    }

    /// Returns `true` if a sender outlives its receiver and hands the unread messages over to the
    /// next receiver, which it looks for on command.
    fn hands_over(&self) -> bool {
        false
    }

    /// Creates the resources that both ends need, once per run, in a worker.
    ///
    /// # Errors
    /// Returns the errors of the mechanism.
    fn create(&self, place: &RunDir) -> io::Result<()> {
        let _ = place;
        Ok(())
    }

    /// Opens one end, in a worker.
    ///
    /// # Errors
    /// Returns the errors of the mechanism.
    fn open(&self, place: &RunDir, end: QueueEnd) -> io::Result<Box<dyn Endpoint>>;
}

/// An open end, closed when dropped.
pub trait Endpoint {
    /// Sends a message, after waiting for free space if necessary.
    ///
    /// # Errors
    /// Returns the errors of the mechanism, such as a receiver that has ended.
    fn send(&mut self, message: &TrialMessage) -> io::Result<()>;

    /// Receives one message and returns its length; `None` if none arrived in time.
    ///
    /// # Errors
    /// Returns the errors of the mechanism.
    fn receive(&mut self, into: &mut TrialMessage, wait: Wait) -> io::Result<Option<usize>>;

    /// Takes back the messages that a dead receiver did not read, if the mechanism can.
    fn unread(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Looks for the successor of a dead receiver, and hands over to it.
    ///
    /// # Errors
    /// Returns the errors of the mechanism; a missing successor is not an error.
    fn look_for_successor(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limit on the wait for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Wait until a message arrives.
    Ever,
    /// Wait for at most this duration.
    AtMost(Duration),
}
