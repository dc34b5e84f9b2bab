//! `redis-stream`: a Redis server on host B, in which each program appends to a stream (XADD) and
//! reads another one (XREAD). The server keeps the streams in memory only, and no consumer group
//! notes what was processed.

use std::ops::Range;
use std::path::Path;

use tontine_host::error::{MeasureError, Result};

use super::coded_tcp::{Codec, Decoded};
use super::crossing::HostSide;
use super::server::MessageServer;

/// Maximum number of entries in an answer. Its length is below that of the buffer.
const ENTRIES: usize = 256;

/// The client's protocol of Redis (RESP2), for one stream in each direction.
pub(super) struct RedisCodec {
    /// The command that appends, up to the message.
    append: String,
    /// Name of the stream that is read.
    stream: &'static str,
    /// Id of the last entry that was read.
    last: Vec<u8>,
    /// `true` while the answer to XREAD is awaited.
    asked: bool,
    /// Number of messages that are left in the answer to XREAD.
    left: usize,
}

impl Codec for RedisCodec {
    fn encode(&mut self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.append.as_bytes());
        append_string(message, out);
    }

    fn decode(&mut self, received: &[u8]) -> Result<Decoded> {
        let mut items = RedisItems { bytes: received, at: 0 };
        if self.left == 0 {
            match received.first() {
                None => return Ok(Decoded::Incomplete),
                // The id of an entry that was appended, or the answer to PING.
                Some(b'$') => {
                    return Ok(items.string()?.map_or(Decoded::Incomplete, |_| items.used()));
                }
                Some(b'+') => {
                    return Ok(items.line().map_or(Decoded::Incomplete, |_| items.used()));
                }
                Some(b'*') => {}
                Some(_) => return Err(unexpected(received)),
            }
            // One stream: its name and its entries.
            let Some(count) = items.entries()? else { return Ok(Decoded::Incomplete) };
            (self.asked, self.left) = (false, count);
            return Ok(items.used());
        }
        let Some((id, message)) = items.entry()? else { return Ok(Decoded::Incomplete) };
        self.last.clear();
        self.last.extend_from_slice(&received[id]);
        self.left -= 1;
        Ok(Decoded::Message(message, items.at))
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        if self.asked || self.left > 0 {
            return;
        }
        self.asked = true;
        out.extend_from_slice(b"*8\r\n");
        let count = ENTRIES.to_string();
        let words = ["XREAD", "COUNT", &count, "BLOCK", "0", "STREAMS", self.stream];
        for word in words.map(str::as_bytes).into_iter().chain([&self.last[..]]) {
            append_string(word, out);
        }
    }
}

impl MessageServer for RedisCodec {
    const PROGRAM: &'static str = "redis-server";

    fn arguments(_: &Path) -> Result<Vec<String>> {
        let listener = HostSide::listener();
        let line = format!(
            "--bind {} --port {} --protected-mode no --daemonize no --appendonly no --save",
            listener.ip(),
            listener.port()
        );
        // No save point: nothing is written to the disk.
        Ok(line.split(' ').chain([""]).map(str::to_owned).collect())
    }

    fn greeting(side: HostSide) -> (Self, String, &'static str) {
        let to = side.other().name();
        let codec = Self {
            append: format!("*5\r\n$4\r\nXADD\r\n${}\r\n{to}\r\n$1\r\n*\r\n$1\r\nm\r\n", to.len()),
            stream: side.name(),
            last: b"0".to_vec(),
            asked: false,
            left: 0,
        };
        (codec, "PING\r\n".into(), "+PONG\r\n")
    }
}

/// Reads items of the protocol.
struct RedisItems<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RedisItems<'a> {
    /// Returns the items that were read, which are not a message.
    fn used(&self) -> Decoded {
        Decoded::Other(self.at)
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        self.at += end + 2;
        Some(&rest[..end])
    }

    /// Reads a length that follows `kind`.
    fn length(&mut self, kind: u8) -> Result<Option<usize>> {
        let Some(line) = self.line() else { return Ok(None) };
        let digits = line.strip_prefix(&[kind]).and_then(|text| std::str::from_utf8(text).ok());
        let length = digits.and_then(|digits| digits.parse().ok());
        length.map(Some).ok_or_else(|| unexpected(line))
    }

    fn string(&mut self) -> Result<Option<Range<usize>>> {
        let Some(length) = self.length(b'$')? else { return Ok(None) };
        let range = self.at..self.at + length;
        self.at = range.end + 2;
        Ok((self.at <= self.bytes.len()).then_some(range))
    }

    /// Reads the beginning of an answer to XREAD. Returns the number of entries.
    fn entries(&mut self) -> Result<Option<usize>> {
        for _ in 0..2 {
            if self.length(b'*')?.is_none() {
                return Ok(None);
            }
        }
        match self.string()? {
            Some(_) => self.length(b'*'),
            None => Ok(None),
        }
    }

    /// Reads an entry: its id, and its only field. Returns the id and the field's value.
    fn entry(&mut self) -> Result<Option<(Range<usize>, Range<usize>)>> {
        if self.length(b'*')?.is_none() {
            return Ok(None);
        }
        let Some(id) = self.string()? else { return Ok(None) };
        if self.length(b'*')?.is_none() || self.string()?.is_none() {
            return Ok(None);
        }
        Ok(self.string()?.map(|value| (id, value)))
    }
}

fn append_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn unexpected(bytes: &[u8]) -> MeasureError {
    let line = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
    MeasureError::fail(format!("expected an answer of redis-server, found {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_each_item_once_it_is_complete() {
        let (mut codec, ..) = RedisCodec::greeting(HostSide::B);
        let appended = &b"$3\r\n1-1\r\n"[..];
        let head = &b"*1\r\n*2\r\n$1\r\nB\r\n*2\r\n"[..];
        let entries = [
            &b"*2\r\n$3\r\n7-0\r\n*2\r\n$1\r\nm\r\n$3\r\nabc\r\n"[..],
            &b"*2\r\n$3\r\n7-1\r\n*2\r\n$1\r\nm\r\n$2\r\n\r\n\r\n"[..],
        ];
        let items = [appended, head, entries[0], entries[1]];
        let mut messages = Vec::new();
        for item in items {
            for cut in 0..item.len() {
                assert_eq!(
                    codec.decode(&item[..cut]),
                    Ok(Decoded::Incomplete),
                    "{cut} of {item:?}"
                );
            }
            match codec.decode(item).expect("valid") {
                Decoded::Message(range, used) => {
                    assert_eq!(used, item.len());
                    messages.push(&item[range]);
                }
                decoded => assert_eq!(decoded, Decoded::Other(item.len())),
            }
        }
        assert_eq!(messages, [&b"abc"[..], b"\r\n"]);
        let mut out = Vec::new();
        codec.request(&mut out);
        assert!(out.ends_with(b"$1\r\nB\r\n$3\r\n7-1\r\n"), "{out:?}");
        let asked = out.len();
        codec.request(&mut out);
        assert_eq!(out.len(), asked, "one request at a time");
        let refused = codec.decode(b"-OOM command not allowed\r\n").expect_err("an error");
        assert!(refused.why().contains("OOM"), "{refused}");
    }

    #[test]
    fn encodes_an_entry_for_the_other_host() {
        let (mut codec, ..) = RedisCodec::greeting(HostSide::A);
        let mut out = Vec::new();
        codec.encode(b"abc", &mut out);
        let expected = b"*5\r\n$4\r\nXADD\r\n$1\r\nB\r\n$1\r\n*\r\n$1\r\nm\r\n$3\r\nabc\r\n";
        assert_eq!(out, expected);
    }
}
