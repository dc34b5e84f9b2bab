//! The state of a shared heap at one moment: [`HeapMap`], which a run records and the report draws.
//!
//! The map contains names instead of pids, which would have no meaning when the report is read.

use serde::{Deserialize, Serialize};

/// Size of a slab in bytes, the unit in which the heap divides its memory.
pub const SLAB: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapMap {
    /// Description of the moment.
    pub moment: String,
    /// Remarks on what was done and what is wrong.
    pub notes: Vec<String>,
    /// Processes that have or had a part of the heap; slabs refer to them by index.
    pub members: Vec<HeapMember>,
    /// Slabs in order, up to the last slab that has memory.
    pub slabs: Vec<MappedSlab>,
    /// Number of slabs after these, none of which has memory.
    pub beyond: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapMember {
    pub name: String,
    pub dead: bool,
}

/// A slab. Omitted fields are 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MappedSlab {
    pub made: SlabUse,
    /// Size of each of its blocks in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub block: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<usize>,
    /// Members that have blocks in the slab, and the number of bytes in these blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<(usize, usize)>,
    /// Number of these bytes that are kept only by a handle.
    #[serde(skip_serializing_if = "is_zero")]
    pub parked: usize,
    /// Number of these bytes that all members may read.
    #[serde(skip_serializing_if = "is_zero")]
    pub published: usize,
    #[serde(skip_serializing_if = "is_zero")]
    pub in_flight: usize,
    #[serde(skip_serializing_if = "is_zero")]
    pub free: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlabUse {
    #[default]
    Empty,
    /// Memory for the slab is being allocated.
    Fetched,
    /// The slab contains blocks.
    Blocks,
    /// The slab is a part of a block that begins in an earlier slab.
    Part,
    /// The slab's memory is being returned to the system.
    Punched,
    Damaged,
}

fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

impl HeapMap {
    pub fn held_by(&self, member: usize) -> usize {
        let held = self.slabs.iter().flat_map(|slab| &slab.held);
        held.filter(|(one, _)| *one == member).map(|(_, bytes)| bytes).sum()
    }

    pub fn committed(&self) -> usize {
        self.slabs.iter().filter(|slab| slab.made != SlabUse::Empty).count()
    }
}
