//! The build of this program, and the libraries that it uses.

#![allow(unsafe_code, reason = "queries the version of the C library")]

use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Build {
    pub version: Option<String>,
    /// The compiler, identified by its signature in the executable.
    pub rustc: Option<String>,
    /// Lowest supported Rust version.
    pub lowest_rust: Option<String>,
    /// Target of the build: architecture, system and C library.
    pub target: Option<String>,
    /// Processor features that the compiler was allowed to use in addition to the default ones.
    pub processor_features: Option<Vec<String>>,
    /// `true` if debug assertions are compiled in, as in a build without `--release`.
    pub debug: Option<bool>,
    /// The loaded C library.
    pub libc: Option<String>,
    /// Versions of the libraries that are measured in addition to the mechanisms of the kernel.
    /// Only the suite of experiments can determine them.
    pub peers: Option<BTreeMap<String, String>>,
}

impl Build {
    pub fn look() -> Self {
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let (arch, system) = (std::env::consts::ARCH, std::env::consts::OS);
        Self {
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            rustc: super::compiler::version(),
            lowest_rust: Some(env!("CARGO_PKG_RUST_VERSION").to_owned()),
            target: Some(format!("{arch}-{system}-{libc}")),
            processor_features: Some(processor_features()),
            debug: Some(cfg!(debug_assertions)),
            libc: libc_version(),
            peers: None,
        }
    }
}

/// Returns the features that affect the code of the experiments most.
fn processor_features() -> Vec<String> {
    [
        ("sse4.2", cfg!(target_feature = "sse4.2")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("avx512f", cfg!(target_feature = "avx512f")),
        ("cmpxchg16b", cfg!(target_feature = "cmpxchg16b")),
        ("lse", cfg!(target_feature = "lse")),
    ]
    .into_iter()
    .filter(|(_, used)| *used)
    .map(|(name, _)| name.to_owned())
    .collect()
}

#[cfg(target_env = "gnu")]
fn libc_version() -> Option<String> {
    // SAFETY: the call takes no argument and returns a string that belongs to the library and is
    // never freed.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    Some(format!("glibc {}", version.to_str().ok()?))
}

#[cfg(not(target_env = "gnu"))]
fn libc_version() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_facts_name_the_target() {
        let build = Build::look();
        assert_eq!(build.debug, Some(cfg!(debug_assertions)));
        assert!(build.target.is_some_and(|target| target.contains("-linux-")));
    }
}
