//! `nats`: a NATS server on host B, to which both programs publish and subscribe (core NATS,
//! without JetStream: a message is forgotten once it is forwarded).

use std::fs;
use std::path::Path;

use tontine_host::error::{ErrorContext, MeasureError, Result};

use super::coded_tcp::{Codec, Decoded};
use super::crossing::HostSide;
use super::server::MessageServer;

/// The client's protocol of NATS, for one subject in each direction.
pub(super) struct NatsCodec {
    /// The beginning of each publication.
    publish: String,
    /// `true` if the server has asked whether this program is alive.
    pinged: bool,
}

impl Codec for NatsCodec {
    fn encode(&mut self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.publish.as_bytes());
        out.extend_from_slice(message.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(message);
        out.extend_from_slice(b"\r\n");
    }

    fn decode(&mut self, received: &[u8]) -> Result<Decoded> {
        let Some(line) = received.windows(2).position(|two| two == b"\r\n") else {
            return Ok(Decoded::Incomplete);
        };
        let (text, begin) = (&received[..line], line + 2);
        if text.starts_with(b"MSG ") {
            let length = text.rsplit(|byte| *byte == b' ').next();
            let length = length.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
            let length: usize = length.ok_or_else(|| unexpected(text))?;
            let end = begin + length;
            let whole = end + 2 <= received.len();
            return Ok(if whole {
                Decoded::Message(begin..end, end + 2)
            } else {
                Decoded::Incomplete
            });
        }
        match text {
            b"PING" => self.pinged = true,
            b"PONG" => {}
            _ if text.starts_with(b"INFO ") => {}
            _ => return Err(unexpected(text)),
        }
        Ok(Decoded::Other(begin))
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.pinged) {
            out.extend_from_slice(b"PONG\r\n");
        }
    }
}

fn unexpected(text: &[u8]) -> MeasureError {
    let text = String::from_utf8_lossy(text);
    MeasureError::fail(format!("expected a message from nats-server, found {text:?}"))
}

impl MessageServer for NatsCodec {
    const PROGRAM: &'static str = "nats-server";

    fn arguments(folder: &Path) -> Result<Vec<String>> {
        // The server drops subscribers that are late by more bytes or by more time: the defaults
        // are 64 MiB and 10 s.
        let text = format!(
            "listen: \"{}\"\nmax_pending: 1073741824\nwrite_deadline: \"60s\"\n",
            HostSide::listener()
        );
        fs::write(folder.join("nats.conf"), text).setting_up("writing a file")?;
        Ok(vec!["--config".into(), "nats.conf".into()])
    }

    fn greeting(side: HostSide) -> (Self, String, &'static str) {
        let codec = Self { publish: format!("PUB {} ", side.other().name()), pinged: false };
        let options = "{\"verbose\":false,\"pedantic\":false}";
        (codec, format!("CONNECT {options}\r\nSUB {} 1\r\nPING\r\n", side.name()), "PONG\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_each_item_once_it_is_complete() {
        let (mut codec, ..) = NatsCodec::greeting(HostSide::A);
        let received = b"MSG A 1 3\r\nabc\r\nPING\r\n";
        for cut in 0..16 {
            assert_eq!(codec.decode(&received[..cut]), Ok(Decoded::Incomplete), "{cut}");
        }
        assert_eq!(codec.decode(received), Ok(Decoded::Message(11..14, 16)));
        let mut out = Vec::new();
        codec.request(&mut out);
        assert_eq!(codec.decode(&received[16..]), Ok(Decoded::Other(6)));
        codec.request(&mut out);
        assert_eq!(out, b"PONG\r\n");
        let refused = codec.decode(b"-ERR 'Slow Consumer'\r\n").expect_err("an error");
        assert!(refused.why().contains("Slow Consumer"), "{refused}");
    }

    #[test]
    fn encodes_a_publication_for_the_other_host() {
        let (mut codec, greeting, _) = NatsCodec::greeting(HostSide::A);
        assert!(greeting.contains("SUB A 1\r\n"), "{greeting}");
        let mut out = Vec::new();
        codec.encode(b"abc", &mut out);
        assert_eq!(out, b"PUB B 3\r\nabc\r\n");
    }
}
