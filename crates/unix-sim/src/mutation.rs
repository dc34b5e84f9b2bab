//! Protections that a test takes out to see that it would notice: [`Mutation`].
//!
//! The kernel asks `Kernel::mutates` where the protection stands. Builds without debug assertions
//! and without the feature `mutations` answer no when they are compiled, and nothing of it is left.
//! docs/races.md says what each protects from.

/// A protection that is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// `wait` says that it sleeps only after it has looked at the children.
    WaitLooksFirst,
    /// `wait` does not ask whether another thread owns the child (§6.2).
    ChildOfTwo,
    /// `fork` does not look whether its group was signalled before the child joined.
    ForkAfterWalk,
    /// `fork` looks only whether its own thread is to deliver a signal, not another one.
    ForkLooksAtItself,
    /// `killpg` signals the members that there were, and lets `pg_lock` go before (§5.1).
    WalkUnlocked,
    /// `fork` does not wait while everybody is being signalled.
    EveryoneUnlocked,
    /// A task stays counted as whose it was before `setuid`, though it is made after it.
    ChargeKept,
    /// `exit` and `exec` do not wait for forks under way (§6.2).
    ForksUnawaited,
    /// `setpgid` looks the group up before it locks the table.
    GroupLookedUpEarly,
    /// A parent is told of the end of a child that is no zombie yet.
    ToldBeforeZombie,
    /// A thread looks for signals and falls asleep in two critical sections.
    LooksBeforeSleep,
    /// A thread that waited for signals tells no other one of those that it leaves.
    WakeUpKept,
    /// `exit` completes though somebody refers to the process (§5.2).
    ReferencesUnawaited,
    /// A tracer that lets a process go does so before it locks the process's family.
    TraceeLetGoFirst,
    /// `getppid` looks at its parent's slot without a lock (§5.4).
    ParentUnlocked,
    /// The children of a process that ends are given to whoever is in its reaper's slot.
    ReaperUnchecked,
    /// What is deferred holds no reference, and reaches whoever is there then (§7.1).
    EventUnreferenced,
    /// Who reads or writes from the background signals its group and does not name itself
    /// (§7.2.3).
    SelfUnnamed,
    /// A process stops though SIGCONT or SIGKILL came after it took the stop.
    StopUncancelled,
    /// A thread that is made while others are halted is not, neither by who makes it nor because
    /// that one leaves.
    MadeUnhalted,
    /// A child that nobody wants is unlinked, and its number still finds it.
    NumberUnhidden,
    /// A child that is inherited is nobody's between its two parents.
    OrphanUnlinked,
    /// What a failed `spawn` leaves is a child like others until its maker has waited for it.
    FailureWaitedFor,
}
