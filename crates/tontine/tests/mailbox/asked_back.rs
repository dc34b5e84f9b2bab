//! A sender's view of a receiver that asks for memory back: [`until_asked_back`].

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::until;

/// Offset of the state in a control page.
const STATE_AT: u64 = 64;

/// Bit of the state with which the receiver asks for the large chunk.
const GIVE_BACK: u32 = 2;

/// Size of the smallest chunk, for which a receiver does not ask.
const SMALL: u64 = 4096;

/// Waits until the receiver of this process's only lane has asked for the lane's large chunk, or
/// until the lane has no large chunk any more. The sender gives the chunk back in its next call.
pub(crate) fn until_asked_back() {
    until("the receiver asks for the large chunk", || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let memory = File::open("/proc/self/mem").expect("the memory of this process");
        let range = |line: &str| {
            let (base, rest) = line.split_once('-').expect("a range");
            let end = rest.split(' ').next().expect("its end");
            [base, end].map(|hex| u64::from_str_radix(hex, 16).expect("an address"))
        };
        let ranges =
            |name: &'static str| maps.lines().filter(move |line| line.contains(name)).map(range);
        let is_asked = ranges("tontine-lane").any(|[base, _]| {
            let mut state = [0; 4];
            memory.read_exact_at(&mut state, base + STATE_AT).expect("a control page");
            u32::from_ne_bytes(state) & GIVE_BACK != 0
        });
        is_asked || ranges("tontine-chunk").all(|[base, end]| end - base <= SMALL)
    });
}
