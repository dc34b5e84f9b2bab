//! What a scenario says: [`Scenario`] of [`ScenarioBlock`]s of [`Statement`]s, and [`Expectation`]s of the
//! whole run.
//!
//! `parse/` makes it of text, `print/` text of it, `program.rs` runs it. Calls and their
//! arguments stand in `call.rs`, results in `expected.rs`.

use tontine_unix::{ActionFlags, SigSet, Signal};

use super::call::SystemCall;
use super::expected::{Expected, StatusPattern};
use super::term::Term;
use super::word::Relation;

/// A whole scenario. Its first process is run; the others are what it forks, executes and spawns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scenario {
    /// Processes and threads, in the order of the text.
    pub blocks: Vec<ScenarioBlock>,
    /// What must hold at the end.
    pub expectations: Vec<Expectation>,
}

impl Scenario {
    /// The process or thread with this name.
    pub fn block(&self, name: &str) -> Option<&ScenarioBlock> {
        self.blocks.iter().find(|block| block.name == name)
    }

    /// The process that is run.
    pub fn first(&self) -> Option<&ScenarioBlock> {
        self.blocks.iter().find(|block| block.kind == BlockKind::Process)
    }
}

/// Where something stands in the text. All places are equal: the same statement elsewhere is the
/// same.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceLine {
    /// Line, from 1.
    pub line: u32,
}

impl PartialEq for SourceLine {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// `process NAME` or `thread NAME`, and what it does.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioBlock {
    /// Where.
    pub source: SourceLine,
    /// Which of the two.
    pub kind: BlockKind,
    /// Its name.
    pub name: String,
    /// What it does; at the end a process exits with 0, and a thread ends.
    pub body: Vec<Statement>,
}

/// Who runs a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// A process of its own.
    Process,
    /// A thread of the process that starts it, whose variables it shares.
    Thread,
}

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// Where.
    pub source: SourceLine,
    /// What.
    pub kind: StatementKind,
}

/// What a statement does.
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
    /// `repeat VALUE` and what is repeated.
    Repeat(Term, Vec<Statement>),
    /// `while CONDITION` and what is repeated.
    While(Condition, Vec<Statement>),
}

/// A call, where its result goes, and what it must be.
#[derive(Debug, Clone, PartialEq)]
pub struct CallStatement {
    /// The variable that gets the result.
    pub into: Option<String>,
    /// The call.
    pub call: SystemCall,
    /// What must come of it; where nothing is said, no error.
    pub expected: Option<Expected>,
}

/// `on SIGNAL [FLAGS] [mask SET] [-> EXPECTED]` and the handler's body.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerStatement {
    /// Whether it is 4.3BSD's `sigvec`, written so.
    pub bsd: bool,
    /// Which signal.
    pub signal: Signal,
    /// How.
    pub flags: ActionFlags,
    /// What is blocked meanwhile.
    pub mask: SigSet,
    /// What must come of installing it; where nothing is said, no error.
    pub expected: Option<Expected>,
    /// What it does.
    pub body: Vec<Statement>,
}

/// A part of a note.
#[derive(Debug, Clone, PartialEq)]
pub enum NotePart {
    /// As it stands.
    Text(String),
    /// `{VALUE}`.
    Value(Term),
}

/// `A`, `A + B` or `A - B`; beyond 32 bits it wraps.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A term.
    Term(Term),
    /// A sum.
    Sum(Term, Term),
    /// A difference.
    Difference(Term, Term),
}

/// `A == B`. Processes are compared by their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// A.
    pub left: Expression,
    /// How they must relate.
    pub relation: Relation,
    /// B.
    pub right: Expression,
}

/// `expect …`.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// Where.
    pub source: SourceLine,
    /// What.
    pub what: RunExpectation,
}

/// What can be expected of a whole run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunExpectation {
    /// `[COUNT of] NAME STATUS or STATUS`: so many processes with this name, all where no number is
    /// said, ended in one of these ways.
    Ended {
        /// How many; all, and at least one, where nothing is said.
        count: Option<Count>,
        /// The process's name.
        name: String,
        /// How.
        ways: Vec<StatusPattern>,
    },
    /// `note TEXT [of NAME] [COUNT times]`: so many notes have this text.
    Note {
        /// The text.
        text: String,
        /// Whose; anybody's where nothing is said.
        of: Option<String>,
        /// How many.
        count: Count,
    },
    /// `notes [of NAME] [in any order] A, B or C, D`: these are all the notes.
    Notes {
        /// Whose; everybody's where nothing is said.
        of: Option<String>,
        /// Whether their order counts.
        ordered: bool,
        /// What is allowed.
        sequences: Vec<Vec<String>>,
    },
    /// `A before B`: both were noted, the first A before the first B.
    Before(String, String),
}

/// How many: `2`, `1..2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// At least.
    pub least: u32,
    /// At most.
    pub most: u32,
}

impl Count {
    /// Exactly one.
    pub const ONE: Self = Self { least: 1, most: 1 };

    /// Whether `n` is as many.
    pub const fn has(self, n: u32) -> bool {
        self.least <= n && n <= self.most
    }
}
