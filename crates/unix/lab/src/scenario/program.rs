//! Runs a process of a scenario as a [`Program`], statement by statement, on any [`Sys`].
//!
//! `perform.rs` makes the calls; `context.rs` holds the variables. Observations go to the [`Log`].

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tontine_unix::{
    Children, Disposition, Errno, Handler, Pid, Program, SigAction, SigSet, SigVec, SigmaskHow,
    Sys, ThreadBody, WaitOptions,
};
use tontine_unix_sim::SystemState;

use super::ast::{
    CallStatement, Condition, HandlerStatement, Scenario, SourceLine, Statement, StatementKind,
};
use super::call::{Argument, CallName, ExecTarget, SystemCall};
use super::context::{Context, EventDetails, Filled, RunContext, ThreadFrame};
use super::expected::Expected;
use super::log::{EventKind, Log, RelatedProcess};
use super::outcome::{CallResult, KnownSignal, done};
use super::step_control::{NextCall, ProcessProgram, SpawnKind, StepControl, ThreadOrdinal};

/// Name of the process that begins a run: `init` in the text.
pub(super) const HARNESS: &str = "init";

/// Maximum number of iterations of a `while` before it counts as endless.
const MOST_ROUNDS: u32 = 1_000_000;

/// Returns the program that begins a run. The program adopts orphans, creates the first process and
/// waits until no child is left. Its exit status is the exit status of the first process, or 128
/// plus the number of the signal that terminated the first process.
///
/// The first process leads its own session and starts with no signal blocked.
pub fn root(scenario: &Scenario, log: impl Log + 'static) -> Program {
    root_of(&Arc::new(RunContext::new(scenario, Arc::new(log))))
}

/// Implements [`root`] for an existing run.
pub(super) fn root_of(run: &Arc<RunContext>) -> Program {
    let run = Arc::clone(run);
    Box::new(move |sys| begin(sys, &run))
}

/// Like [`root`], but the threads stop at gates.
pub(crate) fn conducted(scenario: &Scenario, control: Arc<dyn StepControl>) -> Program {
    let run = Arc::new(RunContext::conducted(scenario, control));
    Box::new(move |sys| begin(sys, &run))
}

/// Like [`executed`], but the threads stop at gates.
pub(crate) fn conducted_program(
    scenario: &Scenario,
    name: &str,
    control: Arc<dyn StepControl>,
) -> impl Fn(&dyn Sys, &[String]) -> i32 + Send + Sync + 'static {
    executed_in(Arc::new(RunContext::conducted(scenario, control)), name)
}

/// Returns the program of one process of the scenario, without the process that [`root`] runs.
pub fn program(scenario: &Scenario, name: &str, log: impl Log + 'static) -> Program {
    let run = Arc::new(RunContext::new(scenario, Arc::new(log)));
    let name = name.to_owned();
    Box::new(move |sys| {
        let context = Context::new(run, &name, sys.getppid().number(), sys.now());
        process(sys, context)
    })
}

/// Returns the program that `exec` and `spawn` start, for registration under the name of the
/// process. The program expects the arguments that a scenario's `exec` passes.
pub fn executed(
    scenario: &Scenario,
    name: &str,
    log: impl Log + 'static,
) -> impl Fn(&dyn Sys, &[String]) -> i32 + Send + Sync + 'static {
    executed_in(Arc::new(RunContext::new(scenario, Arc::new(log))), name)
}

/// Implements [`executed`] for an existing run.
pub(super) fn executed_in(
    run: Arc<RunContext>,
    name: &str,
) -> impl Fn(&dyn Sys, &[String]) -> i32 + Send + Sync + 'static {
    let name = name.to_owned();
    move |sys, arguments| {
        let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
        let init = number(1).and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
        let began = number(2).map_or_else(|| sys.now(), Duration::from_nanos);
        let mut context = Context::new(Arc::clone(&run), &name, init, began);
        context.ordinal = number(3).and_then(|n| u32::try_from(n).ok()).map(ThreadOrdinal);
        process(sys, context)
    }
}

/// Returns the path for exec, and the arguments that pass [`executed`] the state that it cannot
/// inherit, including the thread's ordinal, if any.
pub(super) fn image(
    context: &Context,
    path: &ExecTarget,
    ordinal: Option<ThreadOrdinal>,
) -> (String, Vec<String>) {
    let image = match (path, &context.run.control) {
        (ExecTarget::Process(name), Some(control)) => control.image(name),
        _ => ProcessProgram { path: path.name().to_owned(), mark: None },
    };
    let began = context.began.as_nanos().to_string();
    let mut arguments = Vec::from_iter(image.mark.map(str::to_owned));
    arguments.extend([path.name().to_owned(), context.init.to_string(), began]);
    arguments.extend(ordinal.map(|ThreadOrdinal(ordinal)| ordinal.to_string()));
    (image.path, arguments)
}

fn begin(sys: &dyn Sys, run: &Arc<RunContext>) -> i32 {
    // Signals that a scenario sends to everyone must not reach this process.
    let _ = sys.sigprocmask(Some((SigmaskHow::Set, SigSet::ALL)));
    let _ = sys.set_subreaper(true);
    let first = run.scenario.first().expect("a parsed scenario has a process");
    SystemState::name_caller(HARNESS);
    let context =
        Arc::new(Context::new(Arc::clone(run), HARNESS, sys.getpid().number(), sys.now()));
    context.pid.store(sys.getpid().number(), Relaxed);
    let frame = ThreadFrame { sys, context: &context, info: None };
    if let Some(control) = &run.control {
        control.take_ordinal(sys, ThreadOrdinal::INIT);
    }
    let mut child = context.forked(&first.name);
    child.ordinal = frame.expect(SpawnKind::Process);
    let ordinal = child.ordinal;
    let made = sys.fork(move |sys| {
        let _ = sys.setsid();
        let _ = sys.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY)));
        process(sys, child)
    });
    frame.made(ordinal, made.ok());
    let Ok(made) = made else { return 1 };
    let source = SourceLine::default();
    let about = RelatedProcess::Created(made.number(), &first.name);
    let details = EventDetails::new(source, EventKind::Call, &"begin");
    frame.record(EventDetails { result: &made, about, ..details });
    let mut status = 1;
    loop {
        let waited = match sys.waitid(Children::Any, WaitOptions::EXITED) {
            Ok(Some(waited)) => waited,
            Err(Errno::EINTR) | Ok(None) => continue,
            Err(_) => return status,
        };
        let about = RelatedProcess::Observed(waited.pid.number(), waited.status);
        let details = EventDetails::new(source, EventKind::Call, &"wait");
        frame.record(EventDetails { result: &CallResult::Waited(waited), about, ..details });
        if waited.pid.number() == made.number() {
            let signal = waited.status.signaled().map_or(0, |signal| 128 + signal.number());
            status = waited.status.exited().unwrap_or(signal);
        }
    }
}

/// Runs a process from its first statement to its end. Returns its exit status.
pub(super) fn process(sys: &dyn Sys, context: Context) -> i32 {
    let context = Arc::new(context);
    context.pid.store(sys.getpid().number(), Relaxed);
    context.contexts.add(sys.getpid().number(), &context);
    SystemState::name_caller(&context.name);
    run_block(sys, &context, &context.name, context.ordinal);
    0
}

/// Runs the block of a thread.
fn run_block(sys: &dyn Sys, context: &Arc<Context>, name: &str, ordinal: Option<ThreadOrdinal>) {
    let run = Arc::clone(&context.run);
    if let (Some(control), Some(ordinal)) = (&run.control, ordinal) {
        control.take_ordinal(sys, ordinal);
    }
    let block = run.scenario.block(name).expect("a parsed scenario has all its blocks");
    let frame = ThreadFrame { sys, context, info: None };
    frame.record(EventDetails::new(block.source, EventKind::Began, &name));
    frame.run(&block.body);
    frame.gate(&NextCall::end(block.source));
}

/// Returns the function of a thread of a process.
pub(super) fn thread(
    context: &Arc<Context>,
    name: &str,
    ordinal: Option<ThreadOrdinal>,
) -> ThreadBody {
    let (context, name) = (Arc::clone(context), name.to_owned());
    Box::new(move |sys| run_block(sys, &context, &name, ordinal))
}

impl ThreadFrame<'_> {
    /// Runs statements in order.
    pub(super) fn run(&self, body: &[Statement]) {
        for statement in body {
            self.step(statement);
        }
    }

    fn step(&self, statement: &Statement) {
        let source = statement.source;
        match &statement.kind {
            StatementKind::Call(step) => self.call(source, step),
            StatementKind::Handler(step) => self.install(source, step),
            StatementKind::Note(parts) => {
                self.record(EventDetails::new(source, EventKind::Note, &Filled(self, parts)));
            }
            StatementKind::Set(name, value) => self.context.set(name, self.evaluate(value)),
            StatementKind::Check(condition) => self.check(source, condition),
            StatementKind::Repeat(times, body) => {
                for _ in 0..self.number(times) {
                    self.run(body);
                    self.sys.poll();
                }
            }
            StatementKind::While(condition, body) => self.repeat_while(source, condition, body),
        }
    }

    fn call(&self, source: SourceLine, step: &CallStatement) {
        let details = EventDetails::new(source, EventKind::Call, step);
        let due = NextCall {
            line: source.line,
            what: step,
            timeout: step.call.timeout(),
            writes: self.descriptor_of(&step.call, &[CallName::Write, CallName::Type]),
            reads: self.descriptor_of(&step.call, &[CallName::Read]),
        };
        self.gate(&due);
        if !step.call.returns() {
            self.record(details);
        }
        let outcome = self.perform(&step.call);
        self.passed(&due);
        if let Some(name) = &step.into {
            self.context.set(name, outcome.value());
        }
        let about = match (step.call.name, &step.call.arguments[..], &outcome) {
            (CallName::Fork, [Argument::Block(name)], CallResult::Value(pid)) => {
                RelatedProcess::Created(pid.number(), name)
            }
            (CallName::Spawn, [Argument::Path(path), _], CallResult::Value(pid)) => {
                RelatedProcess::Created(pid.number(), path.name())
            }
            (.., CallResult::Waited(waited)) => {
                RelatedProcess::Observed(waited.pid.number(), waited.status)
            }
            _ => RelatedProcess::None,
        };
        let details = EventDetails::new(source, EventKind::Call, step);
        self.record(EventDetails { result: &outcome, about, ..details });
        let is_end = outcome == CallResult::Error(Errno::EINTR) && step.call.ends_by_handler();
        if step.expected.is_some() || !is_end {
            self.judge(source, step, step.expected.as_ref(), &outcome);
        }
    }

    /// Waits at the gate, if the run has gates.
    fn gate(&self, due: &NextCall<'_>) {
        if let Some(control) = &self.context.run.control {
            control.gate(self.sys, due);
        }
    }

    /// Records that the call was made.
    fn passed(&self, due: &NextCall<'_>) {
        if let Some(control) = &self.context.run.control {
            control.passed(due);
        }
    }

    /// Requests an ordinal for a process or thread to be created, if the run has a step control.
    pub(super) fn expect(&self, kind: SpawnKind) -> Option<ThreadOrdinal> {
        self.context.run.control.as_ref().map(|control| control.expect(self.sys, kind))
    }

    /// Records the creation, or its failure.
    pub(super) fn made(&self, ordinal: Option<ThreadOrdinal>, made: Option<Pid>) {
        if let (Some(control), Some(ordinal)) = (&self.context.run.control, ordinal) {
            control.made(ordinal, made.map(Pid::number));
        }
    }

    /// Returns the duration to request for a call.
    pub(super) fn lasting(&self, duration: Duration) -> Duration {
        let control = self.context.run.control.as_ref();
        control.map_or(duration, |control| control.lasting(duration))
    }

    /// Makes the call `alarm`.
    pub(super) fn alarm(&self, seconds: u32) -> u32 {
        match &self.context.run.control {
            Some(control) => control.alarm(self.sys, seconds),
            None => self.sys.alarm(seconds),
        }
    }

    /// Returns the descriptor of a call, if it is one of these calls.
    fn descriptor_of(&self, call: &SystemCall, names: &[CallName]) -> Option<i32> {
        match call.arguments.first() {
            Some(Argument::Value(descriptor)) if names.contains(&call.name) => {
                Some(self.number(descriptor))
            }
            _ => None,
        }
    }

    /// Records a miss if the result is not the expected one.
    fn judge(
        &self,
        source: SourceLine,
        what: &dyn Display,
        expected: Option<&Expected>,
        outcome: &CallResult,
    ) {
        let is_held = match expected {
            Some(expected) => outcome.is(expected, |term| self.number(term)),
            None => !matches!(outcome, CallResult::Error(_)),
        };
        if !is_held {
            let expected = expected.map_or(&"no error" as &dyn Display, |expected| expected);
            let details = EventDetails::new(source, EventKind::Miss, what);
            self.record(EventDetails { result: expected, found: outcome, ..details });
        }
    }

    fn install(&self, source: SourceLine, step: &HandlerStatement) {
        let (context, body) = (Arc::clone(self.context), step.body.clone());
        let handler = Handler::new(move |sys, info| {
            let own = context.contexts.of(sys.getpid().number());
            let context = own.as_ref().unwrap_or(&context);
            let frame = ThreadFrame { sys, context, info: Some(info) };
            frame.record(EventDetails::new(source, EventKind::Handler, &KnownSignal(info)));
            frame.run(&body);
        });
        let disposition = Disposition::Handler(handler);
        let action = SigAction { disposition, mask: step.mask, flags: step.flags };
        let due = NextCall::simple(source, step);
        self.gate(&due);
        let old = if step.bsd {
            self.sys.sigvec(step.signal, Some(SigVec { action })).map(|old| old.action)
        } else {
            self.sys.sigaction(step.signal, Some(action))
        };
        let outcome =
            old.map_or_else(CallResult::Error, |old| CallResult::Done(done(&old.disposition)));
        self.record(EventDetails {
            result: &outcome,
            ..EventDetails::new(source, EventKind::Call, step)
        });
        self.judge(source, step, step.expected.as_ref(), &outcome);
    }

    fn check(&self, source: SourceLine, condition: &Condition) {
        let (left, right, holds) = self.compare(condition);
        if !holds {
            let details = EventDetails::new(source, EventKind::Miss, &"check");
            self.record(EventDetails {
                result: condition,
                found: &Comparands(left, right),
                ..details
            });
        }
    }

    fn repeat_while(&self, source: SourceLine, condition: &Condition, body: &[Statement]) {
        for _ in 0..MOST_ROUNDS {
            if !self.compare(condition).2 {
                return;
            }
            self.run(body);
            self.sys.poll();
        }
        let (left, right, _) = self.compare(condition);
        let details = EventDetails::new(source, EventKind::Miss, condition);
        self.record(EventDetails {
            result: &"the loop to end",
            found: &Comparands(left, right),
            ..details
        });
    }
}

impl SystemCall {
    /// Returns `true` if the caller continues after the call even if the call succeeds.
    fn returns(&self) -> bool {
        !matches!(self.name, CallName::Exec | CallName::Exit)
    }

    /// Returns `true` if the call succeeds by returning `EINTR`.
    fn ends_by_handler(&self) -> bool {
        matches!(self.name, CallName::Pause | CallName::Sigsuspend | CallName::Sigpause)
    }

    /// Returns the duration after which the call ends by itself.
    fn timeout(&self) -> Option<Duration> {
        match (self.name, self.arguments.last()) {
            (CallName::Sleep | CallName::Sigtimedwait, Some(Argument::Duration(duration))) => {
                Some(*duration)
            }
            _ => None,
        }
    }
}

/// The values of the two sides of a comparison.
struct Comparands(i32, i32);

impl Display for Comparands {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.0, self.1)
    }
}
