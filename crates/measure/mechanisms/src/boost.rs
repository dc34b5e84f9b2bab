//! Boost.Interprocess. Its parts are C++ code, compiled on demand with the machine's `c++` and its
//! Boost headers: [`CppPart`]. A part is a program, or a library that this process loads:
//! [`CppLibrary`]. Each run compiles a library once: the first invocation stores it in a folder
//! that the run removes at its end.

#![allow(unsafe_code, reason = "loads a library")]

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;

use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::leftovers;

/// A part written in C++.
#[derive(Debug, Clone, Copy)]
pub struct CppPart {
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

/// A `message_queue` and a `file_lock` behind C functions: a library to load.
pub const MESSAGE_QUEUE: CppPart = CppPart {
    text: include_str!("../boost/message_queue_pair.cpp"),
    arguments: &["-DNDEBUG", "-fPIC", "-shared"],
};

/// Like [`MESSAGE_QUEUE`], but the queue gives up after 10 ms in which it could not lock its mutex.
pub const MESSAGE_QUEUE_WITH_TIMEOUT: CppPart = CppPart {
    arguments: &[
        "-DNDEBUG",
        "-DBOOST_INTERPROCESS_ENABLE_TIMEOUT_WHEN_LOCKING",
        "-DBOOST_INTERPROCESS_TIMEOUT_WHEN_LOCKING_DURATION_MS=10",
        "-fPIC",
        "-shared",
    ],
    ..MESSAGE_QUEUE
};

const fn program(text: &'static str) -> CppPart {
    CppPart { text, arguments: &[] }
}

impl CppPart {
    /// Writes the source to the file `source` and compiles it into the file `made`.
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

    /// Loads the part, which is a library, for the lifetime of this process. Compiles it under this
    /// name if the run has not done so yet.
    pub fn load(&self, name: &str) -> Result<CppLibrary> {
        let folder = leftovers::folder_of_the_run("boost")?;
        let library = folder.join(format!("{name}.so"));
        if !library.exists() {
            self.compile_into(&folder, &library)?;
        }
        let path = CString::new(library.as_os_str().as_bytes())
            .map_err(|_| MeasureError::skip("the temporary folder has a zero in its name"))?;
        // SAFETY: the path ends with a zero byte; the library has only its own initialisers.
        let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(loaded).map(CppLibrary).ok_or_else(not_loaded)
    }

    fn compile_into(&self, folder: &Path, library: &PathBuf) -> Result<()> {
        // Another invocation may compile at the same time, so each invocation uses its own name.
        // The last result remains.
        let own = |end: &str| folder.join(format!("{}{end}", std::process::id()));
        let (source, made) = (own(".cpp"), own(".so"));
        let compiled = self.compile(&source, &made);
        let _ = fs::remove_file(&source);
        compiled?;
        fs::rename(&made, library).setting_up("rename of the compiled C++ part")
    }
}

/// A loaded library, which is never closed.
#[derive(Debug, Clone, Copy)]
pub struct CppLibrary(NonNull<c_void>);

// SAFETY: the functions of the dynamic linker may be called from all threads.
unsafe impl Send for CppLibrary {}
// SAFETY: as above.
unsafe impl Sync for CppLibrary {}

impl CppLibrary {
    pub fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>> {
        // SAFETY: the library is loaded and never closed; the name ends with a zero byte.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }).ok_or_else(not_loaded)
    }
}

fn not_loaded() -> MeasureError {
    // SAFETY: dlerror returns null or a text that lives until this thread's next call of the dl
    // functions.
    let said = unsafe { libc::dlerror() };
    let why = if said.is_null() {
        "no reason given".to_owned()
    } else {
        // SAFETY: the text is not null and ends with a zero byte.
        unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
    };
    MeasureError::skip(format!("loading the C++ part: {why}"))
}
