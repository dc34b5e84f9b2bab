//! Access to the kernel's pseudo-files, such as those of `/proc`: [`Files`].
//!
//! Every path is relative to a root, so that a test can read a constructed tree instead of the
//! machine's. No function here fails; an unreadable file is `None`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Maximum number of bytes read from a file; the rest is ignored.
const LONGEST: u64 = 1 << 20;

/// Highest processor number that a list may name; a higher number means that the file is misread.
const MOST_PROCESSORS: usize = 1 << 16;

/// The root below which files are read.
#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    pub fn of_this_machine() -> Self {
        Self::below(Path::new("/"))
    }

    /// Returns the files of a tree with the layout of a machine's.
    pub fn below(root: &Path) -> Self {
        let root = root.to_path_buf();
        Self { root }
    }

    /// Returns the text of a file without surrounding white space; `None` if it is empty.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.path(path)).ok()?;
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a directory, in order; empty if the directory does not exist.
    pub fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// Returns the processors of a list such as `0-3,8`, in the order given; `None` for anything else.
pub fn processor_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        if to >= MOST_PROCESSORS {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}

/// Returns the choice in brackets in a line such as `always [madvise] never`.
pub fn chosen(text: &str) -> Option<String> {
    let (_, after) = text.split_once('[')?;
    let (choice, _) = after.split_once(']')?;
    Some(choice.to_owned())
}

/// Returns the number after `key` in lines of the form `key number`, with or without a colon.
pub fn keyed<T: FromStr>(text: &str, key: &str) -> Option<T> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()?.trim_end_matches(':') == key).then(|| words.next())??.parse().ok()
    })
}

/// A temporary tree of files, for tests.
#[doc(hidden)]
#[derive(Debug)]
pub struct TempTree(tempfile::TempDir);

impl TempTree {
    pub fn empty() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
        fs::write(path, format!("{text}\n")).expect("write");
    }

    pub fn files(&self) -> Files {
        Files::below(self.0.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_list_parses_ranges_and_rejects_others() {
        assert_eq!(processor_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(processor_list(""), Some(vec![]));
        assert_eq!(processor_list("0-"), None);
        assert_eq!(processor_list("all"), None);
        assert_eq!(processor_list("0-99999999999"), None);
    }

    #[test]
    fn bracketed_and_keyed_values_are_parsed() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("none"), None);
        assert_eq!(keyed::<u64>("ctxt 5\nMemTotal:  7 kB", "MemTotal"), Some(7));
        assert_eq!(keyed::<u64>("ctxt 5", "intr"), None);
    }

    #[test]
    fn unreadable_or_invalid_file_returns_none() {
        let tree = TempTree::empty();
        tree.write("empty", "");
        tree.write("word", "three");
        let files = tree.files();
        assert_eq!(files.text("missing"), None);
        assert_eq!(files.text("empty"), None);
        assert_eq!(files.number::<u32>("word"), None);
        assert_eq!(files.names("missing"), Vec::<String>::new());
        assert!(files.has("/word"));
    }
}
