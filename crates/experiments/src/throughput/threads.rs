//! Senders that are threads: [`from_threads`].

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;

use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin::{self, Pinned};
use tontine_host::os::shared::SharedMapping;
use tontine_host::peer::{PeerHandle, PeriodicSignal, TellEnd};
use tontine_mechanisms::end::{Inlet, Outlet};

use super::harness::{Batches, StopFlags, StreamPlan, collect, stream};

/// Runs each sender in its own thread and the receiver in the calling thread, all pinned.
///
/// # Errors
/// Returns the error of the end that failed first.
pub(super) fn from_threads<O: Outlet + Send, I: Inlet>(
    plan: &StreamPlan,
    outlets: Vec<O>,
    mut inlet: I,
) -> Result<Batches> {
    let board = SharedMapping::<StopFlags>::anonymous()?;
    let receiver_ended = AtomicBool::new(false);
    let ended: Vec<AtomicBool> = outlets.iter().map(|_| AtomicBool::new(false)).collect();
    let peers: Vec<PeerHandle<'_>> = ended.iter().map(PeerHandle::Thread).collect();
    // An end records its error before it reports that it has ended. If one end fails only because
    // another one ended, its error is therefore recorded second.
    let first = OnceLock::new();
    let note = |trouble: &MeasureError| drop(first.set(trouble.clone()));
    thread::scope(|scope| {
        let (board, note, receiver_ended) = (&*board, &note, &receiver_ended);
        for (sender, (mut outlet, ended)) in outlets.into_iter().zip(&ended).enumerate() {
            scope.spawn(move || {
                let _told = TellEnd(ended);
                let sent = pin::pin_to(plan.processor_of(sender)).and_then(|()| {
                    let _nudge = PeriodicSignal::this_thread()?;
                    stream(plan, sender, board, &mut outlet, PeerHandle::Thread(receiver_ended))
                });
                let _ = sent.inspect_err(note);
            });
        }
        let _told = TellEnd(receiver_ended);
        let taken = Pinned::to(plan.here).and_then(|_pinned| {
            let _nudge = PeriodicSignal::this_thread()?;
            collect(plan, board, &mut inlet, &peers)
        });
        taken.inspect_err(note).map_err(|ours| first.get().cloned().unwrap_or(ours))
    })
}
