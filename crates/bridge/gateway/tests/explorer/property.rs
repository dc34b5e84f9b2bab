//! The actions that are possible in a world, the properties that hold in each, and the actions that
//! settle its lane once all faults have stopped.

use tontine_gateway::outgoing::{LaneEnd, OutgoingLane};

use super::network::distinct;
use super::world::{Action, Victim, World};

impl Action {
    /// Returns `true` if only a fault causes the action.
    pub(crate) fn is_fault(self) -> bool {
        match self {
            Self::ToB(_, keep) | Self::ToA(_, keep) => keep,
            Self::DropToB(_) | Self::DropToA(_) | Self::Cut => true,
            Self::Kill(_) | Self::OwnerCloses | Self::Suspect | Self::GiveUp => true,
            _ => false,
        }
    }
}

impl World {
    /// Returns `true` if the action is a timer that expires before everything else has happened. A
    /// timer that expires because frames were lost is not a fault of its own.
    pub(crate) fn is_early(&self, action: Action) -> bool {
        matches!(action, Action::Timer | Action::RepeatStatus) && self.is_busy()
    }

    fn is_busy(&self) -> bool {
        let may_read = |lane| self.is_read(lane) && (lane.may_take() || lane.may_acknowledge());
        !(self.to_a.is_empty() && self.to_b.is_empty())
            || self.has_news()
            || self.lanes.iter().any(may_read)
            || (self.cut || self.suspected || !self.a_lives || self.b.is_none())
    }

    /// Replaces `into` by the actions that are possible.
    pub(crate) fn actions(&self, into: &mut Vec<Action>) {
        into.clear();
        for index in distinct(&self.to_b) {
            into.extend([Action::ToB(index, false), Action::ToB(index, true)]);
            into.push(Action::DropToB(index));
        }
        for index in distinct(&self.to_a) {
            into.extend([Action::ToA(index, false), Action::ToA(index, true)]);
            into.push(Action::DropToA(index));
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            if self.is_read(lane) && lane.may_take() {
                into.push(Action::Take(index));
            }
            if self.is_read(lane) && lane.may_acknowledge() {
                into.push(Action::Acknowledge(index));
            }
        }
        if self.sender.alive {
            into.push(Action::SenderEnds);
            if usize::from(self.sender.published) < self.setting.messages.len() {
                into.push(Action::Publish);
            }
        }
        if self.has_news() {
            into.push(Action::Inspect);
        }
        if self.suspected {
            into.push(Action::Heal);
        }
        into.push(if self.cut { Action::Mend } else { Action::Cut });
        let victims = [
            (Victim::A, self.a_lives, true),
            (Victim::B, self.b.is_some(), true),
            (Victim::Owner, self.owner_lives, self.owner < self.setting.max_owners),
        ];
        for (victim, lives, may_restart) in victims {
            if lives {
                into.push(Action::Kill(victim));
            } else if may_restart {
                into.push(Action::Restart(victim));
            }
        }
        if self.a.as_ref().is_some_and(OutgoingLane::is_waiting) {
            into.push(Action::Timer);
        }
        if self.b_has_ended() {
            into.push(Action::RepeatStatus);
        }
        if self.owner_lives {
            into.push(Action::OwnerCloses);
        }
        if self.a.is_some() {
            into.push(if self.suspected { Action::GiveUp } else { Action::Suspect });
        }
        if self.faults == 0 {
            into.retain(|action| !action.is_fault() && !self.is_early(*action));
        }
    }

    /// Returns `true` if the receiving gateway repeats how its lane ended.
    fn b_has_ended(&self) -> bool {
        let ended = self.b.as_ref().and_then(|b| b.lane.as_ref()?.ended());
        ended.is_some_and(|end| end != LaneEnd::Finished) && !self.b_is_settled()
    }

    /// Checks that an owner receives messages in order, each once unless a process at its path was
    /// killed, and none that counts as unsent.
    pub(crate) fn check_receipt(&mut self, message: u16) {
        if self.setting.end_of(message + 1) > self.sender.sent {
            self.violate("a message that counts as unsent was received");
        }
        if message > self.received {
            self.violate("a message was received before an earlier one");
        } else if message == self.received {
            self.received += 1;
        } else if !self.b_killed && !self.owner_ended {
            self.violate("a message was received twice, but no process at its path was killed");
        }
    }

    /// Checks the end that the sending gateway reports to the sender.
    pub(crate) fn check_end(&mut self, end: LaneEnd, owner: u128) {
        let acknowledged = self.setting.end_of(self.acknowledged);
        match end {
            LaneEnd::Finished => {
                if self.acknowledged < self.sender.published {
                    self.violate("a lane finished before its last message was acknowledged");
                }
            }
            LaneEnd::OwnerDied => {
                // A gateway that was restarted cannot learn whether the owner died or closed.
                if owner == u128::from(self.owner) && self.owner_lives {
                    self.violate("a live owner was reported dead");
                }
            }
            LaneEnd::Closed if !self.owner_was_closed() => {
                self.violate("an open mailbox was reported closed");
            }
            LaneEnd::Refused(_) if !self.owner_ended => {
                self.violate("a lane was refused, but its owner lived");
            }
            LaneEnd::Closed | LaneEnd::Refused(_) => {}
        }
        let is_exact = !self.b_killed && matches!(end, LaneEnd::OwnerDied | LaneEnd::Closed);
        if is_exact && self.sender.acked < acknowledged {
            self.violate("a message that the ended owner acknowledged is in doubt");
        }
    }

    /// Returns the property that does not hold.
    pub(crate) fn check(&self) -> Option<&'static str> {
        if self.violation.is_some() {
            return self.violation;
        }
        if self.sender.acked > self.setting.end_of(self.acknowledged) {
            return Some("a message counts as acknowledged, but no owner acknowledged it");
        }
        if self.acknowledged > self.received {
            return Some("a message was acknowledged that was not received");
        }
        None
    }

    /// Returns `true` if the sender knows what happened to its messages, and no lane of a sender
    /// that has ended stays open.
    fn is_settled(&self) -> bool {
        if !self.sender.alive {
            let is_open = self.b.as_ref().is_some_and(|b| b.local.is_some());
            return self.a.is_none() && !is_open;
        }
        // A sender that does not wait learns the end of its owner.
        let owner = self.a.as_ref().map_or(0, OutgoingLane::owner);
        let is_bound = owner == 0 || (self.owner_lives && owner == u128::from(self.owner));
        let all = self.sender.acked >= self.setting.end_of(self.sender.published);
        self.sender.end.is_some() || self.gave_up || (all && (is_bound || self.setting.waits))
    }

    /// Returns the next step of a working system, or `None` if the lane has settled.
    pub(crate) fn healing_step(&self) -> Option<Action> {
        if self.is_settled() {
            return None;
        }
        let find =
            |may: fn(&World, usize) -> bool| (0..self.lanes.len()).find(|index| may(self, *index));
        let take = find(|world, index| {
            let lane = &world.lanes[index];
            world.is_read(lane) && lane.may_take()
        });
        let acknowledge = find(|world, index| {
            let lane = &world.lanes[index];
            world.is_read(lane) && lane.may_acknowledge()
        });
        // A gateway also asks about its lanes once the other gateway was restarted.
        let asks = |lane: &OutgoingLane| lane.is_waiting() || (self.b_killed && lane.is_open());
        Some(if self.cut {
            Action::Mend
        } else if self.suspected {
            Action::Heal
        } else if !self.a_lives {
            Action::Restart(Victim::A)
        } else if self.b.is_none() {
            Action::Restart(Victim::B)
        } else if !self.owner_lives && self.setting.waits {
            Action::Restart(Victim::Owner)
        } else if !self.to_b.is_empty() {
            Action::ToB(0, false)
        } else if !self.to_a.is_empty() {
            Action::ToA(0, false)
        } else if let Some(index) = take {
            Action::Take(index)
        } else if let Some(index) = acknowledge {
            Action::Acknowledge(index)
        } else if self.has_news() {
            Action::Inspect
        } else if self.a.as_ref().is_some_and(asks) {
            Action::Timer
        } else {
            // A gateway asks from time to time about a lane from which it hears nothing.
            Action::RepeatStatus
        })
    }
}
