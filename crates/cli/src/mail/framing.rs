//! Messages in a stream of bytes: [`MessageBuffer`] splits the stream, [`append`] extends it.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::args::Framing;

/// Maximum number of bytes per read.
const MAX_READ: usize = 64 * 1024;

/// Number of bytes in the length of a message.
const LENGTH_SIZE: usize = size_of::<u32>();

/// A buffer of the bytes read so far, which are split into messages, none longer than the mailbox
/// allows.
#[derive(Debug)]
pub(super) struct MessageBuffer {
    framing: Framing,
    /// Maximum length of a message in bytes.
    longest: usize,
    read: Vec<u8>,
    /// Position at which the next message begins, with its length if it has one.
    begin: usize,
    /// Position before which there is no separator.
    searched: usize,
    is_ended: bool,
    /// Number of messages returned.
    count: u64,
}

/// Result of [`MessageBuffer::next`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextMessage<'a> {
    /// A message, without its separator or length.
    Message(&'a [u8]),
    /// No complete message has been read yet, so the caller must read more.
    More,
    /// The end of the input, after the last message.
    End,
}

/// The defect of a message in the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputDefect {
    /// Number of the message, counted from 1.
    pub(super) number: u64,
    pub(super) kind: DefectKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum DefectKind {
    /// The message is longer than the mailbox allows; its length, if the input states one.
    TooLong { length: Option<u32>, longest: usize },
    /// The input ends within the length of the message, of which it has this number of bytes.
    NoLength { found: usize },
    /// The input ends within the message.
    Truncated { expected: usize, found: usize },
}

impl MessageBuffer {
    pub(super) fn new(framing: Framing, longest: usize) -> Self {
        Self {
            framing,
            longest,
            read: Vec::new(),
            begin: 0,
            searched: 0,
            is_ended: false,
            count: 0,
        }
    }

    /// Returns the next message. Bytes after the last separator are also a message.
    pub(super) fn next(&mut self) -> Result<NextMessage<'_>, InputDefect> {
        let number = self.count + 1;
        let next = match separator(self.framing) {
            Some(separator) => self.next_separated(separator),
            None => self.next_with_length(),
        };
        let (start, end, next_begin) = match next.map_err(|kind| InputDefect { number, kind })? {
            Some(found) => found,
            None if self.is_ended => return Ok(NextMessage::End),
            None => return Ok(NextMessage::More),
        };
        self.begin = next_begin;
        self.searched = next_begin;
        self.count = number;
        Ok(NextMessage::Message(&self.read[start..end]))
    }

    /// Returns the start and the end of the next message, and where the message after it begins.
    fn next_separated(
        &mut self,
        separator: u8,
    ) -> Result<Option<(usize, usize, usize)>, DefectKind> {
        let rest = &self.read[self.searched..];
        let found = rest.iter().position(|byte| *byte == separator);
        let end = found.map_or(self.read.len(), |place| self.searched + place);
        if end - self.begin > self.longest {
            return Err(DefectKind::TooLong { length: None, longest: self.longest });
        }
        self.searched = end;
        let is_last = self.is_ended && self.begin < end;
        Ok(match found {
            Some(_) => Some((self.begin, end, end + 1)),
            None => is_last.then_some((self.begin, end, end)),
        })
    }

    /// Like [`Self::next_separated`], for messages that begin with their length.
    fn next_with_length(&self) -> Result<Option<(usize, usize, usize)>, DefectKind> {
        let Some((length, rest)) = self.read[self.begin..].split_first_chunk() else {
            let found = self.read.len() - self.begin;
            let is_cut = self.is_ended && found > 0;
            return if is_cut { Err(DefectKind::NoLength { found }) } else { Ok(None) };
        };
        let length = u32::from_be_bytes(*length);
        let expected = length as usize;
        // This check precedes all reads that would extend the buffer for the message.
        if expected > self.longest {
            return Err(DefectKind::TooLong { length: Some(length), longest: self.longest });
        }
        if rest.len() < expected {
            let found = rest.len();
            let is_cut = self.is_ended;
            return if is_cut { Err(DefectKind::Truncated { expected, found }) } else { Ok(None) };
        }
        let start = self.begin + LENGTH_SIZE;
        Ok(Some((start, start + expected, start + expected)))
    }

    /// Reads once. Call it after [`NextMessage::More`].
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

/// Appends a message to a stream, with its separator or its length.
///
/// # Panics
/// Panics if the message has 4 GiB or more, which no lane carries.
pub(super) fn append(framing: Framing, message: &[u8], to: &mut Vec<u8>) {
    if separator(framing).is_none() {
        let length = u32::try_from(message.len()).expect("a lane carries at most 512 MiB");
        to.extend_from_slice(&length.to_be_bytes());
    }
    to.extend_from_slice(message);
    to.extend(separator(framing));
}

/// Returns the byte that ends each message; `None` if its length precedes it.
fn separator(framing: Framing) -> Option<u8> {
    match framing {
        Framing::Line => Some(b'\n'),
        Framing::Nul => Some(b'\0'),
        Framing::Length => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all messages of a stream that arrives in pieces.
    fn split(
        framing: Framing,
        pieces: &[&[u8]],
        longest: usize,
    ) -> Result<Vec<Vec<u8>>, InputDefect> {
        let (readable, writable) = rustix::pipe::pipe().expect("a pipe");
        let mut pieces = pieces.iter();
        let mut writable = Some(writable);
        let mut input = MessageBuffer::new(framing, longest);
        let mut all = Vec::new();
        loop {
            match input.next()? {
                NextMessage::Message(message) => all.push(message.to_vec()),
                NextMessage::End => return Ok(all),
                NextMessage::More => {
                    match (pieces.next(), &writable) {
                        (Some(piece), Some(writable)) => {
                            rustix::io::write(writable, piece).expect("written");
                        }
                        _ => writable = None,
                    }
                    input.read(&readable).expect("read");
                }
            }
        }
    }

    fn lines(pieces: &[&str], longest: usize) -> Result<Vec<String>, InputDefect> {
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
        let lines = split(Framing::Line, &pieces, longest)?;
        Ok(lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect())
    }

    fn defect(number: u64, kind: DefectKind) -> Result<Vec<Vec<u8>>, InputDefect> {
        Err(InputDefect { number, kind })
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
        let too_long = |number| {
            let kind = DefectKind::TooLong { length: None, longest: 4 };
            Err(InputDefect { number, kind })
        };
        assert_eq!(lines(&["four\n", "4444"], 4), Ok(vec!["four".into(), "4444".into()]));
        assert_eq!(lines(&["a\nb\nfives\n"], 4), too_long(3));
        assert_eq!(lines(&["fives", "and more"], 4), too_long(1));
    }

    #[test]
    fn appended_messages_are_split_again_at_every_cut() {
        let messages: [&[u8]; 4] = [b"a\n\0", b"", &[0xff; 300], b"\0\0\0\x05"];
        let mut stream = Vec::new();
        messages.iter().for_each(|message| append(Framing::Length, message, &mut stream));
        assert_eq!(&stream[..8], b"\0\0\0\x03a\n\0\0");
        for cut in 0..=stream.len() {
            let (first, second) = stream.split_at(cut);
            let pieces: Vec<&[u8]> =
                [first, second].into_iter().filter(|piece| !piece.is_empty()).collect();
            assert_eq!(split(Framing::Length, &pieces, 300).expect("whole"), messages, "{cut}");
        }
    }

    #[test]
    fn truncated_stream_with_lengths_is_refused() {
        let split = |stream: &[u8]| split(Framing::Length, &[stream], 4);
        assert_eq!(split(b"\0\0\0\0\0\0\0"), defect(2, DefectKind::NoLength { found: 3 }));
        let cut = DefectKind::Truncated { expected: 4, found: 2 };
        assert_eq!(split(b"\0\0\0\x01a\0\0\0\x04bc"), defect(2, cut));
        let long = DefectKind::TooLong { length: Some(u32::MAX), longest: 4 };
        assert_eq!(split(b"\xff\xff\xff\xff"), defect(1, long));
    }
}
