//! Signals in an async task: [`SignalStream`].

#![allow(unsafe_code, reason = "tokio requires that descriptors stay open")]

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::error::SignalError;
use super::{SignalFd, SignalInfo};

/// An async stream of signals. [`Blocked::stream`](super::Blocked::stream) returns it.
///
/// It implements [`futures_core::Stream`], and never ends. [`SignalStream::next`] works without any
/// other crate. Signals sent to one thread of the runtime are not part of the stream.
///
/// # Examples
/// ```no_run
/// use tontine::signal::{Blocked, Signal};
///
/// // In `main`, before the runtime starts its workers.
/// let blocked = Blocked::new([Signal::TERM, Signal::HUP])?;
/// let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
/// runtime.block_on(async {
///     let mut signals = blocked.stream()?;
///     let info = signals.next().await?;
///     println!("{} of pid {:?}", info.signal(), info.pid());
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SignalStream<'a> {
    fd: AsyncFd<SignalFd<'a>>,
}

impl<'a> SignalStream<'a> {
    pub(super) fn new(fd: SignalFd<'a>) -> Result<Self, SignalError> {
        // SAFETY: the value owns one descriptor, which stays open as long as the value lives.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
            .map_err(|error| SignalError::io("epoll_ctl", &error.into()))?;
        Ok(Self { fd })
    }

    /// Waits for the next signal.
    ///
    /// Cancel safe: a future that is dropped before it is ready has taken no signal.
    ///
    /// # Errors
    /// [`SignalError::System`] if the runtime or the descriptor fails.
    pub async fn next(&mut self) -> Result<SignalInfo, SignalError> {
        std::future::poll_fn(|context| self.poll_one(context)).await
    }

    fn poll_one(&mut self, context: &mut Context<'_>) -> Poll<Result<SignalInfo, SignalError>> {
        // The budget lets other tasks run even if a signal is always pending.
        let budget = ready!(tokio::task::coop::poll_proceed(context));
        loop {
            let mut readable = ready!(self.fd.poll_read_ready(context))
                .map_err(|error| SignalError::io("epoll_wait", &error))?;
            if let Some(info) = self.fd.get_ref().read_signal()? {
                budget.made_progress();
                return Poll::Ready(Ok(info));
            }
            readable.clear_ready();
        }
    }
}

impl futures_core::Stream for SignalStream<'_> {
    type Item = Result<SignalInfo, SignalError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_one(context).map(Some)
    }
}
