//! This program packed as the file tree of a container: [`tree`].
//!
//! The executable, its interpreter and the libraries that it has mapped are sufficient; nothing is
//! downloaded. The loader reports the names under which it found them, and searches for the same
//! names in the container.

#![allow(unsafe_code, reason = "queries the loader for mapped objects")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Path of the executable in the container.
pub const PROGRAM: &str = "/tontine";

/// Files that the loader has mapped into this process.
#[derive(Debug, Default, PartialEq, Eq)]
struct LoadedImage {
    /// Number of bytes of the executable's file that are ever mapped. Debug information follows
    /// these bytes.
    executable: u64,
    /// The path in PT_INTERP; `None` for a static executable.
    interpreter: Option<PathBuf>,
    /// Libraries, by the paths under which they were found, including the interpreter.
    libraries: Vec<PathBuf>,
}

/// Returns a tar archive of the tree, and the directories in which the loader must search for
/// libraries.
pub fn tree() -> io::Result<(File, Vec<PathBuf>)> {
    let mapped = LoadedImage::by_this_process();
    let mut archive = tar::Builder::new(tempfile::tempfile()?);
    append(&mut archive, Path::new(PROGRAM), &executable(mapped.executable)?)?;
    let mut files: Vec<&PathBuf> = mapped.interpreter.iter().chain(&mapped.libraries).collect();
    files.sort();
    files.dedup();
    let mut folders = Vec::new();
    for path in files {
        append(&mut archive, path, &fs::read(path)?)?;
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let mut archive = archive.into_inner()?;
    archive.flush()?;
    archive.rewind()?;
    Ok((archive, folders))
}

/// Returns a value that differs between this executable and any other build of it.
pub fn fingerprint() -> io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata("/proc/self/exe")?;
    Ok(format!("{:x}-{:x}-{:x}-{:x}", file.dev(), file.ino(), file.mtime_nsec(), file.size()))
}

fn append(archive: &mut tar::Builder<File>, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(bytes.len() as u64);
    // Paths in an archive are relative to the directory into which it is extracted.
    archive.append_data(&mut header, path.strip_prefix("/").unwrap_or(path), bytes)
}

/// Returns the running executable without the part that is never mapped. The result is a tenth of a
/// debug build.
fn executable(mapped: u64) -> io::Result<Vec<u8>> {
    /// Positions in a 64-bit ELF header: the offset of the section headers, and their number and
    /// names.
    const SECTIONS: [std::ops::Range<usize>; 2] = [0x28..0x30, 0x3c..0x40];
    let mut bytes = Vec::new();
    File::open("/proc/self/exe")?.take(mapped).read_to_end(&mut bytes)?;
    // The section headers were in the omitted part; only debuggers read them.
    for field in SECTIONS {
        if let Some(field) = bytes.get_mut(field) {
            field.fill(0);
        }
    }
    Ok(bytes)
}

impl LoadedImage {
    fn by_this_process() -> Self {
        let mut mapped = Self::default();
        // SAFETY: the callback receives this pointer for the duration of the call, and no other
        // code uses `mapped` during it.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut mapped).cast()) };
        mapped
    }
}

/// Callback for the executable, which comes first and has no name, and for each library.
unsafe extern "C" fn note(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    mapped: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid record; `mapped` is the pointer that `by_this_process`
    // passed.
    let (info, mapped) = unsafe { (&*info, &mut *mapped.cast::<LoadedImage>()) };
    // SAFETY: the loader's record has that many headers at that address.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // SAFETY: the name is null or a string that lives as long as the object is mapped.
    let name = unsafe { path(info.dlpi_name) };
    match name {
        Some(path) if path.is_absolute() => mapped.libraries.push(path),
        // The name of the kernel's own object has no directory.
        Some(_) => {}
        None if mapped.executable == 0 => {
            for header in headers {
                let end = header.p_offset + header.p_filesz;
                match header.p_type {
                    libc::PT_LOAD => mapped.executable = mapped.executable.max(end),
                    libc::PT_INTERP => {
                        let at = (info.dlpi_addr + header.p_vaddr) as *const c_char;
                        // SAFETY: the segment is mapped at the address in the header, relative to
                        // the object's base, and contains a terminated string.
                        mapped.interpreter = unsafe { path(at) };
                    }
                    _ => {}
                }
            }
        }
        None => {}
    }
    0
}

/// Converts a C string to a path; `None` if it is null or empty.
///
/// # Safety
/// `text` is null, or a terminated string.
unsafe fn path(text: *const c_char) -> Option<PathBuf> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller upholds the requirements.
    let text = unsafe { CStr::from_ptr(text) };
    (!text.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(text.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Checks that the tree is complete: the loader, restricted to it, finds every library.
    #[test]
    fn image_tree_contains_all_files_the_program_needs() {
        let (archive, folders) = tree().expect("a tree");
        let root = tempfile::tempdir().expect("a folder");
        tar::Archive::new(archive).unpack(root.path()).expect("a sound archive");
        let inside = |path: &Path| root.path().join(path.strip_prefix("/").expect("absolute"));
        let program = inside(Path::new(PROGRAM));
        assert!(fs::metadata(&program).expect("the program").len() > 100_000);
        let Some(interpreter) = LoadedImage::by_this_process().interpreter else {
            assert!(folders.is_empty(), "a static executable has no libraries: {folders:?}");
            return;
        };
        let folders: Vec<PathBuf> = folders.iter().map(|folder| inside(folder)).collect();
        let output = Command::new(inside(&interpreter))
            .args(["--inhibit-cache", "--library-path"])
            .arg(std::env::join_paths(&folders).expect("no colons"))
            .args([program.as_os_str(), OsStr::new("--list")])
            .output()
            .expect("the interpreter runs");
        let listed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(listed.contains("image_tree_contains"), "this test lists itself");
        // The loader found every library in the tree and none elsewhere.
        let output = Command::new(inside(&interpreter))
            .args(["--inhibit-cache", "--library-path"])
            .arg(std::env::join_paths(&folders).expect("no colons"))
            .arg("--list")
            .arg(&program)
            .output()
            .expect("the interpreter runs");
        let resolved = String::from_utf8_lossy(&output.stdout).into_owned();
        let paths = resolved.lines().filter_map(|line| line.split_once(" => ")).map(|pair| pair.1);
        let root = root.path().to_str().expect("UTF-8");
        assert!(paths.clone().count() > 0, "{resolved}");
        for path in paths.filter(|path| !path.contains("ld-linux")) {
            assert!(path.starts_with(root), "{resolved}");
        }
    }

    #[test]
    fn executable_is_cut_before_debug_information() {
        let mapped = LoadedImage::by_this_process();
        let whole = fs::metadata("/proc/self/exe").expect("the executable").len();
        assert!(mapped.executable > 0 && mapped.executable <= whole, "{mapped:?} of {whole}");
        assert_eq!(executable(mapped.executable).expect("it").len() as u64, mapped.executable);
    }
}
