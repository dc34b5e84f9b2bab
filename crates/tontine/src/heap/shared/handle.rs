//! Names of a block that this process does not hold: [`Handle`] and [`Parcel`].

use super::word::BlockWord;

/// A name of a block: its offset and its generation, 16 bytes of plain data.
///
/// A handle names the same block in every process, wherever the heap is mapped, and never a
/// different block. Once the block is freed, the handle is stale, and using it is an error.
/// [`Block::into_handle`](super::Block::into_handle) returns a handle for the process that holds
/// the block; [`Published::handle`](super::Published::handle) returns a handle by which all members
/// read the block.
///
/// # Examples
/// ```
/// use tontine::heap::shared::{Handle, Heap};
///
/// let heap = Heap::create(1 << 20)?;
/// let Handle { offset, generation } = heap.alloc(100)?.into_handle();
/// // Any other generation of the block is stale.
/// assert!(heap.free(Handle { offset, generation: generation + 1 }).is_err());
/// heap.free(Handle { offset, generation })?;
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Handle {
    /// Offset of the block in bytes, from the heap's first byte.
    pub offset: u64,
    /// Number of times that the block has changed its holder.
    pub generation: u64,
}

/// A block in flight to another member, as 24 bytes of plain data that any channel can carry.
///
/// [`Block::hand_over`](super::Block::hand_over) returns it. The receiver passes it to
/// [`Heap::accept`](super::Heap::accept), which returns the block once. After that, the parcel is
/// stale.
///
/// # Examples
/// ```
/// use tontine::heap::shared::{Heap, Parcel};
///
/// let heap = Heap::create(1 << 20)?;
/// let parcel = heap.alloc(100)?.hand_over(heap.member()).map_err(|(error, _)| error)?;
/// let bytes: [u8; Parcel::SIZE] = parcel.to_bytes(); // to be sent through a pipe, say
/// let block = heap.accept(Parcel::from_bytes(bytes))?;
/// assert_eq!(block.len(), 100);
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parcel {
    pub(super) offset: u64,
    pub(super) flight: u64,
    pub(super) len: u64,
}

impl Parcel {
    /// Number of bytes of a parcel.
    pub const SIZE: usize = 24;

    /// Returns the parcel as bytes, for [`Parcel::from_bytes`] in the receiver.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = [self.offset, self.flight, self.len];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the parcel that these bytes represent. Any bytes are allowed:
    /// [`Heap::accept`](super::Heap::accept) refuses an invalid parcel.
    #[inline]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self::from_slice(&bytes).expect("a parcel has 24 bytes")
    }

    /// Returns the parcel that 24 bytes represent. Loads word by word, as the words were written,
    /// because a wider load would wait for all of these stores.
    #[inline]
    pub(super) fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (&[offset, flight, len], []) = bytes.as_chunks() else { return None };
        let [offset, flight, len] = [offset, flight, len].map(u64::from_le_bytes);
        Some(Self { offset, flight, len })
    }

    /// Returns the block's offset and its generation.
    pub(super) fn names(self) -> (u64, u64) {
        (self.offset, BlockWord(self.flight).generation())
    }

    /// Returns the length of the block in bytes.
    #[expect(clippy::len_without_is_empty, reason = "the length of a block, not of a collection")]
    pub fn len(self) -> u64 {
        self.len
    }
}
