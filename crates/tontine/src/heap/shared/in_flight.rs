//! Reclamation of blocks in flight that no process will accept: [`Core::reclaim_stranded`],
//! [`Core::reclaim_received`], [`Core::reclaim_sent`].
//!
//! If the program carries a parcel itself, the program reports when no process will read the parcel
//! any more. A block that was posted through an outbox is freed without the program's help. The
//! sender frees it if the receiver is dead and the sender no longer has an outbox to that receiver.
//! The receiver frees it if the sender is dead and the receiver no longer has an inbox. `recover`
//! frees blocks between two dead members.

use super::core::Core;
use super::layout::MEMBERS;
use super::transfers::Endpoints;
use super::word::{BlockState, BlockWord, Destination, Member, MemberState, MemberWord, truth};
use crate::sync::Ordering;

impl Core {
    /// Returns `true` if this process is one end of a posted block, and must free it because the
    /// other end is dead. `flight` was read before `destination`.
    pub(super) fn is_ours_to_free(
        &self,
        ways: &Endpoints,
        flight: BlockWord,
        destination: Destination,
    ) -> bool {
        let to = destination.member();
        if !destination.is_posted() {
            return false;
        }
        // If this process never had an inbox, the program may be about to create one.
        let no_reader = to == self.me() && ways.had_inbox && ways.inboxes == 0;
        (flight.holder() == self.slot() && !ways.leads_to(to) && !self.is_alive(to))
            || (no_reader && self.known_dead(flight.holder()).is_some())
    }

    /// Frees the posted blocks between this process and dead members that no process will accept.
    /// Runs once after each recovery by any member. Returns the number of blocks freed.
    pub(super) fn reclaim_stranded(&self) -> usize {
        // SYNC deaths: pairs with the addition in `recover`.
        let deaths = self.space.header().deaths.load(Ordering::Acquire);
        let mut ways = self.mail.ways();
        if !ways.used || std::mem::replace(&mut ways.settled, deaths) == deaths {
            return 0;
        }
        self.free_flights(|flight, destination| self.is_ours_to_free(&ways, flight, destination))
    }

    /// Like [`Core::reclaim_stranded`], but runs even without a recovery since the last call.
    /// Called when an outbox or inbox is dropped.
    pub(super) fn settle_again(&self) -> usize {
        let deaths = self.space.header().deaths.load(Ordering::Relaxed);
        self.mail.ways().settled = !deaths;
        self.reclaim_stranded()
    }

    /// Frees the blocks that these dead members have sent to this process and that it has not
    /// accepted. If `posted`, frees only posted blocks. If another member now has the slot of a
    /// dead member, the dead member's blocks are not freed.
    pub(super) fn reclaim_received(&self, dead: &[Member], posted: bool) -> usize {
        let is_dead = |holder| self.known_dead(holder).is_some_and(|member| dead.contains(&member));
        self.free_flights(|flight, destination| {
            destination.member() == self.me()
                && is_dead(flight.holder())
                && (!posted || destination.is_posted())
        })
    }

    /// Frees the blocks that this process has sent to a member that has ended.
    pub(super) fn reclaim_sent(&self, from: Member) -> usize {
        self.free_flights(|flight, destination| {
            flight.holder() == self.slot() && destination.member() == from
        })
    }

    /// Returns the members that are known to have ended, and that a word may still name.
    pub(super) fn dead_members(&self) -> Vec<Member> {
        (0..MEMBERS).filter_map(|slot| self.known_dead(slot)).collect()
    }

    /// Returns the dead member of a slot, or `None` if the slot was freed because no word names it.
    fn known_dead(&self, slot: usize) -> Option<Member> {
        // SYNC member: pairs with the stores by the slot's holder, and by its recoverer.
        let word = &self.space.member((slot < MEMBERS).then_some(slot)?).word;
        let word = MemberWord(word.load(Ordering::Acquire));
        let member = Member::new(slot, word.epoch());
        (word.state() == MemberState::Recovering).then_some(member)
    }

    fn free_flights(&self, whether: impl Fn(BlockWord, Destination) -> bool) -> usize {
        let mut freed = 0;
        for granule in self.all_blocks().map(|(granule, _)| granule) {
            let word = self.space.word(granule);
            // SYNC truth: pairs with the store in `send`, which follows the destination's store.
            let found = BlockWord(word.load(Ordering::Acquire));
            if found.state() == BlockState::InFlight
                && whether(found, self.destination(granule))
                && truth::reclaim(word, found)
            {
                self.notify_owner(granule);
                freed += 1;
            }
        }
        freed
    }

    /// Returns the destination of a block in flight.
    pub(super) fn destination(&self, granule: usize) -> Destination {
        Destination(self.space.destination(granule).load(Ordering::Relaxed))
    }
}
