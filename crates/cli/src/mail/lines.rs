//! A splitter of a stream of bytes into messages: [`LineBuffer`].

use std::os::fd::AsFd;

use rustix::io::Errno;

/// Maximum number of bytes per read.
const MAX_READ: usize = 64 * 1024;

/// A buffer of the bytes read so far, which are split into lines, none longer than a message may
/// be.
#[derive(Debug)]
pub(super) struct LineBuffer {
    separator: u8,
    /// Maximum length of a line in bytes.
    longest: usize,
    read: Vec<u8>,
    /// Position at which the next line begins.
    begin: usize,
    /// Position before which there is no separator.
    searched: usize,
    is_ended: bool,
    /// Number of lines returned.
    count: u64,
}

/// Result of [`LineBuffer::next`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine<'a> {
    /// A line, without its separator.
    Line(&'a [u8]),
    /// No complete line has been read yet, so the caller must read more.
    More,
    /// The end of the input, after the last line.
    End,
}

/// The error that a line is longer than a message may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong {
    /// Number of the line, counted from 1.
    pub(super) number: u64,
    /// Maximum length of a line, in bytes.
    pub(super) longest: usize,
}

impl LineBuffer {
    pub(super) fn new(separator: u8, longest: usize) -> Self {
        Self {
            separator,
            longest,
            read: Vec::new(),
            begin: 0,
            searched: 0,
            is_ended: false,
            count: 0,
        }
    }

    /// Returns the next line. Bytes after the last separator are also a line.
    pub(super) fn next(&mut self) -> Result<NextLine<'_>, TooLong> {
        let rest = &self.read[self.searched..];
        let found = rest.iter().position(|byte| *byte == self.separator);
        let end = match found {
            Some(at) => self.searched + at,
            None if self.is_ended && self.begin < self.read.len() => self.read.len(),
            None if self.is_ended => return Ok(NextLine::End),
            None => self.read.len(),
        };
        if end - self.begin > self.longest {
            return Err(TooLong { number: self.count + 1, longest: self.longest });
        }
        if found.is_none() && !self.is_ended {
            self.searched = end;
            return Ok(NextLine::More);
        }
        let line = &self.read[self.begin..end];
        self.begin = (end + 1).min(self.read.len());
        self.searched = self.begin;
        self.count += 1;
        Ok(NextLine::Line(line))
    }

    /// Reads once. Call it after [`NextLine::More`].
    pub(super) fn read(&mut self, from: impl AsFd) -> Result<(), Errno> {
        self.read.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.read.reserve(MAX_READ);
        match rustix::io::read(from, rustix::buffer::spare_capacity(&mut self.read)) {
            Ok(0) => self.is_ended = true,
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all lines of a text that arrives in pieces.
    fn lines(pieces: &[&str], longest: usize) -> Result<Vec<String>, TooLong> {
        let (readable, writable) = rustix::pipe::pipe().expect("a pipe");
        let mut pieces = pieces.iter();
        let mut writable = Some(writable);
        let mut lines = LineBuffer::new(b'\n', longest);
        let mut all = Vec::new();
        loop {
            match lines.next()? {
                NextLine::Line(line) => all.push(String::from_utf8_lossy(line).into_owned()),
                NextLine::End => return Ok(all),
                NextLine::More => {
                    match (pieces.next(), &writable) {
                        (Some(piece), Some(writable)) => {
                            rustix::io::write(writable, piece.as_bytes()).expect("written");
                        }
                        _ => writable = None,
                    }
                    lines.read(&readable).expect("read");
                }
            }
        }
    }

    #[test]
    fn line_read_in_pieces_is_joined() {
        assert_eq!(lines(&["one\ntwo\n"], 9), Ok(vec!["one".into(), "two".into()]));
        assert_eq!(lines(&["o", "ne", "\ntw", "o"], 9), Ok(vec!["one".into(), "two".into()]));
        assert_eq!(lines(&["\n", "\n"], 9), Ok(vec![String::new(), String::new()]));
        assert_eq!(lines(&[], 9), Ok(vec![]));
    }

    #[test]
    fn long_line_is_refused_with_its_number() {
        assert_eq!(lines(&["four\n", "4444"], 4), Ok(vec!["four".into(), "4444".into()]));
        assert_eq!(lines(&["a\nb\nfives\n"], 4), Err(TooLong { number: 3, longest: 4 }));
        assert_eq!(lines(&["fives", "and more"], 4), Err(TooLong { number: 1, longest: 4 }));
    }
}
