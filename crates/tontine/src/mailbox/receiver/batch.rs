//! Receiving several messages in one call: [`Mailbox::recv_batch`].
//!
//! Neighbours: [`super::lanes`] passes the turn on, [`super::inbound`] reads the messages of a
//! turn.

use super::Mailbox;
use super::message::{Message, SenderId};
use crate::error::{Peer, Result};

impl Mailbox {
    /// Blocks for the first message, then passes up to `max` queued messages to `f`, and
    /// acknowledges each when `f` returns. Returns the number of messages.
    ///
    /// If `max` is 0, returns 0 immediately.
    ///
    /// # Errors
    /// The errors of [`Mailbox::recv`], but only before the first message is passed to `f`. The
    /// next call returns an error that occurs later.
    ///
    /// # Panics
    /// Panics if `f` does. The message that was passed to `f` stays unacknowledged and is received
    /// again; the messages before it are acknowledged.
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{Mailbox, Sender};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// let mut sender = Sender::connect(&path)?;
    /// for number in 0..10_u8 {
    ///     sender.send(&[number])?;
    /// }
    /// let (mut sum, mut received) = (0, 0);
    /// while received < 10 {
    ///     received += mailbox.recv_batch(4, |message| sum += u32::from(message[0]))?;
    /// }
    /// assert_eq!(sum, 45);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn recv_batch(&mut self, max: usize, f: impl FnMut(&Message<'_>)) -> Result<usize> {
        if max == 0 {
            return Ok(0);
        }
        let (first, redelivered) = match self.recv_fast(self.looks()) {
            Some(from) => (from, 0),
            None => self.recv_slowly(None).map(|one| ((one.sender, one.peer), one.redelivered))?,
        };
        Ok(self.pass_batch(max, first, redelivered, f))
    }

    /// Passes the message that was just received, and up to `max - 1` others, to `f`, and
    /// acknowledges each when it returns. Returns their number.
    pub(super) fn pass_batch(
        &mut self,
        max: usize,
        first: (SenderId, Peer),
        redelivered: u32,
        mut f: impl FnMut(&Message<'_>),
    ) -> usize {
        let batch = RunningBatch(self);
        let mailbox: &mut Self = &mut *batch.0;
        // The message is taken out first: if `f` panics, the next call must not acknowledge it.
        let taken = mailbox.taken.take();
        f(&Message { redelivered, ..mailbox.message(first) });
        mailbox.acknowledge_now(taken);
        let mut count = 1;
        while count < max && !mailbox.guard.is_forked() {
            if let Some((lane, turn)) = mailbox.lanes.whole_turn(max - count) {
                count += lane.drain(turn, &mut mailbox.copied, mailbox.guard, &mut f);
            }
            if count < max {
                let Ok(Some(taken)) = mailbox.next() else { break };
                mailbox.taken = None;
                f(&mailbox.hand_out(taken));
                mailbox.acknowledge_now(Some(taken));
                count += 1;
            }
        }
        std::mem::forget(batch);
        count
    }
}

/// A batch that is passed to the program's function; forgotten at its end. If the function panics,
/// the message that it had is put back.
struct RunningBatch<'a>(&'a mut Mailbox);

impl Drop for RunningBatch<'_> {
    fn drop(&mut self) {
        self.0.lanes.requeue_turn();
    }
}
