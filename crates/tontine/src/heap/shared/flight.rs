//! Blocks on their way, and who frees those that nobody will take: [`Core::settle`],
//! [`Core::reclaim_received`], [`Core::reclaim_sent`].
//!
//! A parcel that the program carries itself is the program's: it says when nobody reads it any
//! more. One that was posted through an outbox is freed without its help, once its sender has no
//! outbox to a dead receiver any more, or its receiver no inbox and the sender is dead. What is
//! between two dead is dealt with in `recover`.

use super::core::Core;
use super::layout::MEMBERS;
use super::mail::Ways;
use super::word::{Destination, Member, MemberState, MemberWord, State, Truth, truth};
use crate::sync::Ordering;

impl Core {
    /// Whether a block that was posted is to be freed by this process, one of its ends, because the
    /// other one is dead. `flight` was read before `destination`.
    pub(super) fn is_ours_to_free(
        &self,
        ways: &Ways,
        flight: Truth,
        destination: Destination,
    ) -> bool {
        let to = destination.member();
        if !destination.is_posted() {
            return false;
        }
        // Where there never was one, the program may be about to make it.
        let no_reader = to == self.me() && ways.had_inbox && ways.inboxes == 0;
        (flight.holder() == self.slot() && !ways.leads_to(to) && !self.is_alive(to))
            || (no_reader && self.known_dead(flight.holder()).is_some())
    }

    /// Frees what is in flight between this process and the dead, and that nobody will take: once
    /// after each recovery, whoever has done it. How many blocks.
    pub(super) fn settle(&self) -> usize {
        // SYNC deaths: pairs with the addition in `recover`.
        let deaths = self.space.header().deaths.load(Ordering::Acquire);
        let mut ways = self.mail.ways();
        if !ways.used || std::mem::replace(&mut ways.settled, deaths) == deaths {
            return 0;
        }
        self.free_flights(|flight, destination| self.is_ours_to_free(&ways, flight, destination))
    }

    /// The same when one of the ways is there no more.
    pub(super) fn settle_again(&self) -> usize {
        let deaths = self.space.header().deaths.load(Ordering::Relaxed);
        self.mail.ways().settled = !deaths;
        self.settle()
    }

    /// Frees what these dead members have sent to this one and nobody will ever read: all of it, or
    /// what was posted. A slot that somebody else has by now is not theirs.
    pub(super) fn reclaim_received(&self, dead: &[Member], posted: bool) -> usize {
        let is_dead = |holder| self.known_dead(holder).is_some_and(|member| dead.contains(&member));
        self.free_flights(|flight, destination| {
            destination.member() == self.me()
                && is_dead(flight.holder())
                && (!posted || destination.is_posted())
        })
    }

    /// Frees what this member has sent to one that has ended.
    pub(super) fn reclaim_sent(&self, from: Member) -> usize {
        self.free_flights(|flight, destination| {
            flight.holder() == self.slot() && destination.member() == from
        })
    }

    /// Members that are known to have ended, and that something may still name.
    pub(super) fn dead_members(&self) -> Vec<Member> {
        (0..MEMBERS).filter_map(|slot| self.known_dead(slot)).collect()
    }

    /// Who had this slot, and has been found to have ended; none once nothing names it.
    fn known_dead(&self, slot: usize) -> Option<Member> {
        // SYNC member: pairs with the stores of its holder, and of who recovers it.
        let word = &self.space.member((slot < MEMBERS).then_some(slot)?).word;
        let word = MemberWord(word.load(Ordering::Acquire));
        let member = Member::new(slot, word.epoch());
        (word.state() == MemberState::Recovering).then_some(member)
    }

    fn free_flights(&self, whether: impl Fn(Truth, Destination) -> bool) -> usize {
        let mut freed = 0;
        for granule in self.all_blocks().map(|(granule, _)| granule) {
            let word = self.space.word(granule);
            // SYNC truth: pairs with the store in `send`, which the destination came before.
            let found = Truth(word.load(Ordering::Acquire));
            if found.state() == State::InFlight
                && whether(found, self.destination(granule))
                && truth::reclaim(word, found)
            {
                self.tell_owner(granule);
                freed += 1;
            }
        }
        freed
    }

    /// Where a block in flight goes.
    pub(super) fn destination(&self, granule: usize) -> Destination {
        Destination(self.space.destination(granule).load(Ordering::Relaxed))
    }
}
