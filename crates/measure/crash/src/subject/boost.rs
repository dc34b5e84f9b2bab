//! `boost-message-queue` and `boost-heap`: Boost.Interprocess's `message_queue` and
//! `managed_shared_memory`, each driven by its own C++ worker.
//!
//! `tontine-mechanisms` contains the workers' source, which is compiled when the target is
//! selected.

use std::io;

use super::heap::{HeapTarget, TargetMember};
use super::{CrashTarget, Endpoint, Operation, Prepared, QueueEnd, QueueSubject, TargetKind};
use crate::run_dir::RunDir;
use tontine_bench::error::{ErrorContext, Result};
use tontine_mechanisms::about::Explored;
use tontine_mechanisms::boost::{CppPart, MANAGED_MEMORY_ACTOR, MESSAGE_QUEUE_ACTOR};

pub(super) struct MessageQueue;

impl CrashTarget for MessageQueue {
    fn facts(&self) -> Explored {
        // The C++ worker creates the queue for four messages.
        let facts = Explored::new(
            "boost-message-queue",
            "Boost.Interprocess, message_queue",
            &Operation::OF_A_BOUNDED_QUEUE,
            || 4,
        );
        let caveat = "Its mutex and condition variables are process-shared and not robust";
        Explored { caveat, ..facts }
    }

    fn prepare(&self) -> Result<Prepared> {
        compiled(MESSAGE_QUEUE_ACTOR)
    }

    fn kind(&self) -> TargetKind<'_> {
        TargetKind::Queue(self)
    }
}

impl QueueSubject for MessageQueue {
    fn open(&self, _place: &RunDir, _end: QueueEnd) -> io::Result<Box<dyn Endpoint>> {
        Err(io::Error::other("the C++ worker opens its ends"))
    }
}

pub(super) struct ManagedMemory;

impl CrashTarget for ManagedMemory {
    fn facts(&self) -> Explored {
        let facts = Explored::of_heap(
            "boost-heap",
            "Boost.Interprocess, managed_shared_memory",
            &[
                Operation::Join,
                Operation::Allocate,
                Operation::AllocateLarge,
                Operation::Free,
                Operation::Leave,
            ],
        );
        let caveat = "Its mutex is process-shared and not robust, and no process frees the blocks \
                      of a dead one: in the trials the victim has only the block of the operation";
        Explored { caveat, ..facts }
    }

    fn prepare(&self) -> Result<Prepared> {
        compiled(MANAGED_MEMORY_ACTOR)
    }

    fn kind(&self) -> TargetKind<'_> {
        TargetKind::Heap(self)
    }
}

impl HeapTarget for ManagedMemory {
    fn create(&self, _place: &RunDir) -> io::Result<Box<dyn TargetMember>> {
        Err(io::Error::other("the C++ worker creates it"))
    }

    fn join(&self, _place: &RunDir) -> io::Result<Box<dyn TargetMember>> {
        Err(io::Error::other("its members are C++ workers"))
    }
}

/// Compiles a worker from its source.
fn compiled(actor: CppPart) -> Result<Prepared> {
    let folder = tempfile::tempdir().setting_up("mkdir of a temporary folder")?;
    let program = folder.path().join("actor");
    actor.compile(&folder.path().join("actor.cpp"), &program)?;
    Ok(Prepared { program: Some(program), folder: Some(folder) })
}
