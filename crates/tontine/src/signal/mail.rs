//! Delivery of signals to another process, through a mailbox: [`start`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::SignalError;
use super::thread::{POLL_INTERVAL, SignalWorker, Sink};
use super::{SignalInfo, SignalSet};
use crate::mailbox::Sender;

/// Sends each signal as its bytes, or passes it to `undelivered`.
struct MailSink<F> {
    sender: Sender,
    undelivered: F,
    stop: Arc<AtomicBool>,
}

pub(super) fn start(
    set: SignalSet,
    sender: Sender,
    undelivered: impl FnMut(SignalInfo, crate::Error) + Send + 'static,
) -> Result<SignalWorker, SignalError> {
    SignalWorker::start(set, MailSink { sender, undelivered, stop: Arc::default() })
}

impl<F: FnMut(SignalInfo, crate::Error) + Send + 'static> Sink for MailSink<F> {
    fn begin(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    fn put(&mut self, info: SignalInfo) {
        let bytes = info.to_bytes();
        loop {
            // The caller that stops the thread waits for this call, so it must not wait
            // indefinitely for a mailbox that no process empties.
            match self.sender.send_timeout(&bytes, POLL_INTERVAL) {
                Ok(()) => return,
                Err(crate::Error::TimedOut) if !self.stop.load(Ordering::Relaxed) => {}
                Err(error) => return (self.undelivered)(info, error),
            }
        }
    }
}
