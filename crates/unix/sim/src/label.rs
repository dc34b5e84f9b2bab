//! The label of a fiber: the numbers of its process and its thread, in one word.

/// Returns the label by which the watchdog and a schedule name a thread.
pub(crate) fn label(pid: i32, tid: i32) -> usize {
    (pid as usize) << 32 | tid as usize
}

/// Returns the numbers in a label: process and thread.
pub fn named_by(label: usize) -> (i32, i32) {
    ((label >> 32) as i32, label as u32 as i32)
}
