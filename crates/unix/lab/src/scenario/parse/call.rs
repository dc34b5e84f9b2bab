//! Parses calls and their arguments.

use tontine_unix::{ActionFlags, Modes, SigSet, Signal, SpawnGroup, WaitOptions};

use super::cursor::Cursor;
use crate::scenario::ast::BlockKind;
use crate::scenario::call::{
    Argument, ArgumentKind, Bounds, CallName, ExecTarget, Spawning, SystemCall,
};
use crate::scenario::error::{SyntaxError, hint};
use crate::scenario::flags::{ACTION_FLAGS, MODES, WAIT_OPTIONS};
use crate::scenario::token::TokenKind;
use crate::scenario::word::{LimitedResource, TargetKind, TraceRequest};

/// Parses a call. The next token must be the word of a call.
pub(super) fn call(cursor: &mut Cursor<'_>) -> Result<SystemCall, SyntaxError> {
    let start = cursor.error(String::new());
    let word = cursor.peek_word().unwrap_or_default();
    let Some(name) = CallName::of(word) else {
        return Err(cursor.error(format!("unknown call `{word}`")));
    };
    cursor.skip();
    let arguments = name.kinds().iter().map(|kind| argument(cursor, *kind));
    let call = SystemCall { name, arguments: arguments.collect::<Result<_, _>>()? };
    if cursor.in_handler && !name.is_for_handlers() {
        let message = format!(
            "a handler cannot call `{word}`: it may interrupt anything, so it makes only calls \
             that allocate no memory; set a variable in the handler, and check it in the process"
        );
        return Err(SyntaxError { message, ..start });
    }
    Ok(call)
}

fn argument(cursor: &mut Cursor<'_>, kind: ArgumentKind) -> Result<Argument, SyntaxError> {
    Ok(match kind {
        ArgumentKind::Value => Argument::Value(cursor.term()?),
        ArgumentKind::Status => {
            cursor.check_status()?;
            Argument::Value(cursor.term()?)
        }
        ArgumentKind::MaybeValue if cursor.is_at_term() => {
            Argument::MaybeValue(Some(cursor.term()?))
        }
        ArgumentKind::MaybeValue => Argument::MaybeValue(None),
        ArgumentKind::AnyOrValue if cursor.takes_word("any") => Argument::AnyOrValue(None),
        ArgumentKind::AnyOrValue => Argument::AnyOrValue(Some(cursor.term()?)),
        ArgumentKind::Set => Argument::Set(cursor.set()?),
        ArgumentKind::Signal => Argument::Signal(cursor.signal()?),
        ArgumentKind::MaybeSignal => Argument::MaybeSignal(cursor.signal_or_zero()?),
        ArgumentKind::Flags => Argument::Flags(action_flags(cursor)),
        ArgumentKind::Children => target(cursor, &[TargetKind::OwnGroup, TargetKind::Any])?,
        ArgumentKind::Options => Argument::Options(wait_options(cursor)?),
        ArgumentKind::Receivers => target(cursor, &[TargetKind::OwnGroup, TargetKind::Everyone])?,
        ArgumentKind::Owner => {
            let owners = [TargetKind::Process, TargetKind::Group, TargetKind::User];
            let of = |word: &str| owners.into_iter().find(|owner| owner.word() == word);
            let owner = cursor.one_of("owner", &owners.map(TargetKind::word), of)?;
            Argument::Target(owner, Some(cursor.term()?))
        }
        ArgumentKind::Process => Argument::Block(cursor.block(BlockKind::Process)?),
        ArgumentKind::Thread => Argument::Block(cursor.block(BlockKind::Thread)?),
        ArgumentKind::Path => Argument::Path(match cursor.peek() {
            Some(TokenKind::Text(_)) => ExecTarget::Other(cursor.text()?),
            _ => ExecTarget::Process(cursor.block(BlockKind::Process)?),
        }),
        ArgumentKind::Spawning => Argument::Spawning(spawning(cursor)?),
        ArgumentKind::Duration => Argument::Duration(cursor.duration()?),
        ArgumentKind::Variable => Argument::Variable(cursor.variable()?),
        ArgumentKind::Text => Argument::Text(cursor.text()?),
        ArgumentKind::ModeChanges => mode_changes(cursor)?,
        ArgumentKind::Resource => Argument::Resource(cursor.one_of(
            "resource",
            LimitedResource::WORDS,
            LimitedResource::of,
        )?),
        ArgumentKind::Bounds => Argument::Bounds(bounds(cursor)?),
        ArgumentKind::Request => request(cursor)?,
    })
}

/// Parses one of `words`, `group VALUE`, or a value, which may be left out if `any` is one of the
/// words.
fn target(cursor: &mut Cursor<'_>, words: &[TargetKind]) -> Result<Argument, SyntaxError> {
    if let Some(kind) = words.iter().find(|kind| cursor.takes_word(kind.word())) {
        return Ok(Argument::Target(*kind, None));
    }
    let kind = match cursor.takes_word(TargetKind::Group.word()) {
        true => TargetKind::Group,
        false if words.contains(&TargetKind::Any) && !cursor.is_at_term() => {
            return Ok(Argument::Target(TargetKind::Any, None));
        }
        false => TargetKind::One,
    };
    Ok(Argument::Target(kind, Some(cursor.term()?)))
}

fn wait_options(cursor: &mut Cursor<'_>) -> Result<WaitOptions, SyntaxError> {
    let mut options = WaitOptions::empty();
    while let Some(option) = cursor.takes_of(WAIT_OPTIONS) {
        options |= option;
    }
    match cursor.peek_word() {
        Some(word) => {
            let known = WAIT_OPTIONS.iter().map(|(word, _)| *word);
            let hint = hint(word, known.chain(["any", "group", "own-group"]));
            Err(cursor.error(format!("neither a variable nor an option: `{word}`{hint}")))
        }
        None => Ok(options),
    }
}

/// Parses any number of flags of `sigaction`.
pub(super) fn action_flags(cursor: &mut Cursor<'_>) -> ActionFlags {
    let mut flags = ActionFlags::empty();
    while let Some(flag) = cursor.takes_of(ACTION_FLAGS) {
        flags |= flag;
    }
    flags
}

fn spawning(cursor: &mut Cursor<'_>) -> Result<Spawning, SyntaxError> {
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
    Ok(Spawning { group, session, mask, defaults, descriptors })
}

fn mode_changes(cursor: &mut Cursor<'_>) -> Result<Argument, SyntaxError> {
    let (mut on, mut off) = (Modes::empty(), Modes::empty());
    loop {
        let modes = if cursor.takes("+") {
            &mut on
        } else if cursor.takes("-") {
            &mut off
        } else {
            return Ok(Argument::ModeChanges(on, off));
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

fn request(cursor: &mut Cursor<'_>) -> Result<Argument, SyntaxError> {
    let request = cursor.one_of("request", TraceRequest::WORDS, TraceRequest::of)?;
    let process = if request == TraceRequest::TraceMe { None } else { Some(cursor.term()?) };
    let signal: Option<Signal> = match (request, cursor.peek()) {
        (TraceRequest::Continue | TraceRequest::Detach, Some(TokenKind::Name(_))) => {
            Some(cursor.signal()?)
        }
        _ => None,
    };
    Ok(Argument::Request(request, process, signal))
}
