//! Mechanisms that carry numbered messages from a sender to a receiver: [`Queue`], whose two ends
//! are [`Endpoint`]s.

use std::io;
use std::time::Duration;

use tontine_mechanisms::operation::QueueEnd;

use super::Subject;
use crate::message::TrialMessage;
use crate::place::Place;

/// One mechanism that carries messages from a sender to a receiver.
pub trait Queue: Subject {
    /// Messages that an empty queue takes before the next `send` waits, or grows the queue.
    fn capacity(&self) -> u32;

    /// Messages that have to be taken out of a full queue before a waiting `send` goes on.
    fn makes_room(&self) -> u32 {
        1
    }

    /// Whether a message may come again that a dead receiver had received: at least once.
    fn delivers_again(&self) -> bool {
        false
    }

    /// Whether a sender outlives its receiver and hands what is unread over to the next one, for
    /// which it looks when asked to.
    fn hands_over(&self) -> bool {
        false
    }

    /// Makes what both ends need, once a run, in an actor.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn create(&self, place: &Place) -> io::Result<()> {
        let _ = place;
        Ok(())
    }

    /// Opens one end, in an actor.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn open(&self, place: &Place, end: QueueEnd) -> io::Result<Box<dyn Endpoint>>;
}

/// An open end. Dropped, it is closed.
pub trait Endpoint {
    /// Sends; waits for room.
    ///
    /// # Errors
    /// Those of the mechanism, such as a reader that is gone.
    fn send(&mut self, message: &TrialMessage) -> io::Result<()>;

    /// Receives one message and returns its length; `None` where none came in time.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn receive(&mut self, into: &mut TrialMessage, wait: Wait) -> io::Result<Option<usize>>;

    /// Takes back what a dead reader did not read, where the mechanism can.
    fn unread(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Looks whether somebody has taken a dead reader's place, and hands over to it.
    ///
    /// # Errors
    /// Those of the mechanism; that there is nobody yet is none.
    fn look_for_successor(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long to wait for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until one comes.
    Ever,
    /// No longer than this.
    AtMost(Duration),
}
