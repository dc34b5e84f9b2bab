//! Signals to another process, by mailbox: [`start`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::Result;
use super::worker::{LOOK, Sink, Worker};
use super::{Received, Set};
use crate::mailbox::Sender;

/// Sends each as its bytes, or hands it to `undelivered`.
struct Mail<F> {
    sender: Sender,
    undelivered: F,
    stop: Arc<AtomicBool>,
}

pub(super) fn start(
    set: Set,
    sender: Sender,
    undelivered: impl FnMut(Received, crate::Error) + Send + 'static,
) -> Result<Worker> {
    Worker::start(set, Mail { sender, undelivered, stop: Arc::default() })
}

impl<F: FnMut(Received, crate::Error) + Send + 'static> Sink for Mail<F> {
    fn begin(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    fn put(&mut self, received: Received) {
        let bytes = received.to_bytes();
        loop {
            // Who ends the thread waits for this: not for ever for a mailbox that nobody empties.
            match self.sender.send_timeout(&bytes, LOOK) {
                Ok(()) => return,
                Err(crate::Error::TimedOut) if !self.stop.load(Ordering::Relaxed) => {}
                Err(error) => return (self.undelivered)(received, error),
            }
        }
    }
}
