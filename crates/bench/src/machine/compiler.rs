//! The compiler that built the running program: [`version`].
//!
//! rustc signs each object file in the section `.comment`, and the linker keeps one copy of each
//! signature, so the signature can be read without a build script. Source: ELF-64 Object File
//! Format, 1.5.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Start of a signature.
const SIGNATURE: &str = "rustc version ";

/// Maximum number of bytes of a section that are read. Real sections have a few hundred.
const LONGEST: u64 = 1 << 20;

/// Returns the version of rustc from the executable's signature, as `1.95.0 (59807616e
/// 2026-04-14)`.
pub fn version() -> Option<String> {
    let file = File::open("/proc/self/exe").ok()?;
    named_in(&section(&file, ".comment")?)
}

fn named_in(comment: &[u8]) -> Option<String> {
    comment
        .split(|&byte| byte == 0)
        .filter_map(|text| std::str::from_utf8(text).ok())
        .find_map(|text| text.strip_prefix(SIGNATURE))
        .map(str::to_owned)
}

/// Returns the bytes of a section of a 64-bit little-endian ELF file.
fn section(file: &File, wanted: &str) -> Option<Vec<u8>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = number(&header, 0x28, 8)?;
    let (length, count) = (number(&header, 0x3a, 2)?, number(&header, 0x3c, 2)?);
    let entry = |index: u64| -> Option<Vec<u8>> {
        let mut entry = vec![0; 64];
        let at = table.checked_add(length.checked_mul(index)?)?;
        file.read_exact_at(&mut entry, at).ok()?;
        Some(entry)
    };
    let names = content(file, &entry(number(&header, 0x3e, 2)?)?)?;
    (0..count).filter_map(entry).find_map(|entry| {
        let name = names.get(usize::try_from(number(&entry, 0, 4)?).ok()?..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        (name == wanted.as_bytes()).then(|| content(file, &entry))?
    })
}

/// Returns the bytes of the section that a table's entry describes.
fn content(file: &File, entry: &[u8]) -> Option<Vec<u8>> {
    let (at, length) = (number(entry, 0x18, 8)?, number(entry, 0x20, 8)?);
    let mut bytes = vec![0; usize::try_from(length.min(LONGEST)).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// Returns the number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(bytes.get(at..at + width)?);
    Some(u64::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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

    #[test]
    fn invalid_or_damaged_executable_yields_no_sections() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 100]).expect("write");
        assert_eq!(section(&file, ".comment"), None);
        let mut torn = [0xff; 64];
        torn[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file.write_all_at(&torn, 0).expect("write");
        assert_eq!(section(&file, ".comment"), None);
    }
}
