//! Commands to the survivors after the kill: the second half of [`QueueTrial`].
//!
//! A fresh process replaces the dead victim, messages pass from one process to the other, and the
//! messages that arrive are compared with the ledger.

use super::QueueTrial;
use crate::actor::order::{CommandKind, WorkerCommand, WorkerReply};
use crate::explore::trial_config::{ReceiveResult, TrialConfig, answer, silent};
use crate::fair_timeout::FairTimeout;
use crate::message::MessageCheck;
use crate::subject::QueueEnd;
use crate::verdict::TrialResult;
use crate::worker_launcher::WorkerProcess;
use tontine_bench::error::Result;

/// Pause without a message after which a receiver has received everything.
const QUIET_MS: u64 = 10;

impl QueueTrial {
    pub(super) fn after_kill(mut self, config: TrialConfig<'_>) -> Result<TrialResult> {
        let mut fresh = config.actor(&self.place)?;
        let done = match self.end {
            QueueEnd::Sender => self.with_fresh_sender(&mut fresh),
            QueueEnd::Receiver => self.with_fresh_receiver(&mut fresh),
        };
        // Order is preserved if there is one sender, receivers succeed one another, and no message
        // is lost with a dead receiver.
        let in_order = self.delivers_again && self.end == QueueEnd::Receiver;
        Ok(done.map_or_else(
            |stuck| stuck,
            |seen| {
                let ledger = &self.ledger;
                let judged =
                    if in_order { ledger.judge_in_order(&seen) } else { ledger.judge(&seen) };
                TrialResult::Judged(judged)
            },
        ))
    }

    /// Lets the peer receive the waiting messages and the messages that a fresh sender sends.
    fn with_fresh_sender(&mut self, fresh: &mut WorkerProcess) -> ReceiveResult {
        const LEFT: &str = "the surviving receiver";
        const OPENING: &str = "a fresh sender, opening its end,";
        const SENDING: &str = "a fresh sender, sending,";
        let timeout = &self.timeout(fresh.pid());
        let mut seen = Vec::new();
        for round in 0..ROUNDS {
            let number = self.fresh_number();
            let companion = &mut self.companion;
            let drain = drain(number);
            let receives = self.pending.take().is_some();
            let sent = if receives { Ok(()) } else { companion.tell_and_settle(drain) };
            if round == 0 {
                answer(OPENING, fresh.ask(CommandKind::Open(QueueEnd::Sender).plain(), timeout))?;
            }
            answer(SENDING, fresh.ask(CommandKind::Send(number).plain(), timeout))?;
            seen.extend(answer(LEFT, sent.and_then(|()| companion.reply(timeout)))?);
            if receives && !seen.contains(&MessageCheck::Whole(number)) {
                seen.extend(answer(LEFT, companion.ask(drain, timeout))?);
            }
        }
        Ok(seen)
    }

    /// Lets a fresh receiver receive the waiting messages and the messages that the peer sends.
    fn with_fresh_receiver(&mut self, fresh: &mut WorkerProcess) -> ReceiveResult {
        const FRESH: &str = "a fresh receiver";
        const OPENING: &str = "a fresh receiver, opening its end,";
        let timeout = &self.timeout(fresh.pid());
        answer(OPENING, fresh.ask(CommandKind::Open(QueueEnd::Receiver).plain(), timeout))?;
        let mut seen = Vec::new();
        for round in 0..ROUNDS {
            let number = self.fresh_number();
            let sent = fresh.tell_and_settle(drain(number));
            if let Some(CommandKind::Send(waiting)) = self.pending.take() {
                match self.companion.reply(timeout) {
                    Ok(WorkerReply::Done(_)) => self.ledger.acknowledge(waiting),
                    Ok(
                        WorkerReply::Refused(_) | WorkerReply::Lacking(_) | WorkerReply::Faulty(_),
                    ) => {}
                    Err(silence) => return Err(silent(LEFT_TO_SEND, &silence)),
                }
            }
            seen.extend(self.companion_sends_fresh(number, round == 0, timeout)?);
            seen.extend(answer(FRESH, sent.and_then(|()| fresh.reply(timeout)))?);
        }
        Ok(seen)
    }

    /// Lets the peer send a fresh message. The first `send` may report the death instead; then the
    /// peer takes back the messages that it can, and opens its end again.
    fn companion_sends_fresh(
        &mut self,
        number: u32,
        first: bool,
        timeout: &FairTimeout,
    ) -> ReceiveResult {
        let companion = &mut self.companion;
        let mut ask = |act: CommandKind| companion.ask(act.plain(), timeout);
        if self.is_open {
            let sent = ask(CommandKind::Send(number));
            let was_notified =
                matches!(sent, Ok(WorkerReply::Refused(_) | WorkerReply::Lacking(_)));
            if !(first && was_notified) {
                return answer(LEFT_TO_SEND, sent);
            }
        }
        let mut back = Vec::new();
        if self.is_open {
            back = answer(LEFT_TO_SEND, ask(CommandKind::Unread))?;
            answer(LEFT_TO_SEND, ask(CommandKind::Close))?;
        }
        answer(LEFT_TO_SEND, ask(CommandKind::Open(QueueEnd::Sender)))?;
        self.is_open = true;
        answer(LEFT_TO_SEND, ask(CommandKind::Send(number)))?;
        Ok(back)
    }

    /// Returns the number of a message that a live process sends after the kill.
    fn fresh_number(&mut self) -> u32 {
        let number = self.number();
        self.ledger.fresh.insert(number);
        number
    }
}

const LEFT_TO_SEND: &str = "the surviving sender";

/// Number of messages that must pass after the kill, one after the other: some faults become
/// visible only at the second.
const ROUNDS: u32 = 2;

fn drain(until: u32) -> WorkerCommand {
    CommandKind::Drain { until, quiet_ms: QUIET_MS }.plain()
}
