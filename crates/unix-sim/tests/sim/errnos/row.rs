//! One rule: [`Row`].

use tontine_unix::{Errno, Result, Sys};

/// What somebody does wrong, and what it is told.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// The call and the argument, as in `kill(target)`; `setsid()` where something else is wrong.
    pub(crate) of: &'static str,
    /// What is wrong.
    pub(crate) rule: &'static str,
    /// What Linux answers.
    pub(crate) answer: Result<()>,
    pub(crate) program: Program,
    pub(crate) on: On,
}

/// Sets the scene, makes the call and returns what it answered.
pub(crate) type Program = fn(&dyn Sys) -> Result<()>;

/// Where a row can be played.
#[derive(Clone, Copy)]
pub(crate) enum On {
    /// On both.
    Both,
    /// On both, on Linux by a privileged user only: it becomes another one.
    BothAsRoot,
    /// On Linux only, for this reason.
    Linux(&'static str),
    /// On the virtual kernel only, for this reason; the errno is the manual page's.
    Virtual(&'static str),
}

/// A call that is refused.
pub(crate) const fn refused(
    of: &'static str,
    rule: &'static str,
    errno: Errno,
    program: Program,
) -> Row {
    Row { of, rule, answer: Err(errno), program, on: On::Both }
}

/// A call that looks wrong and is not.
pub(crate) const fn allowed(of: &'static str, rule: &'static str, program: Program) -> Row {
    Row { of, rule, answer: Ok(()), program, on: On::Both }
}

impl Row {
    /// The program becomes another user.
    pub(crate) const fn as_root(self) -> Self {
        Self { on: On::BothAsRoot, ..self }
    }

    /// The virtual kernel has nothing of the kind.
    pub(crate) const fn on_linux(self, reason: &'static str) -> Self {
        Self { on: On::Linux(reason), ..self }
    }

    /// The real kernel is not asked.
    pub(crate) const fn on_virtual(self, reason: &'static str) -> Self {
        Self { on: On::Virtual(reason), ..self }
    }
}
