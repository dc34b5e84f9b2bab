//! Messages of several parts, each of which is copied once: [`OutgoingParts`],
//! [`ReceivedParts`].
//!
//! Such a message begins with a table in little-endian words of 64 bits: [`MARK`] and, in the high
//! half, the number of parts; then start and length of each part. The first part follows the table.
//! The others begin at cache lines in the memory of the lane, where the message begins at any
//! multiple of 8 bytes: the table tells where.

#![allow(unsafe_code, reason = "a message that its sender may change")]

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tontine::mailbox::Sender;

use crate::buffer::{ALIGNMENT, PartBuffer};
use crate::bytes::MessageBytes;
use crate::view::MessagePointer;

/// First byte of a message of parts. A pickle begins with 0x80.
const MARK: u64 = 1;

/// Number of bytes of a word.
const WORD: usize = 8;

/// Returns the length in bytes of the table of `count` parts.
const fn table_length(count: usize) -> usize {
    WORD + 2 * WORD * count
}

/// The parts of a message to send.
pub(crate) struct OutgoingParts<'a> {
    parts: Vec<MessageBytes<'a>>,
    length: usize,
}

impl<'a> OutgoingParts<'a> {
    /// Returns the parts of a list of objects with contiguous buffers.
    ///
    /// # Errors
    /// The errors of [`MessageBytes::of`].
    pub(crate) fn of(objects: &'a [Bound<'_, PyAny>]) -> PyResult<Self> {
        let parts = objects.iter().map(MessageBytes::of).collect::<PyResult<Vec<_>>>()?;
        // Each part but the first follows at most `ALIGNMENT - 1` bytes of padding.
        let length = parts.iter().map(|part| part.len() + ALIGNMENT - 1).sum::<usize>();
        Ok(Self { length: table_length(parts.len()) + length, parts })
    }

    /// Returns the number of bytes that the message takes, the largest padding included.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Sends the message if there is free space now.
    ///
    /// # Errors
    /// The errors of [`Sender::try_send`].
    pub(crate) fn try_send(&self, sender: &mut Sender) -> tontine::Result<()> {
        let mut space = sender.try_reserve(self.length)?;
        self.write(&mut space);
        space.commit()
    }

    /// Writes the message to its space.
    fn write(&self, space: &mut [u8]) {
        let address = space.as_ptr() as usize;
        let (table, _) = space.split_at_mut(table_length(self.parts.len()));
        let mut words = table.chunks_exact_mut(WORD);
        let mut put = |word: u64| {
            words.next().expect("a word of the table").copy_from_slice(&word.to_le_bytes());
        };
        put(MARK | (self.parts.len() as u64) << 32);
        let mut starts = Vec::with_capacity(self.parts.len());
        let mut end = table_length(self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            let padding = if number == 0 { 0 } else { (address + end).wrapping_neg() % ALIGNMENT };
            starts.push(end + padding);
            put((end + padding) as u64);
            put(part.len() as u64);
            end += padding + part.len();
        }
        for (part, start) in self.parts.iter().zip(starts) {
            space[start..start + part.len()].copy_from_slice(part);
        }
    }
}

/// A private copy of a received message.
pub(crate) enum ReceivedParts<'py> {
    /// The message is not made of parts.
    Whole(Bound<'py, PyBytes>),
    /// The first part, and the others.
    Several(Bound<'py, PyBytes>, Vec<PartBuffer>),
}

impl<'py> ReceivedParts<'py> {
    /// Copies a message, whose mailbox the caller has locked.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn copy(py: Python<'py>, message: MessagePointer) -> PyResult<Self> {
        match PartTable::of(message) {
            None => message.copy(py).map(Self::Whole),
            Some(table) => Self::copy_several(py, message, &table),
        }
    }

    #[cold]
    #[inline(never)]
    fn copy_several(
        py: Python<'py>,
        message: MessagePointer,
        PartTable(ranges): &PartTable,
    ) -> PyResult<Self> {
        let first = message.part(&ranges[0]).copy(py)?;
        let others = ranges[1..].iter().map(|range| message.part(range).copy_to_buffer(py));
        Ok(Self::Several(first, others.collect::<PyResult<_>>()?))
    }

    /// Returns the message as `bytes`, or the list of its parts. The mailbox must not be locked:
    /// the interpreter may collect garbage, which runs Python code.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (first, others) = match self {
            Self::Whole(message) => return Ok(message.into_any()),
            Self::Several(first, others) => (first, others),
        };
        let mut parts = vec![first.into_any()];
        for other in others {
            parts.push(Bound::new(py, other)?.into_any());
        }
        Ok(PyList::new(py, parts)?.into_any())
    }
}

/// The places of a received message's parts.
struct PartTable(Vec<Range<usize>>);

impl PartTable {
    /// Reads the table of a message; returns `None` if the message is not one of parts, or its
    /// table is invalid.
    #[inline(always)]
    fn of(message: MessagePointer) -> Option<Self> {
        // SAFETY: the message has a first byte.
        let is_marked = message.length > 0 && unsafe { message.start.read() } == MARK as u8;
        if is_marked { Self::of_marked(message) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn of_marked(message: MessagePointer) -> Option<Self> {
        let word = |number: usize| {
            // SAFETY: the callers stay within the message. No reference to it is made, since a
            // hostile sender may change it.
            let bytes = unsafe { message.start.add(number * WORD).cast::<[u8; WORD]>().read() };
            u64::from_le_bytes(bytes)
        };
        if message.length < table_length(1) {
            return None;
        }
        let first = word(0);
        let count = usize::try_from(first >> 32).ok()?;
        let is_whole = count > 0 && table_length(count) <= message.length;
        if first & u64::from(u32::MAX) != MARK || !is_whole {
            return None;
        }
        // Parts do not overlap: copies of all of them are not larger than the message.
        let mut free = table_length(count);
        let range = |number: usize| {
            let start = usize::try_from(word(1 + 2 * number)).ok()?;
            let length = usize::try_from(word(2 + 2 * number)).ok()?;
            let end = start.checked_add(length)?;
            let is_apart = start >= free && end <= message.length;
            free = end;
            is_apart.then_some(start..end)
        };
        (0..count).map(range).collect::<Option<Vec<_>>>().map(Self)
    }
}

/// Returns start and end of each part of a message of `Sender.send_parts`, or None if it is another
/// message.
///
/// Args:
///     message: An object with a contiguous buffer, as `Mailbox.recv` returns it.
#[pyfunction]
pub(crate) fn part_ranges<'py>(
    message: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let bytes = MessageBytes::of(message)?;
    let pointer = MessagePointer { start: bytes.as_ptr(), length: bytes.len() };
    let ranges = |table: PartTable| {
        PyList::new(message.py(), table.0.iter().map(|range| (range.start, range.end)))
    };
    PartTable::of(pointer).map(ranges).transpose()
}
