//! Everything that a peer can write, as functions of arbitrary bytes.
//!
//! Not an interface: it exists under `cfg(fuzzing)`, for the targets in `fuzz/`, and in this
//! crate's own tests, which replay the committed corpora. Each function returns or the code under
//! it has a bug: a panic, an access outside of what was mapped, a loop without end.
//!
//! - [`ring`]: a chunk, as a hostile sender fills it.
//! - [`socket`]: a message on the socket, from either side.
//! - [`position`]: a hostile receiver's position, against a sender's own memory.
//! - [`process_page`]: a process page.
//! - [`heap_words`]: every word of a shared heap that a member can write.
//! - [`heap_names`]: handles, parcels and members, as anybody may make them up.

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

/// A message on the socket. What is understood is written again as it came, but for what is unused.
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

    /// Gives each file of a target's corpus to `target`; there must be some.
    fn replay(name: &str, target: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let files = std::fs::read_dir(&corpus).expect("the corpus");
        let mut count = 0;
        for file in files {
            let path = file.expect("a file").path();
            // Shown where it fails.
            println!("{}", path.display());
            target(&std::fs::read(&path).expect("readable"));
            count += 1;
        }
        assert!(count > 0, "{} is empty", corpus.display());
    }

    #[test]
    fn corpus_of_ring() {
        replay("ring", super::ring);
    }

    #[test]
    fn corpus_of_socket() {
        replay("socket", super::socket);
    }

    #[test]
    fn corpus_of_position() {
        replay("position", super::position);
    }

    #[test]
    fn corpus_of_process_page() {
        replay("process_page", super::process_page);
    }

    #[test]
    fn corpus_of_heap_words() {
        replay("heap_words", super::heap_words);
    }

    #[test]
    fn corpus_of_heap_names() {
        replay("heap_names", super::heap_names);
    }
}
