//! Errors of heaps and blocks: [`HeapError`].
//!
//! [`HeapError`] is separate from [`crate::Error`], which concerns peers. Only
//! [`HeapError::Mailbox`] is caused by another process. Errors name a block by its offset from the
//! heap's first byte, as the heap's map prints it.

use std::io;
use std::num::NonZeroU32;

/// The result of a heap operation: [`std::result::Result`] with [`HeapError`] by default.
pub type Result<T, E = HeapError> = std::result::Result<T, E>;

/// An error of a [`shared`](super::shared) heap.
///
/// A call that fails leaves the heap unchanged, unless the call's documentation says otherwise.
/// [`HeapError::errno`] returns each variant's error number, and an error converts into a
/// [`std::io::Error`] of the kind of that number.
///
/// # Examples
/// ```
/// use tontine::heap::HeapError;
/// use tontine::heap::shared::Heap;
///
/// let heap = Heap::create(1 << 20)?;
/// let error = heap.alloc(2 << 20).expect_err("the heap has 1 MiB");
/// assert!(matches!(error, HeapError::Full { requested: 0x20_0000, max: 0x10_0000, .. }));
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::OutOfMemory);
/// # Ok::<(), HeapError>(())
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The heap has no space for the block, and may not grow that far.
    #[error(
        "no space for a block of {requested} bytes: the heap has {size} bytes and may grow to \
         {max}; free some blocks, or create a larger heap"
    )]
    Full {
        /// Bytes requested.
        requested: usize,
        /// Bytes that the heap has now, in slabs that have memory.
        size: usize,
        /// Maximum number of bytes that the heap may have.
        max: usize,
    },

    /// A heap cannot have the requested size.
    #[error("a heap cannot have {size} bytes: {reason}")]
    InvalidSize {
        /// Bytes requested.
        size: usize,
        /// The reason, and the sizes that are possible.
        reason: &'static str,
    },

    /// The handle or parcel does not name a block that this process may use: the block was freed,
    /// handed over, withdrawn or taken back.
    #[error(
        "the handle for offset {offset:#x}, generation {generation}, is stale: the block is \
         {now}; it was freed, handed over or withdrawn, or was never this process's: get a new \
         handle from its holder"
    )]
    Stale {
        /// Offset of the block.
        offset: u64,
        /// Generation in the handle or parcel.
        generation: u64,
        /// The block's current state, holder and generation.
        now: String,
    },

    /// No block begins at the offset that a handle or a parcel names.
    #[error(
        "no block begins at offset {offset:#x}: {reason}; use handles and parcels as the heap \
         returned them"
    )]
    InvalidHandle {
        /// The offset.
        offset: u64,
        /// The content at the offset.
        reason: &'static str,
    },

    /// A process wrote beyond the block's end. Only a heap with canaries detects it.
    #[error(
        "the block at offset {offset:#x} of {requested} bytes, held by pid {pid}, was written \
         beyond its end: expected the canary {expected:#018x}, found {found:#018x}; fix that write"
    )]
    Overrun {
        /// Offset of the block.
        offset: u64,
        /// Bytes requested when the block was allocated.
        requested: usize,
        /// Process id of the block's holder.
        pid: u32,
        /// Canary that the heap wrote after the block.
        expected: u64,
        /// Value that was found instead.
        found: u64,
    },

    /// The file is not a heap, or the heap is incomplete.
    #[error("the descriptor is not a shared heap's: {what}; pass the one that a member sent")]
    NotAHeap {
        /// The expected content, and the content that was found.
        what: &'static str,
    },

    /// The heap has another layout version: another version of this library created it.
    #[error(
        "the heap has layout version {found}, and this library supports version {expected}; use \
         one version of the library in all members"
    )]
    VersionMismatch {
        /// Version of the heap's layout.
        found: u64,
        /// Version that this library supports.
        expected: u64,
    },

    /// This process is already a member of the heap.
    #[error("this process already has this heap open; use the `Heap` that it has")]
    AlreadyOpen,

    /// The heap has no free slot for another member, or for another thread's arena.
    #[error(
        "no free slot for another {what}: the heap has at most {max} at a time; wait until one \
         has ended"
    )]
    LimitReached {
        /// The resource whose limit is exceeded.
        what: &'static str,
        /// Maximum number at a time.
        max: usize,
    },

    /// The handle was created by the parent of this forked child.
    #[error(
        "this heap was opened by the process that forked this one; call `rejoin` in the child, \
         and leave the parent's blocks to the parent"
    )]
    Forked,

    /// The member that should receive the block has ended.
    #[error("heap member {slot} has ended and cannot take blocks; name a live one")]
    MemberDead {
        /// Slot of that member.
        slot: usize,
    },

    /// The outbox's lane leads to a process other than the member that should receive the blocks.
    #[error(
        "the lane leads to pid {found}, but heap member {slot} is pid {expected}, and only that \
         process could accept the blocks; name the member that the receiver says it is"
    )]
    WrongMember {
        /// Slot of the member that was named.
        slot: usize,
        /// Process id of that member.
        expected: u32,
        /// Process id of the lane's receiver.
        found: u32,
    },

    /// A live member has the role that this process tried to take.
    #[error(
        "role {role} is held by pid {pid}, which lives; wait for its end, or take another role"
    )]
    RoleTaken {
        /// The role.
        role: NonZeroU32,
        /// Process id of its holder; 0 while another process is taking a role.
        pid: u32,
    },

    /// The mailbox that carries the block failed.
    #[error(transparent)]
    Mailbox(#[from] crate::Error),

    /// The heap would exceed the process's limit on file sizes, which includes memory files.
    #[error(
        "a heap of {requested} bytes exceeds this process's limit of {limit} bytes for a file; \
         raise the limit (RLIMIT_FSIZE, `ulimit -f`), or create a smaller heap"
    )]
    FileTooLarge {
        /// Bytes of the file: the capacity and the heap's tables.
        requested: u64,
        /// Maximum number of bytes of a file.
        limit: u64,
    },

    /// A system call failed.
    #[error("{call} failed: {}", io::Error::from_raw_os_error(*.errno))]
    System {
        /// Name of the call.
        call: &'static str,
        /// The error number of the call.
        errno: i32,
    },
}

/// Formats the text, because a `main` that returns the error prints this form.
impl std::fmt::Debug for HeapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl HeapError {
    /// Returns the error number that a caller in C receives for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Full { .. } => libc::ENOMEM,
            Self::InvalidSize { .. } => libc::EDOM,
            Self::Stale { .. } => libc::ESTALE,
            Self::InvalidHandle { .. } => libc::EINVAL,
            Self::Overrun { .. } => libc::EUCLEAN,
            Self::NotAHeap { .. } => libc::EBADF,
            Self::VersionMismatch { .. } => libc::EPROTONOSUPPORT,
            Self::AlreadyOpen => libc::EBUSY,
            Self::LimitReached { .. } => libc::EUSERS,
            Self::Forked => libc::ECHILD,
            Self::MemberDead { .. } => libc::ESRCH,
            Self::WrongMember { .. } => libc::EXDEV,
            Self::RoleTaken { .. } => libc::EBUSY,
            Self::Mailbox(error) => error.errno(),
            Self::FileTooLarge { .. } => libc::EFBIG,
            Self::System { errno, .. } => *errno,
        }
    }

    /// Returns the error of a fork guard, which fails only if its system call fails.
    pub(super) fn from_guard(error: crate::Error) -> Self {
        Self::System { call: "mmap", errno: error.errno() }
    }
}

/// Converts into an I/O error with the kind of [`HeapError::errno`]. The I/O error has the text and
/// the inner error of the [`HeapError`].
impl From<HeapError> for io::Error {
    fn from(error: HeapError) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_error_keeps_kind_text_and_source() {
        let errors = [
            (HeapError::Full { requested: 9, size: 1, max: 2 }, io::ErrorKind::OutOfMemory),
            (HeapError::Stale { offset: 64, generation: 1, now: "free".into() }, STALE),
            (HeapError::InvalidHandle { offset: 8, reason: "a block's middle" }, INVALID),
            (HeapError::Mailbox(crate::Error::WouldBlock), io::ErrorKind::WouldBlock),
            (HeapError::System { call: "open", errno: libc::ENOENT }, io::ErrorKind::NotFound),
        ];
        for (error, kind) in errors {
            let converted = io::Error::from(error.clone());
            assert_eq!((converted.kind(), converted.to_string()), (kind, error.to_string()));
            let inner = converted.get_ref().and_then(|inner| inner.downcast_ref::<HeapError>());
            assert_eq!(inner, Some(&error));
        }
    }

    const STALE: io::ErrorKind = io::ErrorKind::StaleNetworkFileHandle;
    const INVALID: io::ErrorKind = io::ErrorKind::InvalidInput;

    #[test]
    fn system_error_names_call_and_reason() {
        let error = HeapError::System { call: "mmap", errno: libc::ENOMEM };
        assert_eq!(error.errno(), libc::ENOMEM);
        let expected = format!("mmap failed: {}", io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(error.to_string(), expected);
    }
}
