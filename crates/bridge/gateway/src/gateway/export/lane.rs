//! A lane of a peer to a mailbox of this host: [`ExportLane`].

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use tontine::Error;
use tontine::mailbox::Sender;

use crate::frame::Header;
use crate::incoming::{IncomingLane, Reply};
use crate::link::HostId;
use crate::outgoing::LaneEnd;

/// A lane of a peer to a mailbox of this host.
pub(super) struct ExportLane {
    pub(super) peer: HostId,
    pub(super) id: u128,
    pub(super) mailbox: String,
    pub(super) machine: IncomingLane,
    pub(super) waits: bool,
    /// `None` once the lane is over.
    pub(super) sender: Option<Sender>,
    /// The descriptor of `sender` that is in the epoll set.
    pub(super) watched: RawFd,
    /// For each record that was delivered, the position after it in the local and in the remote
    /// lane.
    pub(super) ends: VecDeque<(u64, u64)>,
    pub(super) local_acked: u64,
    pub(super) is_active: bool,
    /// The sending gateway expects nothing more.
    pub(super) is_settled: bool,
    /// Time of the last frame.
    pub(super) last_frame: Instant,
    pub(super) reply: Reply,
    /// Time at which the lane's end is reported again.
    pub(super) repeat: Option<(Instant, Duration)>,
    pub(super) forget: Option<Instant>,
}

impl ExportLane {
    pub(super) fn on_data(
        &mut self,
        header: &Header,
        payload: &[u8],
        log_quota: &mut u32,
    ) -> Reply {
        let (sender, ends) = (&mut self.sender, &mut self.ends);
        let mut failed = None;
        let taken = self.machine.on_data(header, payload, |record, end| {
            deliver(sender, ends, &mut failed, record, end)
        });
        if let Some(error) = failed {
            self.on_error(&error);
        }
        taken.unwrap_or_else(|violation| {
            if spend(log_quota) {
                tracing::warn!("a lane to {} was closed: {}", self.mailbox, violation.0);
            }
            Reply::Status
        })
    }

    /// Takes in what the owner has acknowledged, and delivers the record that waits for space.
    pub(super) fn progress(&mut self) -> Reply {
        let Some(sender) = &mut self.sender else { return Reply::Nothing };
        let mut reply = Reply::Nothing;
        let acked = sender.acked();
        if acked != self.local_acked {
            self.local_acked = acked;
            let mut end = None;
            while let Some(&(local, remote)) = self.ends.front()
                && local <= acked
            {
                end = Some(remote);
                self.ends.pop_front();
            }
            if let Some(end) = end {
                self.machine.on_acked(end);
                reply = Reply::Status;
            }
        }
        if self.machine.is_full() {
            let (sender, ends) = (&mut self.sender, &mut self.ends);
            let mut failed = None;
            reply = reply
                .max(self.machine.deliver_waiting(|record, end| {
                    deliver(sender, ends, &mut failed, record, end)
                }));
            if let Some(error) = failed {
                self.on_error(&error);
                reply = Reply::Status;
            }
        }
        reply
    }

    /// Does the local lane's pending work.
    pub(super) fn service(&mut self) -> Reply {
        let Some(sender) = &mut self.sender else { return Reply::Nothing };
        if let Err(error) = sender.service() {
            self.on_error(&error);
            return Reply::Status;
        }
        self.progress()
    }

    /// Ends the lane after an error of the local lane, which is final.
    pub(super) fn on_error(&mut self, error: &Error) {
        let end = match error {
            Error::OwnerDied { .. } => LaneEnd::OwnerDied,
            Error::Closed { .. } => LaneEnd::Closed,
            // Memory or descriptors are short: the peer repeats what was not accepted.
            error if is_shortage(error) => return,
            error => LaneEnd::Refused(error.errno()),
        };
        self.local_acked = u64::MAX;
        self.progress();
        self.machine.on_owner_end(end);
        tracing::info!("the lane to {} ended: {error}", self.mailbox);
    }
}

/// Sends one record to the owner. Returns `false` if its lane is full. An error that ends the lane
/// is stored in `failed`.
fn deliver(
    sender: &mut Option<Sender>,
    ends: &mut VecDeque<(u64, u64)>,
    failed: &mut Option<Error>,
    record: &[u8],
    end: u64,
) -> bool {
    let Some(sender) = sender else { return true };
    match sender.try_send(record) {
        Ok(()) => {
            ends.push_back((sender.sent(), end));
            true
        }
        Err(Error::WouldBlock) => false,
        Err(error) if is_shortage(&error) => false,
        Err(error) => {
            failed.get_or_insert(error);
            true
        }
    }
}

/// Returns `true` if memory or descriptors of this process are short, or the owner's queue is full.
pub(super) fn is_shortage(error: &Error) -> bool {
    use rustix::io::Errno;
    let lacks = [
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOSPC,
        Errno::TOOMANYREFS,
        Errno::TIMEDOUT,
    ];
    lacks.iter().any(|lack| lack.raw_os_error() == error.errno())
}

/// Returns `true` if a line may be logged.
pub(super) fn spend(quota: &mut u32) -> bool {
    let may = *quota > 0;
    *quota -= u32::from(may);
    may
}
