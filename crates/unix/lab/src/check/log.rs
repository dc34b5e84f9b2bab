//! The log of a real run in the [`CheckRegion`](super::region::Region): any number of threads
//! [`write`] concurrently; [`parts`] reads the log after the last write.
//!
//! A thread reserves a *part* by adding to a counter, and then fills it. The thread may be killed
//! at any moment, so the reader recognizes an incomplete part by these words:
//!
//! | words of a part | | reading if the writer was killed before it stored them |
//! | --- | --- | --- |
//! | length of the part in units | stored first | no part: skipped unit by unit |
//! | step, thread ordinal, and the bytes of the line | | |
//! | length of the line | stored last | an empty part, skipped as a whole |
//!
//! A part consists of whole units, so the next part starts at a unit. [`clear`] zeroes all units
//! before a run.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::region::{LOG, RegionShared};

/// Number of words before a part's line: the part's length in units, the step, the thread's
/// ordinal, the line's length.
const HEAD: usize = 4;
/// Size in bytes of a word, and of a unit.
const WORD: usize = 4;
const UNIT: usize = HEAD * WORD;

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogPart {
    pub(super) step: u32,
    pub(super) ordinal: u32,
    pub(super) line: Vec<u8>,
}

/// Writes a line, or nothing if it does not fit. Allocates nothing.
pub(super) fn write(shared: &RegionShared, step: u32, ordinal: u32, line: &[u8]) {
    let Some(at) = reserve(shared, line.len()) else { return };
    let words = &shared.log[at / WORD..];
    words[1].store(step, Relaxed);
    words[2].store(ordinal, Relaxed);
    for (word, bytes) in words[HEAD..].iter().zip(line.chunks(WORD)) {
        let mut four = [0; WORD];
        four[..bytes.len()].copy_from_slice(bytes);
        word.store(u32::from_le_bytes(four), Relaxed);
    }
    words[3].store(u32::try_from(line.len()).unwrap_or(0), Release);
}

/// Reserves a part for a line of `length` bytes. Returns the part's offset if the part fits.
fn reserve(shared: &RegionShared, length: usize) -> Option<usize> {
    let units = 1 + length.div_ceil(UNIT);
    let whole = u32::try_from(units * UNIT).ok()?;
    let at = shared.log_length.fetch_add(whole, SeqCst) as usize;
    let fits = at + units * UNIT <= LOG;
    if fits {
        shared.log[at / WORD].store(u32::try_from(units).ok()?, Relaxed);
    }
    fits.then_some(at)
}

/// Zeroes the log of a run. No thread may be writing.
pub(super) fn clear(shared: &RegionShared) {
    let length = (shared.log_length.load(SeqCst) as usize).min(LOG);
    shared.log[..length / WORD].iter().for_each(|word| word.store(0, Relaxed));
    shared.log_length.store(0, SeqCst);
}

/// Returns the parts in order. No thread may be writing.
pub(super) fn parts(shared: &RegionShared) -> Vec<LogPart> {
    let length = (shared.log_length.load(SeqCst) as usize).min(LOG);
    let mut log = &shared.log[..length / WORD];
    let mut parts = Vec::new();
    while log.len() >= HEAD {
        let word = |at: usize| log[at].load(Relaxed);
        // A part that was reserved but never started consists of zeros.
        let units = (word(0) as usize).max(1);
        let used = log[3].load(Acquire) as usize;
        let (part, rest) = log.split_at((units * HEAD).min(log.len()));
        if used > 0 {
            let bytes = part[HEAD..].iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
            parts.push(LogPart {
                step: word(1),
                ordinal: word(2),
                line: bytes.take(used).collect(),
            });
        }
        log = rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::region::CheckRegion;
    use super::*;

    fn lines(shared: &RegionShared) -> Vec<String> {
        let line = |part: LogPart| String::from_utf8(part.line).expect("a text");
        parts(shared).into_iter().map(line).collect()
    }

    #[test]
    fn log_parts_are_read_in_write_order() {
        let (region, _memory) = CheckRegion::new().expect("memory");
        let long = "x".repeat(5 * UNIT + 3);
        for (ordinal, line) in ["a", "0123456789abcdef", &long, "last"].iter().enumerate() {
            write(&region, 7, ordinal as u32, line.as_bytes());
        }
        assert_eq!(lines(&region), ["a", "0123456789abcdef", &long, "last"]);
        assert!(
            parts(&region).iter().zip(0..).all(|(part, at)| (part.step, part.ordinal) == (7, at))
        );
    }

    /// Regression: a thread that was killed between reserving a part and writing it left a part
    /// without content. The parts after it were read at a wrong offset, and contents of an earlier
    /// run were read again.
    #[test]
    fn unwritten_log_part_does_not_hide_later_parts() {
        let (region, _memory) = CheckRegion::new().expect("memory");
        for _ in 0..40 {
            write(&region, 1, 1, b"of the run before, long enough to lie under all that follows");
        }
        clear(&region);
        assert!(lines(&region).is_empty());
        write(&region, 1, 1, b"before");
        let begun = reserve(&region, 100).expect("free space");
        write(&region, 1, 2, b"between");
        // The writer was killed before the first word.
        let bare = reserve(&region, 50).expect("free space");
        region.log[bare / WORD].store(0, Relaxed);
        write(&region, 1, 3, b"behind");
        assert_eq!(lines(&region), ["before", "between", "behind"]);
        // The writer was killed after it stored the line and before it stored the line's length.
        region.log[begun / WORD + HEAD].store(u32::MAX, Relaxed);
        assert_eq!(lines(&region), ["before", "between", "behind"]);
    }

    #[test]
    fn oversized_log_part_is_dropped_and_counted() {
        let (region, _memory) = CheckRegion::new().expect("memory");
        let long = vec![b'x'; LOG / 2];
        for _ in 0..3 {
            write(&region, 1, 1, &long);
        }
        assert_eq!(parts(&region).len(), 1);
        assert!(region.log_length.load(SeqCst) as usize > LOG);
    }
}
