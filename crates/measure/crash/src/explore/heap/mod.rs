//! A run of a script for a heap: [`HeapTrial`], its members and their actions up to the kill.
//!
//! The *victim* carries out the operation; its *peer*, which created the heap, survives. If the
//! heap recovers dead members, the victim has blocks of every kind: its own, large ones, blocks
//! from its peer's slab, and blocks in flight to and from it; its peer has a small and a large
//! block from the victim's slabs. The commands to the survivors after the kill are in
//! [`after_kill`].

mod after_kill;

use std::time::Duration;

use rustix::process::Pid;

use super::scene::{KillTrial, ReleaseVictim};
use super::trial_config::{TrialConfig, answer, unharmed};
use crate::actor::order::{CommandKind, HeapAct};
use crate::fair_timeout::FairTimeout;
use crate::message::MessageCheck;
use crate::run_dir::RunDir;
use crate::subject::{HeapTarget, Operation};
use crate::verdict::{ExpectedMessages, TrialResult};
use crate::worker_launcher::WorkerProcess;
use tontine_bench::error::{MeasureError, Result};

/// The peer's own blocks, which no other member may touch.
const OWN: [u32; 2] = [1, 2];
/// A block from the peer's slab that was handed over to the victim.
const GIVEN: u32 = 3;
/// A block in flight to the victim.
const UNREAD: u32 = 4;
/// The victim's own block.
const FIRST: u32 = 10;
/// A block in flight to the peer.
const POSTED: u32 = 11;
/// A block from the victim's slab that the peer has.
const KEPT: u32 = 12;
/// A large block of the victim.
const LARGE: u32 = 13;
/// A large block from the victim's slabs that the peer has.
const KEPT_LARGE: u32 = 14;
/// The block of the operation under test.
const UNDER_TEST: u32 = 20;
/// Complete slabs, which are freed again.
const GIVEN_BACK: [u32; 2] = [21, 22];
/// Block of the process that recovers a dead member.
const RECOVERERS: u32 = 30;
/// First of the blocks that fill the heap at the start, to measure its size.
const MEASURED: u32 = 1_000;

/// Sizes of blocks in bytes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    small: usize,
    other: usize,
    large: usize,
    filling: usize,
}

/// A trial at any time between its beginning and its verdict. Workers are dropped before the run
/// directory.
#[derive(Debug)]
pub(super) struct HeapTrial {
    victim: WorkerProcess,
    companion: WorkerProcess,
    /// Blocks that are, or may be, handed over to the peer.
    ledger: ExpectedMessages,
    recovers: bool,
    hands_over: bool,
    sizes: Sizes,
    /// Number of blocks that fill the heap.
    capacity: usize,
    /// Numbers of the peer's blocks.
    companions: Vec<u32>,
    /// The victim's action in the operation under test.
    act: CommandKind,
    timeout: Duration,
    place: RunDir,
}

impl HeapTrial {
    /// Brings the workers to the state before the operation.
    pub(super) fn set(
        config: TrialConfig<'_>,
        heap: &dyn HeapTarget,
        operation: Operation,
    ) -> Result<Self> {
        let place = RunDir::new()?;
        let mut scene = Self {
            victim: config.actor(&place)?,
            companion: config.actor(&place)?,
            ledger: ExpectedMessages::default(),
            recovers: heap.recovers(),
            hands_over: config.subject.facts().hands_over,
            sizes: Sizes {
                small: heap.small(),
                other: heap.other(),
                large: heap.large(),
                filling: heap.filling(),
            },
            capacity: 0,
            companions: OWN.to_vec(),
            act: CommandKind::Heap(HeapAct::Join),
            timeout: config.subject.timeout(),
            place,
        };
        scene.begin()?;
        if operation == Operation::Join {
            return Ok(scene);
        }
        scene.settle_in(operation)?;
        let Sizes { small, other, large, .. } = scene.sizes;
        let number = UNDER_TEST;
        scene.act = match operation {
            Operation::Allocate => CommandKind::Heap(HeapAct::Allocate { number, bytes: small }),
            Operation::AllocateSlab => {
                CommandKind::Heap(HeapAct::Allocate { number, bytes: other })
            }
            Operation::AllocateLarge => {
                CommandKind::Heap(HeapAct::Allocate { number, bytes: large })
            }
            Operation::Free => CommandKind::Heap(HeapAct::Free(FIRST)),
            Operation::FreeRemote => CommandKind::Heap(HeapAct::Free(GIVEN)),
            Operation::GiveBack => {
                for (number, bytes) in GIVEN_BACK.into_iter().zip([other, large]) {
                    scene.victims(HeapAct::Allocate { number, bytes })?;
                }
                for number in GIVEN_BACK {
                    scene.victims(HeapAct::Free(number))?;
                }
                CommandKind::Heap(HeapAct::Tend)
            }
            Operation::HandOver => {
                scene.ledger.may.insert(FIRST);
                let to = number_of(scene.companion.pid());
                CommandKind::Heap(HeapAct::HandOver { number: FIRST, to })
            }
            Operation::Accept => CommandKind::Heap(HeapAct::Accept),
            Operation::Leave => CommandKind::Close,
            Operation::Recover => {
                scene.victim.kill();
                scene.victim = config.actor(&scene.place)?;
                scene.victims(HeapAct::Join)?;
                scene.victims(HeapAct::Allocate { number: RECOVERERS, bytes: other })?;
                CommandKind::Heap(HeapAct::Tend)
            }
            _ => {
                let text = format!("'{}' is not an operation of a heap", operation.name());
                return Err(MeasureError::fail(text));
            }
        };
        Ok(scene)
    }

    /// Lets the peer create the heap, measure it, and allocate blocks in it.
    fn begin(&mut self) -> Result<()> {
        unharmed(&mut self.companion, CommandKind::Create)?;
        let fill = HeapAct::Fill { first: MEASURED, bytes: self.sizes.filling };
        self.capacity = self.companions(fill)?.len();
        self.companions(HeapAct::Empty)?;
        self.companions(HeapAct::Tend)?;
        for number in OWN {
            self.companions(HeapAct::Allocate { number, bytes: self.sizes.small })?;
        }
        Ok(())
    }

    /// Lets the victim join and obtain its blocks.
    fn settle_in(&mut self, operation: Operation) -> Result<()> {
        let Sizes { small, large, .. } = self.sizes;
        self.victims(HeapAct::Join)?;
        // If no member frees a dead member's blocks, one block is always lost.
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

    /// Lets the victim carry out `act`.
    fn victims(&mut self, act: HeapAct) -> Result<Vec<MessageCheck>> {
        unharmed(&mut self.victim, CommandKind::Heap(act))
    }

    /// Lets the peer carry out `act`.
    fn companions(&mut self, act: HeapAct) -> Result<Vec<MessageCheck>> {
        unharmed(&mut self.companion, CommandKind::Heap(act))
    }

    /// Returns the timeout for one reply of a survivor, which may depend on the process `another`.
    fn timeout(&self, another: Pid) -> FairTimeout {
        FairTimeout::with(self.timeout, &[self.companion.pid(), another])
    }
}

impl KillTrial for HeapTrial {
    fn act(&self) -> CommandKind {
        self.act
    }

    fn is_quiet(&self) -> bool {
        true
    }

    /// The victim never waits for another process.
    fn victim(&mut self) -> (&mut WorkerProcess, ReleaseVictim<'_>) {
        (&mut self.victim, Box::new(|| Ok(())))
    }

    /// If the operation had returned, a block that the victim handed over must arrive.
    fn kill(&mut self, returned: bool) {
        self.victim.kill();
        if let (true, CommandKind::Heap(HeapAct::HandOver { number, .. })) = (returned, self.act) {
            self.ledger.acknowledge(number);
        }
    }

    /// Starts a fresh process that joins and will be killed while it recovers the dead victim.
    fn succeed(&mut self, config: TrialConfig<'_>, next: Operation) -> Result<Option<TrialResult>> {
        debug_assert_eq!(next, Operation::Recover);
        self.victim = config.actor(&self.place)?;
        let timeout = &self.timeout(self.victim.pid());
        self.act = CommandKind::Heap(HeapAct::Tend);
        let bytes = self.sizes.small;
        for act in [HeapAct::Join, HeapAct::Allocate { number: RECOVERERS, bytes }] {
            let reply = self.victim.ask(act.plain(), timeout);
            if let Err(killed) = answer("the successor", reply) {
                return Ok(Some(killed));
            }
        }
        Ok(None)
    }

    fn judge(self: Box<Self>, config: TrialConfig<'_>) -> Result<TrialResult> {
        self.after_kill(config)
    }
}

/// Returns a process id in the form that commands use.
fn number_of(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
