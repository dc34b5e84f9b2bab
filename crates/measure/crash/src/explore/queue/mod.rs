//! A run of a script for a queue: [`QueueTrial`], the two ends and their actions up to the kill.
//!
//! The *victim* carries out the operation; its *peer* has the other end. The commands to the
//! survivors after the kill are in [`after_kill`].

mod after_kill;

use std::time::Duration;

use rustix::process::Pid;

use super::scene::{KillTrial, ReleaseVictim};
use super::trial_config::{TrialConfig, answer, unharmed};
use crate::actor::order::CommandKind;
use crate::fair_timeout::FairTimeout;
use crate::message::MessageCheck;
use crate::run_dir::RunDir;
use crate::subject::{Operation, QueueEnd};
use crate::verdict::{ExpectedMessages, TrialResult};
use crate::worker_launcher::WorkerProcess;
use tontine_bench::error::{MeasureError, Result};

/// A trial at any time between its beginning and its verdict. Workers are dropped before the run
/// directory.
#[derive(Debug)]
pub(super) struct QueueTrial {
    victim: WorkerProcess,
    companion: WorkerProcess,
    ledger: ExpectedMessages,
    /// The victim's end.
    end: QueueEnd,
    /// `true` if the peer has opened its end.
    is_open: bool,
    /// `true` if receiving a message does not acknowledge it.
    delivers_again: bool,
    hands_over: bool,
    /// Message that the receive under test acknowledges, if the queue delivers again.
    acknowledges: Option<u32>,
    /// The victim's action in the operation under test.
    act: CommandKind,
    /// The action by which the peer releases a blocked victim once, and the number of its
    /// repetitions.
    release: Option<(CommandKind, u32)>,
    /// The command in which the peer sleeps until the victim wakes it.
    pending: Option<CommandKind>,
    /// The next number, which no process has sent yet.
    next: u32,
    timeout: Duration,
    place: RunDir,
}

impl QueueTrial {
    /// Brings the workers to the state before the operation. With `spare`, another message waits
    /// for a receiver.
    pub(super) fn set(config: TrialConfig<'_>, operation: Operation, spare: bool) -> Result<Self> {
        let facts = config.subject.facts();
        let place = RunDir::new()?;
        let mut scene = Self {
            victim: config.actor(&place)?,
            companion: config.actor(&place)?,
            ledger: ExpectedMessages::default(),
            end: end_of(operation)?,
            is_open: operation != Operation::Bind,
            delivers_again: facts.delivers_again,
            hands_over: facts.hands_over,
            acknowledges: None,
            act: CommandKind::Close,
            release: None,
            pending: None,
            next: 0,
            timeout: config.subject.timeout(),
            place,
        };
        unharmed(&mut scene.companion, CommandKind::Create)?;
        match operation {
            Operation::Bind => scene.act = CommandKind::Open(QueueEnd::Receiver),
            Operation::Connect => {
                unharmed(&mut scene.companion, CommandKind::Open(QueueEnd::Receiver))?;
                scene.act = CommandKind::Open(QueueEnd::Sender);
            }
            Operation::Send | Operation::Close => {
                scene.open()?;
                scene.exchange()?;
                let number = scene.number();
                unharmed(&mut scene.victim, CommandKind::Send(number))?;
                scene.ledger.must.insert(number);
                if operation == Operation::Send {
                    scene.act = scene.send_that_may_arrive();
                }
            }
            Operation::SendWaking => {
                scene.open()?;
                scene.exchange()?;
                scene.companion_sleeps_in(CommandKind::Receive)?;
                scene.act = scene.send_that_may_arrive();
            }
            Operation::Grow | Operation::SendFull => {
                scene.open()?;
                scene.exchange()?;
                for _ in 0..(facts.capacity)() {
                    let number = scene.number();
                    unharmed(&mut scene.victim, CommandKind::Send(number))?;
                    scene.ledger.must.insert(number);
                }
                scene.act = scene.send_that_may_arrive();
                let take = (CommandKind::Receive, (facts.frees_space)());
                scene.release = (operation == Operation::SendFull).then_some(take);
            }
            Operation::Receive | Operation::ReceiveEmpty => {
                scene.open()?;
                scene.exchange()?;
                if scene.delivers_again {
                    scene.ledger.may.insert(0);
                    scene.acknowledges = Some(0);
                }
                scene.act = CommandKind::Receive;
                if operation == Operation::ReceiveEmpty {
                    scene.release = Some((CommandKind::Send(scene.number()), 1));
                } else {
                    scene.companion_sends(if spare { 3 } else { 2 })?;
                }
            }
            Operation::ReceiveWaking => {
                scene.open()?;
                scene.exchange()?;
                scene.companion_sends((facts.capacity)())?;
                let waits = scene.send_that_may_arrive();
                scene.companion_sleeps_in(waits)?;
                scene.act = CommandKind::Receive;
            }
            // `end_of`, above, excludes these operations, because they belong to no end.
            _ => {}
        }
        std::thread::sleep(facts.settles);
        Ok(scene)
    }

    /// Opens both ends, the receiver's first.
    fn open(&mut self) -> Result<()> {
        let (receiver, sender) = match self.end {
            QueueEnd::Sender => (&mut self.companion, &mut self.victim),
            QueueEnd::Receiver => (&mut self.victim, &mut self.companion),
        };
        unharmed(receiver, CommandKind::Open(QueueEnd::Receiver))?;
        unharmed(sender, CommandKind::Open(QueueEnd::Sender)).map(drop)
    }

    /// Sends one message through the queue, so that both ends are connected.
    fn exchange(&mut self) -> Result<()> {
        let number = self.number();
        let (receiver, sender) = match self.end {
            QueueEnd::Sender => (&mut self.companion, &mut self.victim),
            QueueEnd::Receiver => (&mut self.victim, &mut self.companion),
        };
        unharmed(sender, CommandKind::Send(number))?;
        let seen = unharmed(receiver, CommandKind::Receive)?;
        if seen == [MessageCheck::Whole(number)] {
            return Ok(());
        }
        Err(MeasureError::fail(format!(
            "without a kill, expected message {number}, found {seen:?}"
        )))
    }

    /// Sends messages to the receiver under test. The receiver will take the first message, which
    /// may be lost with the receiver.
    fn companion_sends(&mut self, count: u32) -> Result<()> {
        for at in 0..count {
            let number = self.number();
            unharmed(&mut self.companion, CommandKind::Send(number))?;
            let goes_along = at == 0 && !self.delivers_again;
            let of = if goes_along { &mut self.ledger.may } else { &mut self.ledger.must };
            of.insert(number);
        }
        Ok(())
    }

    /// Makes the peer sleep in an action from which the victim will wake it.
    fn companion_sleeps_in(&mut self, act: CommandKind) -> Result<()> {
        self.companion.tell_into_sleep(act.plain())?;
        self.pending = Some(act);
        Ok(())
    }

    fn send_that_may_arrive(&mut self) -> CommandKind {
        let number = self.number();
        self.ledger.may.insert(number);
        CommandKind::Send(number)
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Returns the timeout for one reply of a survivor, which may depend on the peer and on the
    /// process `another`.
    fn timeout(&self, another: Pid) -> FairTimeout {
        FairTimeout::with(self.timeout, &[self.companion.pid(), another])
    }
}

impl KillTrial for QueueTrial {
    fn act(&self) -> CommandKind {
        self.act
    }

    fn is_concurrent(&self) -> bool {
        self.pending.is_some()
    }

    fn victim(&mut self) -> (&mut WorkerProcess, ReleaseVictim<'_>) {
        let Self { victim, companion, ledger, release, delivers_again, .. } = self;
        let release = move || {
            let Some((act, times)) = release.take() else {
                return Ok(());
            };
            for _ in 0..times {
                for one in unharmed(companion, act)? {
                    if let MessageCheck::Whole(number) = one {
                        ledger.must.remove(&number);
                    }
                }
            }
            if let CommandKind::Send(number) = act {
                let of = if *delivers_again { &mut ledger.must } else { &mut ledger.may };
                of.insert(number);
            }
            Ok(())
        };
        (victim, Box::new(release))
    }

    fn kill(&mut self, returned: bool) {
        self.victim.kill();
        if !returned {
            return;
        }
        match self.act {
            CommandKind::Send(number) => self.ledger.acknowledge(number),
            // The victim received the first of the messages that may arrive; it must not arrive
            // again.
            CommandKind::Receive if !self.delivers_again => {
                self.ledger.may.pop_first();
            }
            CommandKind::Receive => {
                if let Some(before) = self.acknowledges {
                    self.ledger.may.remove(&before);
                }
            }
            _ => {}
        }
    }

    fn succeed(&mut self, config: TrialConfig<'_>, next: Operation) -> Result<Option<TrialResult>> {
        self.victim = config.actor(&self.place)?;
        let timeout = &self.timeout(self.victim.pid());
        self.end = end_of(next)?;
        self.acknowledges = None;
        if next == Operation::Bind {
            self.act = CommandKind::Open(QueueEnd::Receiver);
            return Ok(None);
        }
        let opened = self.victim.ask(CommandKind::Open(self.end).plain(), timeout);
        if let Err(killed) = answer("the successor, opening its end,", opened) {
            return Ok(Some(killed));
        }
        if self.end == QueueEnd::Receiver && self.hands_over {
            const LOOKING: &str = "the surviving sender, looking for a successor,";
            let looked = self.companion.ask(CommandKind::LookForSuccessor.plain(), timeout);
            if let Err(killed) = answer(LOOKING, looked) {
                return Ok(Some(killed));
            }
        }
        self.act = match self.end {
            QueueEnd::Sender => self.send_that_may_arrive(),
            QueueEnd::Receiver if self.delivers_again => CommandKind::Receive,
            QueueEnd::Receiver => {
                // The successor takes the next message: the first message of the operation under
                // test or, if that message died with the victim, the first of the others.
                let first = self.ledger.must.pop_first();
                self.ledger.may.extend(first);
                CommandKind::Receive
            }
        };
        Ok(None)
    }

    fn judge(self: Box<Self>, config: TrialConfig<'_>) -> Result<TrialResult> {
        self.after_kill(config)
    }
}

fn end_of(operation: Operation) -> Result<QueueEnd> {
    let none =
        || MeasureError::fail(format!("'{}' is not an operation of a queue", operation.name()));
    operation.end().ok_or_else(none)
}
