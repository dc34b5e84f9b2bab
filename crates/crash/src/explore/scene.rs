//! One run of a script: [`KillTrial`], which [`Attempt`](super::attempt::Attempt) drives without
//! knowledge of the workers' actions.
//!
//! The *victim* carries out the operation; the others survive. Each reply has a deadline.

use super::cast::TrialConfig;
use super::{heap, queue};
use crate::actor::order::CommandKind;
use crate::subject::{Operation, TargetKind};
use crate::tracer::Release;
use crate::verdict::TrialResult;
use crate::worker_launcher::WorkerProcess;
use tontine_host::error::Result;

/// A trial at any time between its beginning and its verdict.
#[derive(Debug)]
pub(super) enum KillTrial {
    Queue(queue::QueueTrial),
    Heap(heap::HeapTrial),
}

impl KillTrial {
    /// Brings the workers to the state before the operation; with `pair`, the victim's successor
    /// will be killed too.
    pub(super) fn set(cast: TrialConfig<'_>, operation: Operation, pair: bool) -> Result<Self> {
        match cast.subject.kind() {
            TargetKind::Queue(queue) => {
                queue::QueueTrial::set(cast, queue, operation, pair).map(Self::Queue)
            }
            TargetKind::Heap(heap) => heap::HeapTrial::set(cast, heap, operation).map(Self::Heap),
        }
    }

    /// Returns the victim's action in the operation under test.
    pub(super) fn act(&self) -> CommandKind {
        match self {
            Self::Queue(scene) => scene.act,
            Self::Heap(scene) => scene.act,
        }
    }

    /// Returns `true` if another process runs while the victim does.
    pub(super) fn is_concurrent(&self) -> bool {
        match self {
            Self::Queue(scene) => scene.is_concurrent(),
            Self::Heap(_) => false,
        }
    }

    /// Returns `true` if no other process runs while the victim does, and the victim has no other
    /// thread.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self, Self::Heap(_))
    }

    /// Runs `body` with the victim and a callback that releases it if it blocks.
    pub(super) fn with_victim<T>(
        &mut self,
        body: impl FnOnce(&mut WorkerProcess, Release<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Queue(scene) => scene.with_victim(body),
            Self::Heap(scene) => scene.with_victim(body),
        }
    }

    /// Kills the victim. `returned` is true if the operation had returned.
    pub(super) fn kill(&mut self, returned: bool) {
        match self {
            Self::Queue(scene) => scene.kill(returned),
            Self::Heap(scene) => scene.kill(returned),
        }
    }

    /// Starts a fresh process that replaces the dead victim, carries out `operation` next and is
    /// killed in turn. If it does not reach the operation, returns the result of the first kill.
    pub(super) fn succeed(
        &mut self,
        cast: TrialConfig<'_>,
        operation: Operation,
    ) -> Result<Option<TrialResult>> {
        match self {
            Self::Queue(scene) => scene.succeed(cast, operation),
            Self::Heap(scene) => scene.succeed(cast, operation),
        }
    }

    /// Lets the survivors continue, and judges the result.
    pub(super) fn judge(self, cast: TrialConfig<'_>) -> Result<TrialResult> {
        match self {
            Self::Queue(scene) => scene.judge(cast),
            Self::Heap(scene) => scene.judge(cast),
        }
    }
}
