//! The victim under `ptrace`: [`Victim`] walks through a marked operation, step by step or straight
//! to one point.
//!
//! [`trace`] holds the system calls, [`registers`] what depends on the processor, [`visible`] what
//! others can see of the victim, [`stores`] when that may have
//! changed, [`recording`] what a stepped run leaves, and [`log`] makes it.
//! Only the thread that called [`Victim::seize`] may use it; the victim's other threads run
//! untraced.
//!
//! It does not judge, and knows nothing of subjects: [`crate::explore`] does.

mod log;
pub(crate) mod recording;
mod registers;
mod stores;
mod trace;
mod victim;
mod visible;

pub(crate) use victim::{Detail, Pace, Reached, Release, Victim};
