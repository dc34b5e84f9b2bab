//! `pipe`: a named pipe, one `write` or `read` a message, each smaller than PIPE_BUF.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use super::{End, Endpoint, Kind, Operation, Queue, Subject, Wait};
use crate::message::{LENGTH, Message};
use crate::place::Place;

/// The smallest size of a pipe: one page, whatever the page is.
const SMALLEST: usize = 4_096;

pub(super) struct Pipe;

impl Subject for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn summary(&self) -> &'static str {
        "a named pipe, one write and one read a message"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::OF_A_BOUNDED_QUEUE
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for Pipe {
    fn capacity(&self) -> u32 {
        (rustix::param::page_size().max(SMALLEST) / LENGTH) as u32
    }

    /// The kernel gives a page back when all of it is read, and this pipe has one.
    fn makes_room(&self) -> u32 {
        self.capacity()
    }

    fn create(&self, place: &Place) -> io::Result<()> {
        Ok(mkfifoat(CWD, path(place), Mode::RUSR | Mode::WUSR)?)
    }

    fn open(&self, place: &Place, end: End) -> io::Result<Box<dyn Endpoint>> {
        let mut options = File::options();
        let file = match end {
            End::Sender => options.write(true).open(path(place))?,
            // Without O_NONBLOCK it would wait for a sender.
            End::Receiver => {
                let flags = OFlags::NONBLOCK.bits().cast_signed();
                let file = options.read(true).custom_flags(flags).open(path(place))?;
                rustix::pipe::fcntl_setpipe_size(&file, SMALLEST)?;
                rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
                file
            }
        };
        Ok(Box::new(Half(file)))
    }
}

fn path(place: &Place) -> PathBuf {
    place.folder().join("pipe")
}

struct Half(File);

impl Half {
    /// Whether a read will not wait.
    fn readable(&self, wait: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut watched, Some(&timeout))?;
        Ok(watched[0].revents().contains(PollFlags::IN))
    }
}

impl Endpoint for Half {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        self.0.write_all(message)
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        match wait {
            Wait::Ever => {}
            Wait::AtMost(wait) => {
                if !self.readable(wait)? {
                    // Without a sender it is at its end, which is no reason to spin.
                    std::thread::sleep(wait.min(Duration::from_millis(1)));
                    return Ok(None);
                }
            }
        }
        match self.0.read(into)? {
            0 => Ok(None),
            length => Ok(Some(length)),
        }
    }
}
