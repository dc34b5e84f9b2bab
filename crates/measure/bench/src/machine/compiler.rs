//! The compiler that built the running program: [`version`].
//!
//! rustc signs each object file in the section `.comment`, and the linker keeps one copy of each
//! signature, so the signature can be read without a build script.

use std::fs::File;

use object::{Object, ObjectSection, ReadCache};

/// Start of a signature.
const SIGNATURE: &str = "rustc version ";

/// Returns the version of rustc from the executable's signature, as `1.95.0 (59807616e
/// 2026-04-14)`.
pub fn version() -> Option<String> {
    let cache = ReadCache::new(File::open("/proc/self/exe").ok()?);
    let program = object::File::parse(&cache).ok()?;
    named_in(program.section_by_name(".comment")?.data().ok()?)
}

fn named_in(comment: &[u8]) -> Option<String> {
    comment
        .split(|&byte| byte == 0)
        .filter_map(|text| std::str::from_utf8(text).ok())
        .find_map(|text| text.strip_prefix(SIGNATURE))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_version_is_read_from_the_test_program() {
        let version = version().expect("a signature of rustc");
        let (major, rest) = version.split_once('.').expect("a version");
        assert!(major.parse::<u32>().is_ok() && !rest.is_empty(), "{version}");
    }

    #[test]
    fn other_compiler_signatures_are_skipped() {
        let comment = b"GCC: (Debian) 12\0rustc version 1.99.0 (abc)\0";
        assert_eq!(named_in(comment).as_deref(), Some("1.99.0 (abc)"));
        assert_eq!(named_in(b"GCC: (Debian) 12\0"), None);
    }
}
