//! Boost.Interprocess. Its parts are C++ code, compiled on demand with the machine's `c++` and its
//! Boost headers: [`CppPart`].

use std::path::Path;
use std::process::Command;

use tontine_host::error::{ErrorContext, MeasureError, Result};

/// A part written in C++.
#[derive(Debug, Clone, Copy)]
pub struct CppPart {
    /// Source of the part.
    pub text: &'static str,
    arguments: &'static [&'static str],
}

/// A crash explorer worker with one end of a `message_queue`: a program.
pub const MESSAGE_QUEUE_ACTOR: CppPart = program(include_str!("../boost/message_queue.cpp"));

/// A crash explorer worker that is a member of a `managed_shared_memory`: a program.
pub const MANAGED_MEMORY_ACTOR: CppPart = program(include_str!("../boost/managed_memory.cpp"));

/// A `managed_shared_memory` behind C functions: a library to load.
pub const MANAGED_SHARED_MEMORY: CppPart = CppPart {
    text: include_str!("../boost/managed_shared_memory.cpp"),
    arguments: &["-DNDEBUG", "-fPIC", "-shared"],
};

const fn program(text: &'static str) -> CppPart {
    CppPart { text, arguments: &[] }
}

impl CppPart {
    /// Writes the source to the file `source` and compiles it into the file `made`.
    ///
    /// # Errors
    /// Returns `Skipped` if there is no compiler or no Boost, `Failed` if the source does not
    /// compile.
    pub fn compile(&self, source: &Path, made: &Path) -> Result<()> {
        std::fs::write(source, self.text).setting_up("writing the C++ source")?;
        let compiled = Command::new("c++")
            .args(["-std=c++17", "-O2"])
            .args(self.arguments)
            .arg("-o")
            .args([made, source])
            .args(["-pthread", "-lrt"])
            .output()
            .setting_up("c++")?;
        if compiled.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&compiled.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
        Err(if first.contains("boost/") && first.contains("No such file") {
            MeasureError::skip("no Boost headers (Debian: libboost-dev)")
        } else {
            MeasureError::fail(format!("c++ rejects the source: {first}"))
        })
    }
}
