//! The semantics, one rule after another: [`Rule`]; and how often each was followed: [`Hits`].
//!
//! Where the kernel acts by a rule it asks `Kernel::follows`, which counts that and says yes. A
//! test has it say no for one rule ([`Builder::without`](crate::Builder::without)): a wrong Unix,
//! which a comparison with Linux has to notice. Builds without debug assertions and without the
//! feature `mutations` answer yes when they are compiled, and nothing of it is left.
//!
//! [`Mutation`](crate::Mutation)s take out what protects one thread from another; here the rule
//! itself is wrong, whoever runs when.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An enumeration of rules, and what each says.
macro_rules! rules {
    ($($Rule:ident $name:literal $says:literal;)*) => {
        /// A rule of POSIX or Linux that the kernel follows at one place.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = concat!($says, ".")] $Rule,)*
        }

        impl Rule {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$Rule,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Rule => $name,)*
                }
            }

            /// What it says.
            pub const fn says(self) -> &'static str {
                match self {
                    $(Self::$Rule => $says,)*
                }
            }
        }
    };
}

rules! {
    ContinueTakesStops "continue-takes-stops" "SIGCONT takes pending stops back";
    StopTakesContinue "stop-takes-continue" "A stop takes a pending SIGCONT back";
    ContinueResumes "continue-resumes" "SIGCONT continues, whatever is done about it";
    KillEndsStopped "kill-ends-stopped" "SIGKILL ends a stopped process";
    IgnoredDropped "ignored-dropped" "What is ignored and not blocked is dropped, awaited or not";
    BlockedIgnoredKept "blocked-ignored-kept" "What is ignored and blocked stays pending";
    StandardMerges "standard-merges" "A pending standard signal is pending once";
    ChildSignalMerges "child-signal-merges" "A pending SIGCHLD is pending once";
    RealTimeQueues "real-time-queues" "Real-time signals are queued, each of them";
    RealTimeInOrder "real-time-in-order" "Of one real-time signal the first sent comes first";
    LowestFirst "lowest-first" "Of pending signals the lowest comes first";
    FaultsFirst "faults-first" "What a fault may have caused comes before lower numbers";
    OwnFirst "own-first" "A thread's own pending signals come before its process's";
    QueueLimited "queue-limited" "Beyond the limit of pending signals sigqueue is refused";
    OverflowLosesInfo "overflow-loses-info"
        "A standard signal that has no room comes without its info";
    HandlerBlocksItself "handler-blocks-itself" "A signal is blocked in its own handler";
    NoDeferLetsIn "nodefer-lets-in" "SA_NODEFER: it is not";
    HandlerMaskBlocks "handler-mask-blocks" "What sa_mask has is blocked in the handler";
    HandlerMaskEnds "handler-mask-ends" "The mask of before comes back after a handler";
    SuspendMaskReturns "suspend-mask-returns" "After sigsuspend the mask of before comes back";
    SuspendMaskHolds "suspend-mask-holds" "In sigsuspend its own mask holds";
    ResetHandResets "resethand-resets" "SA_RESETHAND: the default comes back when a handler begins";
    RestartRestarts "restart-restarts" "SA_RESTART: what a handler interrupted starts again";
    InterruptsWithout "interrupts-without" "Without SA_RESTART it ends with EINTR";
    PauseEndsAnyway "pause-ends-anyway"
        "What waits for signals or time ends with EINTR for all SA_RESTART";
    QuietGoesOn "quiet-goes-on" "Where no handler ran, what was interrupted goes on";
    StopEndsSigwait "stop-ends-sigwait" "A stop ends sigtimedwait with EINTR";
    HandlersStack "handlers-stack" "Of two handlers let in together the second begins first";
    DefaultEnds "default-ends" "A signal that ends by default ends the process";
    DefaultStops "default-stops" "A signal that stops by default stops the process";
    OrphansIgnoreStops "orphans-ignore-stops"
        "A terminal's stop does not stop who is in an orphaned group";
    StopStopsOrphans "stop-stops-orphans" "SIGSTOP does";
    StopStopsAllThreads "stop-stops-all-threads" "A stop stops all threads";
    IgnoringDiscards "ignoring-discards" "To ignore a signal discards it where it is pending";
    DefaultDiscards "default-discards" "So does a default that does nothing";
    UncatchableRefused "uncatchable-refused" "About SIGKILL and SIGSTOP nothing can be done";
    TakenIsGone "taken-is-gone" "What sigwait takes is pending no longer";
    TimeoutTold "timeout-told" "sigtimedwait that finds nothing in time ends with EAGAIN";
    PendingOfBoth "pending-of-both"
        "sigpending tells what is pending for the thread and for the process";
    ForkClearsPending "fork-clears-pending" "A child begins with nothing pending";
    ForkClearsAlarm "fork-clears-alarm" "A child begins without an alarm";
    ForkKeepsMask "fork-keeps-mask" "A child has its parent's mask";
    ForkKeepsActions "fork-keeps-actions" "A child has its parent's dispositions";
    ForkKeepsDescriptors "fork-keeps-descriptors" "A child has its parent's descriptors";
    ForkKeepsStack "fork-keeps-stack" "A child has its parent's alternate stack";
    SubreaperIsOnesOwn "subreaper-is-ones-own" "A subreaper's child is none";
    AlarmReplaced "alarm-replaced" "An alarm replaces the one before and tells what that had left";
    ExecResetsCaught "exec-resets-caught" "exec makes handlers defaults";
    ExecKeepsIgnored "exec-keeps-ignored" "exec keeps what is ignored";
    ExecKeepsMask "exec-keeps-mask" "exec keeps the mask";
    ExecKeepsPending "exec-keeps-pending" "exec keeps what is pending";
    ExecKeepsAlarm "exec-keeps-alarm" "exec keeps the alarm";
    ExecEndsThreads "exec-ends-threads" "exec ends all other threads";
    ExecForgetsStack "exec-forgets-stack" "exec forgets the alternate stack";
    ExecCloses "exec-closes" "exec closes descriptors that are not to be inherited";
    SpawnSetsMask "spawn-sets-mask" "spawn begins with the mask that was asked for";
    SpawnSetsDefaults "spawn-sets-defaults" "spawn makes defaults of what was asked for";
    ExecutableMissing "executable-missing" "exec of nothing is ENOENT, and the caller goes on";
    GroupNotNegative "group-not-negative" "setpgid refuses a negative group with EINVAL";
    GroupOfChildOnly "group-of-child-only" "setpgid of who is no child is ESRCH";
    GroupOfOwnSession "group-of-own-session" "setpgid of a child in another session is EPERM";
    GroupOfExecuted "group-of-executed" "setpgid of a child that has executed is EACCES";
    GroupOfLeader "group-of-leader" "setpgid of a session's leader is EPERM";
    GroupElsewhere "group-elsewhere" "setpgid to a group of another session is EPERM";
    GroupMustExist "group-must-exist" "setpgid to a group that is not there is EPERM";
    GroupAsked "group-asked" "getpgid of nobody is ESRCH";
    SessionOfLeader "session-of-leader" "setsid of a group's leader is EPERM";
    OrphanedHangUp "orphaned-hang-up"
        "A group that an exit orphans and that is stopped gets SIGHUP and SIGCONT";
    OrphanedRuns "orphaned-runs" "One in which nobody is stopped gets nothing";
    NobodyToSignal "nobody-to-signal" "kill of nobody is ESRCH";
    NoGroupToSignal "no-group-to-signal" "kill of a group that is not there is ESRCH";
    ZeroProbes "zero-probes" "kill with 0 sends nothing";
    ZombieSignalled "zombie-signalled" "A zombie can be signalled";
    GroupWalked "group-walked" "A group's signal reaches all members";
    SelfInGroup "self-in-group" "A group's signal reaches the caller if it is a member";
    EveryoneButSelf "everyone-but-self" "kill of everyone does not reach the caller";
    ThreadSignalled "thread-signalled" "tgkill signals this thread alone";
    ThreadMustExist "thread-must-exist" "tgkill of no thread is ESRCH";
    AnyThreadTakes "any-thread-takes" "A process's signal is any thread's that lets it in";
    ValueCarried "value-carried" "sigqueue carries a value";
    SenderTold "sender-told" "Who is signalled learns who did it";
    CodeTold "code-told" "and by which call";
    EndTold "end-told" "A child's end is told by SIGCHLD";
    StopTold "stop-told" "A child's stop is told by SIGCHLD";
    ContinueTold "continue-told" "That a child goes on is told by SIGCHLD";
    NoChildStop "nocldstop" "SA_NOCLDSTOP: stops are not told";
    NoChildWait "nocldwait" "SA_NOCLDWAIT: children leave nothing to wait for";
    IgnoredChildren "ignored-children" "Nor do they where SIGCHLD is ignored";
    OrphansToSubreaper "orphans-to-subreaper" "Orphans go to the nearest subreaper";
    OrphanTold "orphan-told" "A zombie that is inherited is told of again";
    NobodyToWaitFor "nobody-to-wait-for" "wait with no child that fits is ECHILD";
    NoHangReturns "nohang-returns" "WNOHANG: wait does not sleep";
    NoWaitKeeps "nowait-keeps" "WNOWAIT: who was found can be found again";
    EldestFirst "eldest-first" "wait finds the eldest child first";
    StoppedAsked "stopped-asked" "A stop is told only to who asks for stops";
    ContinuedAsked "continued-asked" "That a child goes on is told only to who asks for that";
    ExitedAsked "exited-asked" "An end is told only to who asks for ends";
    StoppedOnce "stopped-once" "A stop is told once";
    ContinuedOnce "continued-once" "That a child goes on is told once";
    ContinueReplacesStop "continue-replaces-stop" "A stop that was continued is told no more";
    GroupWaited "group-waited" "wait for a group finds its members alone";
    OneWaited "one-waited" "wait for one child finds that one alone";
    WaitNeedsChange "wait-needs-change" "waitid for no change at all is EINVAL";
    ExitEndsThreads "exit-ends-threads" "exit ends all threads";
    ThreadKeepsMask "thread-keeps-mask" "A thread begins with its maker's mask";
    NoOwnJoin "no-own-join" "A thread that joins itself is told EDEADLK";
    JoinOnce "join-once" "A thread can be joined once";
    FaultDefeatsBlock "fault-defeats-block" "A fault that is blocked or ignored ends the process";
    ReaderStopped "reader-stopped" "Who reads a terminal in the background gets SIGTTIN";
    ReaderRefused "reader-refused" "If that is blocked or ignored the read fails with EIO";
    OrphanRefused "orphan-refused" "In an orphaned group reading and writing fail with EIO";
    WriterStopped "writer-stopped" "TOSTOP: who writes in the background gets SIGTTOU";
    WriterFree "writer-free" "Without TOSTOP anybody writes";
    TostopExempts "tostop-exempts" "Who blocks or ignores SIGTTOU writes anyway";
    ChangerStopped "changer-stopped" "Who changes a terminal in the background gets SIGTTOU";
    ForegroundElsewhere "foreground-elsewhere" "tcsetpgrp to a group of another session is EPERM";
    ForegroundNobody "foreground-nobody" "tcsetpgrp to nobody is ESRCH";
    ForegroundOfOwn "foreground-of-own" "tcsetpgrp on what is not one's terminal is ENOTTY";
    TerminalOfOwn "terminal-of-own" "tcgetpgrp on what is not one's terminal is ENOTTY";
    LeaderControls "leader-controls" "Only a session's leader gets a controlling terminal";
    ControlsOne "controls-one" "A session has one terminal, and a terminal one session";
    KeysSignal "keys-signal" "^C, ^\\ and ^Z signal the foreground group";
    HangUpTold "hang-up-told" "When a terminal's user has gone, its session's leader gets SIGHUP";
    LeaderHangsUp "leader-hangs-up"
        "When a session's leader exits, the foreground group gets SIGHUP";
    PipeEnds "pipe-ends" "A pipe ends when its last writer has closed it";
    PipeBreaks "pipe-breaks" "To write to a pipe that nobody reads is EPIPE";
    PipeSignals "pipe-signals" "and SIGPIPE";
    WrongEnd "wrong-end" "A pipe's end is for one direction: else EBADF";
    ClosedIsGone "closed-is-gone" "To close what is closed is EBADF";
    LimitOrdered "limit-ordered" "No soft limit is above the hard one";
    NiceClamped "nice-clamped" "A nice value stays between -20 and 19";
    StackTooSmall "stack-too-small" "An alternate stack has a least size";
    TracerHears "tracer-hears" "A tracee stops for its tracer whatever signal comes";
    TracerSwallows "tracer-swallows" "A tracee goes on with the signal that its tracer says";
}

impl Rule {
    /// The one with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each rule was followed. Clones are the same count, of any number of systems.
#[derive(Debug, Clone)]
pub struct Hits(Arc<[AtomicU64]>);

impl Default for Hits {
    fn default() -> Self {
        Self(Rule::ALL.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

impl Hits {
    /// Whether this build counts.
    pub const COUNTED: bool = cfg!(any(debug_assertions, feature = "mutations"));

    /// How often this one was.
    pub fn of(&self, rule: Rule) -> u64 {
        self.0[rule as usize].load(Ordering::Relaxed)
    }

    #[cfg(any(debug_assertions, feature = "mutations"))]
    pub(crate) fn add(&self, rule: Rule) {
        self.0[rule as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What a system is told of rules: which it breaks, and where it counts.
#[cfg(any(debug_assertions, feature = "mutations"))]
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) broken: Option<Rule>,
    pub(crate) hits: Option<Hits>,
}
