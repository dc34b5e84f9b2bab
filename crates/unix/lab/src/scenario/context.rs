//! The state of a process that runs a scenario, [`Context`], and of a thread that runs a statement,
//! [`ThreadFrame`].
//!
//! All threads of a process share its context; a forked child receives a copy; `exec` creates a new
//! context.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tontine_unix::{Pid, SigInfo, Sys};

use super::ast::{Condition, Expression, NotePart, Scenario, SourceLine, Statement, StatementKind};
use super::call::Argument;
use super::contexts::Contexts;
use super::log::{EventKind, Log, LogEvent, RelatedProcess};
use super::outcome::cause;
use super::print::SignalName;
use super::step_control::{StepControl, ThreadOrdinal};
use super::term::Term;
use super::word::{BuiltinValue, SignalField};

/// The state that all processes of a run share.
pub(super) struct RunContext {
    pub(super) scenario: Scenario,
    pub(super) log: Arc<dyn Log>,
    /// The step control, which decides when a thread makes its next call, if the run has one.
    pub(super) control: Option<Arc<dyn StepControl>>,
    /// All variables of the text, sorted. A variable's slot is its index here.
    variables: Vec<String>,
}

impl RunContext {
    pub(super) fn new(scenario: &Scenario, log: Arc<dyn Log>) -> Self {
        Self::with(scenario, log, None)
    }

    /// Creates the state of a run whose threads stop at gates.
    pub(super) fn conducted(scenario: &Scenario, control: Arc<dyn StepControl>) -> Self {
        let log: Arc<dyn Log> = Arc::<dyn StepControl>::clone(&control);
        Self::with(scenario, log, Some(control))
    }

    fn with(scenario: &Scenario, log: Arc<dyn Log>, control: Option<Arc<dyn StepControl>>) -> Self {
        let mut variables = Vec::new();
        for block in &scenario.blocks {
            collect(&block.body, &mut variables);
        }
        variables.sort_unstable();
        variables.dedup();
        Self { scenario: scenario.clone(), log, control, variables }
    }
}

/// Collects the variables that statements set.
fn collect(body: &[Statement], into: &mut Vec<String>) {
    for Statement { kind, .. } in body {
        match kind {
            StatementKind::Call(step) => {
                into.extend(step.into.clone());
                into.extend(step.call.arguments.iter().filter_map(|argument| match argument {
                    Argument::Variable(name) => Some(name.clone()),
                    _ => None,
                }));
            }
            StatementKind::Set(name, _) => into.push(name.clone()),
            StatementKind::Handler(step) => collect(&step.body, into),
            StatementKind::Repeat(_, body) | StatementKind::While(_, body) => collect(body, into),
            StatementKind::Note(_) | StatementKind::Check(_) => {}
        }
    }
}

/// The state of one process. Handlers read and set the variables, so they are atomic.
pub(super) struct Context {
    pub(super) run: Arc<RunContext>,
    /// The block that the process runs.
    pub(super) name: String,
    /// The number of the process that began the run.
    pub(super) init: i32,
    /// The time at which the run began, on the monotonic clock.
    pub(super) began: Duration,
    /// The ordinal of the first thread, if the run has a step control.
    pub(super) ordinal: Option<ThreadOrdinal>,
    /// The process's number, once it runs.
    pub(super) pid: AtomicI32,
    /// The contexts in which a handler finds the context of its process. The process or an ancestor
    /// of the process installed the handler. The contexts are dropped with the last of these
    /// processes, because a scenario may run a million times.
    pub(super) contexts: Arc<Contexts<Self>>,
    /// The variables, each with its number in the low half and the ordinal of the process in the
    /// high half.
    variables: Box<[AtomicU64]>,
    /// The counters of `profil`.
    pub(super) profile: Mutex<Option<Arc<[AtomicU32]>>>,
}

impl Context {
    /// Creates the context of a program that starts to run this block, with all variables 0.
    pub(super) fn new(run: Arc<RunContext>, name: &str, init: i32, began: Duration) -> Self {
        let variables = run.variables.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            run,
            name: name.to_owned(),
            init,
            began,
            ordinal: None,
            pid: AtomicI32::new(0),
            contexts: Arc::default(),
            variables,
            profile: Mutex::default(),
        }
    }

    /// Creates the context of a child that runs this block, with the current variables. A variable
    /// that holds a process keeps only its number, because only the parent has a handle.
    pub(super) fn forked(&self, name: &str) -> Self {
        let mut child = Self::new(Arc::clone(&self.run), name, self.init, self.began);
        child.contexts = Arc::clone(&self.contexts);
        for (from, to) in self.variables.iter().zip(&child.variables) {
            to.store(from.load(Relaxed) & u64::from(u32::MAX), Relaxed);
        }
        child
    }

    fn slot(&self, name: &str) -> &AtomicU64 {
        let found = self.run.variables.binary_search_by(|known| known.as_str().cmp(name));
        &self.variables[found.expect("some statement sets every variable that is used")]
    }

    pub(super) fn variable(&self, name: &str) -> Pid {
        let packed = self.slot(name).load(Relaxed);
        Pid::handle(packed as u32 as i32, (packed >> 32) as u32)
    }

    pub(super) fn set(&self, name: &str, value: Pid) {
        let birth = u64::from(value.birth().unwrap_or(0));
        let number = u64::from(value.number() as u32);
        self.slot(name).store(birth << 32 | number, Relaxed);
    }
}

/// A thread of a process, in its program or in a handler.
#[derive(Clone, Copy)]
pub(super) struct ThreadFrame<'f> {
    pub(super) sys: &'f dyn Sys,
    pub(super) context: &'f Arc<Context>,
    /// In a handler, the information about the signal.
    pub(super) info: Option<&'f SigInfo>,
}

impl ThreadFrame<'_> {
    pub(super) fn value(&self, term: &Term) -> Pid {
        match term {
            Term::Number(number) => Pid::number_only(*number),
            Term::Variable(name) => self.context.variable(name),
            Term::Own(BuiltinValue::Itself) => self.sys.getpid(),
            Term::Own(BuiltinValue::Parent) => self.sys.getppid(),
            Term::Own(BuiltinValue::Init) => Pid::number_only(self.context.init),
            Term::Info(info) => Pid::number_only(self.known(*info)),
        }
    }

    /// Returns the number of a term's value.
    pub(super) fn number(&self, term: &Term) -> i32 {
        self.value(term).number()
    }

    /// Returns a field of the handler's signal; 0 outside of handlers.
    fn known(&self, what: SignalField) -> i32 {
        let Some(info) = self.info else { return 0 };
        match what {
            SignalField::Signal => info.signal.number(),
            SignalField::Sender => info.pid,
            SignalField::Value => info.value,
            SignalField::Status => info.status,
            SignalField::Code => cause(info.code) as i32,
        }
    }

    pub(super) fn evaluate(&self, expression: &Expression) -> Pid {
        let number = match expression {
            Expression::Term(term) => return self.value(term),
            Expression::Sum(left, right) => self.number(left).wrapping_add(self.number(right)),
            Expression::Difference(left, right) => {
                self.number(left).wrapping_sub(self.number(right))
            }
        };
        Pid::number_only(number)
    }

    /// Returns both sides of a condition, and `true` if it holds.
    pub(super) fn compare(&self, condition: &Condition) -> (i32, i32, bool) {
        let left = self.evaluate(&condition.left).number();
        let right = self.evaluate(&condition.right).number();
        (left, right, condition.relation.holds(left, right))
    }

    /// Sends an event to the log.
    pub(super) fn record(&self, details: EventDetails<'_>) {
        self.context.run.log.record(&LogEvent {
            at: self.sys.now().saturating_sub(self.context.began),
            pid: self.context.pid.load(Relaxed),
            tid: self.sys.gettid().0,
            name: &self.context.name,
            source: details.source,
            kind: details.kind,
            what: details.what,
            result: details.result,
            found: details.found,
            about: details.about,
        });
    }
}

/// The part of an event that differs between the events of a frame.
pub(super) struct EventDetails<'t> {
    pub(super) source: SourceLine,
    pub(super) kind: EventKind,
    pub(super) what: &'t dyn Display,
    pub(super) result: &'t dyn Display,
    pub(super) found: &'t dyn Display,
    pub(super) about: RelatedProcess<'t>,
}

impl<'t> EventDetails<'t> {
    /// Creates an event that has only a subject.
    pub(super) fn new(source: SourceLine, kind: EventKind, what: &'t dyn Display) -> Self {
        Self { source, kind, what, result: &"", found: &"", about: RelatedProcess::None }
    }
}

/// A note with its values filled in.
pub(super) struct Filled<'f>(pub(super) &'f ThreadFrame<'f>, pub(super) &'f [NotePart]);

impl Display for Filled<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(frame, parts) = self;
        parts.iter().try_for_each(|part| match (part, frame.info) {
            (NotePart::Text(text), _) => f.write_str(text),
            (NotePart::Value(Term::Info(SignalField::Signal)), Some(info)) => {
                SignalName(info.signal).fmt(f)
            }
            (NotePart::Value(Term::Info(SignalField::Code)), Some(info)) => cause(info.code).fmt(f),
            (NotePart::Value(term), _) => frame.number(term).fmt(f),
        })
    }
}
