//! Fuzz targets: functions that fill everything that a peer can write with arbitrary bytes.
//!
//! These functions are not a public interface. They exist under `cfg(fuzzing)`, for the targets in
//! `fuzz/`, and in this crate's own tests, which replay the committed corpora. A function that does
//! not return has found a bug: a panic, an access outside mapped memory, or an endless loop.
//!
//! - [`ring`]: a chunk filled by a hostile sender.
//! - [`socket`]: a control message from either end.
//! - [`position`]: a hostile receiver's read position, as a sender processes it.
//! - [`process_page`]: a process page.
//! - [`heap_words`]: every word of a shared heap that a member can write.
//! - [`heap_names`]: forged handles, parcels and members.

mod heap;
mod input;
mod page;
mod position;
mod ring;

pub use heap::{heap_names, heap_words};
pub use page::process_page;
pub use position::position;
pub use ring::ring;

use crate::mailbox::wire;

/// Decodes a control message and, if it is valid, encodes it again. The meaning and the length must
/// not change.
pub fn socket(bytes: &[u8]) {
    let Ok(note) = wire::read(bytes) else { return };
    let again = wire::write(note);
    assert!(again.len() <= wire::LONGEST);
    assert_eq!(again.len(), bytes.len());
    assert_eq!(wire::read(&again), Ok(note));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Calls `target` with each file of its corpus, which must not be empty.
    fn replay(name: &str, target: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let files = std::fs::read_dir(&corpus).expect("the corpus");
        let mut count = 0;
        for file in files {
            let path = file.expect("a file").path();
            // The test harness prints this line if the test fails.
            println!("{}", path.display());
            target(&std::fs::read(&path).expect("readable"));
            count += 1;
        }
        assert!(count > 0, "{} is empty", corpus.display());
    }

    #[test]
    fn fuzz_corpus_of_ring_passes() {
        replay("ring", super::ring);
    }

    #[test]
    fn fuzz_corpus_of_socket_passes() {
        replay("socket", super::socket);
    }

    #[test]
    fn fuzz_corpus_of_position_passes() {
        replay("position", super::position);
    }

    #[test]
    fn fuzz_corpus_of_process_page_passes() {
        replay("process_page", super::process_page);
    }

    #[test]
    fn fuzz_corpus_of_heap_words_passes() {
        replay("heap_words", super::heap_words);
    }

    #[test]
    fn fuzz_corpus_of_heap_names_passes() {
        replay("heap_names", super::heap_names);
    }
}
