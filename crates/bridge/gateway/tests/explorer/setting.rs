//! The parameters of a run, [`Setting`], with its [`TestMessage`]s; and a fast hash of states,
//! [`digest`].

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use tontine_gateway::frame::{HEADER, MAX_FRAME};

/// A message in the sender's lane.
pub(crate) struct TestMessage {
    pub(crate) position: u64,
    /// Position after the message.
    pub(crate) end: u64,
    pub(crate) content: Vec<u8>,
}

/// The parameters of a world that its actions do not change.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// `true` if the sender waits for a successor of its owner.
    pub(crate) waits: bool,
    /// Bytes that the receiving gateway grants.
    pub(crate) grant: u64,
    /// Number of unacknowledged messages that fit into the owner's lane.
    pub(crate) capacity: usize,
    /// Maximum number of frames in each direction of the network; more are lost.
    pub(crate) max_frames: usize,
    /// Maximum number of bytes of a frame.
    pub(crate) max_frame: usize,
    /// `true` if the sender sends one message after another, and not all before the run.
    pub(crate) publishes: bool,
    /// `true` if the receiving gateway sees at once what its owner does.
    pub(crate) sees_at_once: bool,
    /// Maximum number of owners, one after another, before all faults stop.
    pub(crate) max_owners: u8,
    pub(crate) messages: Vec<TestMessage>,
}

impl Setting {
    /// Returns two short messages with padding between the two, and space for everything.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            waits: false,
            grant: 64,
            capacity: usize::MAX,
            max_frames: 3,
            max_frame: MAX_FRAME,
            publishes: false,
            sees_at_once: true,
            max_owners: 3,
            messages: messages([(0, 5), (8, 5)]),
        }
    }

    /// Limits frames to 16 bytes of payload. The first record needs two frames.
    pub(crate) fn spanning(self) -> Self {
        let messages = messages([(0, 13), (8, 5)]);
        Self { max_frame: HEADER + 16, messages, ..self }
    }

    /// Returns the index of the message that ends at `end`.
    pub(crate) fn message_at(&self, end: u64) -> Option<u16> {
        let found = self.messages.binary_search_by_key(&end, |message| message.end);
        found.ok().map(|index| index as u16)
    }

    /// Returns the position after the first `count` messages.
    pub(crate) fn end_of(&self, count: u16) -> u64 {
        count.checked_sub(1).map_or(0, |last| self.messages[usize::from(last)].end)
    }

    /// Returns the length of the longest message.
    pub(crate) fn longest(&self) -> u64 {
        self.messages.iter().map(|message| message.content.len() as u64).max().unwrap_or(0)
    }
}

/// Returns messages with the given gaps before them and lengths, and with different contents.
pub(crate) fn messages(shape: impl IntoIterator<Item = (u64, usize)>) -> Vec<TestMessage> {
    let mut next = 0;
    let place = |(index, (gap, length)): (usize, (u64, usize))| {
        let position = next + gap;
        let end = position + 8 + length.next_multiple_of(8) as u64;
        next = end;
        let byte = |at: usize| (at % 251 + index) as u8;
        TestMessage { position, end, content: (0..length).map(byte).collect() }
    };
    shape.into_iter().enumerate().map(place).collect()
}

/// A setting that all states of a run share, and that their hashes omit.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Rc<Setting>);

impl Hash for Shared {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl std::ops::Deref for Shared {
    type Target = Setting;

    fn deref(&self) -> &Setting {
        &self.0
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns a hash of 64 bits. With 10 million states, the probability that two of them share a hash
/// is below 1 in 300,000.
pub(crate) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = FoldHasher(0x243f_6a88_85a3_08d3);
    value.hash(&mut hasher);
    hasher.finish()
}

/// Multiplies each word with the state to 128 bits, and adds the two halves.
struct FoldHasher(u64);

impl FoldHasher {
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(0xf39c_c060_5ced_c835);
    }
}

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.add(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.add(0);
        last.0
    }
}
