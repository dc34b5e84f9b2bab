//! Pipes: `pipe`. Named ends are the ends of a FIFO.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use tontine_bench::error::{ErrorContext, Result};

use crate::about::{AfterKill, Death, Explored, Listing, Mechanism, RowKind};
use crate::descriptor::{Connected, DescriptorReader, DescriptorWriter, pipe};
use crate::driver::{NAMED_BYTES, NamedDriver};
use crate::location::Location;
use crate::operation::Operation;

/// Length up to which messages of several senders stay whole (`PIPE_BUF` on Linux, `pipe(7)`).
const ATOMIC: usize = 4096;
/// The smallest pipe: one page. The value does not depend on the page size.
const SMALLEST: usize = 4_096;

pub struct Pipe;

pub const MECHANISM: Mechanism = Mechanism {
    shared_up_to: ATOMIC,
    explored: Some(Explored {
        // The kernel frees a page only when all of it has been read, and this pipe has one
        // page.
        frees_space: capacity,
        ..Explored::new(
            "pipe",
            "a named pipe, one write and one read per message",
            &Operation::OF_A_BOUNDED_QUEUE,
            capacity,
        )
    }),
    ..Mechanism::new(
        "pipe",
        Death::LeavesOne { row: "pipe", survivor: AfterKill::Notified },
        &[
            Listing::new(RowKind::RoundTrip, "two pipes, one byte per message"),
            Listing::new(RowKind::Throughput, "one pipe; several senders up to PIPE_BUF"),
            Listing::new(RowKind::Survival, "two pipes"),
            Listing::new(RowKind::WakeUp, "a pipe, one byte per message"),
        ],
    )
};

impl Connected for Pipe {
    const BOTH_WAYS: bool = false;

    fn connect() -> Result<(OwnedFd, OwnedFd)> {
        pipe()
    }
}

fn capacity() -> u32 {
    (rustix::param::page_size().max(SMALLEST) / NAMED_BYTES) as u32
}

impl NamedDriver for Pipe {
    type Out = DescriptorWriter;
    type In = DescriptorReader<[u8; NAMED_BYTES]>;

    fn create(at: &Location) -> Result<()> {
        mkfifoat(CWD, path(at), Mode::RUSR | Mode::WUSR).setting_up("mkfifo")
    }

    fn sender(at: &Location) -> Result<DescriptorWriter> {
        let file = File::options().write(true).open(path(at)).during("open")?;
        Ok(DescriptorWriter(file.into()))
    }

    fn receiver(at: &Location) -> Result<Self::In> {
        // Without O_NONBLOCK, `open` would wait for a sender.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path(at)).during("open")?;
        rustix::pipe::fcntl_setpipe_size(&file, SMALLEST).during("fcntl(F_SETPIPE_SZ)")?;
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).during("fcntl(F_SETFL)")?;
        Ok(DescriptorReader::new(file.into(), [0; NAMED_BYTES]))
    }
}

fn path(at: &Location) -> PathBuf {
    at.folder().join("pipe")
}
