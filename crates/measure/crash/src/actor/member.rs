//! A worker that is a member of a heap: [`MemberActor`].
//!
//! The worker fills each block completely with its own number. On command it reads the whole block
//! to check it. If two members have the same block, the block contains the other member's number,
//! or both numbers.

use std::io;

use super::order::{CommandKind, HeapAct, WorkerCommand, WorkerReply};
use super::{CommandHandler, framed, misplaced};
use crate::message::{MessageCheck, fill};
use crate::run_dir::RunDir;
use crate::subject::HeapTarget;
use crate::subject::heap::{Checked, HandedOver, TargetMember};

/// A worker that is a member of a heap.
pub(super) struct MemberActor {
    heap: &'static dyn HeapTarget,
    place: RunDir,
    member: Option<Box<dyn TargetMember>>,
    /// Numbers of the blocks, in the order in which the member keeps them.
    kept: Vec<u32>,
}

impl MemberActor {
    pub(super) fn new(heap: &'static dyn HeapTarget, place: RunDir) -> Self {
        Self { heap, place, member: None, kept: Vec::with_capacity(64) }
    }

    fn member(&mut self) -> io::Result<&mut (dyn TargetMember + 'static)> {
        self.member.as_deref_mut().ok_or_else(|| io::Error::other("this worker is not a member"))
    }

    fn enter(&mut self, mut member: Box<dyn TargetMember>) -> io::Result<()> {
        member.listen()?;
        self.member = Some(member);
        Ok(())
    }

    /// Allocates and fills a block; returns `false` if the heap has no space.
    fn allocate(&mut self, number: u32, bytes: usize, marked: bool) -> io::Result<bool> {
        let at = self.kept.len();
        let member = self.member()?;
        let there = framed(marked, || member.allocate(bytes))?;
        if there {
            fill(member.bytes(at), number);
            self.kept.push(number);
        }
        Ok(there)
    }

    fn fill(&mut self, first: u32, bytes: usize) -> io::Result<Vec<MessageCheck>> {
        let mut numbers = first..;
        let mut all = Vec::new();
        while let Some(number) = numbers.next()
            && self.allocate(number, bytes, false)?
        {
            all.push(MessageCheck::Whole(number));
        }
        Ok(all)
    }

    /// Removes a block from the list and returns its index.
    fn remove(&mut self, number: u32) -> io::Result<usize> {
        let at = self.kept.iter().position(|kept| *kept == number);
        let at = at.ok_or_else(|| io::Error::other(format!("there is no block {number}")))?;
        self.kept.swap_remove(at);
        Ok(at)
    }

    /// Accepts a block that was handed over and returns its content, or `None` if no block was
    /// handed over. Returns an empty list for a block that arrives too late.
    fn accept(&mut self, marked: bool) -> io::Result<Option<Vec<MessageCheck>>> {
        let at = self.kept.len();
        let member = self.member()?;
        match framed(marked, || member.accept())? {
            None => Ok(None),
            Some(HandedOver::Stale) => Ok(Some(Vec::new())),
            Some(HandedOver::Taken) => {
                let seen = MessageCheck::of_all(member.bytes(at));
                self.kept.push(if let MessageCheck::Whole(number) = seen {
                    number
                } else {
                    u32::MAX
                });
                Ok(Some(vec![seen]))
            }
        }
    }

    fn look(&mut self) -> io::Result<WorkerReply> {
        let mut seen = Vec::new();
        for at in 0..self.kept.len() {
            let number = self.kept[at];
            let found = MessageCheck::of_all(self.member()?.bytes(at));
            if found != MessageCheck::Whole(number) {
                let what = format!("a live member's block {number} holds {found}");
                return Ok(WorkerReply::Faulty(what));
            }
            seen.push(found);
        }
        Ok(WorkerReply::Done(seen))
    }

    fn check(&mut self) -> io::Result<WorkerReply> {
        let whole = |bytes: usize| MessageCheck::Whole(u32::try_from(bytes).unwrap_or(u32::MAX));
        Ok(match self.member()?.check()? {
            Checked::Faulty(what) => WorkerReply::Faulty(what),
            Checked::Sound { in_use, committed } => {
                WorkerReply::Done(vec![whole(in_use), whole(committed)])
            }
        })
    }

    fn act(&mut self, act: HeapAct, marked: bool) -> io::Result<WorkerReply> {
        let done = |()| WorkerReply::Done(Vec::new());
        match act {
            HeapAct::Join => {
                let member = framed(marked, || self.heap.join(&self.place))?;
                self.enter(member).map(done)
            }
            HeapAct::Allocate { number, bytes } => {
                if self.allocate(number, bytes, marked)? {
                    Ok(done(()))
                } else {
                    Err(io::Error::other(format!("there is no space for {bytes} bytes")))
                }
            }
            HeapAct::Fill { first, bytes } => self.fill(first, bytes).map(WorkerReply::Done),
            HeapAct::Free(number) => {
                let at = self.remove(number)?;
                let member = self.member()?;
                framed(marked, || member.free(at)).map(done)
            }
            HeapAct::Empty => {
                while !self.kept.is_empty() {
                    self.kept.pop();
                    let last = self.kept.len();
                    self.member()?.free(last)?;
                }
                Ok(done(()))
            }
            HeapAct::Meet(pid) => self.member()?.meet(pid).map(done),
            HeapAct::HandOver { number, to } => {
                let at = self.remove(number)?;
                let member = self.member()?;
                framed(marked, || member.hand_over(at, to)).map(done)
            }
            HeapAct::Accept => {
                let nothing = || io::Error::other("nothing was handed over");
                self.accept(marked)?.map(WorkerReply::Done).ok_or_else(nothing)
            }
            HeapAct::AcceptAll => {
                let mut all = Vec::new();
                while let Some(seen) = self.accept(false)? {
                    all.extend(seen);
                }
                Ok(WorkerReply::Done(all))
            }
            HeapAct::Settle => self.member()?.settle().map(done),
            HeapAct::Tend => {
                let member = self.member()?;
                framed(marked, || member.recover()).map(done)
            }
            HeapAct::Look => self.look(),
            HeapAct::Check => self.check(),
        }
    }
}

impl CommandHandler for MemberActor {
    fn obey(&mut self, order: &WorkerCommand) -> io::Result<WorkerReply> {
        match order.act {
            CommandKind::Create => {
                let member = self.heap.create(&self.place)?;
                self.enter(member)?;
            }
            CommandKind::Close => {
                let member = self.member.take();
                framed(order.marked, || drop(member));
            }
            CommandKind::Heap(act) => return self.act(act, order.marked),
            _ => return Err(misplaced(order)),
        }
        Ok(WorkerReply::Done(Vec::new()))
    }
}
