//! The syntax tree of a scenario: a [`Scenario`] has [`ScenarioBlock`]s of [`Statement`]s, and
//! [`Expectation`]s of the whole run.
//!
//! `parse/` reads it from text, `print/` writes it as text, `program.rs` runs it. Calls and their
//! arguments are in `call.rs`, results in `expected.rs`.

use tontine_unix::{ActionFlags, SigSet, Signal};

use super::call::SystemCall;
use super::expected::{Expected, StatusPattern};
use super::term::Term;
use super::word::Relation;

/// A scenario. A run starts with its first process; the others are started by fork, exec or spawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scenario {
    /// The processes and threads, in the order of the text.
    pub blocks: Vec<ScenarioBlock>,
    /// The expectations of the whole run.
    pub expectations: Vec<Expectation>,
}

impl Scenario {
    /// Returns the process or thread with this name.
    pub fn block(&self, name: &str) -> Option<&ScenarioBlock> {
        self.blocks.iter().find(|block| block.name == name)
    }

    /// Returns the process that a run starts with.
    pub fn first(&self) -> Option<&ScenarioBlock> {
        self.blocks.iter().find(|block| block.kind == BlockKind::Process)
    }
}

/// The line of an element in the text. All source lines compare equal, so that equal statements on
/// different lines compare equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceLine {
    pub line: u32,
}

impl PartialEq for SourceLine {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A block: `process NAME` or `thread NAME`, with its statements.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioBlock {
    /// The line in the text.
    pub source: SourceLine,
    /// The kind of the block: a process or a thread.
    pub kind: BlockKind,
    pub name: String,
    /// The statements. After the last one a process exits with 0, and a thread ends.
    pub body: Vec<Statement>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    Process,
    /// A thread, which shares the variables of the process that creates it.
    Thread,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The line in the text.
    pub source: SourceLine,
    pub kind: StatementKind,
}

/// The kind of a statement, with its content.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind {
    /// `[NAME =] CALL [-> EXPECTED]`.
    Call(CallStatement),
    /// `on SIGNAL …`.
    Handler(HandlerStatement),
    /// `note "text {value}"`.
    Note(Vec<NotePart>),
    /// `NAME = EXPRESSION`.
    Set(String, Expression),
    /// `check CONDITION`.
    Check(Condition),
    /// `repeat VALUE` and its body.
    Repeat(Term, Vec<Statement>),
    /// `while CONDITION` and its body.
    While(Condition, Vec<Statement>),
}

/// A call, the variable for its result, and the expected result.
#[derive(Debug, Clone, PartialEq)]
pub struct CallStatement {
    /// The variable that receives the result.
    pub into: Option<String>,
    pub call: SystemCall,
    /// The expected result; `None` accepts any result except an error.
    pub expected: Option<Expected>,
}

/// `on SIGNAL [FLAGS] [mask SET] [-> EXPECTED]` and the handler's body.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerStatement {
    /// `true` for 4.3BSD's call, which is written `sigvec`.
    pub bsd: bool,
    pub signal: Signal,
    pub flags: ActionFlags,
    /// The signals that are blocked while the handler runs.
    pub mask: SigSet,
    /// The expected result of the installation; `None` accepts any result except an error.
    pub expected: Option<Expected>,
    /// The statements of the handler.
    pub body: Vec<Statement>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum NotePart {
    /// Literal text.
    Text(String),
    /// `{VALUE}`.
    Value(Term),
}

/// `A`, `A + B` or `A - B`. A result that exceeds 32 bits wraps.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    Term(Term),
    Sum(Term, Term),
    Difference(Term, Term),
}

/// A comparison such as `A == B`. Processes are compared by their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The left side, A.
    pub left: Expression,
    /// The required relation.
    pub relation: Relation,
    /// The right side, B.
    pub right: Expression,
}

/// A line `expect …`.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// The line in the text.
    pub source: SourceLine,
    pub what: RunExpectation,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RunExpectation {
    /// `[COUNT of] NAME STATUS or STATUS`: the number of processes with this name whose end matches
    /// one of the patterns. Without a count, all these processes must match.
    Ended {
        /// The required number; `None` requires all processes, and at least one.
        count: Option<Count>,
        /// The process's name.
        name: String,
        /// The permitted statuses.
        ways: Vec<StatusPattern>,
    },
    /// `note TEXT [of NAME] [COUNT times]`: the number of notes with this text.
    Note {
        text: String,
        /// The process; `None` means any process.
        of: Option<String>,
        /// The required number.
        count: Count,
    },
    /// `notes [of NAME] [in any order] A, B or C, D`: the complete list of notes.
    Notes {
        /// The process; `None` means all processes.
        of: Option<String>,
        /// `true` if the notes must have this order.
        ordered: bool,
        /// The permitted lists.
        sequences: Vec<Vec<String>>,
    },
    /// `A before B`: both notes were written, the first A before the first B.
    Before(String, String),
}

/// A range of counts: `2`, `1..2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The minimum.
    pub min: u32,
    pub max: u32,
}

impl Count {
    /// Exactly one.
    pub const ONE: Self = Self { min: 1, max: 1 };

    /// Returns `true` if the range contains `n`.
    pub const fn has(self, n: u32) -> bool {
        self.min <= n && n <= self.max
    }
}
