//! How a shared heap looked at one moment: [`HeapMap`], which a run records and the report draws.
//!
//! It has names in place of pids, whose meaning is lost when the report is read.

use serde::{Deserialize, Serialize};

/// Bytes of a slab, as the heap divides its memory.
pub const SLAB: usize = 64 << 10;

/// A heap at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapMap {
    /// Which moment, in words.
    pub moment: String,
    /// What has to be said of it: what was done, what is wrong.
    pub notes: Vec<String>,
    /// Who has a part of it, or had: slabs name them by their place here.
    pub members: Vec<HeapMember>,
    /// Slabs in order, as far as the last one that has memory.
    pub slabs: Vec<Slab>,
    /// Slabs behind these, all without memory.
    pub beyond: usize,
}

/// A member of the heap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapMember {
    /// What it is called.
    pub name: String,
    /// It has ended.
    pub dead: bool,
}

/// A slab; what is left out is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slab {
    /// What is made of it.
    pub made: Made,
    /// Bytes of one of its blocks.
    #[serde(skip_serializing_if = "is_zero")]
    pub block: usize,
    /// Who allocates from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<usize>,
    /// Who has blocks, and bytes in these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<(usize, usize)>,
    /// Of these, bytes that are kept by a handle alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub parked: usize,
    /// Of these, bytes that all may read.
    #[serde(skip_serializing_if = "is_zero")]
    pub published: usize,
    /// Bytes that are on their way.
    #[serde(skip_serializing_if = "is_zero")]
    pub in_flight: usize,
    /// Bytes that are free.
    #[serde(skip_serializing_if = "is_zero")]
    pub free: usize,
}

/// What is made of a slab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Made {
    /// It has no memory.
    #[default]
    Empty,
    /// Its memory is being fetched.
    Fetched,
    /// Blocks.
    Blocks,
    /// The part of a block that begins in a slab before it.
    Part,
    /// Its memory is being given back.
    Punched,
    /// Its entry is damaged.
    Damaged,
}

fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

impl HeapMap {
    /// Bytes of all slabs that one of them has.
    pub fn held_by(&self, member: usize) -> usize {
        let held = self.slabs.iter().flat_map(|slab| &slab.held);
        held.filter(|(one, _)| *one == member).map(|(_, bytes)| bytes).sum()
    }

    /// Slabs that have memory.
    pub fn committed(&self) -> usize {
        self.slabs.iter().filter(|slab| slab.made != Made::Empty).count()
    }
}
