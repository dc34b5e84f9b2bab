//! Displays calls and their arguments.

use std::fmt::{self, Display, Formatter};

use tontine_unix::{ActionFlags, SpawnGroup};

use super::piece::{OrZero, Quoted, Set, SignalName, Time};
use crate::scenario::call::{Argument, Bounds, ExecTarget, Spawning, SystemCall};
use crate::scenario::flags::{ACTION_FLAGS, MODES, WAIT_OPTIONS};
use crate::scenario::word::TargetKind;

impl Display for SystemCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.word())?;
        self.arguments.iter().try_for_each(|argument| argument.fmt(f))
    }
}

/// Displays an argument after a space; writes nothing for an argument that was left out.
impl Display for Argument {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) | Self::MaybeValue(Some(value)) | Self::AnyOrValue(Some(value)) => {
                write!(f, " {value}")
            }
            Self::MaybeValue(None) | Self::Target(TargetKind::Any, _) => Ok(()),
            Self::AnyOrValue(None) => f.write_str(" any"),
            Self::Set(set) => write!(f, " {}", Set(*set)),
            Self::Signal(signal) => write!(f, " {}", SignalName(*signal)),
            Self::MaybeSignal(signal) => write!(f, " {}", OrZero(*signal)),
            Self::Flags(flags) => action_flags(f, *flags),
            Self::Options(options) => {
                let set = WAIT_OPTIONS.iter().filter(|(_, option)| options.contains(*option));
                set.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
            }
            Self::Target(TargetKind::One, value) => values(f, value.as_ref()),
            Self::Target(target, value) => {
                write!(f, " {target}")?;
                values(f, value.as_ref())
            }
            Self::Block(name) | Self::Variable(name) => write!(f, " {name}"),
            Self::Path(ExecTarget::Process(name)) => write!(f, " {name}"),
            Self::Path(ExecTarget::Other(text)) | Self::Text(text) => {
                write!(f, " {}", Quoted(text))
            }
            Self::Spawning(spawning) => spawning.fmt(f),
            Self::Duration(duration) => write!(f, " {}", Time(*duration)),
            Self::ModeChanges(on, off) => {
                for (sign, modes) in [('+', on), ('-', off)] {
                    for (word, _) in MODES.iter().filter(|(_, mode)| modes.contains(*mode)) {
                        write!(f, " {sign}{word}")?;
                    }
                }
                Ok(())
            }
            Self::Resource(limited) => write!(f, " {limited}"),
            Self::Bounds(bounds) => write!(f, " {bounds}"),
            Self::Request(request, process, signal) => {
                write!(f, " {request}")?;
                values(f, process.as_ref())?;
                values(f, signal.map(SignalName).as_ref())
            }
        }
    }
}

/// Writes a value after a space, if there is one.
fn values(f: &mut Formatter<'_>, value: Option<&impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {value}"))
}

/// Writes flags, each after a space.
pub(super) fn action_flags(f: &mut Formatter<'_>, flags: ActionFlags) -> fmt::Result {
    let set = ACTION_FLAGS.iter().filter(|(_, flag)| flags.contains(*flag));
    set.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
}

impl Display for Spawning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.group {
            SpawnGroup::Parents => {}
            SpawnGroup::Own => f.write_str(" group new")?,
            SpawnGroup::Of(group) => write!(f, " group {group}")?,
        }
        if self.session {
            f.write_str(" session")?;
        }
        if let Some(mask) = self.mask {
            write!(f, " mask {}", Set(mask))?;
        }
        if !self.defaults.is_empty() {
            write!(f, " defaults {}", Set(self.defaults))?;
        }
        self.descriptors.iter().try_for_each(|(from, to)| write!(f, " descriptor {from} as {to}"))
    }
}

impl Display for Bounds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (word, bound) in [("soft", self.soft), (" hard", self.hard)] {
            match bound {
                Some(bound) => write!(f, "{word} {bound}")?,
                None => write!(f, "{word} unlimited")?,
            }
        }
        Ok(())
    }
}
