//! A rule about one error: [`Row`].

use tontine_unix::{Errno, Result, Sys};

/// An invalid call and its expected result.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// The call and the argument, as in `kill(target)`, or `setsid()` if the mistake is not in an
    /// argument.
    pub(crate) of: &'static str,
    /// The mistake.
    pub(crate) rule: &'static str,
    /// The result on Linux.
    pub(crate) answer: Result<()>,
    pub(crate) program: Program,
    pub(crate) on: On,
}

/// A function that prepares the processes, makes the call and returns its result.
pub(crate) type Program = fn(&dyn Sys) -> Result<()>;

/// The kernels on which a row can run.
#[derive(Clone, Copy)]
pub(crate) enum On {
    /// Both kernels.
    Both,
    /// Both kernels, but on Linux only for a privileged user, because the program becomes another
    /// user.
    BothAsRoot,
    /// Linux only, for this reason.
    Linux(&'static str),
    /// The virtual kernel only, for this reason. The errno is taken from the manual page.
    Virtual(&'static str),
}

/// Returns a row for a call that fails with `errno`.
pub(crate) const fn refused(
    of: &'static str,
    rule: &'static str,
    errno: Errno,
    program: Program,
) -> Row {
    Row { of, rule, answer: Err(errno), program, on: On::Both }
}

/// Returns a row for a call that looks invalid but succeeds.
pub(crate) const fn allowed(of: &'static str, rule: &'static str, program: Program) -> Row {
    Row { of, rule, answer: Ok(()), program, on: On::Both }
}

impl Row {
    /// Marks the row as one whose program becomes another user.
    pub(crate) const fn as_root(self) -> Self {
        Self { on: On::BothAsRoot, ..self }
    }

    /// Restricts the row to Linux because the virtual kernel lacks the feature.
    pub(crate) const fn on_linux(self, reason: &'static str) -> Self {
        Self { on: On::Linux(reason), ..self }
    }

    /// Restricts the row to the virtual kernel.
    pub(crate) const fn on_virtual(self, reason: &'static str) -> Self {
        Self { on: On::Virtual(reason), ..self }
    }
}
