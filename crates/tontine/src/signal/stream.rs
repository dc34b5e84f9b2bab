//! Signals, awaited: [`Stream`].

#![allow(unsafe_code, reason = "tokio wants a promise that descriptors stay open")]

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::error::{Error, Result};
use super::{Descriptor, Received};

/// An async stream of signals, made by [`Blocked::stream`](super::Blocked::stream).
///
/// It is a [`futures_core::Stream`] that never ends, and [`Stream::next`] needs no other crate.
/// Signals that are sent to a thread of the runtime's are not among them.
///
/// ```no_run
/// use tontine::signal::{Blocked, Signal};
///
/// // In `main`, before the runtime starts its workers.
/// let blocked = Blocked::new([Signal::TERM, Signal::HUP])?;
/// let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
/// runtime.block_on(async {
///     let mut signals = blocked.stream()?;
///     let one = signals.next().await?;
///     println!("{} of pid {:?}", one.signal(), one.pid());
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Stream<'a> {
    descriptor: AsyncFd<Descriptor<'a>>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(descriptor: Descriptor<'a>) -> Result<Self> {
        // SAFETY: it holds one descriptor, open, for as long as it lives.
        let descriptor = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
            .map_err(|error| Error::io("epoll_ctl", &error.into()))?;
        Ok(Self { descriptor })
    }

    /// Waits for the next one.
    ///
    /// Cancel safe: a future that is dropped before it is ready has taken none.
    ///
    /// # Errors
    /// [`Error::System`].
    pub async fn next(&mut self) -> Result<Received> {
        std::future::poll_fn(|context| self.poll_one(context)).await
    }

    fn poll_one(&mut self, context: &mut Context<'_>) -> Poll<Result<Received>> {
        // One that is never without a signal lets other tasks run all the same.
        let budget = ready!(tokio::task::coop::poll_proceed(context));
        loop {
            let mut readable = ready!(self.descriptor.poll_read_ready(context))
                .map_err(|error| Error::io("epoll_wait", &error))?;
            if let Some(received) = self.descriptor.get_ref().take()? {
                budget.made_progress();
                return Poll::Ready(Ok(received));
            }
            readable.clear_ready();
        }
    }
}

impl futures_core::Stream for Stream<'_> {
    type Item = Result<Received>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_one(context).map(Some)
    }
}
