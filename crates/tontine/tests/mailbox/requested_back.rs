//! A sender's view of a receiver that asks for memory back: [`until_requested_back`].

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::{mappings, until};

/// Offset of the state in a control page.
const STATE_AT: u64 = 64;

/// Bit of the state with which the receiver asks for the large chunk.
const GIVE_BACK: u32 = 2;

/// Size of the smallest chunk, for which a receiver does not ask.
const SMALL: u64 = 4096;

/// Waits until the receiver of this process's only lane has asked for the lane's large chunk, or
/// until the lane has no large chunk any more. The sender gives the chunk back in its next call.
pub(crate) fn until_requested_back() {
    until("the receiver asks for the large chunk", || {
        let memory = File::open("/proc/self/mem").expect("the memory of this process");
        let is_requested = mappings("tontine-lane").iter().any(|[base, _]| {
            let mut state = [0; 4];
            memory.read_exact_at(&mut state, base + STATE_AT).expect("a control page");
            u32::from_ne_bytes(state) & GIVE_BACK != 0
        });
        is_requested || mappings("tontine-chunk").iter().all(|[base, end]| end - base <= SMALL)
    });
}
