//! Parses calls and their arguments.

use tontine_unix::{ActionFlags, Modes, SigSet, Signal, SpawnGroup, WaitOptions};

use super::cursor::Cursor;
use crate::scenario::ast::BlockKind;
use crate::scenario::call::{
    Bounds, ExecTarget, KillTarget, PriorityTarget, Spawning, SystemCall, Tracing, WaitTarget,
};
use crate::scenario::error::{SyntaxError, hint};
use crate::scenario::flags::{ACTION_FLAGS, MODES, WAIT_OPTIONS};
use crate::scenario::token::TokenKind;
use crate::scenario::word::{
    LimitedResource, PlainCall, SetCall, SignalCall, SimpleAction, TwoValueCall, ValueCall,
    WaitCall,
};

/// Parses a call. The next token must be one of [`SystemCall::words`].
pub(super) fn call(cursor: &mut Cursor<'_>) -> Result<SystemCall, SyntaxError> {
    let start = cursor.error(String::new());
    let word = cursor.peek_word().unwrap_or_default();
    cursor.skip();
    let call = if let Some(call) = PlainCall::of(word) {
        SystemCall::Plain(call)
    } else if let Some(call) = ValueCall::of(word) {
        if call == ValueCall::Exit {
            cursor.check_status()?;
        }
        SystemCall::Value(call, cursor.term()?)
    } else if let Some(call) = TwoValueCall::of(word) {
        SystemCall::Values(call, cursor.term()?, cursor.term()?)
    } else if let Some(call) = SetCall::of(word) {
        SystemCall::Set(call, cursor.set()?)
    } else if let Some(call) = SignalCall::of(word) {
        SystemCall::Signal(call, cursor.signal()?)
    } else if let Some(call) = SimpleAction::of(word) {
        SystemCall::Action(call, cursor.signal()?, action_flags(cursor))
    } else if let Some(call) = WaitCall::of(word) {
        wait(cursor, call)?
    } else {
        other(cursor, word)?
    };
    if cursor.in_handler && !call.is_for_handlers() {
        let message = format!(
            "a handler cannot call `{word}`: it may interrupt anything, so it makes only calls \
             that allocate no memory; set a variable in the handler, and check it in the process"
        );
        return Err(SyntaxError { message, ..start });
    }
    Ok(call)
}

/// Parses the arguments of one of [`SystemCall::WORDS`].
fn other(cursor: &mut Cursor<'_>, word: &str) -> Result<SystemCall, SyntaxError> {
    Ok(match word {
        "fork" => SystemCall::Fork(cursor.block(BlockKind::Process)?),
        "thread" => SystemCall::Thread(cursor.block(BlockKind::Thread)?),
        "exec" => SystemCall::Exec(path(cursor)?),
        "spawn" => SystemCall::Spawn(spawning(cursor)?),
        "kill" => SystemCall::Kill(aim(cursor)?, cursor.signal_or_zero()?),
        "killpg" => SystemCall::Killpg(cursor.term()?, cursor.signal_or_zero()?),
        "tgkill" => SystemCall::Tgkill(cursor.term()?, cursor.term()?, cursor.signal_or_zero()?),
        "sigqueue" => {
            SystemCall::Sigqueue(cursor.term()?, cursor.signal_or_zero()?, cursor.term()?)
        }
        "sigtimedwait" => SystemCall::Sigtimedwait(cursor.set()?, cursor.duration()?),
        "sleep" => SystemCall::Sleep(cursor.duration()?),
        "compute" => SystemCall::Compute(cursor.duration()?),
        "pipe" => SystemCall::Pipe(cursor.variable()?, cursor.variable()?),
        "openpty" => SystemCall::Openpty(cursor.variable()?, cursor.variable()?),
        "read" => {
            let descriptor = cursor.term()?;
            let most = if cursor.is_at_term() { Some(cursor.term()?) } else { None };
            SystemCall::Read(descriptor, most)
        }
        "write" | "type" => {
            let typed = word == "type";
            SystemCall::Write { typed, descriptor: cursor.term()?, text: cursor.text()? }
        }
        "tcsetattr" => tcsetattr(cursor)?,
        "getrlimit" => SystemCall::Getrlimit(limited(cursor)?),
        "setrlimit" => SystemCall::Setrlimit(limited(cursor)?, bounds(cursor)?),
        "getpriority" => SystemCall::Getpriority(owner(cursor)?),
        "setpriority" => SystemCall::Setpriority(owner(cursor)?, cursor.term()?),
        "place" if cursor.takes_word("any") => SystemCall::Place(None),
        "place" => SystemCall::Place(Some(cursor.term()?)),
        "sigstack" if cursor.is_at_term() => SystemCall::Sigstack(Some(cursor.term()?)),
        "sigstack" => SystemCall::Sigstack(None),
        "ptrace" => SystemCall::Ptrace(tracing(cursor)?),
        _ => return Err(cursor.error(format!("unknown call `{word}`"))),
    })
}

fn wait(cursor: &mut Cursor<'_>, call: WaitCall) -> Result<SystemCall, SyntaxError> {
    let whom = if call == WaitCall::Wait3 || cursor.takes_word("any") {
        WaitTarget::Any
    } else if cursor.takes_word("group") {
        WaitTarget::Group(cursor.term()?)
    } else if cursor.takes_word("own-group") {
        WaitTarget::OwnGroup
    } else if cursor.is_at_term() {
        WaitTarget::One(cursor.term()?)
    } else {
        WaitTarget::Any
    };
    let mut options = WaitOptions::empty();
    while let Some(option) = cursor.takes_of(WAIT_OPTIONS) {
        options |= option;
    }
    if let Some(word) = cursor.peek_word() {
        let known = WAIT_OPTIONS.iter().map(|(word, _)| *word);
        let hint = hint(word, known.chain(["any", "group", "own-group"]));
        return Err(cursor.error(format!("neither a variable nor an option: `{word}`{hint}")));
    }
    Ok(SystemCall::Wait(call, whom, options))
}

fn aim(cursor: &mut Cursor<'_>) -> Result<KillTarget, SyntaxError> {
    Ok(if cursor.takes_word("group") {
        KillTarget::Group(cursor.term()?)
    } else if cursor.takes_word("own-group") {
        KillTarget::OwnGroup
    } else if cursor.takes_word("everyone") {
        KillTarget::Everyone
    } else {
        KillTarget::One(cursor.term()?)
    })
}

/// Parses any number of flags of `sigaction`.
pub(super) fn action_flags(cursor: &mut Cursor<'_>) -> ActionFlags {
    let mut flags = ActionFlags::empty();
    while let Some(flag) = cursor.takes_of(ACTION_FLAGS) {
        flags |= flag;
    }
    flags
}

fn path(cursor: &mut Cursor<'_>) -> Result<ExecTarget, SyntaxError> {
    match cursor.peek() {
        Some(TokenKind::Text(_)) => cursor.text().map(ExecTarget::Other),
        _ => cursor.block(BlockKind::Process).map(ExecTarget::Process),
    }
}

fn spawning(cursor: &mut Cursor<'_>) -> Result<Spawning, SyntaxError> {
    let path = path(cursor)?;
    let mut group = SpawnGroup::Parents;
    if cursor.takes_word("group") {
        let is_own = cursor.takes_word("new");
        group = if is_own { SpawnGroup::Own } else { SpawnGroup::Of(cursor.term()?) };
    }
    let session = cursor.takes_word("session");
    let mask = if cursor.takes_word("mask") { Some(cursor.set()?) } else { None };
    let defaults = if cursor.takes_word("defaults") { cursor.set()? } else { SigSet::EMPTY };
    let mut descriptors = Vec::new();
    while cursor.takes_word("descriptor") {
        let from = cursor.term()?;
        cursor.needs_word("as")?;
        descriptors.push((from, cursor.term()?));
    }
    if let Some(word) = cursor.peek_word() {
        let what = "group, session, mask, defaults, descriptor, in this order";
        return Err(cursor.error(format!("unexpected `{word}`; expected {what}")));
    }
    Ok(Spawning { path, group, session, mask, defaults, descriptors })
}

fn tcsetattr(cursor: &mut Cursor<'_>) -> Result<SystemCall, SyntaxError> {
    let terminal = cursor.term()?;
    let (mut on, mut off) = (Modes::empty(), Modes::empty());
    loop {
        let modes = if cursor.takes("+") {
            &mut on
        } else if cursor.takes("-") {
            &mut off
        } else {
            return Ok(SystemCall::Tcsetattr { terminal, on, off });
        };
        *modes |= mode(cursor)?;
    }
}

/// Parses a mode of a terminal.
pub(super) fn mode(cursor: &mut Cursor<'_>) -> Result<Modes, SyntaxError> {
    let words: Vec<&str> = MODES.iter().map(|(word, _)| *word).collect();
    let of = |word: &str| MODES.iter().find(|(name, _)| *name == word).map(|(_, mode)| *mode);
    cursor.one_of("mode", &words, of)
}

fn limited(cursor: &mut Cursor<'_>) -> Result<LimitedResource, SyntaxError> {
    cursor.one_of("resource", LimitedResource::WORDS, LimitedResource::of)
}

/// Parses `soft N hard N`.
pub(super) fn bounds(cursor: &mut Cursor<'_>) -> Result<Bounds, SyntaxError> {
    cursor.needs_word("soft")?;
    let soft = bound(cursor)?;
    cursor.needs_word("hard")?;
    Ok(Bounds { soft, hard: bound(cursor)? })
}

fn bound(cursor: &mut Cursor<'_>) -> Result<Option<u32>, SyntaxError> {
    if cursor.takes_word("unlimited") { Ok(None) } else { cursor.count().map(Some) }
}

fn owner(cursor: &mut Cursor<'_>) -> Result<PriorityTarget, SyntaxError> {
    const WORDS: &[&str] = &["process", "group", "user"];
    let make = cursor.one_of("owner", WORDS, |word| match word {
        "process" => Some(PriorityTarget::Process as fn(_) -> _),
        "group" => Some(PriorityTarget::Group as fn(_) -> _),
        "user" => Some(PriorityTarget::User as fn(_) -> _),
        _ => None,
    })?;
    Ok(make(cursor.term()?))
}

fn tracing(cursor: &mut Cursor<'_>) -> Result<Tracing, SyntaxError> {
    const WORDS: &[&str] = &["traceme", "attach", "continue", "kill", "detach"];
    let word = cursor
        .one_of("request", WORDS, |word| WORDS.iter().copied().find(|known| *known == word))?;
    Ok(match word {
        "attach" => Tracing::Attach(cursor.term()?),
        "continue" => Tracing::Continue(cursor.term()?, optional_signal(cursor)?),
        "kill" => Tracing::Kill(cursor.term()?),
        "detach" => Tracing::Detach(cursor.term()?, optional_signal(cursor)?),
        _ => Tracing::TraceMe,
    })
}

fn optional_signal(cursor: &mut Cursor<'_>) -> Result<Option<Signal>, SyntaxError> {
    match cursor.peek() {
        Some(TokenKind::Name(_)) => cursor.signal().map(Some),
        _ => Ok(None),
    }
}
