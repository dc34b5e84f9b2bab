//! Commands to a heap's survivors after the kill: the second half of [`HeapTrial`].
//!
//! The peer and a fresh process recover dead members, continue to allocate, free and hand over
//! blocks, and check every byte of their blocks. At the end all memory is free, and as many blocks
//! fit as at the beginning.

use super::{HeapTrial, OWN, number_of};
use crate::actor::order::{HeapAct, WorkerReply};
use crate::explore::trial_config::{ReceiveResult, TrialConfig, answer};
use crate::fair_timeout::FairTimeout;
use crate::message::MessageCheck;
use crate::verdict::{Judged, KillVerdict, TrialResult};
use crate::worker_launcher::WorkerProcess;
use tontine_bench::error::Result;

const LEFT: &str = "the surviving member";
const FRESH: &str = "a fresh member";

/// Blocks that survivors allocate: first the peer, then the fresh member, then both until the heap
/// is full.
const AT_ONCE: u32 = 100;
const OF_FRESH: u32 = 110;
/// Complete slabs, so that no other member can allocate from the rest of a slab.
const FRESH_PART: [u32; 4] = [200, 201, 202, 203];
const THE_REST: u32 = 300;
/// Blocks that the peer allocates while both members still have earlier blocks.
const BESIDE: u32 = 500;

/// Success, or the result of the kill.
type Gone = std::result::Result<(), TrialResult>;

impl HeapTrial {
    pub(super) fn after_kill(mut self, config: TrialConfig<'_>) -> Result<TrialResult> {
        let mut fresh = config.actor(&self.place)?;
        let timeout = self.timeout(fresh.pid());
        let mut both = Survivors {
            companion: &mut self.companion,
            fresh: &mut fresh,
            timeout: &timeout,
            companions: &mut self.companions,
            freshs: Vec::new(),
        };
        let (sizes, capacity) = (self.sizes, self.capacity);
        let mut judge = || -> Gone {
            // No survivor has noticed the death yet.
            both.allocates(true, AT_ONCE, sizes.small)?;
            both.look()?;
            both.of_companion(HeapAct::Free(AT_ONCE))?;
            both.companions.retain(|number| *number != AT_ONCE);
            both.of_fresh(HeapAct::Join)?;
            both.allocates(false, OF_FRESH, sizes.small)?;
            if self.recovers {
                both.recover()?;
            }
            if self.hands_over {
                let seen = both.of_companion(HeapAct::AcceptAll)?;
                let judged = self.ledger.judge(&seen);
                if judged.verdict != KillVerdict::Passed {
                    return Err(TrialResult::Judged(judged));
                }
                both.companions.extend(seen.iter().filter_map(|one| match one {
                    MessageCheck::Whole(number) => Some(*number),
                    MessageCheck::Torn => None,
                }));
                both.of_companion(HeapAct::Settle)?;
                both.look()?;
                both.exchange()?;
            }
            // A live member's block that was freed by mistake would be allocated again here.
            both.allocates(false, OF_FRESH + 1, sizes.small)?;
            both.fills(BESIDE, sizes.small)?;
            both.look()?;
            both.of_companion(HeapAct::Check)?;
            both.empty(self.recovers)?;
            both.is_empty()?;
            // Checks that all memory is usable, and detects a block that two members have.
            for number in FRESH_PART {
                both.allocates(false, number, sizes.filling)?;
            }
            let now = FRESH_PART.len() + both.fills(THE_REST, sizes.filling)?;
            both.look()?;
            match now.cmp(&capacity) {
                std::cmp::Ordering::Less => {
                    return Err(lost(format!("space for {now} of {capacity} blocks is left")));
                }
                std::cmp::Ordering::Greater => {
                    return Err(torn(format!(
                        "{now} blocks were allocated from space for {capacity}"
                    )));
                }
                std::cmp::Ordering::Equal => {}
            }
            both.empty(self.recovers)?;
            both.is_empty()
        };
        let passed =
            || TrialResult::Judged(Judged { verdict: KillVerdict::Passed, detail: String::new() });
        Ok(judge().map_or_else(|killed| killed, |()| passed()))
    }
}

fn torn(detail: String) -> TrialResult {
    TrialResult::Judged(Judged { verdict: KillVerdict::Torn, detail })
}

fn lost(detail: String) -> TrialResult {
    TrialResult::Judged(Judged { verdict: KillVerdict::Lost, detail })
}

struct Survivors<'a> {
    companion: &'a mut WorkerProcess,
    fresh: &'a mut WorkerProcess,
    timeout: &'a FairTimeout,
    /// Numbers of the blocks that each member has.
    companions: &'a mut Vec<u32>,
    freshs: Vec<u32>,
}

impl Survivors<'_> {
    fn of_companion(&mut self, act: HeapAct) -> ReceiveResult {
        ask(LEFT, self.companion, act, self.timeout)
    }

    fn of_fresh(&mut self, act: HeapAct) -> ReceiveResult {
        ask(FRESH, self.fresh, act, self.timeout)
    }

    fn allocates(&mut self, companion: bool, number: u32, bytes: usize) -> Gone {
        let act = HeapAct::Allocate { number, bytes };
        if companion {
            self.of_companion(act)?;
            self.companions.push(number);
        } else {
            self.of_fresh(act)?;
            self.freshs.push(number);
        }
        Ok(())
    }

    /// Lets the peer allocate all the remaining space; returns the number of blocks.
    fn fills(&mut self, first: u32, bytes: usize) -> std::result::Result<usize, TrialResult> {
        let count = self.of_companion(HeapAct::Fill { first, bytes })?.len();
        self.companions.extend((first..).take(count));
        Ok(count)
    }

    fn recover(&mut self) -> Gone {
        self.of_companion(HeapAct::Tend)?;
        self.of_fresh(HeapAct::Tend).map(drop)
    }

    /// Checks that each member has its blocks, and that they are unchanged.
    fn look(&mut self) -> Gone {
        let companion = self.of_companion(HeapAct::Look)?;
        has(companion, self.companions)?;
        let fresh = if self.freshs.is_empty() { Vec::new() } else { self.of_fresh(HeapAct::Look)? };
        has(fresh, &self.freshs)
    }

    /// Lets each member hand a block to the other; the fresh member frees the block that it
    /// received.
    fn exchange(&mut self) -> Gone {
        let [companion, fresh] = [self.companion.pid(), self.fresh.pid()].map(number_of);
        self.of_companion(HeapAct::Meet(fresh))?;
        self.of_fresh(HeapAct::Meet(companion))?;
        let [number, _] = OWN;
        self.of_companion(HeapAct::HandOver { number, to: fresh })?;
        has(self.of_fresh(HeapAct::Accept)?, &[number])?;
        self.of_fresh(HeapAct::Free(number))?;
        self.of_fresh(HeapAct::HandOver { number: OF_FRESH, to: companion })?;
        has(self.of_companion(HeapAct::Accept)?, &[OF_FRESH])?;
        self.companions.retain(|kept| *kept != number);
        self.companions.push(OF_FRESH);
        self.freshs.clear();
        Ok(())
    }

    /// Lets both members free all their blocks.
    fn empty(&mut self, tends: bool) -> Gone {
        self.of_companion(HeapAct::Empty)?;
        self.of_fresh(HeapAct::Empty)?;
        self.companions.clear();
        self.freshs.clear();
        if tends { self.recover() } else { Ok(()) }
    }

    /// Checks that no member has a block, and that the heap retains no memory.
    fn is_empty(&mut self) -> Gone {
        let found = self.of_companion(HeapAct::Check)?;
        match found[..] {
            [MessageCheck::Whole(0), MessageCheck::Whole(0)] => Ok(()),
            [MessageCheck::Whole(0), MessageCheck::Whole(kept)] => Err(lost(format!(
                "{kept} bytes of memory are held, in which no member has a \
                                  block"
            ))),
            [MessageCheck::Whole(in_use), _] => {
                Err(lost(format!("{in_use} bytes are in use that no member has")))
            }
            _ => {
                Err(TrialResult::wedged(format!("expected a report of the check, found {found:?}")))
            }
        }
    }
}

/// Returns the reply of a live member. A damaged heap or block has its own verdict.
fn ask(who: &str, actor: &mut WorkerProcess, act: HeapAct, timeout: &FairTimeout) -> ReceiveResult {
    match actor.ask(act.plain(), timeout) {
        Ok(WorkerReply::Faulty(what)) => Err(torn(what)),
        reply => answer(&format!("{who}, after the command '{act}',"), reply),
    }
}

/// Compares a member's blocks with the expected ones.
fn has(mut seen: Vec<MessageCheck>, numbers: &[u32]) -> Gone {
    let mut expected: Vec<MessageCheck> =
        numbers.iter().map(|number| MessageCheck::Whole(*number)).collect();
    expected.sort_unstable();
    seen.sort_unstable();
    if seen == expected {
        return Ok(());
    }
    Err(torn(format!("expected the blocks {expected:?}, found {seen:?}")))
}
