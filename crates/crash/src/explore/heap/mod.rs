//! One run of a script for a heap: [`Scene`], its members and what they do up to the kill.
//!
//! The *victim* carries the operation out; its *companion*, who made the heap, survives. Where the
//! heap looks after its dead, the victim has blocks of every kind: its own, large, of its
//! companion's slab, on their way to and from it; and its companion has a small and a large one of
//! the victim's slabs. What is asked of the survivors afterwards stands in [`aftermath`].

mod aftermath;

use std::time::Duration;

use rustix::process::Pid;

use super::cast::{Cast, answer, unharmed};
use crate::actor::order::{Act, HeapAct};
use crate::knife::Release;
use crate::message::Seen;
use crate::patience::Patience;
use crate::place::Place;
use crate::stage::Actor;
use crate::subject::{HeapTarget, Operation};
use crate::verdict::{Killed, Ledger};
use tontine_host::trouble::{Result, Trouble};

/// The companion's own blocks, which nobody may touch.
const OWN: [u32; 2] = [1, 2];
/// A block that the victim was handed, of its companion's slab.
const GIVEN: u32 = 3;
/// One on its way to the victim.
const UNREAD: u32 = 4;
/// The victim's own.
const FIRST: u32 = 10;
/// One on its way to the companion.
const POSTED: u32 = 11;
/// One that the companion has, of the victim's slab.
const KEPT: u32 = 12;
/// A large one, of the victim.
const LARGE: u32 = 13;
/// A large one that the companion has, of the victim's slabs.
const KEPT_LARGE: u32 = 14;
/// The one under the knife.
const ASKED: u32 = 20;
/// Whole slabs, free again.
const GIVEN_BACK: [u32; 2] = [21, 22];
/// Of whoever looks after the dead.
const RECOVERERS: u32 = 30;
/// The first of those that fill the heap before anything happens.
const MEASURED: u32 = 1_000;

/// Bytes of blocks.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    small: usize,
    other: usize,
    large: usize,
    filling: usize,
}

/// A run, at any time between its beginning and its verdict. Actors go before the place.
#[derive(Debug)]
pub(super) struct Scene {
    victim: Actor,
    companion: Actor,
    /// Blocks that are handed to the companion, or may be.
    ledger: Ledger,
    /// [`HeapTarget::recovers`].
    recovers: bool,
    /// [`HeapTarget::hands_over`].
    hands_over: bool,
    sizes: Sizes,
    /// Blocks that fill the heap.
    room: usize,
    /// What the companion has.
    companions: Vec<u32>,
    /// What the victim does under the knife.
    pub(super) act: Act,
    /// How long a survivor may take for one answer.
    patience: Duration,
    place: Place,
}

impl Scene {
    /// Leads the actors up to the operation.
    pub(super) fn set(cast: Cast<'_>, heap: &dyn HeapTarget, operation: Operation) -> Result<Self> {
        let place = Place::new()?;
        let mut scene = Self {
            victim: cast.actor(&place)?,
            companion: cast.actor(&place)?,
            ledger: Ledger::default(),
            recovers: heap.recovers(),
            hands_over: heap.hands_over(),
            sizes: Sizes {
                small: heap.small(),
                other: heap.other(),
                large: heap.large(),
                filling: heap.filling(),
            },
            room: 0,
            companions: OWN.to_vec(),
            act: Act::Heap(HeapAct::Join),
            patience: cast.subject.patience(),
            place,
        };
        scene.begin()?;
        if operation == Operation::Join {
            return Ok(scene);
        }
        scene.settle_in(operation)?;
        let Sizes { small, other, large, .. } = scene.sizes;
        let number = ASKED;
        scene.act = match operation {
            Operation::Allocate => Act::Heap(HeapAct::Allocate { number, bytes: small }),
            Operation::AllocateSlab => Act::Heap(HeapAct::Allocate { number, bytes: other }),
            Operation::AllocateLarge => Act::Heap(HeapAct::Allocate { number, bytes: large }),
            Operation::Free => Act::Heap(HeapAct::Free(FIRST)),
            Operation::FreeRemote => Act::Heap(HeapAct::Free(GIVEN)),
            Operation::GiveBack => {
                for (number, bytes) in GIVEN_BACK.into_iter().zip([other, large]) {
                    scene.victims(HeapAct::Allocate { number, bytes })?;
                }
                for number in GIVEN_BACK {
                    scene.victims(HeapAct::Free(number))?;
                }
                Act::Heap(HeapAct::Tend)
            }
            Operation::HandOver => {
                scene.ledger.may.insert(FIRST);
                let to = number_of(scene.companion.pid());
                Act::Heap(HeapAct::HandOver { number: FIRST, to })
            }
            Operation::Accept => Act::Heap(HeapAct::Accept),
            Operation::Leave => Act::Close,
            Operation::Recover => {
                scene.victim.kill();
                scene.victim = cast.actor(&scene.place)?;
                scene.victims(HeapAct::Join)?;
                scene.victims(HeapAct::Allocate { number: RECOVERERS, bytes: other })?;
                Act::Heap(HeapAct::Tend)
            }
            _ => {
                let text = format!("'{}' is not an operation of a heap", operation.name());
                return Err(Trouble::fail(text));
            }
        };
        Ok(scene)
    }

    /// The companion makes the heap, measures it, and has blocks in it.
    fn begin(&mut self) -> Result<()> {
        unharmed(&mut self.companion, Act::Create)?;
        let fill = HeapAct::Fill { first: MEASURED, bytes: self.sizes.filling };
        self.room = self.companions(fill)?.len();
        self.companions(HeapAct::Empty)?;
        self.companions(HeapAct::Tend)?;
        for number in OWN {
            self.companions(HeapAct::Allocate { number, bytes: self.sizes.small })?;
        }
        Ok(())
    }

    /// The victim joins and gets its blocks.
    fn settle_in(&mut self, operation: Operation) -> Result<()> {
        let Sizes { small, large, .. } = self.sizes;
        self.victims(HeapAct::Join)?;
        // Where nobody frees what the dead had, one block is lost in any case.
        if self.recovers || operation == Operation::Free {
            self.victims(HeapAct::Allocate { number: FIRST, bytes: small })?;
        }
        if !self.hands_over {
            return Ok(());
        }
        let [to_victim, to_companion] = [self.victim.pid(), self.companion.pid()].map(number_of);
        self.victims(HeapAct::Meet(to_companion))?;
        self.companions(HeapAct::Meet(to_victim))?;
        for number in [KEPT, POSTED] {
            self.victims(HeapAct::Allocate { number, bytes: small })?;
        }
        for number in [LARGE, KEPT_LARGE] {
            self.victims(HeapAct::Allocate { number, bytes: large / 2 })?;
        }
        for number in [GIVEN, UNREAD] {
            self.companions(HeapAct::Allocate { number, bytes: small })?;
        }
        self.companions(HeapAct::HandOver { number: GIVEN, to: to_victim })?;
        self.victims(HeapAct::Accept)?;
        self.companions(HeapAct::HandOver { number: UNREAD, to: to_victim })?;
        for number in [KEPT, KEPT_LARGE] {
            self.victims(HeapAct::HandOver { number, to: to_companion })?;
            self.companions(HeapAct::Accept)?;
            self.companions.push(number);
        }
        self.victims(HeapAct::HandOver { number: POSTED, to: to_companion })?;
        self.ledger.must.insert(POSTED);
        Ok(())
    }

    /// Has the victim do something.
    fn victims(&mut self, act: HeapAct) -> Result<Vec<Seen>> {
        unharmed(&mut self.victim, Act::Heap(act))
    }

    /// Has the companion do something.
    fn companions(&mut self, act: HeapAct) -> Result<Vec<Seen>> {
        unharmed(&mut self.companion, Act::Heap(act))
    }

    /// Runs `body` with the victim, which never waits for anybody.
    pub(super) fn with_victim<T>(
        &mut self,
        body: impl FnOnce(&mut Actor, Release<'_>) -> Result<T>,
    ) -> Result<T> {
        body(&mut self.victim, &mut || Ok(()))
    }

    /// Kills the victim. `returned` says that the operation had: what it handed over has to arrive.
    pub(super) fn kill(&mut self, returned: bool) {
        self.victim.kill();
        if let (true, Act::Heap(HeapAct::HandOver { number, .. })) = (returned, self.act) {
            self.ledger.acknowledge(number);
        }
    }

    /// A fresh process joins, is to look after the dead victim, and to be killed over it.
    pub(super) fn succeed(
        &mut self,
        cast: Cast<'_>,
        operation: Operation,
    ) -> Result<Option<Killed>> {
        debug_assert_eq!(operation, Operation::Recover);
        self.victim = cast.actor(&self.place)?;
        let patience = &self.patience(self.victim.pid());
        self.act = Act::Heap(HeapAct::Tend);
        let bytes = self.sizes.small;
        for act in [HeapAct::Join, HeapAct::Allocate { number: RECOVERERS, bytes }] {
            let asked = self.victim.ask(act.plain(), patience);
            if let Err(killed) = answer("the successor", asked) {
                return Ok(Some(killed));
            }
        }
        Ok(None)
    }

    /// How long a survivor may take for one answer, which may need `another` to run.
    fn patience(&self, another: Pid) -> Patience {
        Patience::with(self.patience, &[self.companion.pid(), another])
    }
}

/// As orders have it.
fn number_of(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
