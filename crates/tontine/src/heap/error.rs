//! What can be wrong with a block or with a heap: [`Error`].
//!
//! Apart from [`crate::Error`], which is about peers: here no other process is to blame. Blocks are
//! named by their offset from the heap's first byte, as its map prints them.

use rustix::io::Errno;

/// What the heaps' functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a heap did not do it. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no room for the block, and the heap may not grow so far.
    #[error(
        "no room for {asked} bytes: the heap has {size} bytes and grows to {most} at most; free \
         some blocks, or make it with more"
    )]
    Full {
        /// Bytes that were asked for.
        asked: usize,
        /// Bytes that the heap has.
        size: usize,
        /// Bytes that it may have.
        most: usize,
    },

    /// The address is none of this heap's.
    #[error("{address:#x} lies outside of this heap; free it where it was allocated")]
    Foreign {
        /// The address.
        address: usize,
    },

    /// The address lies in the heap, and no block begins there.
    #[error(
        "no block begins at offset {offset:#x}: that lies within the block at {block:#x} of {size} \
         bytes; free what malloc returned"
    )]
    NoBlock {
        /// Where the address points to.
        offset: usize,
        /// The block in which that lies.
        block: usize,
        /// Its bytes, with header and footer.
        size: usize,
    },

    /// The block is free already.
    #[error("the block at offset {offset:#x} is free already: it was freed twice")]
    FreeAlready {
        /// The block.
        offset: usize,
    },

    /// What the heap itself wrote between two blocks is not there any more.
    #[error("the block at offset {offset:#x} is damaged: {what}")]
    Damaged {
        /// The first block that is not as it should be.
        offset: usize,
        /// What was expected and what was found, and who may have done it.
        what: String,
    },

    /// A size that no heap can have; the program's mistake.
    #[error("a heap of {most} bytes at most: {why}")]
    BadSize {
        /// What was asked for.
        most: usize,
        /// What is wrong with it.
        why: &'static str,
    },

    /// A system call failed for a reason of its own.
    #[error("{call} failed: {}", std::io::Error::from(*.errno))]
    System {
        /// The call.
        call: &'static str,
        /// What it answered.
        errno: Errno,
    },
}

impl Error {
    /// The error number that says this to a caller in C.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Full { .. } => libc::ENOMEM,
            Self::Foreign { .. } => libc::EFAULT,
            Self::NoBlock { .. } => libc::EINVAL,
            Self::FreeAlready { .. } => libc::EALREADY,
            Self::Damaged { .. } => libc::EUCLEAN,
            Self::BadSize { .. } => libc::EDOM,
            Self::System { errno, .. } => errno.raw_os_error(),
        }
    }
}
