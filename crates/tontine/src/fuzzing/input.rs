//! Decoding of arbitrary bytes as numbers: [`FuzzInput`]. Bytes after the end of the input read as
//! zero.

/// The part of the input that has not been consumed yet.
pub(super) struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.some::<1>()[0]
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.some())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.some())
    }

    /// Takes at most `most` bytes.
    pub(super) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn some<const N: usize>(&mut self) -> [u8; N] {
        let mut some = [0; N];
        let taken = self.bytes(N);
        some[..taken.len()].copy_from_slice(taken);
        some
    }
}
