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

    /// A handle of a block that is not, or not any more, this process's: freed, handed over, or
    /// taken back.
    #[error(
        "the handle of the block at offset {offset:#x} is stale: it is of generation {generation}, \
         and the block is {now}; it was freed or handed over before, or was never this process's"
    )]
    Stale {
        /// The block.
        offset: u64,
        /// What the handle says.
        generation: u64,
        /// What the block is: its state, who has it, its generation.
        now: String,
    },

    /// An offset at which no block of the heap begins.
    #[error("no block begins at offset {offset:#x}: {why}; use handles as the heap gave them out")]
    NoHandle {
        /// The offset.
        offset: u64,
        /// What is there.
        why: &'static str,
    },

    /// Somebody has written beyond a block's end. Only with canaries.
    #[error(
        "the block at offset {offset:#x} of {asked} bytes, of pid {pid}, was written beyond its \
         end: expected the canary {expected:#018x}, found {found:#018x}"
    )]
    Overrun {
        /// The block.
        offset: u64,
        /// Bytes that were asked for.
        asked: usize,
        /// Whose it is.
        pid: u32,
        /// What was written behind it when it was given out.
        expected: u64,
        /// What is there now.
        found: u64,
    },

    /// A file that is no heap, or no whole one.
    #[error("this is no shared heap: {what}")]
    NotAHeap {
        /// What was expected and what was found.
        what: &'static str,
    },

    /// A heap that another version of this library made.
    #[error(
        "this heap has layout {found}, and this library knows layout {expected}; let all members \
         use one version of it"
    )]
    Version {
        /// The heap's.
        found: u64,
        /// This library's.
        expected: u64,
    },

    /// This process is a member already.
    #[error("this process has this heap open already; use the one that it has")]
    AlreadyOpen,

    /// There is no slot left for another member, or for another thread's arena.
    #[error("no room for another {what}: the heap has {most} of them at most")]
    Crowded {
        /// Of what there are too many.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },

    /// The handle was made by the process that forked this one.
    #[error(
        "this heap was opened by the process that forked this one; call `rejoin` in the child, \
         and leave the parent's blocks to the parent"
    )]
    Forked,

    /// The member to whom a block was to go is one no more.
    #[error("member {slot} of the heap has ended; nobody would ever take the block")]
    Gone {
        /// Its slot.
        slot: usize,
    },

    /// A lane leads to another process than the member to whom its blocks were to go.
    #[error(
        "this lane leads to pid {found}, and member {slot} of the heap is pid {expected}: nobody \
         could accept the blocks; name the member that the receiver says it is"
    )]
    OtherMember {
        /// The slot of the member that was named.
        slot: usize,
        /// Its pid.
        expected: u32,
        /// Who receives.
        found: u32,
    },

    /// A living member has the role that this process wants.
    #[error("role {role} is pid {pid}'s, which lives; wait for its end, or take another role")]
    InRole {
        /// The role.
        role: std::num::NonZeroU32,
        /// Who has it.
        pid: u32,
    },

    /// The mailbox by which a block was to go says no.
    #[error(transparent)]
    Mailbox(#[from] crate::Error),

    /// The heap would exceed the process's limit on the size of files. A memory file counts.
    #[error(
        "a heap of {asked} bytes exceeds this process's limit of {limit} bytes for a file; raise \
         the limit (RLIMIT_FSIZE, `ulimit -f`), or make the heap smaller"
    )]
    FileTooLarge {
        /// Bytes that the file would have: the capacity, and the heap's tables.
        asked: u64,
        /// Bytes that it may have.
        limit: u64,
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
            Self::Stale { .. } => libc::ESTALE,
            Self::NoHandle { .. } => libc::EINVAL,
            Self::Overrun { .. } => libc::EUCLEAN,
            Self::NotAHeap { .. } => libc::EBADF,
            Self::Version { .. } => libc::EPROTONOSUPPORT,
            Self::AlreadyOpen => libc::EBUSY,
            Self::Crowded { .. } => libc::EUSERS,
            Self::Forked => libc::ECHILD,
            Self::Gone { .. } => libc::ESRCH,
            Self::OtherMember { .. } => libc::EXDEV,
            Self::InRole { .. } => libc::EBUSY,
            Self::Mailbox(error) => error.errno(),
            Self::FileTooLarge { .. } => libc::EFBIG,
            Self::System { errno, .. } => errno.raw_os_error(),
        }
    }

    /// A guard fails by a system call alone.
    pub(super) fn from_guard(error: crate::Error) -> Self {
        let errno = Errno::from_raw_os_error(error.errno());
        Self::System { call: "mmap", errno }
    }
}
