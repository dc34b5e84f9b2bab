//! The state of a running gateway: [`GatewayStatus`], as JSON and as text.
//!
//! A gateway writes the JSON to each program that connects to its status socket; `tontine bridge
//! status` prints either form. Numbers of bytes and frames count from the start of the gateway.

use std::fmt::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a status, for readers.
pub const MAX_STATUS: u64 = 64 << 20;

/// Maximum width of the text in columns.
const WIDTH: usize = 100;

/// The state of one gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Name of the host.
    pub name: String,
    /// Name of the realm.
    pub realm: String,
    /// Name of the carrier: `tcp` or `zenoh`.
    pub carrier: String,
    /// Random number of this run of the gateway, in hexadecimal digits.
    pub instance: String,
    /// Process id of the gateway.
    pub pid: u32,
    /// Milliseconds since the gateway started.
    pub uptime_ms: u64,
    /// All configured peers.
    pub peers: Vec<PeerStatus>,
    /// All lanes that the gateway carries, exports first.
    pub lanes: Vec<LaneStatus>,
}

/// The state of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Name of the host.
    pub name: String,
    /// Result of the failure detector.
    pub state: PeerState,
    /// The last round trip of a ping in microseconds.
    pub rtt_us: Option<u64>,
    /// Milliseconds since the peer is suspected.
    pub suspected_for_ms: Option<u64>,
    /// Frames that the carrier took.
    pub frames_sent: u64,
    /// Valid frames that arrived.
    pub frames_received: u64,
    /// Frames that arrived and were dropped because they were invalid.
    pub faults: u64,
}

/// The failure detector's view of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// The peer answers pings.
    Connected,
    /// The peer answered earlier and is silent now.
    Suspected,
    /// The peer has not answered since this gateway started.
    NeverSeen,
}

impl fmt::Display for PeerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_words(self, f)
    }
}

/// The state of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// Whether the lane leads to this host or away from it.
    pub direction: LaneDirection,
    /// Name of the mailbox, as the exporting host calls it.
    pub mailbox: String,
    /// Name of the other host.
    pub peer: String,
    /// Number of the lane, in hexadecimal digits.
    pub lane: String,
    /// Process id of the local end: the sender of an import, the owner of an export. `None` if not
    /// known.
    pub pid: Option<u32>,
    /// Bytes that the gateway has read, from the sender or from the peer, and that the owner of the
    /// mailbox has not acknowledged. Bytes in the lane that no gateway has read are not counted.
    pub queued_bytes: u64,
    /// The part of `queued_bytes` that was passed on, to the peer or to the owner, which may have
    /// processed it.
    pub in_doubt_bytes: u64,
    /// Position up to which the receiver acknowledged.
    pub acked: u64,
    /// State of the lane.
    pub state: LaneState,
}

/// The direction of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaneDirection {
    /// From a program of the peer to a mailbox of this host.
    Export,
    /// From a program of this host to a mailbox of the peer.
    Import,
}

impl fmt::Display for LaneDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_words(self, f)
    }
}

/// The state of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaneState {
    /// The lane was offered, and the receiver has not accepted it.
    Greeting,
    /// The lane is open.
    Open,
    /// The lane is open, and the peer is silent.
    Suspected,
    /// The sender has ended, and its last messages are not acknowledged.
    Ending,
    /// The owner of the mailbox has died.
    OwnerDied,
    /// The owner has closed the mailbox.
    Closed,
    /// The owner, or its gateway, has refused the lane.
    Refused,
    /// The peer was silent for longer than `unreachable_after`.
    Unreachable,
    /// The peer has violated the protocol.
    Protocol,
}

impl fmt::Display for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_words(self, f)
    }
}

/// Writes the name of a state in JSON, with spaces instead of hyphens.
fn write_words(state: &impl Serialize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = serde_json::to_value(state).map_err(|_| fmt::Error)?;
    f.pad(&name.as_str().unwrap_or_default().replace('-', " "))
}

impl GatewayStatus {
    /// Returns the status as one line of JSON.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("names and numbers alone");
        text.push('\n');
        text
    }

    /// Reads a status that a gateway wrote.
    ///
    /// # Errors
    /// Returns the reason if the text is not the status of a gateway of this version.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| {
            format!("expected the status of a gateway of this version, found other text: {error}")
        })
    }

    /// Returns the status as text of at most 100 columns.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{} in realm {}, over {}\ninstance {}, process {}, up {}\n\n",
            self.name,
            self.realm,
            self.carrier,
            self.instance,
            self.pid,
            duration(self.uptime_ms)
        );
        if self.peers.is_empty() {
            text.push_str("No peers: the configuration names none in [peers].\n");
        } else {
            text.push_str(&aligned(&self.peer_rows(), &[1, 2, 3, 4, 5]));
        }
        text.push('\n');
        if self.lanes.is_empty() {
            text.push_str("No lanes: no program sends to an import, and no peer to an export.\n");
        } else {
            text.push_str(&aligned(&self.lane_rows(), &[3, 4, 5, 6]));
        }
        text
    }

    fn peer_rows(&self) -> Vec<Vec<String>> {
        let header = ["PEER", "RTT", "SENT", "RECEIVED", "FAULTS", "SILENT", "STATE"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.peers.iter().map(|peer| {
            vec![
                peer.name.clone(),
                peer.rtt_us.map_or_else(|| "-".into(), |us| format!("{us} µs")),
                peer.frames_sent.to_string(),
                peer.frames_received.to_string(),
                peer.faults.to_string(),
                peer.suspected_for_ms.map_or_else(|| "-".into(), duration),
                peer.state.to_string(),
            ]
        }));
        rows
    }

    fn lane_rows(&self) -> Vec<Vec<String>> {
        let header =
            ["LANE", "DIRECTION", "MAILBOX", "PID", "UNREAD", "IN DOUBT", "ACKED", "STATE"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.lanes.iter().map(|lane| {
            vec![
                lane.lane.chars().take(8).collect(),
                lane.direction.to_string(),
                match lane.direction {
                    LaneDirection::Import => format!("{}/{}", lane.peer, lane.mailbox),
                    LaneDirection::Export => format!("{} from {}", lane.mailbox, lane.peer),
                },
                lane.pid.map_or_else(|| "-".into(), |pid| pid.to_string()),
                bytes(lane.queued_bytes),
                bytes(lane.in_doubt_bytes),
                bytes(lane.acked),
                lane.state.to_string(),
            ]
        }));
        rows
    }
}

/// Returns the columns of a table, two spaces apart. Columns in `right` are aligned to the right.
/// If the table is too wide, its widest column is cut.
fn aligned(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width_of = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = (0..columns).map(width_of).collect();
    let excess = (widths.iter().sum::<usize>() + 2 * (columns - 1)).saturating_sub(WIDTH);
    if let Some(widest) = widths.iter_mut().max() {
        *widest = widest.saturating_sub(excess).max(1);
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = cut(cell, *width);
            let separator = if column == 0 { "" } else { "  " };
            let width = *width;
            let _ = if right.contains(&column) {
                write!(line, "{separator}{cell:>width$}")
            } else {
                write!(line, "{separator}{cell:<width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the text, cut to a number of characters. The end is kept: it tells mailboxes apart.
fn cut(cell: &str, width: usize) -> String {
    let length = cell.chars().count();
    if length <= width {
        return cell.to_owned();
    }
    let kept: String = cell.chars().skip(length - (width - 1)).collect();
    format!("…{kept}")
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut unit = 0;
    let mut size = count as f64 / 1024.0;
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

fn duration(milliseconds: u64) -> String {
    if milliseconds < 1000 {
        return format!("{milliseconds} ms");
    }
    humantime::format_duration(Duration::from_secs(milliseconds / 1000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> GatewayStatus {
        let lane = LaneStatus {
            direction: LaneDirection::Export,
            mailbox: "jobs".into(),
            peer: "hostA".into(),
            lane: "0123456789abcdef0123456789abcdef".into(),
            pid: Some(4711),
            queued_bytes: 1023,
            in_doubt_bytes: 0,
            acked: 5 << 30,
            state: LaneState::Open,
        };
        let import = LaneStatus {
            direction: LaneDirection::Import,
            pid: None,
            queued_bytes: 65_536,
            in_doubt_bytes: 1536,
            acked: u64::MAX,
            state: LaneState::OwnerDied,
            ..lane.clone()
        };
        let peer = PeerStatus {
            name: "hostA".into(),
            state: PeerState::Connected,
            rtt_us: Some(61),
            suspected_for_ms: None,
            frames_sent: 12_345,
            frames_received: 9,
            faults: 0,
        };
        let silent = PeerStatus {
            name: "host-with-a-long-name".into(),
            state: PeerState::Suspected,
            rtt_us: None,
            suspected_for_ms: Some(61_500),
            ..peer.clone()
        };
        GatewayStatus {
            name: "hostB".into(),
            realm: "plant".into(),
            carrier: "tcp".into(),
            instance: "00ff".into(),
            pid: 99,
            uptime_ms: 3_600_000,
            peers: vec![peer, silent],
            lanes: vec![lane, import],
        }
    }

    #[test]
    fn text_is_an_aligned_table() {
        let expected = "\
hostB in realm plant, over tcp
instance 00ff, process 99, up 1h

PEER                     RTT   SENT  RECEIVED  FAULTS  SILENT  STATE
hostA                  61 µs  12345         9       0       -  connected
host-with-a-long-name      -  12345         9       0   1m 1s  suspected

LANE      DIRECTION  MAILBOX           PID    UNREAD  IN DOUBT     ACKED  STATE
01234567  export     jobs from hostA  4711    1023 B       0 B   5.0 GiB  open
01234567  import     hostA/jobs          -  64.0 KiB   1.5 KiB  16.0 EiB  owner died
";
        assert_eq!(example().to_text(), expected);
    }

    #[test]
    fn text_without_peers_and_lanes_says_so() {
        let text = GatewayStatus { peers: Vec::new(), lanes: Vec::new(), ..example() }.to_text();
        assert!(text.contains("\nNo peers: "), "{text}");
        assert!(
            text.ends_with(
                "\nNo lanes: no program sends to an import, and no peer to an export.\n"
            )
        );
    }

    #[test]
    fn text_fits_100_columns() {
        let mut status = example();
        for lane in &mut status.lanes {
            (lane.peer, lane.mailbox) = ("p".repeat(63), "ü".repeat(63));
            (lane.pid, lane.queued_bytes) = (Some(u32::MAX), 1023);
            lane.state = LaneState::Unreachable;
        }
        for peer in &mut status.peers {
            peer.name = "n".repeat(63);
            (peer.frames_sent, peer.frames_received) = (u64::MAX / 1000, u64::MAX / 1000);
        }
        let text = status.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains('…'), "{text}");
    }

    #[test]
    fn json_is_read_again() {
        let status = example();
        let json = status.to_json();
        assert!(json.contains(r#""state":"connected""#) && json.ends_with("}\n"), "{json}");
        assert!(json.contains(r#""state":"owner-died""#), "{json}");
        assert_eq!(GatewayStatus::from_json(json.as_bytes()), Ok(status));
        let error = GatewayStatus::from_json(b"hello").expect_err("not JSON");
        assert!(error.starts_with("expected the status of a gateway of this version"), "{error}");
    }

    #[test]
    fn sizes_have_units() {
        let sizes = [0, 1023, 1024, (1 << 20) - 1, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 MiB", "16.0 EiB"]);
    }
}
