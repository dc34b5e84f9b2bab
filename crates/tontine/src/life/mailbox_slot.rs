//! The words of a process page that show senders whether a receiver sleeps: [`MailboxSlot`].
//!
//! A page has 1,024 slots, one for each mailbox of the process. Private memory records which slots
//! are in use, since no peer needs this information. Neighbours: [`super::Life::desk`] returns a
//! slot, [`super::Watch::sleeping`] reads a peer's slot. The mailbox defines the meaning of the
//! word.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Life;
use super::word::DESKS;
use crate::error::{Error, Result};

/// The set of a page's slots that are in use: bit n of the words for slot n.
#[derive(Debug)]
pub(super) struct Desks([AtomicU64; DESKS as usize / 64]);

impl Default for Desks {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; DESKS as usize / 64])
    }
}

/// A slot of this process's page, freed on drop.
#[derive(Debug)]
pub(crate) struct MailboxSlot {
    /// Index of the slot, which a peer receives for [`super::Watch::sleeping`].
    pub(crate) index: u32,
    life: &'static Life,
}

impl MailboxSlot {
    pub(super) fn take(life: &'static Life) -> Result<Self> {
        for (first, word) in (0..DESKS).step_by(64).zip(&life.desks.0) {
            let first_free = |taken: u64| {
                let free = taken.trailing_ones();
                (free < 64).then(|| taken | 1 << free)
            };
            // SYNC desk: pairs with `drop`, so that the word of a free slot is zero.
            let found = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, first_free);
            if let Ok(taken) = found {
                return Ok(Self { index: first + taken.trailing_ones(), life });
            }
        }
        Err(Error::Full { what: "mailboxes", max: u64::from(DESKS) })
    }

    /// Returns the word that is not 0 while the receiver sleeps or is about to sleep. A forked
    /// child must not access it, since the page is not mapped there.
    #[inline]
    pub(crate) fn sleeping(&self) -> &AtomicU64 {
        &self.life.page.layout().desks[self.index as usize].sleeping
    }
}

impl Drop for MailboxSlot {
    fn drop(&mut self) {
        if self.life.is_forked() {
            return;
        }
        let index = self.index as usize;
        self.life.page.layout().desks[index].sleeping.store(0, Ordering::Relaxed);
        // SYNC desk: pairs with `take`.
        self.life.desks.0[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::Watch;
    use crate::sys::child::in_child;

    #[test]
    fn all_mailbox_slots_are_visible_to_peers() {
        // The test runs in a child, because other tests need slots too.
        assert!(in_child(|| {
            let life = Life::register().expect("life");
            let watch = Watch::from_fd(life).expect("watch");
            let mut desks: Vec<MailboxSlot> =
                (0..DESKS).map(|_| life.desk().expect("free")).collect();
            let full = life.desk().expect_err("all are taken");
            assert_eq!(full, Error::Full { what: "mailboxes", max: 1024 });
            for desk in &desks {
                let seen = watch.sleeping(desk.index).expect("in the page");
                assert_eq!(seen.load(Ordering::Relaxed), 0);
                desk.sleeping().store(1, Ordering::Relaxed);
                assert_eq!(seen.load(Ordering::Relaxed), 1);
            }
            assert!(watch.sleeping(DESKS).is_none() && watch.sleeping(u32::MAX).is_none());
            let freed = desks.swap_remove(7).index;
            assert_eq!(watch.sleeping(freed).map(|word| word.load(Ordering::Relaxed)), Some(0));
            life.desk().expect("free again").index == freed && watch.is_alive()
        }));
    }

    #[test]
    fn forked_child_neither_takes_nor_frees_mailbox_slots() {
        assert!(in_child(|| {
            let life = Life::register().expect("life");
            let desk = life.desk().expect("free");
            let inherited = &desk;
            let childs = in_child(move || {
                let refused = life.desk().is_err_and(|error| error == Error::Forked);
                let second = Life::register().expect("life of its own");
                refused && second.desk().is_ok_and(|own| own.index == inherited.index)
            });
            childs && life.desk().is_ok_and(|next| next.index != desk.index)
        }));
    }
}
