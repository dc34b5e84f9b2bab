//! Errors of calls on descriptors: pipes, reading, writing, closing, duplicating.

use tontine_unix::{Errno, Fd, Resource, Signal, Sys};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{ignore, limit, no_descriptor_more, one_descriptor_more};

/// A descriptor number that is not open, as are the next three constants.
const MINUS_ONE: Fd = Fd(-1);
const LOWEST: Fd = Fd(i32::MIN);
const HIGHEST: Fd = Fd(i32::MAX);
const CLOSED: Fd = Fd(77);

pub(crate) const ROWS: &[Row] = &[
    // pipe
    refused("pipe()", "no free descriptor", Errno::EMFILE, |sys| {
        no_descriptor_more(sys);
        sys.pipe().map(drop)
    }),
    refused("pipe()", "one free descriptor of two", Errno::EMFILE, |sys| {
        one_descriptor_more(sys);
        sys.pipe().map(drop)
    }),
    allowed("pipe()", "a refused call opens no descriptor", |sys| {
        one_descriptor_more(sys);
        sys.pipe().expect_err("one free descriptor");
        let room = sys.getrlimit(Resource::Descriptors).soft - 1;
        sys.dup2(Fd(room as i32 - 1), Fd(room as i32))
    }),
    // read
    refused("read(descriptor)", "not open", Errno::EBADF, |sys| {
        sys.read(CLOSED, &mut [0]).map(drop)
    }),
    refused("read(descriptor)", "−1", Errno::EBADF, |sys| {
        sys.read(MINUS_ONE, &mut [0]).map(drop)
    }),
    refused("read(descriptor)", "the lowest number", Errno::EBADF, |sys| {
        sys.read(LOWEST, &mut [0]).map(drop)
    }),
    refused("read(descriptor)", "the highest number", Errno::EBADF, |sys| {
        sys.read(HIGHEST, &mut [0]).map(drop)
    }),
    refused("read(descriptor)", "closed again", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        sys.close(from)?;
        sys.read(from, &mut [0]).map(drop)
    }),
    refused("read(descriptor)", "the write end of a pipe", Errno::EBADF, |sys| {
        let (_, to) = sys.pipe()?;
        sys.read(to, &mut [0]).map(drop)
    }),
    refused("read(buffer)", "empty, and not open", Errno::EBADF, |sys| {
        sys.read(CLOSED, &mut []).map(drop)
    }),
    refused("read(buffer)", "empty, the write end of a pipe", Errno::EBADF, |sys| {
        let (_, to) = sys.pipe()?;
        sys.read(to, &mut []).map(drop)
    }),
    allowed("read(buffer)", "empty", |sys| {
        let (from, _) = sys.pipe()?;
        sys.read(from, &mut []).map(drop)
    }),
    // write
    refused("write(descriptor)", "not open", Errno::EBADF, |sys| sys.write(CLOSED, b"x").map(drop)),
    refused("write(descriptor)", "−1", Errno::EBADF, |sys| sys.write(MINUS_ONE, b"x").map(drop)),
    refused("write(descriptor)", "the lowest number", Errno::EBADF, |sys| {
        sys.write(LOWEST, b"x").map(drop)
    }),
    refused("write(descriptor)", "the highest number", Errno::EBADF, |sys| {
        sys.write(HIGHEST, b"x").map(drop)
    }),
    refused("write(descriptor)", "closed again", Errno::EBADF, |sys| {
        let (_from, to) = sys.pipe()?;
        sys.close(to)?;
        sys.write(to, b"x").map(drop)
    }),
    refused("write(descriptor)", "the read end of a pipe", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        sys.write(from, b"x").map(drop)
    }),
    refused("write(descriptor)", "a pipe without a reader", Errno::EPIPE, |sys| {
        let to = unread(sys);
        sys.write(to, b"x").map(drop)
    }),
    refused("write(bytes)", "empty, and not open", Errno::EBADF, |sys| {
        sys.write(CLOSED, b"").map(drop)
    }),
    refused("write(bytes)", "empty, the read end of a pipe", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        sys.write(from, b"").map(drop)
    }),
    allowed("write(bytes)", "empty, a pipe without a reader", |sys| {
        let to = unread(sys);
        sys.write(to, b"").map(drop)
    }),
    // close
    refused("close(descriptor)", "not open", Errno::EBADF, |sys| sys.close(CLOSED)),
    refused("close(descriptor)", "−1", Errno::EBADF, |sys| sys.close(MINUS_ONE)),
    refused("close(descriptor)", "the lowest number", Errno::EBADF, |sys| sys.close(LOWEST)),
    refused("close(descriptor)", "the highest number", Errno::EBADF, |sys| sys.close(HIGHEST)),
    refused("close(descriptor)", "closed again", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        sys.close(from)?;
        sys.close(from)
    }),
    // dup2
    refused("dup2(from)", "not open", Errno::EBADF, |sys| sys.dup2(CLOSED, Fd(50))),
    refused("dup2(from)", "−1", Errno::EBADF, |sys| sys.dup2(MINUS_ONE, Fd(50))),
    refused("dup2(from)", "−1, to itself", Errno::EBADF, |sys| sys.dup2(MINUS_ONE, MINUS_ONE)),
    refused("dup2(from)", "the highest number", Errno::EBADF, |sys| sys.dup2(HIGHEST, Fd(50))),
    refused("dup2(from)", "not open, to itself", Errno::EBADF, |sys| sys.dup2(CLOSED, CLOSED)),
    refused("dup2(to)", "−1", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        sys.dup2(from, MINUS_ONE)
    }),
    refused("dup2(to)", "the lowest number", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        sys.dup2(from, LOWEST)
    }),
    refused("dup2(to)", "the highest number", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        sys.dup2(from, HIGHEST)
    }),
    refused("dup2(to)", "the limit", Errno::EBADF, |sys| {
        let (from, _) = sys.pipe()?;
        limit(sys, Resource::Descriptors, 64);
        sys.dup2(from, Fd(64))
    }),
    allowed("dup2(to)", "the last number below the limit", |sys| {
        let (from, _) = sys.pipe()?;
        limit(sys, Resource::Descriptors, 64);
        sys.dup2(from, Fd(63))
    }),
    allowed("dup2(to)", "itself, beyond the limit", |sys| {
        let (from, _) = sys.pipe()?;
        no_descriptor_more(sys);
        sys.dup2(from, from)
    }),
];

/// Returns the write end of a pipe without a reader, with SIGPIPE ignored.
fn unread(sys: &dyn Sys) -> Fd {
    ignore(sys, Signal::PIPE);
    let (from, to) = sys.pipe().expect("two descriptors");
    sys.close(from).expect("an open descriptor");
    to
}

#[test]
fn descriptor_errors_match_linux() {
    hold(ROWS);
}
