//! The rules of the semantics: [`Rule`]. This module counts how often the kernel acts by each rule,
//! and stores the rule that the kernel breaks.
//!
//! With the patches in this folder, a copy of the kernel calls [`Kernel::follows`] at each place at
//! which it applies a rule. All systems of a process share the counts and the broken rule.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tontine_unix::Errno;

use crate::kernel::Kernel;

/// Defines the enumeration of rules with their names and texts.
macro_rules! rules {
    ($($Rule:ident $name:literal $says:literal;)*) => {
        /// A rule of POSIX or Linux that the kernel follows at a particular place.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = concat!($says, ".")] $Rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Self] = &[$(Self::$Rule,)*];

            /// Returns the name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Rule => $name,)*
                }
            }

            /// Returns the text.
            pub const fn says(self) -> &'static str {
                match self {
                    $(Self::$Rule => $says,)*
                }
            }
        }
    };
}

rules! {
    ContinueTakesStops "continue-takes-stops" "SIGCONT removes pending stop signals";
    StopTakesContinue "stop-takes-continue" "A stop signal removes a pending SIGCONT";
    ContinueResumes "continue-resumes" "SIGCONT continues a process, whatever its action is";
    KillEndsStopped "kill-ends-stopped" "SIGKILL ends a stopped process";
    IgnoredDropped "ignored-dropped"
        "An ignored signal that is not blocked is discarded, even if a thread waits for it";
    BlockedIgnoredKept "blocked-ignored-kept" "An ignored signal that is blocked stays pending";
    StandardMerges "standard-merges" "A pending standard signal is pending once";
    ChildSignalMerges "child-signal-merges" "A pending SIGCHLD is pending once";
    RealTimeQueues "real-time-queues" "Each real-time signal is queued";
    RealTimeInOrder "real-time-in-order"
        "Of several equal real-time signals the first sent is delivered first";
    LowestFirst "lowest-first" "Of several pending signals the lowest number is delivered first";
    FaultsFirst "faults-first" "Signals that a fault may cause are delivered before lower numbers";
    OwnFirst "own-first" "A thread's own pending signals are delivered before its process's";
    QueueLimited "queue-limited" "Beyond the limit of pending signals sigqueue fails";
    OverflowLosesInfo "overflow-loses-info"
        "A standard signal for which the queue has no space arrives without its info";
    HandlerBlocksItself "handler-blocks-itself" "A signal is blocked in its own handler";
    NoDeferLetsIn "nodefer-lets-in" "SA_NODEFER: a signal is not blocked in its own handler";
    HandlerMaskBlocks "handler-mask-blocks" "The signals of sa_mask are blocked in the handler";
    HandlerMaskEnds "handler-mask-ends" "The earlier mask returns after a handler";
    SuspendMaskReturns "suspend-mask-returns" "The earlier mask returns after sigsuspend";
    SuspendMaskHolds "suspend-mask-holds"
        "The mask that sigsuspend gets is in force while it sleeps";
    ResetHandResets "resethand-resets"
        "SA_RESETHAND: the default action returns when a handler begins";
    RestartRestarts "restart-restarts" "SA_RESTART: a call that a handler interrupted restarts";
    InterruptsWithout "interrupts-without" "Without SA_RESTART such a call fails with EINTR";
    PauseEndsAnyway "pause-ends-anyway"
        "A call that waits for signals or time fails with EINTR despite SA_RESTART";
    QuietGoesOn "quiet-goes-on" "A call that was interrupted continues if no handler ran";
    StopEndsSigwait "stop-ends-sigwait" "A stop makes sigtimedwait fail with EINTR";
    HandlersStack "handlers-stack" "Of two handlers unblocked together the second begins first";
    DefaultEnds "default-ends" "A signal whose default action is to terminate ends the process";
    DefaultStops "default-stops" "A signal whose default action is to stop stops the process";
    OrphansIgnoreStops "orphans-ignore-stops"
        "A terminal's stop signal does not stop a member of an orphaned group";
    StopStopsOrphans "stop-stops-orphans" "SIGSTOP stops a member of an orphaned group";
    StopStopsAllThreads "stop-stops-all-threads" "A stop stops all threads";
    IgnoringDiscards "ignoring-discards" "Ignoring a signal discards it where it is pending";
    DefaultDiscards "default-discards" "A default action that does nothing discards it too";
    UncatchableRefused "uncatchable-refused" "The actions of SIGKILL and SIGSTOP cannot be changed";
    TakenIsGone "taken-is-gone" "A signal that sigwait takes is no longer pending";
    TimeoutReported "timeout-reported" "sigtimedwait that times out fails with EAGAIN";
    PendingOfBoth "pending-of-both"
        "sigpending returns the signals pending for the thread and for the process";
    ForkClearsPending "fork-clears-pending" "A child begins with no pending signals";
    ForkClearsAlarm "fork-clears-alarm" "A child begins without an alarm";
    ForkKeepsMask "fork-keeps-mask" "A child has its parent's mask";
    ForkKeepsActions "fork-keeps-actions" "A child has its parent's dispositions";
    ForkKeepsDescriptors "fork-keeps-descriptors" "A child has its parent's descriptors";
    ForkKeepsStack "fork-keeps-stack" "A child has its parent's alternate stack";
    SubreaperIsOnesOwn "subreaper-is-ones-own" "A subreaper's child is not a subreaper";
    AlarmReplaced "alarm-replaced"
        "An alarm replaces the earlier one and returns the seconds that it had left";
    ExecResetsCaught "exec-resets-caught" "exec sets caught signals to their default actions";
    ExecKeepsIgnored "exec-keeps-ignored" "exec keeps ignored signals ignored";
    ExecKeepsMask "exec-keeps-mask" "exec keeps the mask";
    ExecKeepsPending "exec-keeps-pending" "exec keeps pending signals";
    ExecKeepsAlarm "exec-keeps-alarm" "exec keeps the alarm";
    ExecEndsThreads "exec-ends-threads" "exec ends all other threads";
    ExecForgetsStack "exec-forgets-stack" "exec forgets the alternate stack";
    ExecCloses "exec-closes" "exec closes descriptors that are marked close-on-exec";
    SpawnSetsMask "spawn-sets-mask" "spawn begins with the mask in its attributes";
    SpawnSetsDefaults "spawn-sets-defaults"
        "spawn sets the signals in its attributes to their default actions";
    ExecutableMissing "executable-missing"
        "exec of a missing file fails with ENOENT, and the caller continues";
    GroupNotNegative "group-not-negative" "setpgid to a negative group fails with EINVAL";
    GroupOfChildOnly "group-of-child-only"
        "setpgid of a process that is not a child fails with ESRCH";
    GroupOfOwnSession "group-of-own-session"
        "setpgid of a child in another session fails with EPERM";
    GroupOfExecuted "group-of-executed" "setpgid of a child that has executed fails with EACCES";
    GroupOfLeader "group-of-leader" "setpgid of a session leader fails with EPERM";
    GroupElsewhere "group-elsewhere" "setpgid to a group of another session fails with EPERM";
    GroupMustExist "group-must-exist" "setpgid to a group that does not exist fails with EPERM";
    GroupRequested "group-requested" "getpgid of a process that does not exist fails with ESRCH";
    SessionOfLeader "session-of-leader" "setsid of a group leader fails with EPERM";
    OrphanedHangUp "orphaned-hang-up"
        "A group with a stopped member that an exit orphans gets SIGHUP and SIGCONT";
    OrphanedRuns "orphaned-runs"
        "A group without a stopped member that an exit orphans gets no signal";
    NobodyToSignal "nobody-to-signal" "kill of a process that does not exist fails with ESRCH";
    NoGroupToSignal "no-group-to-signal" "kill of a group that does not exist fails with ESRCH";
    ZeroProbes "zero-probes" "kill with signal 0 sends nothing";
    ZombieSignalled "zombie-signalled" "A zombie can be signalled";
    GroupWalked "group-walked" "A signal to a group reaches all members";
    SelfInGroup "self-in-group" "A signal to a group reaches the caller if it is a member";
    EveryoneButSelf "everyone-but-self" "kill of all processes does not reach the caller";
    ThreadSignalled "thread-signalled" "tgkill signals only its thread";
    ThreadMustExist "thread-must-exist" "tgkill of a thread that does not exist fails with ESRCH";
    AnyThreadTakes "any-thread-takes"
        "Any thread that does not block a process's signal may take it";
    ValueCarried "value-carried" "sigqueue carries a value";
    SenderReported "sender-reported" "The info of a signal names its sender";
    CodeReported "code-reported" "The info of a signal names the call that sent it";
    EndNotified "end-notified" "SIGCHLD reports a child's end";
    StopNotified "stop-notified" "SIGCHLD reports a child's stop";
    ContinueNotified "continue-notified" "SIGCHLD reports that a child continues";
    NoChildStop "nocldstop" "SA_NOCLDSTOP: SIGCHLD does not report stops";
    NoChildWait "nocldwait" "SA_NOCLDWAIT: children leave no zombie";
    IgnoredChildren "ignored-children" "Children leave no zombie if SIGCHLD is ignored";
    OrphansToSubreaper "orphans-to-subreaper" "Orphans are inherited by the nearest subreaper";
    OrphanNotified "orphan-notified" "SIGCHLD reports an inherited zombie again";
    NobodyToWaitFor "nobody-to-wait-for" "wait without a child that matches fails with ECHILD";
    NoHangReturns "nohang-returns" "WNOHANG: wait does not sleep";
    NoWaitKeeps "nowait-keeps" "WNOWAIT: a child that was found can be found again";
    EldestFirst "eldest-first" "wait finds the oldest child first";
    StoppedRequested "stopped-requested" "wait finds a stop only with WUNTRACED";
    ContinuedRequested "continued-requested" "wait finds a continued child only with WCONTINUED";
    ExitedRequested "exited-requested" "wait finds an end only with WEXITED";
    StoppedOnce "stopped-once" "wait finds a stop once";
    ContinuedOnce "continued-once" "wait finds a continued child once";
    ContinueReplacesStop "continue-replaces-stop"
        "wait does not find a stop after the child was continued";
    GroupWaited "group-waited" "wait for a group finds only its members";
    OneWaited "one-waited" "wait for one child finds only that child";
    WaitNeedsChange "wait-needs-change" "waitid without any kind of change fails with EINVAL";
    ExitEndsThreads "exit-ends-threads" "exit ends all threads";
    ThreadKeepsMask "thread-keeps-mask" "A thread begins with its creator's mask";
    NoOwnJoin "no-own-join" "A thread that joins itself gets EDEADLK";
    JoinOnce "join-once" "A thread can be joined once";
    FaultDefeatsBlock "fault-defeats-block"
        "A fault whose signal is blocked or ignored ends the process";
    ReaderStopped "reader-stopped" "A process that reads a terminal in the background gets SIGTTIN";
    ReaderRefused "reader-refused" "If it blocks or ignores SIGTTIN the read fails with EIO";
    OrphanRefused "orphan-refused"
        "In an orphaned group reads and writes of a terminal fail with EIO";
    WriterStopped "writer-stopped" "TOSTOP: a process that writes in the background gets SIGTTOU";
    WriterFree "writer-free" "Without TOSTOP a process may write in the background";
    TostopExempts "tostop-exempts"
        "A process that blocks or ignores SIGTTOU may write despite TOSTOP";
    ChangerStopped "changer-stopped"
        "A process that changes a terminal in the background gets SIGTTOU";
    ForegroundElsewhere "foreground-elsewhere"
        "tcsetpgrp to a group of another session fails with EPERM";
    ForegroundNobody "foreground-nobody"
        "tcsetpgrp to a group that does not exist fails with ESRCH";
    ForegroundOfOwn "foreground-of-own"
        "tcsetpgrp on a terminal that is not the caller's fails with ENOTTY";
    TerminalOfOwn "terminal-of-own"
        "tcgetpgrp on a terminal that is not the caller's fails with ENOTTY";
    LeaderControls "leader-controls" "Only a session leader gets a controlling terminal";
    ControlsOne "controls-one" "A session has one terminal, and a terminal one session";
    KeysSignal "keys-signal" "^C, ^\\ and ^Z signal the foreground group";
    HangUpNotified "hang-up-notified" "A terminal that hangs up sends SIGHUP to its session leader";
    LeaderHangsUp "leader-hangs-up"
        "A session leader that exits sends SIGHUP to the foreground group";
    PipeEnds "pipe-ends" "A pipe ends when its last writer has closed it";
    PipeBreaks "pipe-breaks" "A write to a pipe without readers fails with EPIPE";
    PipeSignals "pipe-signals" "A write to a pipe without readers raises SIGPIPE";
    WrongEnd "wrong-end" "A read or write at the wrong end of a pipe fails with EBADF";
    ClosedIsGone "closed-is-gone" "close of a closed descriptor fails with EBADF";
    LimitOrdered "limit-ordered" "A soft limit above the hard limit is refused";
    NiceClamped "nice-clamped" "A nice value stays between -20 and 19";
    StackTooSmall "stack-too-small" "An alternate stack has a minimum size";
    TracerHears "tracer-hears" "A tracee stops for its tracer on any signal";
    TracerSwallows "tracer-swallows" "A tracee continues with the signal that its tracer passes";
}

/// Number of times that each rule was followed or broken.
static HITS: [AtomicU64; Rule::ALL.len()] = [const { AtomicU64::new(0) }; Rule::ALL.len()];

/// The index in [`Rule::ALL`] of the rule that is broken.
static BROKEN: AtomicUsize = AtomicUsize::new(usize::MAX);

impl Rule {
    /// Returns the number of times that the kernel reached the place at which it acts by this rule.
    pub fn hits(self) -> u64 {
        HITS[self as usize].load(Ordering::Relaxed)
    }

    /// Makes the kernel break this rule and follow all others.
    pub fn break_it(self) {
        BROKEN.store(self as usize, Ordering::Relaxed);
    }

    /// Makes the kernel follow all rules.
    pub fn follow_all() {
        BROKEN.store(usize::MAX, Ordering::Relaxed);
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kernel {
    /// Counts a visit to a place at which the kernel acts by `rule`. Returns `false` if the rule is
    /// broken.
    pub(crate) fn follows(&self, rule: Rule) -> bool {
        HITS[rule as usize].fetch_add(1, Ordering::Relaxed);
        BROKEN.load(Ordering::Relaxed) != rule as usize
    }

    /// Returns the error with which `rule` refuses a call. If the rule is broken, returns an error
    /// that no call uses.
    pub(crate) fn error_by(&self, rule: Rule, errno: Errno) -> Errno {
        if self.follows(rule) { errno } else { Errno::ENOSYS }
    }
}
