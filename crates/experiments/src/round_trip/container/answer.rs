//! Transfer of a client's samples out of its container: [`write`](write()) and [`read`].
//!
//! One line of JSON states the number of samples, or the reason for their absence. The samples
//! follow in order, eight little-endian bytes each. The bytes from a container are untrusted until
//! [`read`] has counted them.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use tontine_host::error::{MeasureError, Result};

use super::super::Timed;

/// Size of a sample in bytes.
const SAMPLE: usize = size_of::<f64>();
/// Maximum number of characters of an invalid answer that are shown.
const SHOWN: usize = 60;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
enum FirstLine {
    /// Number of samples that follow.
    Samples(usize),
    /// The machine lacks a requirement.
    Skipped(String),
    /// The measurement failed.
    Failed(String),
}

/// Writes a client's result.
pub(super) fn write(out: &mut impl Write, measured: &Result<Timed>) -> io::Result<()> {
    let (head, samples) = match measured {
        Ok(timed) => (FirstLine::Samples(timed.one_way.len()), &timed.one_way[..]),
        Err(MeasureError::Skipped(why)) => (FirstLine::Skipped(why.clone()), &[][..]),
        Err(MeasureError::Failed(why)) => (FirstLine::Failed(why.clone()), &[][..]),
    };
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    out.write_all(&bytes)?;
    out.flush()
}

/// Reads a client's result.
///
/// # Errors
/// The client's own error, and `Failed` if the bytes are not a complete answer.
pub(super) fn read(bytes: &[u8]) -> Result<Timed> {
    let strange = |what: &str| {
        let start: String = String::from_utf8_lossy(bytes).chars().take(SHOWN).collect();
        MeasureError::fail(format!("the client's answer {what}: {start:?}"))
    };
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let (head, body) = bytes.split_at(end.ok_or_else(|| strange("has no first line"))?);
    let body = &body[1..];
    match serde_json::from_slice(head).map_err(|_| strange("has an invalid first line"))? {
        FirstLine::Skipped(why) => Err(MeasureError::Skipped(why)),
        FirstLine::Failed(why) => Err(MeasureError::Failed(why)),
        FirstLine::Samples(count) if count.checked_mul(SAMPLE) != Some(body.len()) => {
            let found = body.len();
            Err(MeasureError::fail(format!(
                "the client's answer has {found} bytes for {count} samples"
            )))
        }
        FirstLine::Samples(_) => {
            let (samples, _) = body.as_chunks::<SAMPLE>();
            let one_way = samples.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
            Ok(Timed { one_way, batch: 1, single: Vec::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(measured: &Result<Timed>) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, measured).expect("a vector can be written");
        bytes
    }

    #[test]
    fn container_answer_round_trips_samples_and_errors() {
        let one_way = vec![1.5, -0.25, 1e9, f64::MIN_POSITIVE];
        let sent = Timed { one_way: one_way.clone(), batch: 1, single: Vec::new() };
        assert_eq!(read(&written(&Ok(sent))).expect("samples").one_way, one_way);
        for trouble in [MeasureError::skip("no\nprocessor"), MeasureError::fail("broke \"off\"")] {
            assert_eq!(read(&written(&Err(trouble.clone()))).err(), Some(trouble));
        }
    }

    #[test]
    fn truncated_container_answer_fails() {
        let sent = Timed { one_way: vec![1.0; 3], batch: 1, single: Vec::new() };
        let whole = written(&Ok(sent));
        for length in 0..whole.len() {
            assert!(
                matches!(read(&whole[..length]), Err(MeasureError::Failed(_))),
                "{length} bytes"
            );
        }
        for strange in [&b"exec format error\n"[..], b"{\"Samples\":18446744073709551615}\n"] {
            assert!(matches!(read(strange), Err(MeasureError::Failed(_))), "{strange:?}");
        }
    }
}
